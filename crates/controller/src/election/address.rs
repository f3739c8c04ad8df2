//! The address at which other replicas reach this one.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Uri;
use tokio::net::UdpSocket;

/// The address of a listener as others see it. One that listens on all addresses is reached at the one from which this process
/// reaches the API server: in a pod, the pod's. `None`, with a warning, if that is not known; calls are then answered by the
/// replicas that they reach.
pub(super) async fn reachable(listens: SocketAddr, server: &str) -> Option<SocketAddr> {
    if !listens.ip().is_unspecified() {
        return Some(listens);
    }
    match source_address(server).await {
        Ok(own) => Some(SocketAddr::new(own.ip(), listens.port())),
        Err(error) => {
            tracing::warn!(server, %error, "own address is unknown, calls of schedulers that reach other replicas are not forwarded to this one");
            None
        }
    }
}

/// The source address of packets to a server. Nothing is sent: a datagram socket has it as soon as it has a destination.
async fn source_address(server: &str) -> std::io::Result<SocketAddr> {
    let invalid = |message: &str| std::io::Error::new(std::io::ErrorKind::InvalidInput, message);
    let uri: Uri = server.parse().map_err(|_| invalid("not a URL"))?;
    let host = uri.host().ok_or_else(|| invalid("a URL without host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(443);
    let mut destinations = tokio::net::lookup_host((host, port)).await?;
    let destination = destinations
        .next()
        .ok_or_else(|| invalid("a host without address"))?;
    let any = match destination {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(destination).await?;
    socket.local_addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_on_all_addresses_is_reached_where_this_process_comes_from() {
        let table = [
            (
                "10.0.0.7:8443",
                "https://10.96.0.1:443",
                Some("10.0.0.7:8443"),
            ),
            (
                "0.0.0.0:8443",
                "https://127.0.0.1:6443",
                Some("127.0.0.1:8443"),
            ),
            (
                "[::]:8443",
                "https://127.0.0.1:6443/",
                Some("127.0.0.1:8443"),
            ),
            ("0.0.0.0:8443", "no URL", None),
        ];
        for (listens, server, expected) in table {
            let found = reachable(listens.parse().unwrap(), server).await;
            assert_eq!(
                found,
                expected.map(|text| text.parse().unwrap()),
                "{listens} {server}"
            );
        }
    }
}
