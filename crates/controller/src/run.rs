//! Putting the parts together on a cluster, supervising them, and ending them in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mortise_core::cloud::{CloudProvider, NodeClassKind};
use mortise_core::deciders::Decider;
use mortise_core::engine::{Engine, EngineInput};
use mortise_core::labels::WellKnown;
use mortise_core::served_node_classes::ServedNodeClasses;
use mortise_core::settings::RepairPolicies;
use mortise_webhooks::Counters;
use mortise_webhooks::extender::ExtenderState;
use mortise_webhooks::router::WebhookState;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::auth::DebugAccess;
use crate::certificates::Certificates;
use crate::clients::Clients;
use crate::clock::SystemClock;
use crate::config::{CertificateSource, Config};
use crate::driver::{self, Driver, DriverMessage};
use crate::effects::api::ApiWriter;
use crate::effects::cloud::CloudProviders;
use crate::effects::events::Events;
use crate::effects::lease::ClusterLease;
use crate::effects::token_bucket::TokenBucket;
use crate::effects::{self, EffectClients};
use crate::error::RunError;
use crate::interruption_notices;
use crate::leadership_deadline::LeadershipDeadline;
use crate::lease::{Election, RETRY_PERIOD, identity};
use crate::objects::{ResourceKind, ResourceKinds};
use crate::preflight::{self, RequiredPermissions};
use crate::serve::{Addresses, HttpsService, Listeners, serve};
use crate::service_state::ServiceState;
use crate::shutdown::Shutdown;
use crate::tls::ApiServers;
use crate::watch::Watch;
use crate::watch_health::WatchHealth;

/// How long effects that run at shutdown may go on. Each may be repeated, so cutting one off loses nothing but time.
const LAST_EFFECTS: Duration = Duration::from_secs(5);

/// Runs the service until SIGTERM or SIGINT, and then in order to its end. `deciders` are stepped in their order.
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
    /// Where it listens.
    #[must_use]
    pub const fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// What it knows.
    #[must_use]
    pub fn shared(&self) -> Arc<ServiceState> {
        Arc::clone(&self.shared)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// What ended it, unless it was asked to.
    pub async fn wait(self) -> Result<(), RunError> {
        self.task
            .await
            .unwrap_or(Err(RunError::Ended("the supervisor")))
    }
}

/// Starts the service. It ends when `shutdown` is triggered.
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
    crate::failpoint::arm_from_environment().map_err(|error| RunError::Usage(error.to_string()))?;
    let debug = debug_access(&config, &clients)?;
    let mut config = config;
    config.settings.repair = repair_policies(&providers);
    let clouds = CloudProviders::new(providers);
    let node_classes = clouds.node_class_kinds();
    let mut kinds = ResourceKind::watched(&node_classes);
    if !config.settings.spread_defaults.is_empty() {
        kinds.extend(ResourceKind::selecting());
    }
    if config.settings.gates.node_overlay {
        kinds.push(ResourceKind::overlays());
    }
    if !config.settings.ignore_devices {
        let devices = ResourceKind::devices();
        if preflight::serves(&clients, &devices).await? {
            kinds.extend(devices);
        } else {
            tracing::warn!(
                "API server does not serve resource.k8s.io/v1, ResourceClaims are ignored"
            );
            config.settings.ignore_devices = true;
        }
    }
    let namespace = config
        .namespace
        .clone()
        .unwrap_or_else(|| clients.namespace.clone());
    let lease = config.leader_election.as_ref().map(|election| {
        (
            election.name.clone(),
            election
                .namespace
                .clone()
                .unwrap_or_else(|| namespace.clone()),
        )
    });
    let secret = match &config.certificates {
        CertificateSource::Secret { name, .. } => Some((name.clone(), namespace.clone())),
        CertificateSource::Directory(_) | CertificateSource::Memory => None,
    };
    let needs = RequiredPermissions {
        lease: lease.clone(),
        secret,
    };
    preflight::check(&clients, &kinds, &needs).await?;
    let listeners = Listeners::bind(&config.listen).await?;

    let known = well_known(&clouds);
    let effective = if config.effective.is_null() {
        serde_json::json!({ "settings": config.settings })
    } else {
        config.effective.clone()
    };
    let shared = ServiceState::telling(
        Arc::new(SystemClock),
        known.clone(),
        &config.version,
        effective,
        config.detail,
    );
    shared.explain_with(config.settings.solve_options());
    clients.count_writes(shared.metrics.count_writes());
    let mut certificates = Certificates::new(
        &config.certificates,
        &config.server_names,
        Some((&clients.main, &namespace)),
        Arc::clone(&shared),
    )?
    .with_admission_ca(
        config
            .admission_clients
            .as_ref()
            .map(|clients| clients.ca.clone()),
    );
    certificates.refresh().await?;
    let addresses = listeners.addresses();
    let parts = Components {
        config,
        clients,
        clouds,
        kinds,
        namespace,
        node_classes,
        lease,
        listeners,
        certificates,
        debug,
        shared: Arc::clone(&shared),
        known,
    };
    let task = tokio::spawn(parts.supervise(deciders, shutdown));
    Ok(RunningService {
        addresses,
        shared,
        task,
    })
}

