//! Waves of drift: how many drifted nodes of a NodePool may be replaced at a time where its NodePoolPolicy limits them.
//!
//! # Problem
//! A bad image or template drifts many nodes before people see that pods do not become ready on the new ones. Budgets count nodes
//! that are disrupted now, and not whether what replaced the last ones works.
//!
//! # Rule
//! A NodeClaim that is neither drifted nor being deleted is *unproven* until its node and the pods on it have been ready for the
//! time of the policy. It is *proven* afterwards, if it was created after the last node of the NodePool drifted. (Providers are
//! asked for drift one node after another, within minutes: a node that is older may differ as well and not be marked yet.)
//! As many may be unproven or about to be launched at a time as are proven, and at least the first wave: 1, 1, 2, 4, 8.
//!
//! Everything is read from objects and commands under way, so a restart changes nothing. Drained nodes without pods prove nothing
//! and block nothing: only a drift that moves pods or launches a node waits for its wave.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::command::{DisruptionCommand, Method};
use super::rejection::DisruptionRejection;
use crate::reason::{DisruptionBlocker, UnprovenCause, UnprovenNode};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, PoolName};
use mortise_apis::node_pool_policy::DriftWaves;
use mortise_apis::schema::conditions::find;
use mortise_apis::values::after;
use mortise_state::snapshot::{Pod, Snapshot, StateNode};

/// The present wave of a NodePool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriftWave {
    /// Name of the policy.
    pub policy: Arc<str>,
    /// What it allows.
    pub waves: DriftWaves,
    /// New nodes that are proven.
    pub proven: i64,
    /// NodeClaims that are not proven, and replacements that are about to be launched.
    pub under_way: i64,
    /// The unproven NodeClaim that most needs a look, and what it lacks. Of several, the first by name.
    pub waits_for: Option<UnprovenNode>,
    /// When the next of the unproven nodes is proven if everything stays as it is; `None` if that is not a matter of time.
    pub next_at: Option<Timestamp>,
}

impl DriftWave {
    /// How many more nodes may be replaced now. Never negative.
    #[must_use]
    pub fn remaining(&self) -> i64 {
        (self.waves.limit(self.proven) - self.under_way).max(0)
    }

    /// Why no more may be replaced.
    #[must_use]
    pub fn rejection(&self) -> DisruptionRejection {
        DisruptionRejection::from_reason(DisruptionBlocker::DriftWave {
            policy: self.policy.to_string(),
            limit: self.waves.limit(self.proven),
            under_way: self.under_way,
            ready_for_ms: self.waves.ready_for_ms,
            waits_for: self.waits_for.clone(),
        })
    }
}

/// Replacements that a drift command launches and that no NodeClaim shows yet, with their NodePool. A command that launches
/// none there counts as one until its end.
pub(super) fn starting(
    command: &DisruptionCommand,
    snapshot: &Snapshot,
) -> Option<(PoolName, i64)> {
    if command.method != Method::Drift {
        return None;
    }
    let pool = &command.targets.first()?.pool;
    let claims = command.moves.claims.iter();
    let launched = claims.filter(|claim| claim.pool == *pool).count();
    let is_unknown = |name: &ClaimName| {
        !snapshot.claims.contains(name.as_str())
            && !snapshot.ledger.expected_claims().contains_key(name)
    };
    let starting = if launched == 0 {
        1
    } else if command.phase.is_nominated() {
        let replacements = command.replacements.iter();
        let unknown = replacements.filter(|each| !each.seen && is_unknown(&each.claim));
        unknown.count().min(launched)
    } else {
        launched
    };
    Some((pool.clone(), i64::try_from(starting).unwrap_or(i64::MAX)))
}

/// What is known of the NodeClaims of a NodePool.
#[derive(Default)]
struct Evidence {
    /// When the last of its nodes drifted.
    drifted_at: Option<Timestamp>,
    /// Creation of the NodeClaims that have been ready for long enough.
    ready: Vec<Timestamp>,
    unproven: i64,
    waits_for: Option<UnprovenNode>,
    next_at: Option<Timestamp>,
}

