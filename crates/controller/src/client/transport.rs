//! HTTP/2 to the API server: one connection for all concurrent requests.
//!
//! The client library uses HTTP/1.1 only, which opens a connection for each concurrent request: creating a thousand nodes at
//! once opened hundreds of them, each with its buffers, keys and handshake.

use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use tower::util::BoxCloneService;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

/// Interval of HTTP/2 pings, and their timeout. A request that times out does not close a shared connection, so a dead one
/// would be used until the kernel's timeout.
const PING: Ping = Ping {
    every: Duration::from_secs(10),
    within: Duration::from_secs(10),
};

/// Flow-control windows of the connection and of one stream. A watch that is not read for some time must not block the others,
/// so the window of the connection covers many full streams.
const CONNECTION_WINDOW: u32 = 64 << 20;
const STREAM_WINDOW: u32 = 1 << 20;

#[derive(Clone, Copy)]
struct Ping {
    every: Duration,
    within: Duration,
}

/// Requests with the headers of the configuration, as the client library's own service sends them.
pub(crate) type KubeTransport =
    BoxCloneService<http::Request<Body>, http::Response<hyper::body::Incoming>, BoxError>;

/// A client with HTTP/2 for servers that offer it, and HTTP/1.1 for others. Sends nothing yet.
///
/// # Errors
/// Credentials or certificates that cannot be used.
pub(crate) fn client(config: &kube::Config) -> Result<ClientBuilder<KubeTransport>, kube::Error> {
    keep_alive_config(config, PING)
}

fn keep_alive_config(
    config: &kube::Config,
    ping: Ping,
) -> Result<ClientBuilder<KubeTransport>, kube::Error> {
    let mut connector = TimeoutConnector::new(tls(config)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let client: Client<_, Body> = Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(ping.every)
        .http2_keep_alive_timeout(ping.within)
        .http2_keep_alive_while_idle(true)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client)
        .boxed_clone();
    Ok(ClientBuilder::new(
        service,
        config.default_namespace.clone(),
    ))
}

/// TLS as configured, with both versions of HTTP offered.
fn tls(config: &kube::Config) -> Result<HttpsConnector<HttpConnector>, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let mut builder = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name
            .clone()
            .try_into()
            .map_err(|error| kube::Error::Service(Box::new(error)))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_http1().enable_http2().wrap_connector(tcp))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response, Version};
    use http_body_util::Full;
    use hyper::body::{Bytes, Incoming};
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use hyper_util::server::conn::auto::Builder;
    use k8s_openapi::api::core::v1::Node;
    use kube::api::Api;
    use tokio::net::TcpListener;
    use tokio::sync::Barrier;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::pem;
    use crate::tls::Tls;
    use crate::tls::certificates;

    /// A test server: it responds to each request for a node with one that is named after the version of HTTP and whose UID is
    /// the number of the connection, as soon as `together` requests are in flight.
    struct Server {
        config: kube::Config,
        connections: Arc<AtomicUsize>,
    }

    impl Server {
        /// `dead` = number of first connections that are silent after the handshake.
        async fn start(alpn: &'static [&'static str], together: usize, dead: usize) -> Self {
            // Tests share a process: the second caller finds it installed.
            rustls::crypto::aws_lc_rs::default_provider()
                .install_default()
                .ok();
            let files = certificates::in_memory(&[], jiff::Timestamp::now()).unwrap();
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let url = format!(
                "https://localhost:{}",
                listener.local_addr().unwrap().port()
            );
            let mut config = kube::Config::new(url.parse().unwrap());
            config.root_cert = Some(
                pem::chain(&files[pem::CA_CERT])
                    .unwrap()
                    .iter()
                    .map(|cert| cert.to_vec())
                    .collect(),
            );
            let tls = Tls::new();
            tls.load(&files).unwrap();
            let mut server = rustls::ServerConfig::clone(&tls.current().unwrap().config);
            server.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
            let acceptor = TlsAcceptor::from(Arc::new(server));
            let connections = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&connections);
            let barrier = Arc::new(Barrier::new(together));
            tokio::spawn(async move {
                let mut silent = Vec::new();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let number = counted.fetch_add(1, Ordering::SeqCst);
                    let Ok(stream) = acceptor.accept(stream).await else {
                        continue;
                    };
                    if number < dead {
                        silent.push(stream);
                        continue;
                    }
                    let barrier = Arc::clone(&barrier);
                    tokio::spawn(async move {
                        let answer = service_fn(move |request: Request<Incoming>| {
                            let barrier = Arc::clone(&barrier);
                            async move {
                                barrier.wait().await;
                                Ok::<_, Infallible>(node(request.version(), number))
                            }
                        });
                        Builder::new(TokioExecutor::new())
                            .serve_connection(TokioIo::new(stream), answer)
                            .await
                    });
                }
            });
            Self {
                config,
                connections,
            }
        }
    }

    fn node(version: Version, connection: usize) -> Response<Full<Bytes>> {
        let name = format!("{version:?}").replace('/', "-").to_lowercase();
        let metadata = serde_json::json!({ "name": name, "uid": connection.to_string() });
        let node = serde_json::json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata });
        Response::new(Full::new(Bytes::from(node.to_string())))
    }

    #[tokio::test]
    async fn concurrent_requests_share_a_connection() {
        let server = Server::start(&["h2", "http/1.1"], 30, 0).await;
        let client = client(&server.config).unwrap().build();
        // Two waves: while the server's protocol is unknown, a few connections are opened and one is kept.
        for wave in 0..2 {
            let nodes: Api<Node> = Api::all(client.clone());
            let answers = futures::future::join_all((0..30).map(|_| nodes.get("any"))).await;
            let mut used = BTreeSet::new();
            for answer in answers {
                let metadata = answer.unwrap().metadata;
                assert_eq!(metadata.name.as_deref(), Some("http-2.0"));
                used.extend(metadata.uid);
            }
            assert!(wave == 0 || used.len() == 1, "{used:?}");
        }
    }

    #[tokio::test]
    async fn http_1_servers_are_supported() {
        for offered in [&["http/1.1"][..], &[]] {
            let server = Server::start(offered, 3, 0).await;
            let nodes: Api<Node> = Api::all(client(&server.config).unwrap().build());
            let answers = futures::future::join_all((0..3).map(|_| nodes.get("any"))).await;
            for answer in answers {
                assert_eq!(answer.unwrap().metadata.name.as_deref(), Some("http-1.1"));
            }
            assert_eq!(server.connections.load(Ordering::SeqCst), 3);
        }
    }

    #[tokio::test]
    async fn a_connection_without_response_is_closed() {
        let server = Server::start(&["h2"], 1, 1).await;
        let ping = Ping {
            every: Duration::from_millis(100),
            within: Duration::from_millis(100),
        };
        let nodes: Api<Node> = Api::all(keep_alive_config(&server.config, ping).unwrap().build());
        assert!(nodes.get("any").await.is_err(), "the first is dead");
        let answer = nodes.get("any").await.unwrap();
        assert_eq!(answer.metadata.name.as_deref(), Some("http-2.0"));
        assert_eq!(server.connections.load(Ordering::SeqCst), 2);
    }
}
