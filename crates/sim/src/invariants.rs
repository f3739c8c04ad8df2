//! Invariants that hold at all times, regardless of faults. They are checked once per virtual second; a violation is added
//! to [`Stats::violations`](crate::Stats).

mod bill;
mod gangs;
mod pending_pods;
mod policies;
mod voluntary_moves;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, ObjectRef, ProviderId};
use mortise_apis::resources::Resources;
use mortise_apis::values::since;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, Event};
use mortise_engine::engine::EffectRequest;
use mortise_engine::freshness::{Freshness, HOLDING};
use mortise_planning::disruption::budget_states;
use mortise_state::resource_kinds::{ObjectKey, ObjectKind};
use mortise_state::snapshot::{PoolUsage, Snapshot};
use serde_json::Value;

use crate::cluster::{Cluster, is_deleting};
use crate::replicas::Replicas;
use gangs::GangChecks;
use pending_pods::PendingPods;
use policies::PolicyChecks;
use voluntary_moves::VoluntaryMoves;

/// An instance without a claim must be found and terminated within this time: garbage collection runs every two minutes and
/// ignores recently created instances.
const ORPHAN_MS: i64 = 6 * 60_000;
/// Maximum number of recorded violations; one is enough to fail a test, and thousands would fill the memory.
const MOST: usize = 20;

/// State between two checks.
#[derive(Default)]
pub(crate) struct Invariants {
    /// Known violations: one that persists is recorded once.
    known: BTreeSet<String>,
    /// What was checked last.
    checked: CheckedState,
    orphans: Vec<OrphanedInstance>,
    pending_pods: PendingPods,
    gangs: GangChecks,
    policies: PolicyChecks,
    voluntary_moves: VoluntaryMoves,
    /// Claims that disruption deleted and that still exist, with their NodePools.
    disrupted: BTreeMap<ClaimName, String>,
    /// The highest number of nodes that the budgets of a NodePool have allowed so far.
    most_allowed: BTreeMap<String, i64>,
}

/// An instance whose claim does not exist.
struct OrphanedInstance {
    id: ProviderId,
    claim: String,
    launched: Timestamp,
}

/// Tells whether anything is different from what was checked last. Most seconds of a day change nothing.
#[derive(Default)]
struct CheckedState {
    snapshot: Weak<Snapshot>,
    claims: u64,
    instances: u64,
}

impl CheckedState {
    fn of(snapshot: &Arc<Snapshot>, cluster: &Cluster) -> Self {
        Self {
            snapshot: Arc::downgrade(snapshot),
            claims: cluster.api_server.last_change(&ObjectKind::Claim).any,
            instances: cluster.cloud.instance_changes(),
        }
    }

    const fn has_same_instances(&self, other: &Self) -> bool {
        self.claims == other.claims && self.instances == other.instances
    }

    fn is_same(&self, other: &Self) -> bool {
        self.has_same_instances(other) && Weak::ptr_eq(&self.snapshot, &other.snapshot)
    }
}

impl Invariants {
    /// Checks everything that can be checked at any time; what time alone cannot break, only after a change.
    pub(crate) fn check(&mut self, cluster: &mut Cluster, replicas: &mut Replicas) {
        let mut found = Vec::new();
        let now = cluster.now();
        let snapshot = replicas.snapshot(now);
        let state = CheckedState::of(&snapshot, cluster);
        if !self.checked.has_same_instances(&state) {
            self.orphans = check_instances(cluster, &mut found);
            self.voluntary_moves.check(&snapshot, cluster, &mut found);
        }
        if !self.checked.is_same(&state) {
            check_capacity(&snapshot, &mut found);
            check_limits(&snapshot, cluster, &mut found);
            self.policies.check(&snapshot, cluster, &mut found);
            self.checked = state;
        }
        let leaked = |orphan: &&OrphanedInstance| since(now, orphan.launched) > ORPHAN_MS;
        for OrphanedInstance { id, claim, .. } in self.orphans.iter().filter(leaked) {
            found.push(format!("instance {id} of claim {claim} is leaked"));
        }
        found.extend(cluster.scores.moved.take_cycles());
        GangChecks::check_bound(&cluster.gangs, &mut found);
        if replicas.has_lease() {
            self.pending_pods.check(&snapshot, now, &mut found);
            self.gangs
                .check_room(&cluster.gangs, &snapshot, now, &mut found);
        }
        for text in found {
            self.record(text, cluster);
        }
    }

