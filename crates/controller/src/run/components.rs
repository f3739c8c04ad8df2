//! The components of the service, one function each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use futures::future::BoxFuture;
use mortise_apis::CrdSet;
use mortise_apis::labels::WellKnown;
use mortise_apis::node_class::NodeClassKind;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_engine::decider::Decider;
use mortise_engine::engine::{Engine, EngineInput};
use mortise_engine::journal::JournalHeader;
use mortise_state::resource_kinds::ResourceKind;
use mortise_webhooks::Counters;
use mortise_webhooks::admission::AdmissionSettings;
use mortise_webhooks::extender::ExtenderState;
use mortise_webhooks::router::WebhookState;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::supervision::{
    ComponentExit, NOTICES, PROVIDER_WORKER, ShutdownTokens, exit_of, spawn_until,
};
use crate::client::Clients;
use crate::client::reader::Reader;
use crate::client::resource_kinds::ResourceKinds;
use crate::client::token_bucket::TokenBucket;
use crate::config::Config;
use crate::driver_message::{DriverMessage, ExecutorMessage};
use crate::effects::api::ApiWriter;
use crate::effects::cloud::CloudProviders;
use crate::effects::events::Events;
use crate::effects::leadership_deadline::LeadershipDeadline;
use crate::effects::lease::ClusterLease;
use crate::effects::{self, EffectClients, wake_pods};
use crate::election::{Election, RETRY_PERIOD, identity};
use crate::engine_loop::{self, Driver};
use crate::error::RunError;
use crate::flight_recorder::FlightRecorder;
use crate::notifications::Notifications;
use crate::serve::{DebugAccess, HttpsService, Listeners, serve};
use crate::service_state::ServiceState;
use crate::tls::certificates::Certificates;
use crate::tls::{ApiServers, Tls};
use crate::watch::{Watch, WatchHealth, interruption_notices};

/// Context that more than one component reads.
pub(super) struct ServiceContext {
    pub(super) config: Config,
    pub(super) clients: Clients,
    pub(super) clouds: CloudProviders,
    pub(super) namespace: String,
    pub(super) node_classes: Vec<NodeClassKind>,
    pub(super) shared: Arc<ServiceState>,
}

/// Notifications, and the task that sends them.
pub(super) type NotificationTask = (Notifications, BoxFuture<'static, ()>);

/// Everything that the components are built from.
pub(super) struct Components {
    pub(super) service: ServiceContext,
    pub(super) kinds: Vec<ResourceKind>,
    /// Name and namespace of the Lease; `None` = no election.
    pub(super) lease: Option<(String, String)>,
    pub(super) listeners: Listeners,
    pub(super) certificates: Certificates,
    pub(super) debug: DebugAccess,
    pub(super) notifications: Option<NotificationTask>,
    /// Sends traces.
    pub(super) send_traces: Option<BoxFuture<'static, ()>>,
    pub(super) engine: Engine,
}

/// Channels between the components.
struct Links<'a> {
    tasks: JoinSet<ComponentExit>,
    ends: &'a ShutdownTokens,
    inputs: mpsc::Sender<DriverMessage>,
    liveness: Arc<WatchHealth>,
    license: Arc<LeadershipDeadline>,
    memory: Arc<ExtenderState>,
    counters: Arc<Counters>,
}

impl Components {
    /// Spawns every component.
    pub(super) fn spawn(self, ends: &ShutdownTokens) -> JoinSet<ComponentExit> {
        let Self {
            service,
            kinds,
            lease,
            listeners,
            certificates,
            debug,
            notifications,
            send_traces,
            engine,
        } = self;
        let (inputs, received) = mpsc::channel(engine_loop::INPUTS);
        let (commands, orders) = mpsc::unbounded_channel();
        let mut links = Links {
            tasks: JoinSet::new(),
            ends,
            inputs,
            liveness: Arc::default(),
            license: Arc::new(LeadershipDeadline::new()),
            memory: Arc::new(ExtenderState::new(&service.namespace)),
            counters: Arc::default(),
        };
        links.spawn_effects(&service, notifications, orders);
        if let Some(send) = send_traces {
            spawn_until(&mut links.tasks, "traces", ends.effects.clone(), send);
        }
        links.spawn_driver(&service, engine, received, commands);
        links.spawn_watches(&service, kinds);
        links.spawn_notices(&service);
        links.spawn_provider_workers(&service);
        match lease {
            Some(lease) => links.spawn_election(&service, lease, listeners.addresses().https),
            None => links.spawn_probe(&service),
        }
        links.spawn_wake_pods(&service);
        let tls = certificates.tls();
        let https = links.https(service, debug, tls);
        let http = serve(https, listeners, ends.http.clone());
        links.tasks.spawn(exit_of("http", http));
        let period = certificates.period();
        let certificates = certificates.run(period, ends.inputs.clone());
        links.tasks.spawn(exit_of("certificates", certificates));
        links.tasks
    }
}

