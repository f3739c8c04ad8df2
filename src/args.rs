//! Flags and environment variables of `mortise serve`: those of Karpenter, and additional ones of mortise.
//!
//! A flag takes precedence over its variable, a variable over the default. Unlike in Karpenter, an invalid variable is
//! an error: a typo that silently becomes a default is found weeks later (`docs/differences.md`).

mod aws;
mod inert;
mod notifications;
#[cfg(test)]
mod readers;
mod record;
mod traces;
pub mod variables;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
pub use aws::AwsArgs;
use clap::{ArgAction, Args, ValueEnum};
pub use inert::Inert;
use mortise_apis::nearest::nearest;
use mortise_controller::{AdmissionClients, CertificateSource, Config, LeaderElection, Listen};
use mortise_planning::scheduling::{SchedulerConfig, SpreadDefaults};
use mortise_planning::settings::{
    FeatureGates, RebalancePolicy, Settings, default_eviction_cost_ms,
};
use mortise_process::Millis;
pub use notifications::NotificationArgs;
pub use record::RecordArgs;
pub use traces::TraceArgs;

/// Which clouds to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProviderName {
    /// Node objects kept alive by the kwok program.
    Kwok,
    /// Amazon EC2.
    Aws,
}

/// How much metrics and events tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TelemetryDetail {
    /// What does not grow with the cluster.
    Bounded,
    /// Everything that Karpenter tells.
    Full,
}

/// All flags of `mortise serve`. As with Go's flags, the last occurrence of a flag takes effect.
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true)]
pub struct ServeArgs {
    /// kubeconfig file; default: the service account of the pod, then the locations that kubectl uses
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Cloud providers to enable
    #[arg(
        long,
        env = "MORTISE_PROVIDER",
        value_enum,
        value_delimiter = ',',
        default_value = "kwok"
    )]
    pub provider: Vec<ProviderName>,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    core: CoreArgs,
    #[command(flatten)]
    own: OwnArgs,
    #[command(flatten)]
    notifications: NotificationArgs,
    #[command(flatten)]
    traces: TraceArgs,
    #[command(flatten)]
    record: RecordArgs,
    /// kwok: instance types file in Karpenter's format, instead of the built-in types
    #[arg(long, env = "INSTANCE_TYPES_FILE_PATH", value_name = "FILE")]
    pub instance_types_file_path: Option<PathBuf>,
    /// Flags of the AWS provider
    #[command(flatten)]
    pub aws: AwsArgs,
    /// Set by commands that must not write, not by a flag
    #[arg(skip)]
    pub(crate) read_only: bool,
}

#[derive(Args, Clone, Debug)]
struct ListenArgs {
    /// Bind address of all listeners
    #[arg(long, env = "MORTISE_BIND_ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,
    /// HTTPS port for the extender, webhooks and debug paths (0 = any free port)
    #[arg(long, env = "MORTISE_HTTPS_PORT", default_value_t = 8443)]
    https_port: u16,
    /// HTTP port for /metrics
    #[arg(long, env = "METRICS_PORT", default_value_t = 8080)]
    metrics_port: u16,
    /// HTTP port for /healthz and /readyz
    #[arg(long, env = "HEALTH_PROBE_PORT", default_value_t = 8081)]
    health_probe_port: u16,
    /// Store certificates in this directory instead of a Secret; missing certificates are issued
    #[arg(long, env = "MORTISE_CERT_DIR", value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// Additional DNS names or IP addresses of the server certificate
    #[arg(
        long,
        env = "MORTISE_SERVER_NAMES",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    server_names: Vec<String>,
    /// Name of the Service, for the DNS names of the certificate and the name of its Secret
    #[arg(long, env = "KARPENTER_SERVICE", default_value = "mortise")]
    karpenter_service: String,
    /// Serve debug paths without authentication; requires a loopback bind address
    #[arg(long, env = "MORTISE_INSECURE_DEBUG")]
    insecure_debug: bool,
    /// Reject NodePools that no instance type can satisfy, instead of returning a warning
    #[arg(long, env = "MORTISE_DENY_UNSATISFIABLE")]
    deny_unsatisfiable: bool,
    /// CA file for client certificates of API servers; admission responses to other clients contain no cluster state
    #[arg(long, env = "MORTISE_ADMISSION_CLIENT_CA", value_name = "FILE")]
    admission_client_ca: Option<PathBuf>,
    /// Certificate names that identify an API server (default: any certificate that the CA signed)
    #[arg(
        long,
        env = "MORTISE_ADMISSION_CLIENT_NAMES",
        value_delimiter = ',',
        value_name = "NAME",
        requires = "admission_client_ca"
    )]
    admission_client_names: Vec<String>,
    /// Serve conversion between v1beta1 and v1, for CRDs written by `manifests crds --conversion`
    #[arg(long, env = "MORTISE_CONVERSION_WEBHOOK")]
    conversion_webhook: bool,
}