    /// Offerings have other prices from now on.
    pub(crate) const fn prices_changed(&mut self, now: Timestamp) {
        self.voluntary_moves.prices_changed(now);
    }

    /// An event matches the table of events.
    pub(crate) fn check_event(&mut self, event: &Event, cluster: &mut Cluster) {
        if let Some(text) = mortise_engine::events::fault(event) {
            self.record(text, cluster);
        }
        self.pending_pods.note_event(event, cluster.now());
    }

    /// A claim that disruption deletes is within the budget of its NodePool, and its node has no pod with `do-not-disrupt`,
    /// regardless of which leader decided it and when.
    pub(crate) fn check_disruption(
        &mut self,
        request: &EffectRequest,
        cluster: &mut Cluster,
        replicas: &mut Replicas,
    ) {
        let Effect::Delete {
            target: ObjectRef::Claim(name),
            ..
        } = &*request.effect
        else {
            return;
        };
        let key = ObjectKey::Claim(name.clone());
        let Some(claim) = cluster.api_server.get(&key).cloned() else {
            return;
        };
        if request.decider != DeciderId::Disruption || is_deleting(&claim) {
            return;
        }
        let node = claim.pointer("/status/nodeName").cloned();
        let node = node.as_ref().and_then(Value::as_str);
        let pods = node.map(|node| cluster.api_server.pods_on(node));
        let is_protected = pods.into_iter().flatten().any(|(_, pod)| {
            let annotations = pod.pointer("/metadata/annotations");
            !is_deleting(pod)
                && annotations.is_some_and(|all| all[labels::DO_NOT_DISRUPT] == "true")
        });
        if is_protected && !is_true(&claim, "Drifted") {
            self.record(
                format!("claim {name} was deleted with a protected pod"),
                cluster,
            );
        }
        let now = cluster.now();
        let snapshot = replicas.snapshot(now);
        let pool = claim.pointer("/metadata/labels/karpenter.sh~1nodepool");
        let pool = pool.and_then(Value::as_str).unwrap_or_default().to_owned();
        let reasons = budget_states(&snapshot, now);
        let allowed = reasons
            .iter()
            .filter(|state| state.pool.as_str() == pool)
            .filter_map(|state| state.allowed)
            .max();
        let most = self.most_allowed.entry(pool.clone()).or_default();
        *most = (*most).max(allowed.unwrap_or(i64::MAX));
        let most = *most;
        // A node whose instance terminates counts neither as existing nor as being deleted.
        self.disrupted.retain(|name, _| {
            let claim = cluster.api_server.get(&ObjectKey::Claim(name.clone()));
            claim.is_some_and(|claim| !is_true(claim, "InstanceTerminating"))
        });
        self.disrupted.insert(name.clone(), pool.clone());
        let deleting = self.disrupted.values().filter(|each| **each == pool);
        let deleting = i64::try_from(deleting.count()).unwrap_or(i64::MAX);
        if deleting > most {
            let text =
                format!("pool {pool}: {deleting} nodes are deleted at once, {most} are allowed");
            self.record(text, cluster);
        }
    }

    fn record(&mut self, text: String, cluster: &mut Cluster) {
        if cluster.stats.violations.len() < MOST && self.known.insert(text.clone()) {
            cluster.violation(&text);
        }
    }
}

/// No decider requests an irreversible effect while a watch that it depends on is stale.
pub(crate) fn check_freshness(
    requests: &[EffectRequest],
    freshness: &Freshness,
    cluster: &mut Cluster,
) {
    for request in requests.iter().filter(|request| is_final(request)) {
        let by = request.decider;
        if let Some(old) = freshness.holds(by, cluster.now()) {
            let effect = request.effect.label();
            cluster.violation(&format!("{by} requests {effect} although {old}"));
        }
    }
}

