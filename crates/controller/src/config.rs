//! Configuration of the controller. Plain data: the binary reads flags and environment variables.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mortise_apis::node_class::NodeClassRegistry;
use mortise_planning::scheduling::SchedulerConfig;
use mortise_planning::settings::Settings;

/// Name of the Lease that Karpenter uses too, so that the two never run at the same time.
pub const LEASE_NAME: &str = "karpenter-leader-election";

/// Configuration of a running service.
#[derive(Clone, Debug)]
pub struct Config {
    /// Version shown in metrics and logs.
    pub version: String,
    /// Settings of the deciders.
    pub settings: Settings,
    /// Addresses to listen on.
    pub listen: Listen,
    /// Certificates of the HTTPS listener.
    pub certificates: CertificateSource,
    /// Names (DNS names and IP addresses) for the server certificate, in addition to the default ones.
    pub server_names: Vec<String>,
    /// Common or DNS names of client certificates that may call the extender and the debug paths.
    pub extender_clients: Vec<String>,
    /// How API servers authenticate to admission; `None` = every caller gets facts of the cluster in responses.
    pub admission_clients: Option<AdmissionClients>,
    /// Debug paths need no token. Only accepted when the HTTPS listener is bound to a loopback address.
    pub insecure_debug: bool,
    /// Admission denies, instead of warns about, a NodePool that no instance type satisfies.
    pub deny_unsatisfiable: bool,
    /// Node classes of all providers, also those that are not served.
    pub node_classes: NodeClassRegistry,
    /// Serve conversion between versions. An API server calls it only if the CRDs name it.
    pub conversion: bool,
    /// Leader election; `None` = this process is the only one.
    pub leader_election: Option<LeaderElection>,
    /// Namespace of the Secret and the Lease without a namespace of their own; `None` = that of the service account or of the
    /// kubeconfig context.
    pub namespace: Option<String>,
    /// Sustained calls to the API server per second (`kube-client-qps`).
    pub kube_client_qps: f64,
    /// Burst of calls to the API server (`kube-client-burst`).
    pub kube_client_burst: u32,
    /// Detail of metrics and events.
    pub detail: TelemetryDetail,
    /// Key of the label of pods by whose values costs are divided.
    pub cost_label: Option<Arc<str>>,
    /// Which events are notified, and where; `None` = none.
    pub notifications: Option<NotificationConfig>,
    /// Where traces are sent; `None` = nowhere.
    pub traces: Option<TraceConfig>,
    /// Most concurrent launches per process.
    pub max_launches: usize,
    /// Longest duration of a shutdown.
    pub shutdown_timeout: Duration,
    /// The effective flags, as shown by `/debug/config`. No secrets in here.
    pub effective: serde_json::Value,
    /// Seed of random choices.
    pub seed: u64,
    /// Where to record the inputs of the engine; `None` = nothing is recorded.
    pub record: Option<RecordConfig>,
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
            node_classes: NodeClassRegistry::default(),
            conversion: false,
            leader_election: Some(LeaderElection::default()),
            namespace: None,
            kube_client_qps: 200.0,
            kube_client_burst: 300,
            detail: TelemetryDetail::Bounded,
            cost_label: None,
            notifications: None,
            traces: None,
            max_launches: 16,
            shutdown_timeout: Duration::from_secs(20),
            effective: serde_json::Value::Null,
            seed: 0,
            record: None,
        }
    }
}

/// Where to record, and how much.
#[derive(Clone, Debug)]
pub struct RecordConfig {
    /// The directory of the files. It is created.
    pub directory: PathBuf,
    /// Most bytes of all files together.
    pub max_bytes: u64,
    /// Default spread constraints as configured: the settings have them compiled.
    pub scheduler_config: SchedulerConfig,
}

/// Where traces are sent.
#[derive(Clone, Debug)]
pub struct TraceConfig {
    /// Where a collector takes OpenTelemetry's protocol over HTTP.
    pub endpoint: http::Uri,
    /// Name of the cluster; empty if it is not known.
    pub cluster: String,
}

/// Where notifications go, and which events are notified.
#[derive(Clone, Debug)]
pub struct NotificationConfig {
    /// File with the URL, which is a secret. It is read for each message.
    pub url_file: PathBuf,
    /// What the receiver reads.
    pub format: NotificationFormat,
    /// Reasons of events; empty: every warning that is not about a pod.
    pub reasons: Vec<String>,
    /// Least time between two messages.
    pub interval: Duration,
    /// Name of the cluster; empty if it is not known.
    pub cluster: String,
}

/// What a webhook reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NotificationFormat {
    /// The events as JSON.
    #[default]
    Json,
    /// A message of Slack; Mattermost, Rocket.Chat and Google Chat read it too.
    Slack,
    /// A card of Microsoft Teams.
    Teams,
    /// A message of Discord.
    Discord,
}

impl NotificationFormat {
    /// Its name, as in the flag.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Slack => "slack",
            Self::Teams => "teams",
            Self::Discord => "discord",
        }
    }
}

/// Detail of metrics and events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TelemetryDetail {
    /// Bounded: about 2,000 series at most, no event per condition of each NodeClaim.
    #[default]
    Bounded,
    /// All of Karpenter's series for each node, pod, NodeClaim, NodePool and offering, and its buckets.
    Full,
}

/// Names that a client certificate of the extender CA may have: the one issued here, and kube-scheduler's own.
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

/// How API servers authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionClients {
    /// File with the CA certificates that sign their client certificates.
    pub ca: PathBuf,
    /// Common or DNS names of these certificates; empty = any.
    pub names: Vec<String>,
}

/// Addresses to listen on. Port 0 takes any free port; [`crate::RunningService::addresses`] returns it.
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

/// Source of certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// A Secret that this service creates and renews, in [`Config::namespace`].
    Secret {
        /// Name of the Secret.
        name: String,
        /// Name of the Service in front of the replicas; its DNS names go into the certificate.
        service: String,
    },
    /// A directory. Missing files are created, unless `tls.crt` and `tls.key` exist without `ca.key`: such files are managed
    /// externally and only read.
    Directory(PathBuf),
    /// Certificates live in memory and are new at every start. For evaluation.
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

/// Lease of the leader election.
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
