//! Flags and environment variables of `mortise serve`: upstream's contract, and our own beside it.
//!
//! A flag wins over its variable, a variable over the default. Unlike upstream, a variable that cannot be read is an
//! error: a typo that silently becomes a default is found weeks later (`docs/differences.md`).

mod inert;
#[cfg(test)]
mod readers;
pub mod variables;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{ArgAction, Args, ValueEnum};
pub use inert::Inert;
use mortise_aws::node_settings::CapacityOptions;
use mortise_controller::{AdmissionClients, CertificateSource, Config, LeaderElection, Listen};
use mortise_core::nearest::nearest;
use mortise_core::scheduling::{SchedulerConfig, SpreadDefaults};
use mortise_core::settings::{FeatureGates, Settings};
use mortise_core::values::GoDuration;

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

/// A duration in Go's notation, such as `10s` or `1m30s`, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub i64);

impl std::str::FromStr for Millis {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let duration = GoDuration::parse(text)
            .map_err(|error| format!("{error}; write it like 10s or 1m30s"))?;
        let millis = duration.as_nanos() / 1_000_000;
        if millis < 0 {
            Err("must not be negative".to_owned())
        } else {
            Ok(Self(millis))
        }
    }
}

impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// Everything `mortise serve` can be told. As with Go's flags, the last one counts where one is given twice.
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true)]
pub struct ServeArgs {
    /// kubeconfig file; without it the service account of the pod, then the usual places of kubectl
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Clouds to serve
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
    /// kwok: instance types file in upstream's format instead of the built-in types
    #[arg(long, env = "INSTANCE_TYPES_FILE_PATH", value_name = "FILE")]
    pub instance_types_file_path: Option<PathBuf>,
    /// Flags of the AWS provider
    #[command(flatten)]
    pub aws: AwsArgs,
}

#[derive(Args, Clone, Debug)]
struct ListenArgs {
    /// Address that all listeners bind to
    #[arg(long, env = "MORTISE_BIND_ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,
    /// HTTPS: extender, webhooks, debug paths (0 = any free port)
    #[arg(long, env = "MORTISE_HTTPS_PORT", default_value_t = 8443)]
    https_port: u16,
    /// HTTP: /metrics
    #[arg(long, env = "METRICS_PORT", default_value_t = 8080)]
    metrics_port: u16,
    /// HTTP: /healthz and /readyz
    #[arg(long, env = "HEALTH_PROBE_PORT", default_value_t = 8081)]
    health_probe_port: u16,
    /// Keep certificates in this directory instead of a Secret; missing ones are made
    #[arg(long, env = "MORTISE_CERT_DIR", value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// Further names or addresses for the server certificate
    #[arg(
        long,
        env = "MORTISE_SERVER_NAMES",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    server_names: Vec<String>,
    /// Service name, and the name of its Secret's owner, for the certificate's DNS names
    #[arg(long, env = "KARPENTER_SERVICE", default_value = "mortise")]
    karpenter_service: String,
    /// Serve debug paths without a token; only with a loopback address
    #[arg(long, env = "MORTISE_INSECURE_DEBUG")]
    insecure_debug: bool,
    /// Let the admission webhook refuse, instead of warn about, a NodePool that no instance type can satisfy
    #[arg(long, env = "MORTISE_DENY_IMPOSSIBLE")]
    deny_impossible: bool,
    /// File with the CA that signs client certificates of API servers: admission tells facts of the cluster to no others
    #[arg(long, env = "MORTISE_ADMISSION_CLIENT_CA", value_name = "FILE")]
    admission_client_ca: Option<PathBuf>,
    /// Names in these certificates that count as an API server (default: whatever the CA signed)
    #[arg(
        long,
        env = "MORTISE_ADMISSION_CLIENT_NAMES",
        value_delimiter = ',',
        value_name = "NAME",
        requires = "admission_client_ca"
    )]
    admission_client_names: Vec<String>,
    /// Serve conversion between v1beta1 and v1, for definitions that were written with `manifests crds --conversion`
    #[arg(long, env = "MORTISE_CONVERSION_WEBHOOK")]
    conversion_webhook: bool,
}