#[derive(Args, Clone, Debug)]
struct CoreArgs {
    /// Requests to the API server per second
    #[arg(long, env = "KUBE_CLIENT_QPS", default_value_t = 200)]
    kube_client_qps: u32,
    /// Burst of requests to the API server
    #[arg(long, env = "KUBE_CLIENT_BURST", default_value_t = 300)]
    kube_client_burst: u32,
    /// Run without leader election; safe only with a single replica and no Karpenter
    #[arg(long, env = "DISABLE_LEADER_ELECTION", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    disable_leader_election: bool,
    /// Name of the Lease; the default is Karpenter's, which excludes running both at once
    #[arg(long, env = "LEADER_ELECTION_NAME", default_value = mortise_controller::LEASE_NAME)]
    leader_election_name: String,
    /// Namespace of the Lease and of the certificate Secret
    #[arg(long, env = "LEADER_ELECTION_NAMESPACE", default_value = "")]
    leader_election_namespace: String,
    /// Log level: debug, info, warn, error
    #[arg(long, env = "LOG_LEVEL", default_value = "info", value_parser = ["debug", "info", "warn", "error", ""])]
    log_level: String,
    /// Maximum duration of a batch of pending pods
    #[arg(long, env = "BATCH_MAX_DURATION", default_value = "10s")]
    batch_max_duration: Millis,
    /// A batch of pending pods ends after this time without a new pod
    #[arg(long, env = "BATCH_IDLE_DURATION", default_value = "1s")]
    batch_idle_duration: Millis,
    /// Preferences of pods: Respect relaxes them one at a time, Ignore drops them
    #[arg(long, env = "PREFERENCE_POLICY", default_value = "Respect", value_parser = ["Respect", "Ignore"])]
    preference_policy: String,
    /// minValues that cannot be met: Strict rejects the instance types, BestEffort relaxes minValues
    #[arg(long, env = "MIN_VALUES_POLICY", default_value = "Strict", value_parser = ["Strict", "BestEffort"])]
    min_values_policy: String,
    /// Ignore pods with spec.resourceClaims; false: allocate their devices when nodes are planned
    #[arg(long, env = "IGNORE_DRA_REQUESTS", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    ignore_dra_requests: bool,
    /// Default topology spread constraints as YAML or JSON: {podTopologySpread: {defaultConstraints: [...]}}
    #[arg(
        long,
        env = "SCHEDULER_CONFIG",
        default_value = "",
        hide_default_value = true
    )]
    scheduler_config: String,
    /// Feature gates: name=bool pairs, separated by commas
    #[arg(long, env = "FEATURE_GATES", default_value = "")]
    feature_gates: String,
    #[command(flatten)]
    accepted: AcceptedArgs,
}

