//! Runs the production engine on recorded objects without executing what it requests.
//!
//! # What is answered, and what is not
//! - A node class is resolved to the recorded instance types, and a drift check by what the NodeClaim says already.
//! - Edits that only state facts (conditions of NodeClaims, hashes, counters of NodePools) are applied to the objects in memory:
//!   deciders read them. On a cluster that a service manages they are there already; after a change of a NodePool they are what makes
//!   nodes drift.
//! - A NodeClaim to create is reported and exists in memory from then on, without an instance: its pods have a place, so that disruption
//!   does not wait for them.
//! - Everything else is reported and never answered, so that nothing follows from it.
//!
//! # How long
//! [`HORIZON_MS`] of virtual time: longer than the longest batch of pods, and shorter than the time for which a disruption command is
//! held before it is validated.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, NodeClassKey};
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::schema::conditions;
use mortise_apis::values::after;
use mortise_cloudprovider::{InstanceType, ResolvedNodeClass};
use mortise_engine::decider::Decider;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectError, EffectOutput, Outcome};
use mortise_engine::engine::{CommitOutput, EffectRequest, Engine, EngineInput};
use mortise_engine::freshness::WatchState;
use mortise_engine::record::Record;
use mortise_engine::write::{ObjectWrite, PatchBody};
use mortise_planning::disruption::command::DisruptionCommand;
use mortise_planning::drift;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey};
use serde_json::json;

use super::report::PlanReport;
use super::summary::summarize;
use crate::recorded_cluster::RecordedCluster;
use crate::replicas::{FOLLOWED, STEPS};

/// Virtual time of a run.
pub(super) const HORIZON_MS: i64 = 12_000;

/// What was requested in a run, and the engine after it.
pub(super) struct DryRun {
    pub(super) engine: Engine,
    pub(super) now: Timestamp,
    /// NodeClaims to create.
    pub(super) claims: BTreeMap<ClaimName, Arc<NodeClaim>>,
    pub(super) commands: Vec<DisruptionCommand>,
    /// Deletions, evictions, launches and terminations.
    pub(super) others: Vec<EffectRequest>,
    pub(super) records: Vec<Record>,
    catalogs: BTreeMap<NodeClassKey, Vec<InstanceType>>,
    /// Objects that facts are written to.
    written: BTreeMap<ObjectKey, Object>,
    version: u64,
}

/// What the service would do now. `stop` turns true when the plan so far should be given.
///
/// # Cost
/// That of a start of the service: building its state, one scheduling pass, and one search of disruption.
#[must_use]
pub fn plan(
    cluster: RecordedCluster,
    deciders: Vec<Box<dyn Decider>>,
    stop: &dyn Fn() -> bool,
) -> PlanReport {
    let start = cluster.taken_at;
    let mut run = DryRun::new(cluster, deciders);
    run.run_until(after(start, HORIZON_MS), stop);
    let report = summarize(&mut run, start);
    free_later(run);
    report
}

/// Frees the state of a large cluster, which takes a tenth of the time of its plan, while the plan is shown.
fn free_later(run: DryRun) {
    // Without a thread it is freed here.
    let thread = std::thread::Builder::new().name("free".to_owned());
    thread.spawn(move || drop(run)).ok();
}

impl DryRun {
    /// An engine with the recorded objects, which leads.
    pub(super) fn new(cluster: RecordedCluster, deciders: Vec<Box<dyn Decider>>) -> Self {
        let now = cluster.taken_at;
        let served = ServedNodeClasses::only(cluster.served);
        let mut engine =
            Engine::new(deciders, cluster.settings, cluster.well_known, 0, now).serving(served);
        for kind in FOLLOWED {
            let state = WatchState::Stands;
            engine.apply(EngineInput::Watch { kind, state }, now);
        }
        let mut written = BTreeMap::new();
        let mut version = 0;
        for (key, object) in cluster.objects {
            version = version.max(object.version().unwrap_or(0));
            if is_written(&key) {
                written.insert(key, object.clone());
            }
            let event = ObjectEvent::Applied(object, EventSource::Watch);
            engine.apply(EngineInput::News(event), now);
        }
        engine.apply(EngineInput::Synced, now);
        engine.apply(EngineInput::Leading(true), now);
        Self {
            engine,
            now,
            claims: BTreeMap::new(),
            commands: Vec::new(),
            others: Vec::new(),
            records: Vec::new(),
            catalogs: cluster.catalogs,
            written,
            version,
        }
    }

    /// Steps the deciders until a time.
    pub(super) fn run_until(&mut self, end: Timestamp, stop: &dyn Fn() -> bool) {
        loop {
            let turn = self.engine.turn(self.now, STEPS, stop);
            if self.take(turn) {
                continue;
            }
            match self.engine.next_wake() {
                Some(wake) if wake <= end && !stop() => {
                    // A decider that has just been stepped and is due again waits for the next moment.
                    self.now = if wake > self.now {
                        wake
                    } else {
                        after(self.now, 1)
                    };
                }
                _ => return,
            }
        }
    }

