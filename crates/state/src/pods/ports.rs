//! Host ports, which two pods on one node cannot share.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use mortise_apis::k8s::PodSpec;
use mortise_apis::k8s::pod::ContainerPort;

/// Address, port and protocol of the node that a pod uses exclusively.
///
/// # Shape
/// The address is `None` if its text is no IP address; IPv4 inside IPv6 counts as IPv4.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    ip: Option<IpAddr>,
    port: i32,
    protocol: Arc<str>,
}

impl HostPort {
    /// The host port of a container port; `None` if it has none.
    #[must_use]
    pub fn from_container_port(port: &ContainerPort) -> Option<Self> {
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

    /// Host ports that a pod uses while it runs: those of its containers and sidecars. Sorted, unique.
    ///
    /// Unlike Karpenter, which ignores sidecars; other init containers release theirs before the pod runs.
    #[must_use]
    pub fn from_spec(spec: &PodSpec) -> Vec<Self> {
        let sidecars = spec
            .init_containers
            .iter()
            .filter(|each| each.restart_policy.as_deref() == Some("Always"));
        let all = spec
            .containers
            .iter()
            .chain(sidecars)
            .flat_map(|each| &each.ports);
        let mut ports: Vec<Self> = all.filter_map(Self::from_container_port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Whether one node cannot provide both: same port and protocol, and the same address or any address.
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