fn debug_access(config: &Config, clients: &Clients) -> Result<DebugAccess, RunError> {
    let https = config.listen.https;
    if !config.insecure_debug {
        return Ok(DebugAccess::cluster(clients.reviews.clone()));
    }
    if !https.ip().is_loopback() {
        return Err(RunError::Usage(format!(
            "--insecure-debug requires a loopback bind address, because debug paths need no authentication; {https} is not one (use 127.0.0.1)"
        )));
    }
    tracing::warn!(address = %https, "debug paths require no token");
    Ok(DebugAccess::Loopback)
}

/// What the providers say about sick nodes.
fn repair_policies(providers: &[Arc<dyn CloudProvider>]) -> Vec<RepairPolicies> {
    let of = |provider: &Arc<dyn CloudProvider>| RepairPolicies {
        serves: ServedNodeClasses::only(provider.node_class_kinds()),
        policies: provider.repair_policies(),
    };
    providers.iter().map(of).collect()
}

/// Label keys that some provider defines.
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

struct Components {
    config: Config,
    clients: Clients,
    clouds: CloudProviders,
    kinds: Vec<ResourceKind>,
    namespace: String,
    node_classes: Vec<NodeClassKind>,
    lease: Option<(String, String)>,
    listeners: Listeners,
    certificates: Certificates,
    debug: DebugAccess,
    shared: Arc<ServiceState>,
    known: WellKnown,
}