/// The engine, and its flight recorder if there is one.
///
/// # Errors
/// The first file of the recording cannot be written.
pub(super) fn engine(
    service: &ServiceContext,
    deciders: Vec<Box<dyn Decider>>,
    known: WellKnown,
) -> Result<Engine, RunError> {
    let config = &service.config;
    let now = service.shared.now();
    let served = ServedNodeClasses::only(service.node_classes.clone());
    let header = config.record.as_ref().map(|record| JournalHeader {
        recorded_by: config.version.clone(),
        started_at: now,
        file: 0,
        settings: config.settings.clone(),
        scheduler_config: record.scheduler_config.clone(),
        well_known: known.clone(),
        served: served.clone(),
        seed: config.seed,
    });
    let engine =
        Engine::new(deciders, config.settings.clone(), known, config.seed, now).serving(served);
    let (Some(record), Some(header)) = (&config.record, header) else {
        return Ok(engine);
    };
    let directory = record.directory.display().to_string();
    let recorder = FlightRecorder::start(record, header, Arc::clone(&service.shared));
    let recorder = recorder.map_err(|error| RunError::Record {
        directory: directory.clone(),
        message: error.to_string(),
    })?;
    tracing::info!(
        directory,
        max_bytes = record.max_bytes,
        "inputs of the engine are recorded"
    );
    Ok(engine.recorded_by(Box::new(recorder)))
}

