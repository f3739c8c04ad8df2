//! A cluster for tests of deciders and planners: the API server, cloud and kubelets of the simulation, without chance.
//!
//! A test passes the deciders that it wants to step, because this crate imports none. Virtual time advances only when the test
//! says so, and what the service requests is executed at once: [`TestCluster::settle`] executes everything that is due now,
//! [`TestCluster::pass`] lets time pass as well.
//!
//! | what a test does | where |
//! |---|---|
//! | build, restart, advance time, execute effects | this file |
//! | create, read, change and delete objects, by `Kind/name` or `Kind/namespace/name`; read events and verdicts | `objects.rs` |
//! | say how an effect ends: errors, delays, a crash | [`Answers`] |
//! | bring up claims, nodes and pods by hand; or run pods of apps on nodes that register and drain automatically | `fixtures.rs` |
//! | make automatic nodes fail | [`NodeAutomation`] |
//! | know what must never happen and did | `violations.rs` |
//!
//! There are two ways to use it. *By hand*: the test plays kubelet and user, and steps the deciders of the lifecycle.
//! *Automatic* ([`TestCluster::automate_nodes`]): kube-scheduler binds pods, and claims are launched, registered and drained
//! without the deciders that would do so, for tests of the deciders that place pods.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod answers;
mod fixtures;
mod instance_types;
mod node_automation;
mod objects;
mod violations;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::ProviderId;
use mortise_apis::node_class::NodeClassKind;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::values::after;
use mortise_cloudprovider::InstanceType;
use mortise_engine::decider::Decider;
use mortise_engine::effect::{Effect, EffectError, EffectOutput, Event, Outcome};
use mortise_engine::engine::{EffectRequest, Engine, EngineInput};
use mortise_engine::metric_event::MetricEvent;
use mortise_engine::record::Record;
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::{EventSource, ObjectEvent, ObjectKey};
use mortise_state::snapshot::Snapshot;

use crate::clock::Action;
use crate::cluster::{
    Cloud, Cluster, Executed, Kubelets, SimInstance, StartTime, Timing, execute, remove_stopped_pod,
};
use crate::replicas::list_all;

pub use answers::Answers;
pub use instance_types::{instance_type, ordinary_types};
pub use node_automation::NodeAutomation;
pub use objects::merge_into;

/// Group of the node classes of test clusters.
pub const GROUP: &str = "fake.test";
/// Kind of the node classes of test clusters.
pub const KIND: &str = "FakeNodeClass";
/// The node class of test clusters.
const NODE_CLASS: NodeClassKind = NodeClassKind {
    group: GROUP,
    version: "v1",
    kind: KIND,
    plural: "fakenodeclasses",
};
/// When a test cluster starts.
const START: &str = "2030-01-01T00:00:00Z";
/// Seed of the service and of the cluster.
const SEED: u64 = 1;
/// Steps of deciders at one time; more are an endless loop.
const MAX_STEPS: usize = 2_000;

/// Creates the deciders of a process.
pub type CreateDeciders = fn(&Settings) -> Vec<Box<dyn Decider>>;

/// The cluster and the service in it.
pub struct TestCluster {
    /// The service.
    pub engine: Engine,
    /// Settings of the next process: [`TestCluster::restart`] applies them.
    pub settings: Settings,
    /// How effects end.
    pub answers: Answers,
    /// Claims and nodes without the deciders of their lifecycle.
    pub automation: NodeAutomation,
    /// Pods that do not stop when they are deleted, by key.
    pub stuck: BTreeSet<String>,
    /// Effects that were executed, events excluded: label and target.
    pub done: Vec<String>,
    /// Effects that were requested, events excluded, and when.
    pub effects: Vec<(Timestamp, Arc<Effect>)>,
    /// Decisions.
    pub records: Vec<Record>,
    /// What was only counted.
    pub tallies: Vec<MetricEvent>,
    /// Called after every effect: an invariant, which panics when it does not hold.
    pub checks: Vec<fn(&Self)>,
    events: Vec<(Timestamp, Event)>,
    deciders: CreateDeciders,
    cluster: Cluster,
    kubelets: Kubelets,
    start: Timestamp,
    created_pods: usize,
}

/// Node classes that test clusters serve.
#[must_use]
pub fn served() -> ServedNodeClasses {
    ServedNodeClasses::only([NODE_CLASS])
}

impl TestCluster {
    /// A cluster without objects and with these deciders, which lead. Its cloud has one instance type: `small`, 2 CPUs and
    /// 1 GiB, spot, in `zone-a`.
    #[must_use]
    pub fn new(deciders: CreateDeciders, settings: Settings) -> Self {
        Self::with_types(deciders, settings, vec![instance_types::small_spot()])
    }