/// The waves of all NodePools whose policy limits drift. `starting`: replacements about to be launched, by NodePool.
///
/// # Cost
/// One pass over the NodeClaims, and over the pods of these NodePools; none without such a policy.
pub(super) fn all(
    snapshot: &Snapshot,
    starting: &BTreeMap<PoolName, i64>,
    now: Timestamp,
) -> BTreeMap<PoolName, DriftWave> {
    let limited = |pool: &PoolName| {
        let policy = snapshot.policy_of(pool)?;
        Some((policy.drift_waves?, Arc::clone(&policy.name)))
    };
    let pools = snapshot.pools.keys();
    let pools: BTreeMap<&PoolName, (DriftWaves, Arc<str>)> = pools
        .filter_map(|pool| Some((pool, limited(pool)?)))
        .collect();
    if pools.is_empty() {
        return BTreeMap::new();
    }
    let mut evidence: BTreeMap<PoolName, Evidence> = BTreeMap::new();
    let expected = snapshot.ledger.expected_claims().iter();
    let expected = expected.filter_map(|(name, expected)| Some((name, expected.object.as_ref()?)));
    let unseen = expected.filter(|(name, _)| !snapshot.claims.contains(name.as_str()));
    for (name, claim) in snapshot.claims.iter().chain(unseen) {
        let Some(pool) = claim.pool() else { continue };
        if let Some((waves, _)) = pools.get(&pool) {
            let node = snapshot.node_of_claim(name);
            let of = evidence.entry(pool).or_default();
            of.count((name, claim), node.map(|node| &**node), waves, now);
        }
    }
    pools
        .into_iter()
        .map(|(pool, (waves, policy))| {
            let found = evidence.remove(pool).unwrap_or_default();
            let starting = starting.get(pool).copied().unwrap_or(0);
            (pool.clone(), found.into_wave(policy, waves, starting))
        })
        .collect()
}

impl Evidence {
    fn count(
        &mut self,
        (name, claim): (&ClaimName, &NodeClaim),
        node: Option<&StateNode>,
        waves: &DriftWaves,
        now: Timestamp,
    ) {
        if claim.is_true("Drifted") {
            let since = transition(claim, "Drifted").unwrap_or(now);
            self.drifted_at = self.drifted_at.max(Some(since));
            return;
        }
        let is_deleting = node.is_some_and(|node| node.deleting);
        if is_deleting || claim.metadata.deletion_timestamp.is_some() {
            return;
        }
        let created = claim.metadata.creation_timestamp.as_ref();
        let created = created.map_or(now, |time| time.0);
        let why = match ready_since(claim, created, node) {
            Ok(since) => {
                let proven_at = after(since, waves.ready_for_ms);
                if proven_at <= now {
                    self.ready.push(created);
                    return;
                }
                let known = self.next_at.unwrap_or(proven_at);
                self.next_at = Some(known.min(proven_at));
                UnprovenCause::Until(proven_at)
            }
            Err(why) => why,
        };
        self.unproven += 1;
        let known = self.waits_for.as_ref();
        let key = (why.urgency(), name);
        if known.is_none_or(|known| key < (known.why.urgency(), &known.claim)) {
            let claim = name.clone();
            self.waits_for = Some(UnprovenNode { claim, why });
        }
    }

    fn into_wave(self, policy: Arc<str>, waves: DriftWaves, starting: i64) -> DriftWave {
        let is_new = |created: &&Timestamp| Some(**created) >= self.drifted_at;
        let proven = self.ready.iter().filter(is_new).count();
        DriftWave {
            policy,
            waves,
            proven: i64::try_from(proven).unwrap_or(i64::MAX),
            under_way: self.unproven.saturating_add(starting),
            waits_for: self.waits_for,
            next_at: self.next_at,
        }
    }
}

fn transition(claim: &NodeClaim, type_: &str) -> Option<Timestamp> {
    let condition = find(&claim.status.conditions, type_)?;
    condition.last_transition_time.as_ref().map(|time| time.0)
}

/// Since when the node of a NodeClaim and all pods on it have been ready; what is missing if they are not.
fn ready_since(
    claim: &NodeClaim,
    created: Timestamp,
    node: Option<&StateNode>,
) -> Result<Timestamp, UnprovenCause> {
    let node = node.filter(|node| node.initialized);
    let node = node.ok_or(UnprovenCause::NotInitialized)?;
    let of_node = node.node.as_ref();
    let of_node = of_node.and_then(|object| object.condition("Ready"));
    let of_node = of_node.filter(|condition| condition.status == "True");
    let of_node = of_node.ok_or(UnprovenCause::NotReady)?;
    let of_node = of_node.last_transition_time.as_ref().map(|time| time.0);
    let of_claim = transition(claim, "Initialized").unwrap_or(created);
    let mut since = of_claim.max(of_node.unwrap_or(of_claim));
    for pod in node.pods.iter().filter(|pod| counts(pod)) {
        if !pod.ready {
            return Err(UnprovenCause::PodNotReady(pod.key.clone()));
        }
        since = since.max(pod.ready_since.unwrap_or(pod.created));
    }
    Ok(since)
}

/// Whether the readiness of a pod says something about its node.
fn counts(pod: &Pod) -> bool {
    pod.is_reschedulable() && pod.is_active() && !pod.is_of_job()
}