/// Flags of Karpenter that are accepted for its charts and have no effect.
#[derive(Args, Clone, Debug)]
struct AcceptedArgs {
    /// Accepted without effect; no memory limit hint is needed
    #[arg(long, env = "MEMORY_LIMIT", hide = true, allow_negative_numbers = true, default_value_t = -1)]
    memory_limit: i64,
    /// Accepted without effect; concurrency does not depend on CPU requests
    #[arg(
        long,
        env = "CPU_REQUESTS",
        hide = true,
        allow_negative_numbers = true,
        default_value_t = 1000
    )]
    cpu_requests: i64,
    /// Accepted without effect; there is no profiling listener
    #[arg(long, env = "ENABLE_PROFILING", hide = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    enable_profiling: bool,
    /// Accepted without effect; followers always keep the cluster state
    #[arg(long, env = "DISABLE_CONTROLLER_WARMUP", hide = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    disable_controller_warmup: bool,
    /// Accepted without effect; metrics are bounded
    #[arg(long, env = "DISABLE_CLUSTER_STATE_OBSERVABILITY", hide = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    disable_cluster_state_observability: bool,
    /// Accepted without effect; logs are written to standard error
    #[arg(long, env = "LOG_OUTPUT_PATHS", hide = true, default_value = "stdout")]
    log_output_paths: String,
    /// Accepted without effect; logs are written to standard error
    #[arg(
        long,
        env = "LOG_ERROR_OUTPUT_PATHS",
        hide = true,
        default_value = "stderr"
    )]
    log_error_output_paths: String,
}