    /// The same with other instance types.
    #[must_use]
    pub fn with_types(
        deciders: CreateDeciders,
        settings: Settings,
        types: Vec<InstanceType>,
    ) -> Self {
        let start: Timestamp = START.parse().unwrap();
        let mut cluster = Cluster::with_cloud(Cloud::new(types, 0), start, SEED);
        cluster.timing = Timing {
            boot: StartTime::between(20_000, 20_000),
            pod_start: StartTime::between(0, 0),
            image_pull: None,
            volume_attach: None,
            rebalance_ahead: None,
            pod_stop_ms: (1_000, 1_000),
            termination_ms: (3_000, 3_000),
            marks_grace: true,
        };
        let mut test = Self {
            engine: engine(deciders, &settings, start),
            settings,
            answers: Answers::default(),
            automation: NodeAutomation::default(),
            stuck: BTreeSet::new(),
            done: Vec::new(),
            effects: Vec::new(),
            records: Vec::new(),
            tallies: Vec::new(),
            checks: Vec::new(),
            events: Vec::new(),
            deciders,
            cluster,
            kubelets: Kubelets::default(),
            start,
            created_pods: 0,
        };
        test.restart();
        test
    }

    /// Kills the service and starts it again: memory is lost, objects and instances stay. It leads.
    pub fn restart(&mut self) {
        self.engine = engine(self.deciders, &self.settings, self.now());
        list_all(&mut self.engine, &mut self.cluster, false);
        self.lead(true);
        self.resolve_classes();
    }

    /// The service acquires or loses the lease.
    pub fn lead(&mut self, is_leading: bool) {
        let now = self.now();
        self.engine.apply(EngineInput::Leading(is_leading), now);
    }

