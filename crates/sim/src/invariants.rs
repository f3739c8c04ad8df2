//! What must hold at every moment, whatever happens. Checked once per virtual second; a breach goes into
//! [`Stats::violations`](crate::Stats).

mod pending_pods;

use std::collections::{BTreeMap, BTreeSet};

use mortise_apis::labels;
use mortise_apis::names::{ClaimName, ObjectRef};
use mortise_apis::resources::Resources;
use mortise_apis::values::since;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, Event};
use mortise_engine::engine::EffectRequest;
use mortise_engine::freshness::{Freshness, HOLDING};
use mortise_planning::disruption::budget_states;
use mortise_state::resource_kinds::ObjectKey;
use mortise_state::snapshot::{PoolUsage, Snapshot};
use serde_json::Value;

use crate::cluster::{Cluster, is_deleting};
use crate::replicas::Replicas;
use pending_pods::PendingPods;

/// An instance that no claim speaks of must be found and ended within this: garbage collection looks every two minutes, and
/// leaves young instances alone.
const ORPHAN_MS: i64 = 6 * 60_000;
/// Breaches written down; one is enough to fail a test, and thousands would fill the memory.
const MOST: usize = 20;

/// What is remembered from one check to the next.
#[derive(Default)]
pub(crate) struct Invariants {
    /// Breaches that are known: the same one a second later is not written down again.
    breaches: BTreeSet<String>,
    pending_pods: PendingPods,
    /// Claims that disruption deleted and that are still there, with their pools.
    disrupted: BTreeMap<ClaimName, String>,
    /// The most that budgets of a pool ever allowed.
    most_allowed: BTreeMap<String, i64>,
}

impl Invariants {
    /// Everything that can be checked at any moment.
    pub(crate) fn check(&mut self, cluster: &mut Cluster, replicas: &mut Replicas) {
        let mut found = Vec::new();
        let now = cluster.now();
        let snapshot = replicas.snapshot(now);
        check_capacity(&snapshot, &mut found);
        check_instances(cluster, &mut found);
        check_limits(&snapshot, cluster, &mut found);
        if replicas.has_lease() {
            self.pending_pods.check(&snapshot, now, &mut found);
        }
        for text in found {
            self.breach(text, cluster);
        }
    }

    /// An event is what the table of events says.
    pub(crate) fn check_event(&mut self, event: &Event, cluster: &mut Cluster) {
        if let Some(text) = mortise_engine::events::fault(event) {
            self.breach(text, cluster);
        }
        self.pending_pods.note_event(event, cluster.now());
    }