    /// Notes what was decided, and answers what can be answered. `true`: there is news for the engine.
    fn take(&mut self, turn: CommitOutput) -> bool {
        self.records.extend(turn.records);
        self.commands.extend(turn.commands);
        let mut answered = false;
        for request in turn.orders {
            match self.answer(&request) {
                Some(result) => {
                    let outcome = EngineInput::Outcome {
                        decider: request.decider,
                        term: request.term,
                        outcome: Outcome {
                            effect: Arc::clone(&request.effect),
                            result,
                        },
                    };
                    self.engine.apply(outcome, self.now);
                    answered = true;
                }
                None => self.note(request),
            }
        }
        answered
    }

    fn note(&mut self, request: EffectRequest) {
        match &*request.effect {
            Effect::Launch(asked) if self.is_new(&asked.claim.name()) => {}
            Effect::Delete { .. }
            | Effect::Evict { .. }
            | Effect::Launch(_)
            | Effect::Terminate { .. } => self.others.push(request),
            _ => {}
        }
    }

    /// The outcome of what changes nothing outside; `None` for everything else.
    fn answer(&mut self, request: &EffectRequest) -> Option<Result<EffectOutput, EffectError>> {
        match &*request.effect {
            Effect::Resolve(asked) => {
                let types = self.catalogs.get(&asked.class.key)?;
                Some(Ok(EffectOutput::Resolved(Arc::new(ResolvedNodeClass {
                    status: None,
                    annotations: BTreeMap::new(),
                    finalizer: None,
                    instance_types: types.clone(),
                    shifted_zones: Vec::new(),
                    again_ms: None,
                }))))
            }
            Effect::CheckDrift { claim, .. } => {
                let own = [drift::NODE_POOL, drift::REQUIREMENTS, drift::INSTANCE_TYPE];
                let drifted = conditions::find(&claim.status.conditions, "Drifted")
                    .filter(|condition| condition.status == conditions::ConditionStatus::True)
                    .filter(|condition| !own.contains(&condition.reason.as_str()));
                let reason = drifted.map(|condition| condition.reason.clone());
                Some(Ok(EffectOutput::Drift(reason)))
            }
            Effect::Write(write) if states_facts(request.decider) => Some(self.write(write)),
            Effect::CreateClaim(claim) => {
                self.claims.insert(claim.name(), Arc::clone(claim));
                self.create((**claim).clone());
                Some(Ok(EffectOutput::Written))
            }
            _ => None,
        }
    }

    /// Stores a new NodeClaim as the API server would.
    fn create(&mut self, mut claim: NodeClaim) {
        self.version += 1;
        claim.metadata.resource_version = Some(self.version.to_string());
        claim.metadata.uid = Some(format!("planned-{}", self.version));
        claim.metadata.creation_timestamp = Some(Time(self.now));
        let key = ObjectKey::Claim(claim.name());
        self.store(key, claim.into());
    }

    fn store(&mut self, key: ObjectKey, object: Object) {
        let event = ObjectEvent::Applied(object.clone(), EventSource::Write);
        self.engine.apply(EngineInput::News(event), self.now);
        self.written.insert(key, object);
    }

    /// Whether the NodeClaim is one of those to create.
    pub(super) fn is_new(&self, claim: &ClaimName) -> bool {
        self.claims.contains_key(claim)
    }

    /// Applies an edit to the object in memory.
    fn write(&mut self, write: &ObjectWrite) -> Result<EffectOutput, EffectError> {
        let key = ObjectKey::from(&write.target);
        let Some(object) = self.written.get(&key) else {
            return Err(EffectError::NotFound(write.target.to_string()));
        };
        let PatchBody { mut merge, .. } = write.edit.render(None);
        self.version += 1;
        merge["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let edited = serde_json::to_value(object).and_then(|mut value| {
            json_patch::merge(&mut value, &merge);
            key.kind().deserialize(value)
        });
        let edited = edited.map_err(|error| EffectError::Refused {
            code: 422,
            message: error.to_string(),
        })?;
        self.store(key, edited);
        Ok(EffectOutput::Written)
    }
}

/// Kinds that facts are written to.
const fn is_written(key: &ObjectKey) -> bool {
    matches!(
        key,
        ObjectKey::Node(_)
            | ObjectKey::Claim(_)
            | ObjectKey::Pool(_)
            | ObjectKey::NodeClass(_)
            | ObjectKey::Overlay(_)
            | ObjectKey::Policy(_)
    )
}

/// Whether what a decider writes states facts, instead of beginning something.
const fn states_facts(decider: DeciderId) -> bool {
    matches!(
        decider,
        DeciderId::NodeClass
            | DeciderId::NodePool
            | DeciderId::NodeOverlay
            | DeciderId::NodePoolPolicy
            | DeciderId::Conditions
    )
}