/// An irreversible effect, requested by a decider that waits for fresh watches.
fn is_final(request: &EffectRequest) -> bool {
    HOLDING.contains(&request.decider)
        && match &*request.effect {
            Effect::Terminate { .. } | Effect::Evict { .. } => true,
            Effect::Delete { target, .. } => match target {
                ObjectRef::Pod(_) => true,
                // A claim is deleted after its Node, whose deletion another decider requested.
                ObjectRef::Claim(_) => request.decider != DeciderId::Termination,
                _ => false,
            },
            _ => false,
        }
}

/// The pods of a node request no more than its allocatable resources.
fn check_capacity(snapshot: &Snapshot, found: &mut Vec<String>) {
    for node in snapshot.nodes.values().filter(|node| node.node.is_some()) {
        if let Some(resource) = node.used.exceeds_first(&node.allocatable) {
            found.push(format!(
                "node {} holds more {resource} than it has",
                node.name()
            ));
        }
    }
}

/// One instance per claim. Returns the instances without one.
fn check_instances(cluster: &Cluster, found: &mut Vec<String>) -> Vec<OrphanedInstance> {
    let mut by_claim: BTreeMap<&str, usize> = BTreeMap::new();
    let mut orphans = Vec::new();
    let running = cluster.cloud.instances();
    for (id, instance) in running.filter(|(_, instance)| instance.terminates_at.is_none()) {
        *by_claim.entry(&instance.claim).or_default() += 1;
        let claim = ObjectKey::Claim(instance.claim.as_str().into());
        if cluster.api_server.get(&claim).is_none() {
            orphans.push(OrphanedInstance {
                id: id.clone(),
                claim: instance.claim.clone(),
                launched: instance.launched,
            });
        }
    }
    for (claim, instances) in by_claim.into_iter().filter(|(_, instances)| *instances > 1) {
        found.push(format!("claim {claim} has {instances} instances"));
    }
    orphans
}

/// No NodePool exceeds its limits. Terminating instances are not counted, as in the service.
fn check_limits(snapshot: &Snapshot, cluster: &Cluster, found: &mut Vec<String>) {
    let mut used: BTreeMap<&str, (i64, Resources)> = BTreeMap::new();
    for (_, instance) in cluster.cloud.instances() {
        let Some(pool) = instance.labels.get(labels::NODEPOOL) else {
            continue;
        };
        let claim = ObjectKey::Claim(instance.claim.as_str().into());
        let deleting = cluster.api_server.get(&claim).is_none_or(is_deleting);
        if deleting || instance.terminates_at.is_some() {
            continue;
        }
        let (nodes, capacity) = used.entry(pool).or_default();
        *nodes += 1;
        capacity.add_assign(&instance.instance_type.capacity);
    }
    check_counted(snapshot, cluster, found);
    for (name, pool) in snapshot.pools.iter() {
        let Some((nodes, capacity)) = used.get(name.as_str()) else {
            continue;
        };
        let limits = pool.limits();
        if limits.nodes.is_some_and(|limit| *nodes > limit) {
            found.push(format!(
                "pool {name} has {nodes} nodes, limit {:?}",
                limits.nodes
            ));
        }
        for (resource, limit) in &limits.resources {
            if capacity.get(resource) > *limit {
                found.push(format!(
                    "pool {name} has {} of {resource}, limit {limit}",
                    capacity.get(resource)
                ));
            }
        }
    }
}

/// The running instances of a NodePool are counted against its limits, regardless of which process was killed in between.
fn check_counted(snapshot: &Snapshot, cluster: &Cluster, found: &mut Vec<String>) {
    let mut running: BTreeMap<&str, Resources> = BTreeMap::new();
    for (_, instance) in cluster.cloud.instances() {
        let known = snapshot.claims.get(instance.claim.as_str()).is_some();
        let node = snapshot.node_of_claim(&instance.claim);
        let stays =
            known && node.is_some_and(|node| !node.deleting) && instance.terminates_at.is_none();
        if let (Some(pool), true) = (instance.labels.get(labels::NODEPOOL), stays) {
            let sum = running.entry(pool).or_default();
            sum.add_assign(&instance.instance_type.capacity);
        }
    }
    let counted = PoolUsage::all(snapshot);
    for (pool, running) in running {
        let none = Resources::zero();
        let counted = counted.get(pool).map_or(&none, |usage| &usage.capacity);
        let short = running.exceeds_first(counted);
        if let Some(resource) = short {
            found.push(format!("pool {pool} runs more {resource} than is counted"));
        }
    }
}