#[cfg(test)]
mod tests {
    use mortise_apis::k8s;
    use mortise_state::snapshot::PodClasses;
    use serde_json::{Value, json};

    use super::*;

    const READY_FOR: i64 = 60;
    const NOW: i64 = 1_000;

    fn at(second: i64) -> Timestamp {
        after(Timestamp::UNIX_EPOCH, second * 1_000)
    }

    fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
        serde_json::from_value(object).unwrap_or_else(|error| unreachable!("{error}"))
    }

    fn condition(type_: &str, since: i64) -> Value {
        json!({ "type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": at(since).to_string() })
    }

    /// A node, with times in seconds.
    #[derive(Clone, Default)]
    struct Case {
        created: i64,
        drifted: Option<i64>,
        deleting: bool,
        /// When its NodeClaim was initialized, and when its Node became ready.
        up: Option<(i64, Option<i64>)>,
        /// Owner and readiness of its pods.
        pods: Vec<(&'static str, Option<i64>)>,
    }

    /// A node that was ready 10 s after its creation.
    fn node(created: i64) -> Case {
        let up = Some((created + 10, Some(created + 5)));
        Case {
            created,
            up,
            ..Case::default()
        }
    }

    fn pods(created: i64, pods: &[(&'static str, Option<i64>)]) -> Case {
        let pods = pods.to_vec();
        Case {
            pods,
            ..node(created)
        }
    }

    fn drifted(since: i64) -> Case {
        let drifted = Some(since);
        Case { drifted, ..node(0) }
    }

    fn pod((kind, ready): (&str, Option<i64>)) -> Arc<Pod> {
        let mut conditions = Vec::new();
        conditions.extend(ready.map(|since| condition("Ready", since)));
        let object = json!({
            "metadata": { "name": "p", "namespace": "default", "ownerReferences": [{ "apiVersion": "v1", "kind": kind, "name": "o", "uid": "o", "controller": true }] },
            "spec": { "nodeName": "n" }, "status": { "phase": "Running", "conditions": conditions },
        });
        let object: k8s::Pod = read(object);
        Arc::new(Pod::from_api(&object, &mut PodClasses::default()))
    }

    fn wave(cases: &[Case], first: i64, starting: i64) -> DriftWave {
        let waves = DriftWaves {
            first,
            ready_for_ms: READY_FOR * 1_000,
            most: i64::MAX,
        };
        let mut evidence = Evidence::default();
        for (position, case) in cases.iter().enumerate() {
            let mut conditions = Vec::new();
            conditions.extend(case.up.map(|(since, _)| condition("Initialized", since)));
            conditions.extend(case.drifted.map(|since| condition("Drifted", since)));
            let name = format!("c{position}");
            let object = json!({
                "metadata": { "name": name, "creationTimestamp": at(case.created).to_string() },
                "spec": { "nodeClassRef": { "group": "g", "kind": "K", "name": "n" }, "requirements": [] },
                "status": { "conditions": conditions },
            });
            let claim: Arc<NodeClaim> = Arc::new(read(object));
            let mut node = StateNode::from_expected_claim(&claim);
            node.initialized = case.up.is_some();
            node.deleting = case.deleting;
            let ready = case.up.and_then(|(_, ready)| ready);
            let ready: Vec<Value> = ready
                .into_iter()
                .map(|since| condition("Ready", since))
                .collect();
            let object = json!({ "metadata": { "name": "n" }, "status": { "conditions": ready } });
            node.node = Some(Arc::new(read(object)));
            node.pods = case.pods.iter().copied().map(pod).collect();
            evidence.count((&claim.name(), &claim), Some(&node), &waves, at(NOW));
        }
        evidence.into_wave("team".into(), waves, starting)
    }

    #[test]
    fn a_node_is_proven_when_it_and_its_pods_have_been_ready_for_long_enough() {
        use UnprovenCause::{NotInitialized, NotReady, PodNotReady, Until};
        let pod_key = || PodNotReady(pod(("ReplicaSet", None)).key.clone());
        let old = NOW - 500;
        let lost = Case {
            up: Some((old, None)),
            ..node(old)
        };
        let table = [
            ("empty", node(old), None),
            (
                "launched now",
                Case {
                    up: None,
                    ..node(NOW)
                },
                Some(NotInitialized),
            ),
            ("Node not ready", lost, Some(NotReady)),
            ("initialized now", node(NOW - 10), Some(Until(at(NOW + 60)))),
            ("exactly", node(NOW - 70), None),
            ("a second less", node(NOW - 69), Some(Until(at(NOW + 1)))),
            (
                "Node ready again",
                Case {
                    up: Some((old, Some(NOW - 20))),
                    ..node(old)
                },
                Some(Until(at(NOW + 40))),
            ),
            (
                "ready pod",
                pods(old, &[("ReplicaSet", Some(NOW - 60))]),
                None,
            ),
            (
                "pod ready again",
                pods(
                    old,
                    &[("ReplicaSet", Some(old)), ("StatefulSet", Some(NOW - 5))],
                ),
                Some(Until(at(NOW + 55))),
            ),
            (
                "pod not ready",
                pods(old, &[("ReplicaSet", Some(old)), ("ReplicaSet", None)]),
                Some(pod_key()),
            ),
            (
                "pods of others",
                pods(old, &[("Job", None), ("DaemonSet", None)]),
                None,
            ),
        ];
        for (what, case, expected) in table {
            let wave = wave(&[case], 1, 0);
            assert_eq!(wave.proven, i64::from(expected.is_none()), "{what}");
            assert_eq!(wave.under_way, i64::from(expected.is_some()), "{what}");
            let next = match expected {
                Some(Until(at)) => Some(at),
                _ => None,
            };
            assert_eq!(wave.next_at, next, "{what}");
            let why = wave.waits_for.map(|node| node.why);
            assert_eq!(why, expected, "{what}");
        }
    }

    #[test]
    fn waves_grow_with_the_nodes_that_are_proven_since_the_last_drift() {
        let since = NOW - 400;
        let new = || node(NOW - 300);
        let coming = || Case {
            up: None,
            ..node(NOW)
        };
        let gone = Case {
            deleting: true,
            ..new()
        };
        let of = |new: usize| {
            let mut all = vec![drifted(since), drifted(since - 50)];
            all.extend(std::iter::repeat_with(|| node(NOW - 300)).take(new));
            all
        };
        let with = |new: usize, more: &[Case]| [&of(new), more].concat();
        // Nodes, first wave, replacements that begin: proven, under way, remaining.
        let table = [
            (of(0), 1, 0, [0, 0, 1]),
            (of(0), 1, 1, [0, 1, 0]),
            (of(0), 3, 2, [0, 2, 1]),
            (of(1), 1, 0, [1, 0, 1]),
            (of(2), 1, 0, [2, 0, 2]),
            (of(4), 1, 3, [4, 3, 1]),
            (of(2), 3, 0, [2, 0, 3]),
            (with(2, &[coming()]), 1, 0, [2, 1, 1]),
            (with(1, &[coming(), coming(), coming()]), 1, 0, [1, 3, 0]),
            // A node that is being deleted is neither, and one from before the last drift proves nothing.
            (with(1, std::slice::from_ref(&gone)), 1, 0, [1, 0, 1]),
            (
                with(0, &[node(since - 100), node(since - 1)]),
                1,
                0,
                [0, 0, 1],
            ),
            (with(0, &[node(since), node(since + 1)]), 1, 0, [2, 0, 2]),
            (with(3, &[drifted(NOW - 100)]), 1, 0, [0, 0, 1]),
        ];
        for (position, (nodes, first, starting, expected)) in table.into_iter().enumerate() {
            let wave = wave(&nodes, first, starting);
            let found = [wave.proven, wave.under_way, wave.remaining()];
            assert_eq!(found, expected, "row {position}");
        }
    }

    #[test]
    fn the_rejection_names_the_policy_and_what_it_waits_for() {
        let cases = [
            drifted(0),
            Case {
                up: None,
                ..node(NOW)
            },
        ];
        let rejection = wave(&cases, 1, 1).rejection();
        assert_eq!(
            rejection.text(),
            "NodePoolPolicy \"team\" replaces drifted nodes in waves: 1 at a time now, and 2 under way or not ready for 60s yet (NodeClaim c1: not initialized)"
        );
        let summary = |rejection: &DisruptionRejection| rejection.reasons[0].summary();
        let coming = summary(&rejection);
        assert!(
            coming.ends_with("in waves: new nodes are not initialized"),
            "{coming}"
        );
        // One that is ready with its pod not needs a look, whatever else is under way.
        let [one, two, three] = cases_of_a_bad_image();
        for cases in [[one.clone(), two.clone(), three.clone()], [three, two, one]] {
            let rejection = wave(&cases, 1, 0).rejection();
            assert!(rejection.text().contains(" is not ready)"), "{rejection:?}");
            assert!(
                summary(&rejection).ends_with("in waves: pods on new nodes are not ready"),
                "{rejection:?}"
            );
        }
    }

    /// A node that is not there yet, one with a pod that is not ready, and one that is ready for some seconds.
    fn cases_of_a_bad_image() -> [Case; 3] {
        let coming = Case {
            up: None,
            ..node(NOW)
        };
        let broken = pods(NOW - 100, &[("ReplicaSet", None)]);
        [coming, broken, node(NOW - 20)]
    }
}
