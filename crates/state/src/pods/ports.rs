//! Host ports: what two pods cannot both have on one node.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use mortise_apis::k8s::PodSpec;
use mortise_apis::k8s::pod::ContainerPort;

/// An address, port and protocol of the node that a pod takes for itself.
///
/// # Shape
/// The address is `None` when its text is no IP address; IPv4 inside IPv6 counts as IPv4.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    ip: Option<IpAddr>,
    port: i32,
    protocol: Arc<str>,
}

impl HostPort {
    /// The host port of a container port; `None` when it asks for none.
    #[must_use]
    pub fn of(port: &ContainerPort) -> Option<Self> {
        if port.host_port == 0 {
            return None;
        }
        let ip = if port.host_ip.is_empty() {
            Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
        } else {
            port.host_ip
                .parse()
                .ok()
                .map(|ip: IpAddr| ip.to_canonical())
        };
        Some(Self {
            ip,
            port: port.host_port,
            protocol: port.protocol.as_str().into(),
        })
    }

    /// The host ports that a pod holds as long as it runs: those of its containers and of its sidecars. Sorted, unique.
    ///
    /// Unlike upstream, which overlooks sidecars; other init containers give theirs back before the pod runs.
    #[must_use]
    pub fn of_spec(spec: &PodSpec) -> Vec<Self> {
        let sidecars = spec
            .init_containers
            .iter()
            .filter(|each| each.restart_policy.as_deref() == Some("Always"));
        let all = spec
            .containers
            .iter()
            .chain(sidecars)
            .flat_map(|each| &each.ports);
        let mut ports: Vec<Self> = all.filter_map(Self::of).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Whether both cannot be had on one node: same port and protocol, and the same address or any address.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        let any = |ip: Option<IpAddr>| ip.is_some_and(|ip| ip.is_unspecified());
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || any(self.ip) || any(other.ip))
    }

    /// The first pair that conflicts: one of `asked`, one of `taken`.
    pub fn conflict<'a>(asked: &'a [Self], taken: &'a [Self]) -> Option<(&'a Self, &'a Self)> {
        asked
            .iter()
            .find_map(|a| taken.iter().find(|t| a.conflicts(t)).map(|t| (a, t)))
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IP=")?;
        match self.ip {
            Some(ip) => write!(f, "{ip}")?,
            None => f.write_str("<nil>")?,
        }
        write!(f, " Port={} Proto={}", self.port, self.protocol)
    }
}

impl Serialize for HostPort {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