impl Links<'_> {
    fn spawn_effects(
        &mut self,
        service: &ServiceContext,
        notifications: Option<NotificationTask>,
        orders: mpsc::UnboundedReceiver<ExecutorMessage>,
    ) {
        let config = &service.config;
        let limiter = Arc::new(TokenBucket::new(
            config.kube_client_qps,
            config.kube_client_burst,
        ));
        let api = ApiWriter::new(
            service.clients.main.clone(),
            limiter,
            Arc::new(ResourceKinds::new(&service.node_classes)),
            Arc::clone(&self.license),
        );
        let (notifications, send_notifications) = notifications.unzip();
        let shared = Arc::clone(&service.shared);
        let (events, send_events) = Events::new(api.clone(), shared, notifications);
        let outside = EffectClients {
            api,
            clouds: service.clouds.clone(),
            events,
            shared: Arc::clone(&service.shared),
            license: Arc::clone(&self.license),
        };
        let end = &self.ends.effects;
        spawn_until(&mut self.tasks, "events", end.clone(), send_events);
        if let Some(send) = send_notifications {
            spawn_until(&mut self.tasks, "notifications", end.clone(), send);
        }
        // Ends when the driver has ended and its effects have completed.
        let effects = effects::run(orders, self.inputs.clone(), outside, config.max_launches);
        spawn_until(&mut self.tasks, "effects", end.clone(), effects);
    }

    fn spawn_driver(
        &mut self,
        service: &ServiceContext,
        engine: Engine,
        inputs: mpsc::Receiver<DriverMessage>,
        effects: mpsc::UnboundedSender<ExecutorMessage>,
    ) {
        let driver = Driver {
            engine,
            shared: Arc::clone(&service.shared),
            liveness: Arc::clone(&self.liveness),
            extender: Arc::clone(&self.memory),
            inputs,
            completed: self.inputs.clone(),
            effects,
            stopping: Arc::clone(&self.ends.stopping),
        };
        self.tasks.spawn(run_driver_thread(driver));
    }

    fn spawn_watches(&mut self, service: &ServiceContext, kinds: Vec<ResourceKind>) {
        let unlisted = Arc::new(AtomicUsize::new(kinds.len()));
        for kind in kinds {
            let watch = Watch {
                kind,
                reader: service.clients.reader(),
                inputs: self.inputs.clone(),
                shared: Arc::clone(&service.shared),
                liveness: Arc::clone(&self.liveness),
                unlisted: Arc::clone(&unlisted),
            };
            let watch = watch.run(self.ends.inputs.clone());
            self.tasks.spawn(exit_of("watch", watch));
        }
    }

    fn spawn_notices(&mut self, service: &ServiceContext) {
        for provider in service.clouds.all() {
            let poll = interruption_notices::run(
                Arc::clone(provider),
                self.inputs.clone(),
                Arc::clone(&service.shared),
                self.ends.inputs.clone(),
            );
            self.tasks.spawn(async move { (NOTICES, poll.await) });
        }
    }

    fn spawn_provider_workers(&mut self, service: &ServiceContext) {
        for provider in service.clouds.all() {
            for worker in provider.workers() {
                let provider = provider.descriptor().name;
                tracing::debug!(
                    provider,
                    worker = worker.name,
                    "provider works in the background"
                );
                let end = self.ends.inputs.clone();
                spawn_until(&mut self.tasks, PROVIDER_WORKER, end, worker.run);
            }
        }
    }

    fn spawn_election(
        &mut self,
        service: &ServiceContext,
        lease: (String, String),
        listens: SocketAddr,
    ) {
        let (name, namespace) = lease;
        let election = Election {
            store: ClusterLease::new(service.clients.lease.clone(), &namespace, &name),
            identity: identity(),
            listens,
            server: service.clients.server.clone(),
            name,
            shared: Arc::clone(&service.shared),
            liveness: Arc::clone(&self.liveness),
            license: Arc::clone(&self.license),
            inputs: self.inputs.clone(),
            end: self.ends.inputs.clone(),
            quiet: self.ends.quiet.clone(),
        };
        self.tasks.spawn(exit_of("election", election.run()));
    }

    fn spawn_probe(&mut self, service: &ServiceContext) {
        tracing::warn!("leader election is disabled, a second process would act concurrently");
        let probe = lead_without_election(
            service.clients.lease_reader(),
            Arc::clone(&self.liveness),
            Arc::clone(&self.license),
            self.inputs.clone(),
        );
        spawn_until(&mut self.tasks, "probe", self.ends.inputs.clone(), probe);
    }

    fn spawn_wake_pods(&mut self, service: &ServiceContext) {
        let wake = wake_pods::run(
            service.clients.main.clone(),
            Arc::clone(&service.shared),
            Arc::clone(&self.memory),
            Arc::clone(&self.counters),
        );
        spawn_until(&mut self.tasks, "extender", self.ends.inputs.clone(), wake);
    }

    /// Handlers of the HTTPS listener.
    fn https(&self, service: ServiceContext, debug: DebugAccess, tls: Arc<Tls>) -> HttpsService {
        let ServiceContext {
            config,
            node_classes,
            shared,
            ..
        } = service;
        let webhooks = WebhookState {
            view: Arc::<ServiceState>::clone(&shared),
            counters: Arc::clone(&self.counters),
            extender: Arc::clone(&self.memory),
            rules: Arc::new(AdmissionSettings {
                deny_unsatisfiable: config.deny_unsatisfiable,
                offline: false,
                crds: CrdSet::for_classes(&config.node_classes, &node_classes),
            }),
            conversion: config.conversion,
        };
        HttpsService {
            shared,
            tls,
            webhooks,
            debug: Arc::new(debug),
            clients: config.extender_clients.into(),
            api_servers: match config.admission_clients {
                Some(clients) => ApiServers::Named(clients.names.into()),
                None => ApiServers::Anybody,
            },
        }
    }
}

/// Runs the driver on its own thread.
async fn run_driver_thread(driver: Driver) -> ComponentExit {
    let (done, ended) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let spawned = std::thread::Builder::new()
        .name("driver".to_owned())
        .spawn(move || {
            // There is no receiver after the shutdown timeout.
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

/// Leads from the start, without an election, and probes the API server.
async fn lead_without_election(
    reader: Reader,
    liveness: Arc<WatchHealth>,
    license: Arc<LeadershipDeadline>,
    inputs: mpsc::Sender<DriverMessage>,
) {
    license.extend_indefinitely();
    if inputs
        .send(DriverMessage::Input(EngineInput::Leading(true)))
        .await
        .is_err()
    {
        return;
    }
    loop {
        match tokio::time::timeout(RETRY_PERIOD * 2, reader.probe()).await {
            Ok(Ok(())) => liveness.record_response(),
            Ok(Err(error)) => tracing::debug!(%error, "API server did not respond"),
            Err(_) => tracing::debug!("API server did not respond in time"),
        }
        tokio::time::sleep(RETRY_PERIOD).await;
    }
}