/// Settings that are constants in Karpenter.
#[derive(Args, Clone, Debug)]
struct OwnArgs {
    /// Delay before a disruption command is validated again and executed
    #[arg(
        long,
        env = "MORTISE_DISRUPTION_VALIDATION_DELAY",
        default_value = "15s"
    )]
    disruption_validation_delay: Millis,
    /// Time between the fence of a node and the check of its pods before it is tainted, and again between the taint and its deletion
    #[arg(long, env = "MORTISE_BIND_GRACE_PERIOD", default_value = "2s")]
    bind_grace_period: Millis,
    /// Experimental: consolidation may replace groups of nodes by several cheaper ones, and split single nodes
    #[arg(long, env = "MORTISE_CONSOLIDATE_GROUPS", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    consolidate_groups: bool,
    /// What evicting a pod of a workload whose pods come and go costs consolidation: the price of an average pod of the NodePool for this long (0s = nothing, as in Karpenter; by default 1h30m, and 6h30m with --pod-deletion-costs)
    #[arg(long, env = "MORTISE_CONSOLIDATION_EVICTION_COST")]
    consolidation_eviction_cost: Option<Millis>,
    /// If more than this percentage of the nodes of a NodePool drift within 6 minutes of an upgrade of mortise, none of them is replaced until the annotation `mortise.sh/upgraded-at` is removed from the NodePool (100 = never wait, as in Karpenter)
    #[arg(long, env = "MORTISE_UPGRADE_DRIFT_PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=100))]
    upgrade_drift_percent: u32,
    /// How long a node that replaced another one, or received its pods, is excluded from disruption
    #[arg(long, env = "MORTISE_DISRUPTION_COOLDOWN", default_value = "5m")]
    disruption_cooldown: Millis,
    /// What follows when the cloud expects to interrupt a spot instance: an event, a cordon, or a replacement before the drain; a NodePool may say otherwise by annotation
    #[arg(long, env = "MORTISE_REBALANCE_RECOMMENDATION", default_value = "ignore", value_parser = RebalancePolicy::WORDS)]
    rebalance_recommendation: String,
    /// Delete a NodeClaim whose instance was not launched within this time
    #[arg(long, env = "MORTISE_LAUNCH_TIMEOUT", default_value = "5m")]
    launch_timeout: Millis,
    /// Delete a NodeClaim whose node has not registered within this time
    #[arg(long, env = "MORTISE_REGISTRATION_TIMEOUT", default_value = "15m")]
    registration_timeout: Millis,
    /// Delete a NodeClaim whose node is not initialized within this time after registration (0s = never)
    #[arg(long, env = "MORTISE_INITIALIZATION_TIMEOUT", default_value = "0s")]
    initialization_timeout: Millis,
    /// Maximum random reduction of `expireAfter` of each NodeClaim, in percent (0 = none)
    #[arg(long, env = "MORTISE_EXPIRATION_JITTER_PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=50))]
    expiration_jitter_percent: u32,
    /// Maximum concurrent launches of a NodePool until the first node of its current template registers (0 = unlimited)
    #[arg(long, env = "MORTISE_MAX_UNPROVEN_LAUNCHES", default_value_t = 8)]
    max_unproven_launches: usize,
    /// Learn which undeclared taints nodes join with and lose, and plan pods for such nodes; false: each of these taints counts, as in Karpenter
    #[arg(long, env = "MORTISE_LEARN_BOOT_TAINTS", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    learn_boot_taints: bool,
    /// Treat the annotations `safe-to-evict: "false"` of pods and `scale-down-disabled: "true"` of nodes, which are Cluster Autoscaler's, as `karpenter.sh/do-not-disrupt: "true"`, and let pods wait as `pod-scale-up-delay` and `consume-provisioning-request` say
    #[arg(long, env = "MORTISE_RESPECT_CLUSTER_AUTOSCALER_ANNOTATIONS", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    respect_cluster_autoscaler_annotations: bool,
    /// Serve ProvisioningRequests of the classes `check-capacity` and `best-effort-atomic-scale-up`, which Kueue makes; not next to a Cluster Autoscaler that does
    #[arg(long, env = "MORTISE_PROVISIONING_REQUESTS", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    provisioning_requests: bool,
    /// Write deletion costs to pods of ReplicaSets, so that workloads that shrink lose the pods on the nodes that should go; pods that have such a cost keep it
    #[arg(long, env = "MORTISE_POD_DELETION_COSTS", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    pod_deletion_costs: bool,
    /// Restart the Deployment of pods with the annotation `mortise.sh/hand-over` instead of evicting them: a new pod is available before the old one ends
    #[arg(long, env = "MORTISE_HAND_OVER", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    hand_over: bool,
    /// Launches of a NodePool are paused after this number of consecutive failed registrations (0 = never)
    #[arg(long, env = "MORTISE_LAUNCH_FAILURE_THRESHOLD", default_value_t = 3)]
    launch_failure_threshold: u32,
    /// Initial pause after failed registrations; doubles up to one hour
    #[arg(long, env = "MORTISE_LAUNCH_BACKOFF", default_value = "5m")]
    launch_backoff: Millis,
    /// How often orphaned instances and NodeClaims are collected
    #[arg(
        long,
        env = "MORTISE_GARBAGE_COLLECTION_INTERVAL",
        default_value = "2m"
    )]
    garbage_collection_interval: Millis,
    /// How often node classes are resolved again
    #[arg(long, env = "MORTISE_NODECLASS_RESYNC_INTERVAL", default_value = "5m")]
    nodeclass_resync_interval: Millis,
    /// Detail of metrics and events: `bounded` does not grow with the cluster, `full` is what Karpenter exposes
    #[arg(
        long,
        env = "MORTISE_TELEMETRY_DETAIL",
        value_enum,
        default_value = "bounded"
    )]
    telemetry_detail: TelemetryDetail,
    /// Key of a label of pods by whose values the costs of nodes are divided, such as `team`; namespaces and NodePools always are
    #[arg(long, env = "MORTISE_COST_LABEL", value_parser = label_key)]
    cost_label: Option<String>,
    /// Seed for random choices
    #[arg(long, env = "MORTISE_SEED", default_value_t = 0)]
    seed: u64,
}

