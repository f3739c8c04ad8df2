//! Starts the components on a cluster, supervises them, and ends them in order.

mod capture;
mod components;
mod pod_groups;
mod preflight;
mod shutdown;
mod supervision;

use std::sync::Arc;

use futures::FutureExt as _;
use mortise_apis::conversion::converted_definitions;
use mortise_apis::labels::WellKnown;
use mortise_apis::node_class::NodeClassKind;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_cloudprovider::CloudProvider;
use mortise_engine::decider::Decider;
use mortise_planning::settings::{InstanceTagging, LaunchBatching, RepairPolicies, Settings};
use mortise_state::resource_kinds::{ObjectKind, ResourceKind, WatchCondition};
use mortise_state::snapshot::GangKind;

use crate::client::{Clients, Reviewer};
use crate::clock::SystemClock;
use crate::config::{CertificateSource, Config};
use crate::effects::cloud::CloudProviders;
use crate::effects::{self, failpoint};
use crate::error::RunError;
use crate::notifications::Notifications;
use crate::serve::{Addresses, DebugAccess, Listeners};
use crate::service_state::ServiceState;
use crate::tls::certificates::Certificates;
use crate::traces::{TraceSource, Traces};
pub use capture::{CapturedCluster, capture};
use components::{Components, ServiceContext};
use preflight::RequiredPermissions;
pub use shutdown::Shutdown;
use supervision::{ShutdownTokens, supervise};

/// Runs the service until SIGTERM or SIGINT, and then shuts it down in order. `deciders` are stepped in their order.
///
/// # Errors
/// What kept it from starting, or ended it; [`RunError::exit_code`] is the exit code of the process.
pub async fn run(
    config: Config,
    clients: Clients,
    providers: Vec<Arc<dyn CloudProvider>>,
    deciders: Vec<Box<dyn Decider>>,
) -> Result<(), RunError> {
    let shutdown = Shutdown::new();
    shutdown
        .on_signals()
        .map_err(|error| RunError::Usage(format!("signals cannot be handled: {error}")))?;
    let running = tokio::select! {
        running = start(config, clients, providers, deciders, shutdown.clone()) => running?,
        () = shutdown.requested() => return Ok(()),
    };
    running.wait().await
}

/// A service that has started.
#[derive(Debug)]
pub struct RunningService {
    addresses: Addresses,
    shared: Arc<ServiceState>,
    task: tokio::task::JoinHandle<Result<(), RunError>>,
}

impl RunningService {
    /// Addresses that it listens on.
    #[must_use]
    pub const fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// State of the service.
    #[must_use]
    pub fn shared(&self) -> Arc<ServiceState> {
        Arc::clone(&self.shared)
    }

    /// Waits until it exits.
    ///
    /// # Errors
    /// The failure that ended it, unless a shutdown was requested.
    pub async fn wait(self) -> Result<(), RunError> {
        self.task
            .await
            .unwrap_or(Err(RunError::Ended("the supervisor")))
    }
}

/// Starts the service. It exits when `shutdown` is triggered.
///
/// # Errors
/// What kept it from starting.
pub async fn start(
    config: Config,
    clients: Clients,
    providers: Vec<Arc<dyn CloudProvider>>,
    deciders: Vec<Box<dyn Decider>>,
    shutdown: Shutdown,
) -> Result<RunningService, RunError> {
    failpoint::arm_from_environment().map_err(|error| RunError::Usage(error.to_string()))?;
    let debug = debug_access(&config, &clients)?;
    let mut config = config;
    config.settings.repair = repair_policies(&providers);
    config.settings.tagging = instance_tagging(&providers);
    config.settings.launch_batching = launch_batching(&providers);
    let clouds = CloudProviders::new(providers);
    let node_classes = clouds.node_class_kinds();
    let kinds = watched_kinds(&mut config.settings, &clients, &node_classes).await?;
    let namespace = config
        .namespace
        .clone()
        .unwrap_or_else(|| clients.namespace.clone());
    config.settings.namespace.clone_from(&namespace);
    let needs = required_permissions(&config, &namespace);
    preflight::check(&clients, &kinds, &needs).await?;
    let listeners = Listeners::bind(&config.listen).await?;

    let known = well_known(&clouds);
    let shared = service_state(&config, known.clone());
    shared.set_providers(clouds.all().cloned().collect());
    clients.count_writes(shared.metrics.effects.count_writes());
    let certificates = load_certificates(&config, &clients, &namespace, &shared).await?;
    let notifications = config.notifications.clone();
    let notifications = notifications
        .map(|config| Notifications::new(config, Arc::clone(&shared)))
        .transpose()?
        .map(|(notifications, task)| (notifications, task.boxed()));
    let traces = config.traces.clone();
    let traces = traces
        .map(|traces| {
            let source = TraceSource {
                version: config.version.clone(),
                instance: effects::hostname(),
            };
            Traces::new(traces, source, shared.metrics.effects.count_spans())
        })
        .transpose()?;
    let send_traces = traces.map(|(traces, task)| {
        shared.set_traces(traces);
        task.boxed()
    });
    let addresses = listeners.addresses();
    let service = ServiceContext {
        config,
        clients,
        clouds,
        namespace,
        node_classes,
        shared: Arc::clone(&shared),
    };
    let engine = components::engine(&service, deciders, known)?;
    let components = Components {
        service,
        kinds,
        lease: needs.lease,
        listeners,
        certificates,
        debug,
        notifications,
        send_traces,
        engine,
    };
    let (state, timeout) = (
        Arc::clone(&shared),
        components.service.config.shutdown_timeout,
    );
    let task = tokio::spawn(async move {
        let ends = ShutdownTokens::default();
        let tasks = components.spawn(&ends);
        supervise(tasks, ends, &state, timeout, shutdown).await
    });
    Ok(RunningService {
        addresses,
        shared,
        task,
    })
}

