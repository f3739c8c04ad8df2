//! The event loop: virtual time, the production engine, and everything around it.

mod changes;
mod execution;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::NodeClassKind;
use mortise_apis::values::since;
use mortise_cloudprovider::InstanceType;
use mortise_engine::decider::Decider;
use mortise_engine::effect::{Effect, Event};
use mortise_engine::engine::EngineInput;
use mortise_engine::freshness::WatchState;
use mortise_engine::record::Record;
use mortise_planning::disruption::command::DisruptionCommand;
use mortise_planning::scheduling::SchedulerConfig;
use mortise_state::resource_kinds::{ObjectKey, ObjectKind};
use mortise_state::snapshot::Snapshot;

use crate::clock::Action;
use crate::cluster::{
    ApiServer, Cloud, Cluster, Extender, KubeScheduler, Kubelets, NodeClassTypes,
    WorkloadControllers, complete_pod, create_planned, latency, mark_node_ready, object,
    remove_instance, remove_stopped_pod, remove_taint,
};
use crate::faults::{FaultInjector, WatchFault};
use crate::invariants::{Invariants, check_freshness};
use crate::node_claim_history::NodeClaimHistory;
use crate::options::SimOptions;
use crate::recorded_cluster::RecordedCluster;
use crate::recordings::Recordings;
use crate::replicas::Replicas;
use crate::scores::{ClusterMinute, Scores};
use crate::stats::{CostMeter, Stats};
use crate::watches::{Watches, report_state};

/// Interval of the controllers.
const TICK_MS: i64 = 1_000;

/// A virtual cluster with the production deciders in it.
pub struct Simulation {
    options: SimOptions,
    pub(crate) cluster: Cluster,
    kubelets: Kubelets,
    kube_scheduler: KubeScheduler,
    workloads: WorkloadControllers,
    replicas: Replicas,
    watches: Watches,
    faults: FaultInjector,
    invariants: Invariants,
    cost: CostMeter,
    records: Vec<Record>,
    commands: Vec<DisruptionCommand>,
    events: Vec<Event>,
    /// `None`: not asked for.
    node_claims: Option<NodeClaimHistory>,
}

impl Simulation {
    /// A cluster with NodePools and workloads and without nodes.
    #[must_use]
    pub fn new(options: SimOptions, deciders: Vec<Box<dyn Decider>>) -> Self {
        Self::start(options, deciders, None)
    }

    /// The same; every process of the service is recorded.
    #[must_use]
    pub fn recorded(
        options: SimOptions,
        deciders: Vec<Box<dyn Decider>>,
        recordings: Recordings,
    ) -> Self {
        Self::start(options, deciders, Some(recordings))
    }

    fn start(
        options: SimOptions,
        deciders: Vec<Box<dyn Decider>>,
        recordings: Option<Recordings>,
    ) -> Self {
        let now = options.start;
        let mut simulation = Self {
            cluster: Cluster::new(&options),
            kubelets: Kubelets::default(),
            kube_scheduler: KubeScheduler::default(),
            workloads: WorkloadControllers::new(&options),
            replicas: Replicas::new(&options, deciders, now, recordings),
            watches: Watches::default(),
            faults: FaultInjector::default(),
            invariants: Invariants::default(),
            cost: CostMeter::new(now),
            records: Vec::new(),
            commands: Vec::new(),
            events: Vec::new(),
            node_claims: None,
            options,
        };
        let api_server = &mut simulation.cluster.api_server;
        simulation
            .workloads
            .install(&simulation.options, api_server, now);
        simulation.cluster.clock.at(now, Action::Tick);
        simulation.plan_interruption();
        simulation
    }