#[derive(Args, Clone, Debug)]
struct CoreArgs {
    /// Calls to the API server per second
    #[arg(long, env = "KUBE_CLIENT_QPS", default_value_t = 200)]
    kube_client_qps: u32,
    /// Calls to the API server at once
    #[arg(long, env = "KUBE_CLIENT_BURST", default_value_t = 300)]
    kube_client_burst: u32,
    /// Act without the Lease; only when nothing else can act
    #[arg(long, env = "DISABLE_LEADER_ELECTION", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    disable_leader_election: bool,
    /// Name of the Lease, the same as Karpenter's so that both never act together
    #[arg(long, env = "LEADER_ELECTION_NAME", default_value = mortise_controller::LEASE_NAME)]
    leader_election_name: String,
    /// Namespace of the Lease and of the certificate Secret
    #[arg(long, env = "LEADER_ELECTION_NAMESPACE", default_value = "")]
    leader_election_namespace: String,
    /// Log level: debug, info, error
    #[arg(long, env = "LOG_LEVEL", default_value = "info", value_parser = ["debug", "info", "warn", "error", ""])]
    log_level: String,
    /// A batch of pending pods ends this long after it began
    #[arg(long, env = "BATCH_MAX_DURATION", default_value = "10s")]
    batch_max_duration: Millis,
    /// A batch of pending pods ends this long after its last pod
    #[arg(long, env = "BATCH_IDLE_DURATION", default_value = "1s")]
    batch_idle_duration: Millis,
    /// Preferences of pods: Respect them as long as possible, or Ignore them
    #[arg(long, env = "PREFERENCE_POLICY", default_value = "Respect", value_parser = ["Respect", "Ignore"])]
    preference_policy: String,
    /// minValues that cannot be met: Strict refuses, BestEffort lowers them
    #[arg(long, env = "MIN_VALUES_POLICY", default_value = "Strict", value_parser = ["Strict", "BestEffort"])]
    min_values_policy: String,
    /// Leave pods alone that claim devices (spec.resourceClaims); false: their devices are part of every plan
    #[arg(long, env = "IGNORE_DRA_REQUESTS", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    ignore_dra_requests: bool,
    /// YAML or JSON text with default spread constraints: {podTopologySpread: {defaultConstraints: [...]}}
    #[arg(
        long,
        env = "SCHEDULER_CONFIG",
        default_value = "",
        hide_default_value = true
    )]
    scheduler_config: String,
    /// Name=bool pairs, comma separated
    #[arg(long, env = "FEATURE_GATES", default_value = "")]
    feature_gates: String,
    #[command(flatten)]
    accepted: AcceptedArgs,
}

/// Flags of upstream that are understood so that its charts start us, and that change nothing here.
#[derive(Args, Clone, Debug)]
struct AcceptedArgs {
    /// Accepted; this service needs no memory limit hint
    #[arg(long, env = "MEMORY_LIMIT", hide = true, allow_negative_numbers = true, default_value_t = -1)]
    memory_limit: i64,
    /// Accepted; concurrency does not depend on CPU requests here
    #[arg(
        long,
        env = "CPU_REQUESTS",
        hide = true,
        allow_negative_numbers = true,
        default_value_t = 1000
    )]
    cpu_requests: i64,
    /// Accepted; there is no profiling listener
    #[arg(long, env = "ENABLE_PROFILING", hide = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    enable_profiling: bool,
    /// Accepted; followers are always warm
    #[arg(long, env = "DISABLE_CONTROLLER_WARMUP", hide = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    disable_controller_warmup: bool,
    /// Accepted; metrics are bounded anyway
    #[arg(long, env = "DISABLE_CLUSTER_STATE_OBSERVABILITY", hide = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    disable_cluster_state_observability: bool,
    /// Accepted; logs go to standard output
    #[arg(long, env = "LOG_OUTPUT_PATHS", hide = true, default_value = "stdout")]
    log_output_paths: String,
    /// Accepted; logs go to standard output
    #[arg(
        long,
        env = "LOG_ERROR_OUTPUT_PATHS",
        hide = true,
        default_value = "stderr"
    )]
    log_error_output_paths: String,
}