/// Reads the key of a label.
fn label_key(text: &str) -> Result<String, String> {
    if mortise_apis::validation::is_label_key(text) {
        Ok(text.to_owned())
    } else {
        Err("must be the key of a label: at most 63 letters, digits, -, _ and . between letters or digits, with a domain and a slash before them or not, such as team or app.kubernetes.io/name".to_owned())
    }
}

impl OwnArgs {
    fn eviction_cost_ms(&self) -> i64 {
        match &self.consolidation_eviction_cost {
            Some(asked) => asked.0,
            None => default_eviction_cost_ms(self.pod_deletion_costs),
        }
    }
}

impl ServeArgs {
    /// Log filter of the flags.
    #[must_use]
    pub fn log_level(&self) -> &str {
        match self.core.log_level.as_str() {
            "" => "info",
            level => level,
        }
    }

    /// The settings of the deciders.
    ///
    /// # Errors
    /// A feature gate that is not a bool, or an invalid scheduler configuration.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let (core, own) = (&self.core, &self.own);
        Ok(Settings {
            batch_idle_ms: core.batch_idle_duration.0,
            batch_max_ms: core.batch_max_duration.0,
            respect_preferences: core.preference_policy == "Respect",
            min_values_best_effort: core.min_values_policy == "BestEffort",
            gates: feature_gates(&core.feature_gates)?,
            spread_defaults: spread_defaults(&core.scheduler_config)?,
            ignore_devices: core.ignore_dra_requests,
            disruption_validation_delay_ms: own.disruption_validation_delay.0,
            bind_grace_period_ms: own.bind_grace_period.0,
            consolidate_groups: own.consolidate_groups,
            consolidation_eviction_cost_ms: own.eviction_cost_ms(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            upgrade_drift_percent: own.upgrade_drift_percent,
            disruption_cooldown_ms: own.disruption_cooldown.0,
            // The parser has checked the word.
            rebalance: RebalancePolicy::parse(&own.rebalance_recommendation).unwrap_or_default(),
            launch_timeout_ms: own.launch_timeout.0,
            registration_timeout_ms: own.registration_timeout.0,
            initialization_timeout_ms: own.initialization_timeout.0,
            expiration_jitter_percent: own.expiration_jitter_percent,
            max_unproven_launches: own.max_unproven_launches,
            learn_boot_taints: own.learn_boot_taints,
            respect_cluster_autoscaler_annotations: own.respect_cluster_autoscaler_annotations,
            provisioning_requests: own.provisioning_requests,
            pod_deletion_costs: own.pod_deletion_costs,
            hand_over: own.hand_over,
            launch_failure_threshold: own.launch_failure_threshold,
            launch_backoff_ms: own.launch_backoff.0,
            garbage_collection_interval_ms: own.garbage_collection_interval.0,
            nodeclass_resync_interval_ms: own.nodeclass_resync_interval.0,
            ..Settings::default()
        })
    }

    /// Default spread constraints as given.
    ///
    /// # Errors
    /// The text is no such configuration.
    pub fn scheduler_config(&self) -> anyhow::Result<SchedulerConfig> {
        scheduler_config(&self.core.scheduler_config)
    }