/// A condition of an object.
fn is_true(object: &Value, type_: &str) -> bool {
    let all = object.pointer("/status/conditions");
    let all = all.and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .any(|each| each["type"] == type_ && each["status"] == "True")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use mortise_apis::labels;
    use mortise_apis::names::NodeClassKey;
    use mortise_apis::requirements::{Requirement, Requirements};
    use mortise_apis::resources::Resources;
    use mortise_apis::values::money::MicroUsd;
    use mortise_apis::values::{SplitMix64, after};
    use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
    use mortise_planning::settings::Settings;
    use serde_json::json;

    use crate::cluster::FIRST_IMAGE;
    use crate::{SimOptions, Simulation, Workloads};

    pub(super) fn simulation() -> Simulation {
        let mut requirements = Requirements::new();
        requirements.add(Requirement::is(labels::INSTANCE_TYPE, "t4"));
        let offering = Offering {
            zone: "a".into(),
            capacity_type: CapacityType::OnDemand,
            price: Some(MicroUsd(1)),
            available: true,
            reservation: None,
            labels: Vec::new(),
        };
        let instance_type = InstanceType {
            name: "t4".into(),
            requirements,
            capacity: Resources::new(4000, 16 << 30),
            overhead: Resources::zero(),
            offerings: vec![offering],
            devices: std::sync::Arc::default(),
        };
        let pool = json!({ "metadata": { "name": "p" }, "spec": { "limits": { "cpu": "6", "nodes": "1" }, "template": { "spec": {} } } });
        let options = SimOptions {
            seed: 1,
            start: Timestamp::UNIX_EPOCH,
            settings: Settings::default(),
            catalog: vec![instance_type],
            well_known: mortise_apis::labels::WellKnown::core(),
            node_classes: vec![NodeClassKey::new("g", "K", "default")],
            pools: vec![pool],
            daemon_sets: Vec::new(),
            deployments: Vec::new(),
            jobs: Vec::new(),
            others: Vec::new(),
            workloads: Workloads::default(),
            interruption_every_s: 0,
            shortage_per_mille: 0,
        };
        // Without deciders: nothing repairs the violations that the test creates.
        Simulation::new(options, Vec::new())
    }

    #[test]
    fn a_duplicate_and_leaked_instance_over_the_limit_is_reported() {
        let mut simulation = simulation();
        for uid in ["1", "2"] {
            let claim = serde_json::from_value(json!({ "metadata": { "name": "c", "uid": uid, "labels": { "karpenter.sh/nodepool": "p" } }, "spec": {} })).unwrap();
            let (now, mut random) = (simulation.now(), SplitMix64::new(1));
            let cloud = &mut simulation.cluster.cloud;
            cloud
                .launch_alone(&claim, FIRST_IMAGE, now, &mut random)
                .0
                .unwrap();
        }
        let claim = mortise_state::resource_kinds::ObjectKey::Claim("c".into());
        simulation
            .cluster
            .api_server
            .create(
                claim.clone(),
                json!({ "metadata": { "name": "c" } }),
                Timestamp::UNIX_EPOCH,
            )
            .unwrap();
        simulation.run_until(after(Timestamp::UNIX_EPOCH, 10_000));
        simulation.cluster.api_server.erase(&claim);
        simulation.run_until(after(Timestamp::UNIX_EPOCH, 10 * 60_000));
        let seen = simulation.stats().violations.join("\n");
        for violation in [
            "claim c has 2 instances",
            "is leaked",
            "pool p has 2 nodes",
            "pool p has 8000 of cpu, limit 6000",
        ] {
            assert!(seen.contains(violation), "{violation} is missing:\n{seen}");
        }
    }
}