/// The kinds to watch. Devices, capacity buffers and policies are ignored where the API server does not serve them.
async fn watched_kinds(
    settings: &mut Settings,
    clients: &Clients,
    node_classes: &[NodeClassKind],
) -> Result<Vec<ResourceKind>, RunError> {
    let all = ResourceKind::all(node_classes);
    let are_served = async |is_asked: fn(&ResourceKind) -> bool| {
        let kinds: Vec<&ResourceKind> = all.iter().filter(|kind| is_asked(kind)).collect();
        preflight::are_served(clients, &kinds).await
    };
    if !settings.ignore_devices
        && !are_served(|kind| kind.condition == WatchCondition::Devices).await?
    {
        tracing::warn!("API server does not serve resource.k8s.io/v1, ResourceClaims are ignored");
        settings.ignore_devices = true;
    }
    if settings.gates.capacity_buffer
        && !are_served(|kind| kind.index == ObjectKind::Buffer).await?
    {
        tracing::error!(
            "feature gate CapacityBuffer is on, but CRD capacitybuffers.autoscaling.x-k8s.io is not installed: \
                 CapacityBuffers are not served; install the CRD and restart, or turn the gate off"
        );
        settings.gates.capacity_buffer = false;
    }
    if settings.provisioning_requests
        && !are_served(|kind| kind.condition == WatchCondition::Requests).await?
    {
        tracing::error!(
            "--provisioning-requests is set, but the API server does not serve provisioningrequests.autoscaling.x-k8s.io in \
                 version v1: they are not served; install the CRD and restart, or leave the flag out"
        );
        settings.provisioning_requests = false;
    }
    let has_policies = are_served(|kind| kind.condition == WatchCondition::Policies).await?;
    if !has_policies {
        tracing::info!(
            "CRD nodepoolpolicies.mortise.sh is not installed: there are no NodePoolPolicies; install the CRD and restart \
             to use them"
        );
    }
    let pod_groups = pod_groups::served(clients, &all).await?;
    settings.gangs = pod_groups::gang_kinds(&pod_groups);
    if settings.provisioning_requests {
        settings.gangs.insert(GangKind::Request);
    }
    let has_spread_defaults = !settings.spread_defaults.is_empty();
    let is_met = |condition| match condition {
        WatchCondition::Always => true,
        WatchCondition::NodeOverlays => settings.gates.node_overlay,
        WatchCondition::Policies => has_policies,
        WatchCondition::Devices => !settings.ignore_devices,
        // In the version that is served.
        WatchCondition::PodGroups => false,
        WatchCondition::SpreadDefaults => has_spread_defaults,
        WatchCondition::Buffers => settings.gates.capacity_buffer,
        WatchCondition::SpreadDefaultsOrBuffers => {
            has_spread_defaults || settings.gates.capacity_buffer
        }
        WatchCondition::Requests => settings.provisioning_requests,
        WatchCondition::BuffersOrRequests => {
            settings.gates.capacity_buffer || settings.provisioning_requests
        }
        WatchCondition::BuffersOrHandOver => settings.gates.capacity_buffer || settings.hand_over,
    };
    let watched = all.into_iter().filter(|kind| is_met(kind.condition));
    // Before the pods, which are the last and the most: without its PodGroup a pod of a gang waits.
    Ok(pod_groups.into_iter().chain(watched).collect())
}