/// A part with its name and how it ended.
type ComponentExit = (&'static str, Result<(), RunError>);

/// The ends of the parts, in the order in which they are asked for.
struct ShutdownTokens {
    /// Watches, notices, certificates, probes, election.
    inputs: CancellationToken,
    http: CancellationToken,
    effects: CancellationToken,
    /// Nothing acts any more: the Lease may go.
    quiet: CancellationToken,
    stopping: Arc<AtomicBool>,
}

impl Components {
    async fn supervise(
        self,
        deciders: Vec<Box<dyn Decider>>,
        shutdown: Shutdown,
    ) -> Result<(), RunError> {
        let (shared, timeout) = (Arc::clone(&self.shared), self.config.shutdown_timeout);
        let ends = ShutdownTokens {
            inputs: CancellationToken::new(),
            http: CancellationToken::new(),
            effects: CancellationToken::new(),
            quiet: CancellationToken::new(),
            stopping: Arc::new(AtomicBool::new(false)),
        };
        let mut tasks = self.spawn(deciders, &ends);
        let result = loop {
            tokio::select! {
                () = shutdown.requested() => break Ok(()),
                ended = tasks.join_next() => match ended {
                    // A cloud that sends no messages.
                    Some(Ok(("notices", Ok(())))) => {}
                    Some(Ok((name, Ok(())))) => break Err(RunError::Ended(name)),
                    Some(Ok((_, Err(error)))) => break Err(error),
                    Some(Err(_)) => break Err(RunError::Ended("a task (it panicked)")),
                    None => break Err(RunError::Ended("everything")),
                },
            }
        };
        if let Err(error) = &result {
            tracing::error!(%error, "component failed, shutting down");
        }
        shared.health.set_stopping();
        if tokio::time::timeout(timeout, end(ends, tasks))
            .await
            .is_err()
        {
            tracing::warn!(seconds = timeout.as_secs(), "shutdown timed out");
        }
        result
    }

    fn spawn(
        self,
        deciders: Vec<Box<dyn Decider>>,
        ends: &ShutdownTokens,
    ) -> JoinSet<ComponentExit> {
        let Self {
            config,
            clients,
            clouds,
            kinds,
            namespace,
            node_classes,
            lease,
            listeners,
            certificates,
            debug,
            shared,
            known,
        } = self;
        let mut tasks: JoinSet<ComponentExit> = JoinSet::new();
        let liveness = Arc::new(WatchHealth::default());
        let (inputs, received) = mpsc::channel(driver::INPUTS);
        let (commands, orders) = mpsc::unbounded_channel();

        let limiter = Arc::new(TokenBucket::new(
            config.kube_client_qps,
            config.kube_client_burst,
        ));
        let license = Arc::new(LeadershipDeadline::new());
        let api = ApiWriter::new(
            clients.main.clone(),
            limiter,
            Arc::new(ResourceKinds::new(node_classes.clone())),
            Arc::clone(&license),
        );
        let (events, send_events) = Events::new(api.clone(), Arc::clone(&shared));
        let outside = EffectClients {
            api,
            clouds: clouds.clone(),
            events,
            shared: Arc::clone(&shared),
            license: Arc::clone(&license),
        };
        spawn_until(&mut tasks, "events", ends.effects.clone(), send_events);
        // Ends by itself when the driver has ended and what runs is done.
        spawn_until(
            &mut tasks,
            "effects",
            ends.effects.clone(),
            effects::run(orders, inputs.clone(), outside, config.max_launches),
        );

        let engine = Engine::new(
            deciders,
            config.settings.clone(),
            known,
            config.seed,
            shared.now(),
        )
        .serving(ServedNodeClasses::only(node_classes.clone()));
        let memory = Arc::new(ExtenderState::of(&namespace));
        let driver = Driver {
            engine,
            shared: Arc::clone(&shared),
            liveness: Arc::clone(&liveness),
            extender: Arc::clone(&memory),
            inputs: received,
            answers: inputs.clone(),
            effects: commands,
            stopping: Arc::clone(&ends.stopping),
        };
        tasks.spawn(driver_thread(driver));

        let unlisted = Arc::new(AtomicUsize::new(kinds.len()));
        for kind in kinds {
            let watch = Watch {
                kind,
                client: clients.main.clone(),
                inputs: inputs.clone(),
                shared: Arc::clone(&shared),
                liveness: Arc::clone(&liveness),
                unlisted: Arc::clone(&unlisted),
            };
            tasks.spawn(named("watch", watch.run(ends.inputs.clone())));
        }
        for provider in clouds.all() {
            let poll = interruption_notices::run(
                Arc::clone(provider),
                inputs.clone(),
                Arc::clone(&shared),
                ends.inputs.clone(),
            );
            tasks.spawn(async move { ("notices", poll.await) });
        }
        match lease {
            Some((name, namespace)) => {
                let election = Election {
                    store: ClusterLease::new(clients.lease.clone(), &namespace, &name),
                    identity: identity(),
                    name,
                    shared: Arc::clone(&shared),
                    liveness,
                    license,
                    inputs,
                    end: ends.inputs.clone(),
                    quiet: ends.quiet.clone(),
                };
                tasks.spawn(named("election", election.run()));
            }
            None => {
                tracing::warn!(
                    "leader election is disabled, a second process would act concurrently"
                );
                spawn_until(
                    &mut tasks,
                    "probe",
                    ends.inputs.clone(),
                    lead_alone(clients.lease.clone(), liveness, license, inputs),
                );
            }
        }

        let counters = Arc::<Counters>::default();
        spawn_until(
            &mut tasks,
            "extender",
            ends.inputs.clone(),
            effects::wake_pods::run(
                clients.main.clone(),
                Arc::clone(&shared),
                Arc::clone(&memory),
                Arc::clone(&counters),
            ),
        );
        let webhooks = WebhookState {
            world: Arc::<ServiceState>::clone(&shared),
            counters,
            memory,
            rules: Arc::new(mortise_webhooks::admission::AdmissionSettings {
                deny_unsatisfiable: config.deny_unsatisfiable,
                offline: false,
                node_class_kinds: node_classes,
            }),
            conversion: config.conversion,
        };
        let service = HttpsService {
            shared,
            webhooks,
            debug: Arc::new(debug),
            clients: config.extender_clients.clone().into(),
            api_servers: match &config.admission_clients {
                Some(clients) => ApiServers::Named(clients.names.clone().into()),
                None => ApiServers::Anybody,
            },
        };
        tasks.spawn(named(
            "http",
            serve(service, certificates.tls(), listeners, ends.http.clone()),
        ));
        let period = certificates.period();
        tasks.spawn(named(
            "certificates",
            certificates.run(period, ends.inputs.clone()),
        ));
        tasks
    }
}

async fn named(name: &'static str, part: impl Future<Output = ()>) -> ComponentExit {
    part.await;
    (name, Ok(()))
}

fn spawn_until(
    tasks: &mut JoinSet<ComponentExit>,
    name: &'static str,
    end: CancellationToken,
    part: impl Future<Output = ()> + Send + 'static,
) {
    tasks.spawn(async move {
        tokio::select! {
            () = end.cancelled() => {}
            () = part => {}
        }
        (name, Ok(()))
    });
}

/// Runs the driver on a thread of its own.
async fn driver_thread(driver: Driver) -> ComponentExit {
    let (done, ended) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let spawned = std::thread::Builder::new()
        .name("driver".to_owned())
        .spawn(move || {
            // Nobody waits any more when the process is past its shutdown time.
            drop(done.send(runtime.block_on(driver.run())));
        });
    if let Err(error) = spawned {
        tracing::error!(%error, "failed to start engine thread");
        return ("driver", Err(RunError::Ended("the driver")));
    }
    // A panic drops the sender; the panic itself was printed.
    (
        "driver",
        ended.await.unwrap_or(Ok(())).map_err(RunError::from),
    )
}

/// Without an election: leads from the start, and asks the API server for a sign of life.
async fn lead_alone(
    client: kube::Client,
    liveness: Arc<WatchHealth>,
    license: Arc<LeadershipDeadline>,
    inputs: mpsc::Sender<DriverMessage>,
) {
    license.extend_for_ever();
    if inputs
        .send(DriverMessage::Input(EngineInput::Leading(true)))
        .await
        .is_err()
    {
        return;
    }
    loop {
        match tokio::time::timeout(RETRY_PERIOD * 2, client.apiserver_version()).await {
            Ok(Ok(_)) => liveness.answered(),
            Ok(Err(error)) => tracing::debug!(%error, "API server did not respond"),
            Err(_) => tracing::debug!("API server did not respond in time"),
        }
        tokio::time::sleep(RETRY_PERIOD).await;
    }
}

/// Ends in order: no more decisions, no more inputs, last answers, last effects, and then the Lease.
async fn end(ends: ShutdownTokens, mut tasks: JoinSet<ComponentExit>) {
    ends.stopping.store(true, Ordering::Relaxed);
    ends.inputs.cancel();
    ends.http.cancel();
    let cut = tokio::time::sleep(LAST_EFFECTS);
    tokio::pin!(cut);
    let mut effects_end = false;
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                None => return,
                Some(Ok(("effects", _))) => {
                    effects_end = true;
                    ends.effects.cancel();
                    ends.quiet.cancel();
                }
                Some(Ok((_, Err(error)))) => tracing::warn!(%error, "component failed during shutdown"),
                Some(_) => {}
            },
            () = &mut cut, if !effects_end => {
                effects_end = true;
                tracing::warn!("running effects were cancelled, the next leader repeats them");
                ends.effects.cancel();
                ends.quiet.cancel();
            }
        }
    }
}