/// Settings that upstream has as constants.
#[derive(Args, Clone, Debug)]
struct OwnArgs {
    /// How long a disruption command is held before it is looked at again and carried out
    #[arg(long, env = "MORTISE_DISRUPTION_HOLD", default_value = "15s")]
    disruption_hold: Millis,
    /// How long new pods are kept off a node before its pods are looked at for the last time
    #[arg(long, env = "MORTISE_BIND_GRACE", default_value = "2s")]
    bind_grace: Millis,
    /// A machine launched for a move, or that received moved pods, is left alone this long
    #[arg(long, env = "MORTISE_CHURN_REST", default_value = "5m")]
    churn_rest: Millis,
    /// A claim whose machine the cloud has not made after this is given up
    #[arg(long, env = "MORTISE_LAUNCH_TIMEOUT", default_value = "5m")]
    launch_timeout: Millis,
    /// A claim whose machine has not joined as a node after this is given up; longer for machines that start slowly
    #[arg(long, env = "MORTISE_REGISTRATION_TIMEOUT", default_value = "15m")]
    registration_timeout: Millis,
    /// A node that is not initialized this long after it registered is given up (0s = never)
    #[arg(long, env = "MORTISE_INITIALIZATION_TIMEOUT", default_value = "0s")]
    initialization_timeout: Millis,
    /// Nodes expire up to so many per cent sooner than `expireAfter`, each at its own time (0 = all exactly then)
    #[arg(long, env = "MORTISE_EXPIRY_SPREAD", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=50))]
    expiry_spread: u32,
    /// Machines that are tried at a time until the first of a pool's present template registers (0 = any number)
    #[arg(long, env = "MORTISE_LAUNCH_TRIAL", default_value_t = 8)]
    launch_trial: usize,
    /// Launches of a pool are held back after so many machines in a row that did not register (0 = never)
    #[arg(long, env = "MORTISE_LAUNCH_FAILURES", default_value_t = 3)]
    launch_failures: u32,
    /// For how long at first; it doubles with each further machine that does not register, up to an hour
    #[arg(long, env = "MORTISE_LAUNCH_BACKOFF", default_value = "5m")]
    launch_backoff: Millis,
    /// How often claims without machines and machines without claims are looked for
    #[arg(long, env = "MORTISE_GARBAGE_COLLECTION", default_value = "2m")]
    garbage_collection: Millis,
    /// How often node classes are resolved again
    #[arg(long, env = "MORTISE_RESOLVE", default_value = "5m")]
    resolve: Millis,
    /// What metrics and events tell: `bounded` does not grow with the cluster, `full` is everything that Karpenter tells
    #[arg(
        long,
        env = "MORTISE_TELEMETRY_DETAIL",
        value_enum,
        default_value = "bounded"
    )]
    telemetry_detail: TelemetryDetail,
    /// Fixes every choice that is left to chance
    #[arg(long, env = "MORTISE_SEED", default_value_t = 0)]
    seed: u64,
}

/// Flags of the AWS provider.
#[derive(Args, Clone, Debug)]
pub struct AwsArgs {
    /// aws: name of the cluster, in tags and user data
    #[arg(long, env = "CLUSTER_NAME", default_value = "")]
    pub cluster_name: String,
    /// aws: URL of the API server, for user data
    #[arg(long, env = "CLUSTER_ENDPOINT", default_value = "")]
    pub cluster_endpoint: String,
    /// aws: CA of the API server (base64 of PEM), for user data; default: the one in the kubeconfig or service account
    #[arg(long, env = "CLUSTER_CA_BUNDLE", default_value = "")]
    pub cluster_ca_bundle: String,
    /// aws: SQS queue with interruption messages; none = interruptions are not watched
    #[arg(long, env = "INTERRUPTION_QUEUE", default_value = "")]
    pub interruption_queue: String,
    /// aws: share of memory that the hypervisor takes
    #[arg(long, env = "VM_MEMORY_OVERHEAD_PERCENT", default_value_t = 0.075)]
    pub vm_memory_overhead_percent: f64,
    /// aws: network interfaces that are not for pods
    #[arg(long, env = "RESERVED_ENIS", default_value_t = 0)]
    pub reserved_enis: u32,
    /// aws: region
    #[arg(long, env = "AWS_REGION", default_value = "us-east-1")]
    pub aws_region: String,
    /// aws: URL of EC2 and SQS, for emulators and VPC endpoints
    #[arg(long, env = "AWS_ENDPOINT_URL")]
    pub aws_endpoint_url: Option<String>,
    #[command(flatten)]
    accepted: AcceptedAwsArgs,
}