    /// Virtual time.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.cluster.now()
    }

    /// The cluster as the service sees it.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        let now = self.now();
        self.engine.snapshot(now)
    }

    // The cloud.

    /// Running and terminating instances.
    #[must_use]
    pub fn instances(&self) -> Vec<&SimInstance> {
        let all = self.cluster.cloud.instances();
        all.map(|(_, instance)| instance).collect()
    }

    /// Number of instances that were ever launched.
    #[must_use]
    pub const fn launched(&self) -> u64 {
        self.cluster.stats.nodes_launched
    }

    /// Number of calls that launched instances, or were to.
    #[must_use]
    pub const fn launch_calls(&self) -> u64 {
        self.cluster.cloud.launch_calls()
    }

    /// Every instance vanishes.
    pub fn lose_instances(&mut self) {
        for id in self.instance_ids() {
            self.cluster.cloud.remove(&id);
        }
    }

    /// Every instance is paid for on demand by now.
    pub fn pay_on_demand(&mut self) {
        self.cluster.cloud.pay_on_demand();
    }

    /// The lists of the provider omit the instances of now.
    pub fn unlist_instances(&mut self) {
        self.answers.unlisted = self.instance_ids();
    }

    /// How long the cloud takes to launch the Node of an instance, automatically.
    pub const fn set_boot_ms(&mut self, ms: i64) {
        self.cluster.timing.boot = StartTime::between(ms, ms);
    }

    /// How long the cloud takes to terminate an instance; 0 = it confirms the end at once.
    pub const fn set_termination_ms(&mut self, ms: i64) {
        self.cluster.timing.termination_ms = (ms, ms);
    }

    fn instance_ids(&self) -> BTreeSet<ProviderId> {
        let all = self.cluster.cloud.instances();
        all.map(|(id, _)| id.clone()).collect()
    }

    // Time.

    /// Steps the deciders that are due now, and executes what they request, until nothing is due.
    ///
    /// # Panics
    /// Two deciders wake each other endlessly.
    pub fn settle(&mut self) {
        loop {
            let now = self.now();
            let turn = self.engine.turn(now, MAX_STEPS, &|| false);
            let due = self.engine.due(now);
            assert_eq!(due, None, "deciders wake each other endlessly");
            self.records.extend(turn.records);
            self.tallies.extend(turn.tallies);
            if turn.orders.is_empty() {
                return;
            }
            for request in turn.orders {
                if self.receive(request) {
                    return;
                }
            }
        }
    }

    /// Lets time pass, event by event.
    pub fn pass(&mut self, ms: i64) {
        let end = after(self.now(), ms);
        loop {
            self.settle();
            if self.perform_due() {
                continue;
            }
            if self.now() == end {
                return;
            }
            let planned = self.cluster.clock.next_at();
            let wake = self.engine.next_wake().into_iter();
            let next = wake
                .chain(planned)
                .chain(self.automation.steps.next_at())
                .min();
            let soonest = after(self.now(), 1);
            let next = next.map_or(end, |next| next.max(soonest)).min(end);
            self.cluster.clock.advance(next);
        }
    }

    /// Performs what is planned for now outside of the service. `false`: nothing was.
    fn perform_due(&mut self) -> bool {
        let mut has_performed = false;
        while let Some(action) = self.cluster.clock.take_due() {
            has_performed = true;
            self.perform(action);
        }
        while let Some(step) = self.automation.steps.take_due(self.now()) {
            has_performed = true;
            self.perform_automation(&step);
        }
        self.deliver();
        has_performed
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Execute(_, request) => self.execute(&request),
            Action::RemoveInstance(id) => {
                self.cluster.cloud.remove(&id);
            }
            Action::RunPod(pod) => self.kubelets.run_pod(&pod, &mut self.cluster),
            Action::RemoveStoppedPod(pod, uid) if !self.stuck.contains(&format!("Pod/{pod}")) => {
                remove_stopped_pod(&pod, &uid, &mut self.cluster);
            }
            Action::CreateNode(id) if !self.automation.never_ready => self.boot(&id),
            Action::Schedule => self.schedule(),
            // Watches, replicas and controllers of the simulation, which this cluster has not.
            _ => {}
        }
        self.deliver();
    }

    // Effects.

    /// An admission webhook removes this label from every object that is written; `None` = no webhook.
    pub const fn veto_label(&mut self, label: Option<&'static str>) {
        self.cluster.api_server.veto_label(label);
    }

    /// Receives a request of the service. `true`: the service has crashed, and its other requests are lost.
    pub(super) fn receive(&mut self, request: EffectRequest) -> bool {
        if let Effect::Event(event) = &*request.effect {
            self.note_event(event);
        } else {
            let effect = Arc::clone(&request.effect);
            self.effects.push((self.now(), effect));
        }
        let label = request.effect.label();
        if matches!(*request.effect, Effect::CreateClaim(_)) && self.answers.create_ms > 0 {
            let ms = self.answers.create_ms;
            self.cluster.clock.in_ms(ms, Action::Execute(0, request));
        } else if self
            .answers
            .crash_after
            .take_if(|at| *at == label)
            .is_some()
        {
            drop(self.result_of(&request.effect));
            self.restart();
            return true;
        } else {
            self.execute(&request);
        }
        false
    }

    /// Executes a request and delivers its outcome.
    pub(super) fn execute(&mut self, request: &EffectRequest) {
        let outcome = Outcome {
            effect: Arc::clone(&request.effect),
            result: self.result_of(&request.effect),
        };
        let input = EngineInput::Outcome {
            decider: request.decider,
            term: request.term,
            outcome,
        };
        let now = self.now();
        self.engine.apply(input, now);
        for check in self.checks.clone() {
            check(self);
        }
    }

    fn result_of(&mut self, effect: &Effect) -> Result<EffectOutput, EffectError> {
        if matches!(effect, Effect::Event(_)) {
            return Ok(EffectOutput::Sent);
        }
        let target = effect.target().map(|target| target.to_string());
        let target = target.unwrap_or_default();
        self.done.push(format!("{} {target}", effect.label()));
        if let Some(answer) = self.answers.answer(effect, &self.cluster) {
            return answer;
        }
        if let Some(text) = violations::violation_of(effect, &self.cluster) {
            self.cluster.violation(&text);
        }
        let Executed { result, returned } = execute(effect, &mut self.cluster);
        let mut keys: Vec<ObjectKey> = Vec::new();
        // The Eviction API returns no pod.
        let returned = returned.into_iter();
        for (key, object) in returned.filter(|_| !matches!(effect, Effect::Evict { .. })) {
            if let Some(object) = self.cluster.readable(&key, object) {
                self.deliver_event(ObjectEvent::Applied(object, EventSource::Write));
            }
            keys.push(key);
        }
        self.deliver_except(&keys);
        if result.is_ok() {
            self.automate(effect);
        }
        result.map(|output| self.answers.completed(output, &self.cluster))
    }
}

fn engine(deciders: CreateDeciders, settings: &Settings, now: Timestamp) -> Engine {
    let all = deciders(settings);
    Engine::new(all, settings.clone(), WellKnown::core(), SEED, now).serving(served())
}