/// Name and namespace of the Lease and of the Secret, if any.
fn required_permissions(config: &Config, namespace: &str) -> RequiredPermissions {
    let lease = config.leader_election.as_ref().map(|election| {
        let own = election.namespace.clone();
        (
            election.name.clone(),
            own.unwrap_or_else(|| namespace.to_owned()),
        )
    });
    let secret = match &config.certificates {
        CertificateSource::Secret { name, .. } => Some((name.clone(), namespace.to_owned())),
        CertificateSource::Directory(_) | CertificateSource::Memory => None,
    };
    RequiredPermissions {
        lease,
        secret,
        pod_deletion_costs: config.settings.pod_deletion_costs,
        hand_over: config.settings.hand_over,
    }
}

fn service_state(config: &Config, known: WellKnown) -> Arc<ServiceState> {
    let effective = if config.effective.is_null() {
        serde_json::json!({ "settings": config.settings })
    } else {
        config.effective.clone()
    };
    let shared = ServiceState::with_detail(
        Arc::new(SystemClock),
        known,
        &config.version,
        effective,
        config.detail,
    );
    shared.set_settings(config.settings.clone());
    if let Some(key) = &config.cost_label {
        shared.costs.set_label(Arc::clone(key));
    }
    shared
}

/// Certificates, read or created once.
async fn load_certificates(
    config: &Config,
    clients: &Clients,
    namespace: &str,
    shared: &Arc<ServiceState>,
) -> Result<Certificates, RunError> {
    let admission = config.admission_clients.as_ref();
    let mut certificates = Certificates::new(
        &config.certificates,
        &config.server_names,
        Some((clients, namespace)),
        Arc::clone(shared),
    )?
    .with_admission_ca(admission.map(|clients| clients.ca.clone()))
    .with_definitions(converted_definitions(&config.node_classes));
    certificates.refresh().await?;
    Ok(certificates)
}

fn debug_access(config: &Config, clients: &Clients) -> Result<DebugAccess, RunError> {
    let https = config.listen.https;
    if !config.insecure_debug {
        return Ok(DebugAccess::cluster(Reviewer::new(clients.reviews.clone())));
    }
    if !https.ip().is_loopback() {
        return Err(RunError::Usage(format!(
            "--insecure-debug requires a loopback bind address, because debug paths need no authentication; {https} is not one (use 127.0.0.1)"
        )));
    }
    tracing::warn!(address = %https, "debug paths require no token");
    Ok(DebugAccess::Loopback)
}

/// The providers' repair policies for unhealthy nodes.
fn repair_policies(providers: &[Arc<dyn CloudProvider>]) -> Vec<RepairPolicies> {
    let of = |provider: &Arc<dyn CloudProvider>| RepairPolicies {
        serves: ServedNodeClasses::only(provider.descriptor().node_classes),
        policies: provider.descriptor().repair_policies.to_vec(),
    };
    providers.iter().map(of).collect()
}

/// What the providers tag after a launch.
fn instance_tagging(providers: &[Arc<dyn CloudProvider>]) -> Vec<InstanceTagging> {
    let of = |provider: &Arc<dyn CloudProvider>| InstanceTagging {
        serves: ServedNodeClasses::only(provider.descriptor().node_classes),
        annotations: provider.descriptor().tagged_annotations,
    };
    providers.iter().map(of).collect()
}

/// Which providers make several launches by one call.
fn launch_batching(providers: &[Arc<dyn CloudProvider>]) -> Vec<LaunchBatching> {
    let of = |provider: &Arc<dyn CloudProvider>| {
        let descriptor = provider.descriptor();
        Some(LaunchBatching {
            serves: ServedNodeClasses::only(descriptor.node_classes),
            window: descriptor.launch_window?,
        })
    };
    providers.iter().filter_map(of).collect()
}

/// Label keys that any provider defines.
fn well_known(clouds: &CloudProviders) -> WellKnown {
    clouds
        .all()
        .map(|cloud| cloud.well_known())
        .fold(WellKnown::core(), |all, each| {
            let valued = each.keys().filter_map(|key| {
                each.known_values(key)
                    .map(|values| (Arc::clone(key), values.to_vec()))
            });
            let all = valued.fold(all, |all, (key, values)| all.with_values(key, values));
            all.with_keys(each.keys().cloned())
                .with_domains(each.domains().cloned())
        })
}