    /// Virtual time.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.cluster.now()
    }

    /// The cluster as the deciders see it.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        self.replicas.snapshot(self.cluster.now())
    }

    /// These node classes have other instance types than the cloud.
    pub(crate) fn set_node_classes(&mut self, types: BTreeMap<NodeClassKey, Vec<InstanceType>>) {
        let types = NodeClassTypes::new(types);
        self.cluster.cloud.set_node_classes(types);
    }

    /// Decisions since the last call.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Disruption commands that began since the last call.
    pub fn take_commands(&mut self) -> Vec<DisruptionCommand> {
        std::mem::take(&mut self.commands)
    }

    /// The cluster as a snapshot file has it. `served`: its node classes.
    ///
    /// # Errors
    /// An object cannot be read, which is a bug.
    pub fn record(&self, served: &[NodeClassKind]) -> Result<RecordedCluster, serde_json::Error> {
        let mut recorded = RecordedCluster {
            taken_at: self.now(),
            recorded_by: env!("CARGO_PKG_VERSION").to_owned(),
            settings: self.options.settings.clone(),
            scheduler_config: SchedulerConfig::default(),
            well_known: self.options.well_known.clone(),
            served: served.to_vec(),
            objects: BTreeMap::new(),
            catalogs: self
                .options
                .node_classes
                .iter()
                .map(|class| {
                    let types = self.cluster.cloud.catalog_of(class, self.now());
                    (class.clone(), types)
                })
                .collect(),
            names_are_hashed: false,
        };
        for (key, value) in self.cluster.api_server.iter() {
            recorded.add(object(key, value.clone())?);
        }
        Ok(recorded)
    }

    /// Events since the last call, in the order in which they were decided.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Totals so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            virtual_seconds: since(self.now(), self.options.start) / 1000,
            ..self.cluster.stats.clone()
        }
    }

    /// From now on, nodes and the bound of their price are counted for the scores. Cost: one pass over the nodes per minute, and
    /// every ten minutes one over pods and instance types.
    pub fn keep_scores(&mut self) {
        let now = self.now();
        self.cluster.scores.begin(now);
    }

    /// Scores so far; what [`Self::keep_scores`] counts is 0 without it.
    #[must_use]
    pub fn scores(&self) -> Scores {
        let stats = &self.cluster.stats;
        let store = &self.cluster.api_server;
        let late = self.workloads.late_daemon_pods(store, self.now());
        let scores = self.cluster.scores.scores();
        Scores {
            spent_micro_usd: stats.spent_micro_usd,
            evictions: stats.evictions,
            nodes_launched: stats.nodes_launched,
            violations: stats.violations.len() as u64,
            daemon_pods: scores.daemon_pods + late,
            late_daemon_pods: scores.late_daemon_pods + late,
            interruptions: stats.interruptions,
            gangs: self.cluster.gangs.ran(),
            gang_wait_s: self.cluster.gangs.waited_s(),
            ..scores
        }
    }

    /// Every minute since [`Self::keep_scores`], for plots.
    #[must_use]
    pub fn minutes(&self) -> &[ClusterMinute] {
        self.cluster.scores.minutes()
    }

    /// From now on, what becomes of NodeClaims is noted.
    pub fn note_node_claims(&mut self) {
        self.node_claims.get_or_insert_default();
    }

    /// What became of NodeClaims since [`Self::note_node_claims`].
    #[must_use]
    pub const fn node_claims(&self) -> Option<&NodeClaimHistory> {
        self.node_claims.as_ref()
    }

    /// The cloud.
    #[must_use]
    pub const fn cloud(&self) -> &Cloud {
        &self.cluster.cloud
    }

    /// The API server.
    #[must_use]
    pub const fn api_server(&self) -> &ApiServer {
        &self.cluster.api_server
    }

    /// Configures the extender of the scheduler.
    pub fn set_extender(&mut self, extender: Box<dyn Extender>) {
        self.kube_scheduler.set_extender(extender);
    }

    /// From now on, or no longer, the scheduler binds the pods of gangs one by one, as one without coscheduling does.
    pub const fn bind_gangs_one_by_one(&mut self, is_on: bool) {
        self.kube_scheduler.ignore_groups(is_on);
    }

    /// Starts one more replica, which waits for the lease.
    pub fn add_replica(&mut self, deciders: Vec<Box<dyn Decider>>) {
        self.replicas
            .add(&self.options, deciders, &mut self.cluster);
    }

    /// Number of replicas.
    #[must_use]
    pub const fn replicas(&self) -> usize {
        self.replicas.count()
    }

    /// Kills the leader and starts it again: memory is lost, objects and instances stay. It leads again.
    pub fn restart_engine(&mut self, deciders: Vec<Box<dyn Decider>>) {
        self.replicas
            .restart(&self.options, deciders, &mut self.cluster);
    }

    /// Sets or clears the fault of the watch of a kind. When it is cleared, the watch delivers what it has missed.
    pub fn disturb_watch(&mut self, kind: &ObjectKind, fault: Option<WatchFault>) {
        self.watches
            .disturb(kind, fault, &mut self.cluster, &mut self.replicas);
    }

    /// Runs the simulation until a time.
    pub fn run_until(&mut self, end: Timestamp) {
        loop {
            self.step_replicas();
            let event = self.cluster.clock.next_at();
            let wake = self.replicas.next_wake().map(|at| at.max(self.now()));
            let next = match (event, wake) {
                (Some(event), Some(wake)) => event.min(wake),
                (Some(at), None) | (None, Some(at)) => at,
                (None, None) => end,
            };
            if next > end {
                self.advance(end);
                return;
            }
            self.advance(next);
            while let Some(action) = self.cluster.clock.take_due() {
                self.perform(action);
            }
        }
    }

    /// Advances virtual time and counts the cost of instances.
    fn advance(&mut self, to: Timestamp) {
        let Cluster {
            cloud,
            clock,
            stats,
            ..
        } = &mut self.cluster;
        self.cost.charge(cloud.price(), to, stats);
        clock.advance(to);
    }

    /// Sends written changes to the watches, steps the deciders that are due, and plans the effects that they request.
    fn step_replicas(&mut self) {
        let cluster = &mut self.cluster;
        let events = cluster.api_server.take_changes();
        if let Some(history) = &mut self.node_claims {
            for event in &events {
                if let ObjectKey::Claim(name) = &event.key {
                    history.observe(cluster.clock.now(), name.as_str(), event.object.as_ref());
                }
            }
        }
        for event in &events {
            let now = cluster.clock.now();
            cluster.gangs.observe(now, event);
            if let (ObjectKey::Buffer(key), Some(buffer)) = (&event.key, &event.object) {
                let pods = buffer["status"]["replicas"].as_i64().unwrap_or_default();
                cluster.scores.moved.note_buffer(key, pods, now);
            }
        }
        self.kube_scheduler.observe(&events, &mut cluster.clock);
        self.watches.send(events, &mut cluster.clock);
        for replica in 0..self.replicas.count() {
            let turn = self.replicas.turn(replica, cluster.now());
            for record in &turn.records {
                let decisions = &mut cluster.stats.decisions;
                *decisions.entry(record.verdict.label()).or_default() += 1;
            }
            self.records.extend(turn.records);
            for command in &turn.commands {
                cluster
                    .scores
                    .moved
                    .note_command(command, cluster.clock.now());
            }
            self.commands.extend(turn.commands);
            check_freshness(&turn.orders, self.replicas.freshness(replica), cluster);
            for request in turn.orders {
                if let Effect::Event(event) = &*request.effect {
                    self.events.push(event.clone());
                }
                let ms = latency(&request.effect, &mut cluster.clock.random);
                cluster.clock.in_ms(ms, Action::Execute(replica, request));
            }
        }
        let snapshot = self.replicas.snapshot(cluster.now());
        self.kube_scheduler
            .observe_snapshot(snapshot.generation, &mut cluster.clock);
    }

    fn plan_interruption(&mut self) {
        let every_s = self.options.interruption_every_s;
        if every_s > 0 {
            let clock = &mut self.cluster.clock;
            let ms = clock.random.between(every_s * 500, every_s * 1500);
            clock.in_ms(ms, Action::Interrupt);
        }
    }

    fn perform(&mut self, action: Action) {
        let Self {
            cluster,
            kubelets,
            replicas,
            ..
        } = self;
        let now = cluster.now();
        match action {
            Action::Watch(events) => replicas.show(events, cluster),
            Action::Execute(replica, request) => self.execute(replica, request),
            Action::Outcome(replica, request, outcome) => {
                let input = EngineInput::Outcome {
                    decider: request.decider,
                    term: request.term,
                    outcome: *outcome,
                };
                replicas.apply(replica, now, input);
            }
            Action::LeaseLost => replicas.apply_leader(now, EngineInput::Leading(false)),
            Action::LeaseWon(replica) => replicas.win_lease(replica, cluster),
            Action::CreateNode(id) => kubelets.create_node(&id, cluster),
            Action::MarkNodeReady(id) => mark_node_ready(&id, cluster),
            Action::RemoveTaint(node, key) => remove_taint(&node, &key, cluster),
            Action::RemoveInstance(id) => remove_instance(&id, cluster),
            Action::CreatePod(key, pod) => {
                create_planned(key, *pod, &mut cluster.api_server, now);
            }
            Action::RunPod(pod) => kubelets.run_pod(&pod, cluster),
            Action::CompletePod(pod) => {
                self.workloads.pod_completes(&pod, &cluster.api_server);
                complete_pod(&pod, cluster);
            }
            Action::RemoveStoppedPod(pod, uid) => remove_stopped_pod(&pod, &uid, cluster),
            Action::Bookmark(kind, version) => {
                let bookmark = WatchState::Bookmark(Some(version));
                report_state(&kind, bookmark, cluster, replicas);
            }
            Action::Tick => self.tick(),
            Action::Schedule => self.schedule(),
            Action::Interrupt => {
                self.interrupt_any();
                self.plan_interruption();
            }
            Action::InterruptInstance(id) => drop(self.interrupt(&id)),
        }
    }

    fn tick(&mut self) {
        let Self {
            cluster,
            kubelets,
            replicas,
            ..
        } = self;
        let now = cluster.now();
        let random = &mut cluster.clock.random;
        let started = self.workloads.tick(&mut cluster.api_server, now, random);
        if self.workloads.changed_at() == Some(now) {
            cluster.scores.moved.change(now);
        }
        for run in started {
            kubelets.set_job_duration(run.pod, run.ms);
        }
        for planned in self.workloads.take_planned() {
            let create = Action::CreatePod(planned.key, Box::new(planned.pod));
            cluster.clock.in_ms(planned.after_ms, create);
        }
        Kubelets::tick(cluster);
        self.watches.tick(cluster, replicas);
        self.invariants.check(cluster, replicas);
        cluster.scores.pods_wait(self.kube_scheduler.waiting());
        if cluster.scores.is_due(now) {
            let instances = cluster.cloud.instances().count();
            let price = cluster.cloud.price();
            cluster
                .scores
                .count_nodes(instances, price, &replicas.snapshot(now), now);
        }
        cluster.clock.in_ms(TICK_MS, Action::Tick);
    }

    fn schedule(&mut self) {
        let now = self.cluster.now();
        let snapshot = self.replicas.snapshot(now);
        let advised = self.kube_scheduler.cycle(&snapshot, &mut self.cluster);
        for pod in advised {
            let feasible = EngineInput::Feasible { pod, at: now };
            self.replicas.apply_leader(now, feasible);
        }
    }
}