    /// What disruption deletes keeps within its pool's budget and holds no pod that must not be disrupted, whoever decided it
    /// and whenever.
    pub(crate) fn check_disruption(
        &mut self,
        order: &EffectRequest,
        cluster: &mut Cluster,
        replicas: &mut Replicas,
    ) {
        let Effect::Delete {
            target: ObjectRef::Claim(name),
            ..
        } = &*order.effect
        else {
            return;
        };
        let key = ObjectKey::Claim(name.clone());
        let Some(claim) = cluster.api_server.get(&key).cloned() else {
            return;
        };
        if order.decider != DeciderId::Disruption || is_deleting(&claim) {
            return;
        }
        let node = claim.pointer("/status/nodeName").cloned();
        let is_protected = cluster.api_server.iter().any(|(key, pod)| {
            let here = node.is_some() && pod.pointer("/spec/nodeName") == node.as_ref();
            let annotations = pod.pointer("/metadata/annotations");
            matches!(key, ObjectKey::Pod(_))
                && here
                && !is_deleting(pod)
                && annotations.is_some_and(|all| all[labels::DO_NOT_DISRUPT] == "true")
        });
        if is_protected && !is_true(&claim, "Drifted") {
            self.breach(
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
        // A node whose instance terminates counts neither as there nor as going.
        self.disrupted.retain(|name, _| {
            let claim = cluster.api_server.get(&ObjectKey::Claim(name.clone()));
            claim.is_some_and(|claim| !is_true(claim, "InstanceTerminating"))
        });
        self.disrupted.insert(name.clone(), pool.clone());
        let going = self.disrupted.values().filter(|each| **each == pool);
        let going = i64::try_from(going.count()).unwrap_or(i64::MAX);
        if going > most {
            let text = format!("pool {pool}: {going} nodes go at once, {most} may");
            self.breach(text, cluster);
        }
    }

    fn breach(&mut self, text: String, cluster: &mut Cluster) {
        if cluster.stats.violations.len() < MOST && self.breaches.insert(text.clone()) {
            cluster.violation(&text);
        }
    }
}

/// No decider requests what cannot be undone while a watch that it depends on is old.
pub(crate) fn check_freshness(
    orders: &[EffectRequest],
    freshness: &Freshness,
    cluster: &mut Cluster,
) {
    for order in orders.iter().filter(|order| is_final(order)) {
        let by = order.decider;
        if let Some(old) = freshness.holds(by, cluster.now()) {
            let effect = order.effect.label();
            cluster.violation(&format!("{by} orders {effect} although {old}"));
        }
    }
}

/// It ends something, by one of those who hold.
fn is_final(order: &EffectRequest) -> bool {
    HOLDING.contains(&order.decider)
        && match &*order.effect {
            Effect::Terminate { .. } | Effect::Evict { .. } => true,
            Effect::Delete { target, .. } => match target {
                ObjectRef::Pod(_) => true,
                // A claim goes with its Node, whose deletion was decided elsewhere.
                ObjectRef::Claim(_) => order.decider != DeciderId::Termination,
                _ => false,
            },
            _ => false,
        }
}

/// No node holds more than it has.
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

/// One instance per claim, and one claim per instance.
fn check_instances(cluster: &Cluster, found: &mut Vec<String>) {
    let mut by_claim: BTreeMap<&str, usize> = BTreeMap::new();
    let staying = cluster.cloud.machines();
    for (id, machine) in staying.filter(|(_, machine)| machine.ends.is_none()) {
        *by_claim.entry(&machine.claim).or_default() += 1;
        let claim = ObjectKey::Claim(machine.claim.as_str().into());
        let is_known = cluster.api_server.get(&claim).is_some();
        if !is_known && since(cluster.now(), machine.launched) > ORPHAN_MS {
            found.push(format!("machine {id} of claim {} is leaked", machine.claim));
        }
    }
    for (claim, machines) in by_claim.into_iter().filter(|(_, machines)| *machines > 1) {
        found.push(format!("claim {claim} has {machines} machines"));
    }
}

/// No pool has more than it may. Instances that terminate count as gone, as they do for the service.
fn check_limits(snapshot: &Snapshot, cluster: &Cluster, found: &mut Vec<String>) {
    let mut used: BTreeMap<&str, (i64, Resources)> = BTreeMap::new();
    for (_, machine) in cluster.cloud.machines() {
        let Some(pool) = machine.labels.get(labels::NODEPOOL) else {
            continue;
        };
        let claim = ObjectKey::Claim(machine.claim.as_str().into());
        let going = cluster.api_server.get(&claim).is_none_or(is_deleting);
        if going || machine.ends.is_some() {
            continue;
        }
        let (nodes, capacity) = used.entry(pool).or_default();
        *nodes += 1;
        capacity.add_assign(&machine.instance_type.capacity);
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

/// What runs for a pool's claims is counted against its limits, whoever has been killed in the meantime.
fn check_counted(snapshot: &Snapshot, cluster: &Cluster, found: &mut Vec<String>) {
    let mut running: BTreeMap<&str, Resources> = BTreeMap::new();
    for (_, machine) in cluster.cloud.machines() {
        let known = snapshot.claims.get(machine.claim.as_str()).is_some();
        let node = snapshot.node_of_claim(&machine.claim);
        let stays = known && node.is_some_and(|node| !node.deleting) && machine.ends.is_none();
        if let (Some(pool), true) = (machine.labels.get(labels::NODEPOOL), stays) {
            let sum = running.entry(pool).or_default();
            sum.add_assign(&machine.instance_type.capacity);
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

    use crate::{Options, Simulation};

    fn simulation() -> Simulation {
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
        let machine = InstanceType {
            name: "t4".into(),
            requirements,
            capacity: Resources::new(4000, 16 << 30),
            overhead: Resources::zero(),
            offerings: vec![offering],
            devices: std::sync::Arc::default(),
        };
        let pool = json!({ "metadata": { "name": "p" }, "spec": { "limits": { "cpu": "6", "nodes": "1" }, "template": { "spec": {} } } });
        let options = Options {
            seed: 1,
            start: Timestamp::UNIX_EPOCH,
            settings: Settings::default(),
            catalog: vec![machine],
            node_class: NodeClassKey::new("g", "K", "default"),
            pools: vec![pool],
            daemon_sets: Vec::new(),
            deployments: Vec::new(),
            jobs: Vec::new(),
            interruption_every_s: 0,
            shortage_per_mille: 0,
        };
        // No decider: nobody puts right what the test does wrong.
        Simulation::new(options, Vec::new())
    }

    #[test]
    fn a_doubled_and_leaked_machine_over_the_limit_is_seen() {
        let mut simulation = simulation();
        for uid in ["1", "2"] {
            let claim = serde_json::from_value(json!({ "metadata": { "name": "c", "uid": uid, "labels": { "karpenter.sh/nodepool": "p" } }, "spec": {} })).unwrap();
            let (now, mut random) = (simulation.now(), SplitMix64::new(1));
            let cloud = &mut simulation.cluster.cloud;
            cloud.launch(&claim, now, &mut random).unwrap();
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
        for breach in [
            "claim c has 2 machines",
            "is leaked",
            "pool p has 2 nodes",
            "pool p has 8000 of cpu, limit 6000",
        ] {
            assert!(seen.contains(breach), "{breach} is missing:\n{seen}");
        }
    }
}
