//! Everything the shell is told at start. Plain data: flags and environment variables are read by the binary.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use mortise_planning::settings::Settings;

/// Name of the Lease that Karpenter uses too, so that the two never act at the same time.
pub const LEASE_NAME: &str = "karpenter-leader-election";

/// Configuration of a running service.
#[derive(Clone, Debug)]
pub struct Config {
    /// Version shown in metrics and logs.
    pub version: String,
    /// What deciders depend on.
    pub settings: Settings,
    /// Where to listen.
    pub listen: Listen,
    /// Certificates of the HTTPS listener.
    pub certificates: CertificateSource,
    /// Names (DNS names and IP addresses) for the server certificate besides the standard ones.
    pub server_names: Vec<String>,
    /// Common or DNS names of client certificates that may call the extender and the debug paths.
    pub extender_clients: Vec<String>,
    /// How API servers show who they are to admission; `None` = whoever asks is told facts of the cluster.
    pub admission_clients: Option<AdmissionClients>,
    /// Debug paths need no token. Only accepted when the HTTPS listener is bound to a loopback address.
    pub insecure_debug: bool,
    /// Admission refuses, instead of warns about, a pool that no instance type can satisfy.
    pub deny_unsatisfiable: bool,
    /// Conversion between versions is served. An API server asks for it only where the definitions name it.
    pub conversion: bool,
    /// Leader election; `None` = this process is the only one.
    pub leader_election: Option<LeaderElection>,
    /// Namespace of the Secret and the Lease when those do not name one; `None` = the service account's, or the
    /// kubeconfig context's.
    pub namespace: Option<String>,
    /// Calls to the API server per second, in the long run (`kube-client-qps`).
    pub kube_client_qps: f64,
    /// Calls to the API server that may be made at once (`kube-client-burst`).
    pub kube_client_burst: u32,
    /// How much metrics and events tell.
    pub detail: TelemetryDetail,
    /// Most concurrent launches per process.
    pub max_launches: usize,
    /// Longest time that a shutdown may take before it is cut short.
    pub shutdown_timeout: Duration,
    /// The effective flags, as shown by `/debug/config`. No secrets in here.
    pub effective: serde_json::Value,
    /// Fixes every choice that is left to chance.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: Settings::default(),
            listen: Listen::default(),
            certificates: CertificateSource::default(),
            server_names: Vec::new(),
            extender_clients: default_extender_clients(),
            admission_clients: None,
            insecure_debug: false,
            deny_unsatisfiable: false,
            conversion: false,
            leader_election: Some(LeaderElection::default()),
            namespace: None,
            kube_client_qps: 200.0,
            kube_client_burst: 300,
            detail: TelemetryDetail::Bounded,
            max_launches: 16,
            shutdown_timeout: Duration::from_secs(20),
            effective: serde_json::Value::Null,
            seed: 0,
        }
    }
}

/// How much metrics and events tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TelemetryDetail {
    /// What does not grow with the cluster: some 2,000 series at most, no event for every condition of every claim.
    #[default]
    Bounded,
    /// Everything that Karpenter tells: series for each node, pod, claim, pool and offering, and its buckets.
    Full,
}

/// Names that a client certificate of the extender CA may carry: the one issued here, and kube-scheduler's own.
#[must_use]
pub fn default_extender_clients() -> Vec<String> {
    [
        "mortise-extender-client",
        "system:kube-scheduler",
        "kube-scheduler",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// How API servers show who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionClients {
    /// File with the CA certificates that sign their client certificates.
    pub ca: PathBuf,
    /// Common or DNS names of these certificates; empty = whatever the CA signed.
    pub names: Vec<String>,
}

/// Addresses to listen on. Port 0 takes any free port; [`crate::RunningService::addresses`] tells which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Extender, webhooks, debug paths and page.
    pub https: SocketAddr,
    /// `/metrics`.
    pub metrics: SocketAddr,
    /// `/healthz` and `/readyz`.
    pub health: SocketAddr,
}

impl Listen {
    /// Every listener on one address with any free port.
    #[must_use]
    pub const fn any_port(ip: std::net::IpAddr) -> Self {
        let any = SocketAddr::new(ip, 0);
        Self {
            https: any,
            metrics: any,
            health: any,
        }
    }
}

impl Default for Listen {
    fn default() -> Self {
        let on = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        Self {
            https: on(8443),
            metrics: on(8080),
            health: on(8081),
        }
    }
}

/// Where certificates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// A Secret that this service makes and renews. It lies in [`Config::namespace`].
    Secret {
        /// Name of the Secret.
        name: String,
        /// Name of the Service in front of the replicas; its DNS names go into the certificate.
        service: String,
    },
    /// A directory. Files that are missing are made, unless `tls.crt` and `tls.key` are there without `ca.key`: then
    /// somebody else manages them, and they are only read.
    Directory(PathBuf),
    /// Certificates live in memory and are new at every start. For trials.
    Memory,
}

impl Default for CertificateSource {
    fn default() -> Self {
        Self::Secret {
            name: "mortise-cert".to_owned(),
            service: "mortise".to_owned(),
        }
    }
}

/// Which Lease decides who acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// Name of the Lease.
    pub name: String,
    /// Namespace of the Lease; `None` = [`Config::namespace`].
    pub namespace: Option<String>,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            name: LEASE_NAME.to_owned(),
            namespace: None,
        }
    }
}