/// Flags of upstream's AWS provider that are understood so that its charts start us, and that change nothing here.
#[derive(Args, Clone, Debug)]
struct AcceptedAwsArgs {
    /// Accepted; prices come from the built-in list, which needs no way out of the VPC
    #[arg(long, env = "ISOLATED_VPC", hide = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    isolated_vpc: bool,
    /// Accepted; the API server is found by its flags, the kubeconfig or the service account
    #[arg(long, env = "EKS_CONTROL_PLANE", hide = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    eks_control_plane: bool,
    /// Accepted; launches are not tried out first
    #[arg(long, env = "DISABLE_DRY_RUN", hide = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    disable_dry_run: bool,
    /// Accepted as false; zonal shifts are not looked at yet, so true is refused
    #[arg(long, env = "ENABLE_ZONAL_SHIFT", hide = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    enable_zonal_shift: bool,
    /// Accepted; images are looked up whenever their class is resolved (`--resolve`)
    #[arg(long, env = "AMI_REFRESH_INTERVAL", hide = true, default_value = "1m0s", value_parser = at_least_a_minute)]
    ami_refresh_interval: Millis,
    /// Accepted; subnets are looked up whenever their class is resolved (`--resolve`)
    #[arg(long, env = "SUBNET_REFRESH_INTERVAL", hide = true, default_value = "1m0s", value_parser = at_least_a_minute)]
    subnet_refresh_interval: Millis,
    /// Accepted; the definitions have their rules in any case
    #[arg(
        long,
        env = "AWS_FEATURE_GATES",
        hide = true,
        default_value = "NodeClassCEL=false"
    )]
    aws_feature_gates: String,
}

fn at_least_a_minute(text: &str) -> Result<Millis, String> {
    let millis: Millis = text.parse()?;
    if millis.0 < 60_000 {
        return Err("must be at least 1m".to_owned());
    }
    Ok(millis)
}

impl AwsArgs {
    /// Settings that are understood here, but whose work nobody does.
    fn check(&self) -> anyhow::Result<()> {
        if self.accepted.enable_zonal_shift {
            bail!(
                "--enable-zonal-shift: zones that are shifted away from are not watched yet; leave it out or say false"
            );
        }
        Ok(())
    }

    /// What of a machine is not for pods.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the share is clamped to 0..1 before it becomes millionths"
    )]
    pub fn shape(&self) -> CapacityOptions {
        let ppm = (self.vm_memory_overhead_percent.clamp(0.0, 1.0) * 1e6).round();
        CapacityOptions {
            vm_overhead_ppm: ppm as i64,
            reserved_enis: i64::from(self.reserved_enis),
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

    /// The settings of deciders.
    ///
    /// # Errors
    /// A feature gate that is not a bool, or a scheduler configuration that says nothing sensible.
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
            hold_ms: own.disruption_hold.0,
            bind_grace_ms: own.bind_grace.0,
            churn_rest_ms: own.churn_rest.0,
            launch_timeout_ms: own.launch_timeout.0,
            registration_timeout_ms: own.registration_timeout.0,
            initialization_timeout_ms: own.initialization_timeout.0,
            expiry_spread_percent: own.expiry_spread,
            launch_trial: own.launch_trial,
            launch_failures: own.launch_failures,
            launch_backoff_ms: own.launch_backoff.0,
            garbage_collection_ms: own.garbage_collection.0,
            resolve_ms: own.resolve.0,
            ..Settings::default()
        })
    }

    /// The configuration of the shell.
    ///
    /// # Errors
    /// A combination of flags that makes no sense.
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
            listen: Listen {
                https: on(listen.https_port),
                metrics: on(listen.metrics_port),
                health: on(listen.health_probe_port),
            },
            certificates,
            server_names: listen.server_names.clone(),
            insecure_debug: listen.insecure_debug,
            deny_impossible: listen.deny_impossible,
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
            ..Config::default()
        })
    }
}

/// Reads `--scheduler-config`; an empty text gives no constraints.
fn spread_defaults(text: &str) -> anyhow::Result<SpreadDefaults> {
    if text.trim().is_empty() {
        return Ok(SpreadDefaults::default());
    }
    let config: SchedulerConfig =
        serde_saphyr::from_str(text).context("--scheduler-config: not such a configuration")?;
    SpreadDefaults::of(&config).map_err(|error| anyhow::anyhow!("--scheduler-config: {error}"))
}

/// Reads `Name=bool` pairs over the defaults. An unknown gate is an error that names the nearest one.
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