    /// The configuration of the controller.
    ///
    /// # Errors
    /// Flags that contradict each other.
    pub fn config(&self) -> anyhow::Result<Config> {
        let (listen, core) = (&self.listen, &self.core);
        if listen.insecure_debug && !listen.bind_address.is_loopback() {
            bail!(
                "--insecure-debug serves debug paths to anyone: it needs --bind-address 127.0.0.1 (it is {})",
                listen.bind_address
            );
        }
        self.aws.check()?;
        let on = |port| SocketAddr::new(listen.bind_address, port);
        let namespace =
            Some(core.leader_election_namespace.clone()).filter(|name| !name.is_empty());
        let certificates = match &listen.cert_dir {
            Some(dir) => CertificateSource::Directory(dir.clone()),
            None => CertificateSource::Secret {
                name: format!("{}-cert", listen.karpenter_service),
                service: listen.karpenter_service.clone(),
            },
        };
        let settings = self.settings()?;
        Ok(Config {
            effective: serde_json::json!({ "settings": settings, "flags": format!("{self:?}") }),
            settings,
            detail: match self.own.telemetry_detail {
                TelemetryDetail::Bounded => mortise_controller::TelemetryDetail::Bounded,
                TelemetryDetail::Full => mortise_controller::TelemetryDetail::Full,
            },
            cost_label: self.own.cost_label.as_deref().map(Into::into),
            listen: Listen {
                https: on(listen.https_port),
                metrics: on(listen.metrics_port),
                health: on(listen.health_probe_port),
            },
            certificates,
            server_names: listen.server_names.clone(),
            insecure_debug: listen.insecure_debug,
            deny_unsatisfiable: listen.deny_unsatisfiable,
            conversion: listen.conversion_webhook,
            admission_clients: listen
                .admission_client_ca
                .clone()
                .map(|ca| AdmissionClients {
                    ca,
                    names: listen.admission_client_names.clone(),
                }),
            leader_election: (!core.disable_leader_election).then(|| LeaderElection {
                name: core.leader_election_name.clone(),
                namespace: namespace.clone(),
            }),
            namespace,
            kube_client_qps: f64::from(core.kube_client_qps),
            kube_client_burst: core.kube_client_burst,
            seed: self.own.seed,
            notifications: self.notifications.config(&self.aws.cluster_name),
            traces: self.traces.config(&self.aws.cluster_name),
            record: self.record.config(self.scheduler_config()?),
            ..Config::default()
        })
    }
}

/// Parses `--scheduler-config`; an empty text yields no constraints.
fn scheduler_config(text: &str) -> anyhow::Result<SchedulerConfig> {
    if text.trim().is_empty() {
        return Ok(SchedulerConfig::default());
    }
    serde_saphyr::from_str(text).context("--scheduler-config: not such a configuration")
}

fn spread_defaults(text: &str) -> anyhow::Result<SpreadDefaults> {
    let config = scheduler_config(text)?;
    SpreadDefaults::from_config(&config)
        .map_err(|error| anyhow::anyhow!("--scheduler-config: {error}"))
}

/// Parses `Name=bool` pairs, applied to the defaults. The error for an unknown gate names the nearest one.
fn feature_gates(text: &str) -> anyhow::Result<FeatureGates> {
    let mut gates = FeatureGates::default();
    for pair in text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
    {
        let (name, value) = pair
            .split_once('=')
            .with_context(|| format!("--feature-gates: {pair:?} is not Name=true or Name=false"))?;
        let on = match value.trim() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            other => bail!("--feature-gates: {name}={other:?}: allowed are true and false"),
        };
        let gate = match name.trim() {
            "NodeRepair" => &mut gates.node_repair,
            "ReservedCapacity" => &mut gates.reserved_capacity,
            "SpotToSpotConsolidation" => &mut gates.spot_to_spot_consolidation,
            "NodeOverlay" => &mut gates.node_overlay,
            "StaticCapacity" => &mut gates.static_capacity,
            "CapacityBuffer" => &mut gates.capacity_buffer,
            other => {
                const NAMES: [&str; 6] = [
                    "NodeRepair",
                    "ReservedCapacity",
                    "SpotToSpotConsolidation",
                    "NodeOverlay",
                    "StaticCapacity",
                    "CapacityBuffer",
                ];
                let hint = nearest(other, NAMES)
                    .map(|name| format!("; did you mean {name}?"))
                    .unwrap_or_default();
                bail!(
                    "--feature-gates: there is no gate {other:?}; there are {}{hint}",
                    NAMES.join(", ")
                );
            }
        };
        *gate = on;
    }
    Ok(gates)
}

#[cfg(test)]
mod tests;
