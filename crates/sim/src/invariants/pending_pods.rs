//! Invariants of pending pods: each stalled pod gets an event, no nomination outlives its expiry or its reason, no two
//! nominations violate anti-affinity, and no series of unused nodes is launched for one pod.
//!
//! The checks read objects and the ledger alone; they call neither the solver nor a decider.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::names::{ObjectRef, PodKey, Uid};
use mortise_apis::values::{after, since};
use mortise_engine::effect::Event;
use mortise_state::ledger::NominationTarget;
use mortise_state::snapshot::{Pod, Refusal, Snapshot, StateNode};

/// A stalled pod gets an event within a minute, and again within five. The rest is for the evaluation that reports it, for
/// events in flight and for the time without a leader.
const REPORTED_MS: (i64, i64) = (90_000, 6 * 60_000);
/// A nomination on a ready node ends within this time after kube-scheduler has rejected the pod there.
const REFUSED_MS: i64 = 60_000;
/// The next pass, some 10 s later, withdraws a nomination that has become invalid; a leader may be missing.
const BROKEN_MS: i64 = 30_000;

/// Maximum number of unused nodes of the last ten minutes that were launched for one pending pod: pauses between launches
/// double, and a new leader starts again with the first pause.
const UNUSED: (usize, i64) = (6, 10 * 60_000);

/// State of pending pods between two checks.
#[derive(Debug, Default)]
pub(super) struct PendingPods {
    /// Since when a pod is stalled.
    stalled: BTreeMap<PodKey, Timestamp>,
    /// When a pod last got an event with the reason why it is pending.
    reported: BTreeMap<PodKey, Timestamp>,
    /// kube-scheduler's message about a pod, and when it changed.
    refusals: BTreeMap<Uid, (Arc<Refusal>, Timestamp)>,
    /// Nominations that violate anti-affinity to another pod, since when.
    broken: BTreeMap<(PodKey, PodKey), Timestamp>,
}

impl PendingPods {
    /// Records an event that states why a pod is pending.
    pub(super) fn note_event(&mut self, event: &Event, now: Timestamp) {
        if let ObjectRef::Pod(pod) = &event.target
            && event.warning
        {
            self.reported.insert(pod.clone(), now);
        }
    }

    /// Checks all of it.
    pub(super) fn check(&mut self, snapshot: &Snapshot, now: Timestamp, found: &mut Vec<String>) {
        self.check_reported(snapshot, now, found);
        self.check_expiry(snapshot, now, found);
        self.check_anti_affinity(snapshot, now, found);
        check_unused(snapshot, now, found);
    }

    /// No pod is stalled without an event that states the reason.
    fn check_reported(&mut self, snapshot: &Snapshot, now: Timestamp, found: &mut Vec<String>) {
        let ours = snapshot
            .pending
            .values()
            .filter(|pod| !pod.class.opts_out());
        let stalled: Vec<PodKey> = ours
            .filter(|pod| snapshot.stalled(pod, now).is_some())
            .map(|pod| pod.key.clone())
            .collect();
        self.stalled.retain(|key, _| stalled.contains(key));
        self.reported
            .retain(|key, _| snapshot.pending.contains(key));
        for key in stalled {
            let stalled_since = *self.stalled.entry(key.clone()).or_insert(now);
            let reported = self.reported.get(&key);
            let is_reported = reported.is_some_and(|at| since(now, *at) <= REPORTED_MS.1);
            if !is_reported && since(now, stalled_since) > REPORTED_MS.0 {
                found.push(format!("pod {key} is stalled and has no event"));
            }
        }
    }

    /// No nomination outlives its expiry, nor kube-scheduler's rejection of its pod on a ready node.
    fn check_expiry(&mut self, snapshot: &Snapshot, now: Timestamp, found: &mut Vec<String>) {
        let refusals = &mut self.refusals;
        refusals.retain(|uid, _| snapshot.ledger.nomination(uid).is_some());
        for nomination in snapshot.ledger.nominations() {
            if nomination.until <= now {
                found.push(format!("the nomination of {} has expired", nomination.pod));
            }
            let pod = snapshot.pending.get(&nomination.pod);
            let Some(refusal) = pod.and_then(|pod| pod.refusal.clone()) else {
                continue;
            };
            let node = snapshot.node_at(&nomination.place);
            // While the node has a boot taint, every pod is rejected there.
            // While nodes of its gang boot, every pod of it is rejected everywhere.
            let is_gang_coming = pod.is_some_and(|pod| snapshot.is_gang_coming(pod));
            let is_ready = !is_gang_coming
                && node.is_some_and(|node| {
                    node.initialized && !snapshot.boot_taints.keep_closed(node)
                });
            let entry = refusals.entry(nomination.uid.clone());
            // A message from before the node was ready, or from before the nomination, is no rejection there.
            let known = entry.or_insert_with(|| (Arc::clone(&refusal), Timestamp::MAX));
            if !is_ready || nomination.from >= known.1 {
                *known = (refusal, Timestamp::MAX);
            } else if known.0 != refusal {
                *known = (refusal, now.min(known.1));
            }
            if now > after_or_never(known.1, REFUSED_MS) {
                found.push(format!(
                    "the nomination of {} outlives a rejection on its ready node",
                    nomination.pod
                ));
            }
        }
    }

    /// Required anti-affinity holds between nominated pods and all pods that are bound or nominated.
    fn check_anti_affinity(
        &mut self,
        snapshot: &Snapshot,
        now: Timestamp,
        found: &mut Vec<String>,
    ) {
        if !may_repel(snapshot) {
            self.broken.clear();
            return;
        }
        let placed: Vec<(&Arc<Pod>, &Arc<StateNode>, bool)> = snapshot
            .pods
            .values()
            .filter(|pod| pod.is_active())
            .filter_map(|pod| {
                let nomination = snapshot.ledger.nomination(&pod.uid);
                let target = match (&pod.node, nomination) {
                    (Some(node), _) => NominationTarget::Node(node.clone()),
                    (None, Some(nomination)) => nomination.place.clone(),
                    (None, None) => return None,
                };
                Some((pod, snapshot.node_at(&target)?, pod.node.is_none()))
            })
            .collect();
        let mut broken = Vec::new();
        for (own, on, is_nominated) in &placed {
            for term in &own.class.anti_affinity.required {
                for (other, other_node, other_nominated) in &placed {
                    let is_selected = own.uid != other.uid
                        && own.key.namespace == other.key.namespace
                        && term.namespaces.is_empty()
                        && term.namespace_selector.is_none()
                        && term
                            .selector
                            .as_ref()
                            .is_some_and(|selector| selector.matches_labels(&other.labels));
                    let is_same_domain = if &*term.key == mortise_apis::labels::HOSTNAME {
                        on.key == other_node.key
                    } else {
                        on.label(&term.key).is_some()
                            && on.label(&term.key) == other_node.label(&term.key)
                    };
                    if is_selected && is_same_domain && (*is_nominated || *other_nominated) {
                        broken.push((own.key.clone(), other.key.clone()));
                    }
                }
            }
        }
        let known = &mut self.broken;
        known.retain(|pair, _| broken.contains(pair));
        for pair in broken {
            let first = *known.entry(pair.clone()).or_insert(now);
            if since(now, first) > BROKEN_MS {
                found.push(format!(
                    "{} and {} are nominated to one domain",
                    pair.0, pair.1
                ));
            }
        }
    }
}

/// Whether there are a nominated pod and a pod with required anti-affinity.
fn may_repel(snapshot: &Snapshot) -> bool {
    let repels = |pod: &Arc<Pod>| !pod.class.anti_affinity.required.is_empty();
    let mut nominated = snapshot.ledger.nominations().peekable();
    nominated.peek().is_some()
        && (nominated.any(|each| snapshot.pods.get(&each.pod).is_some_and(repels))
            || snapshot
                .nodes
                .values()
                .any(|node| node.has_anti_affinity_pods))
}

/// No series of unused nodes is launched for one pod.
fn check_unused(snapshot: &Snapshot, now: Timestamp, found: &mut Vec<String>) {
    if snapshot.pending.is_empty() {
        return;
    }
    let mut unused: BTreeMap<&str, usize> = BTreeMap::new();
    let is_recent = |node: &&Arc<StateNode>| {
        let created = node.created();
        created.is_some_and(|created| since(now, created) < UNUSED.1) && !node.deleting
    };
    for state_node in snapshot.nodes.values().filter(is_recent) {
        let claim = state_node.claim.as_deref();
        let nominated = claim.and_then(|claim| claim.annotation(labels::NOMINATED_PODS));
        let (node, name) = state_node.names();
        let is_used = state_node.reschedulable().next().is_some()
            || snapshot
                .ledger
                .nominations_of_node(node, name)
                .next()
                .is_some();
        for uid in nominated
            .filter(|_| !is_used)
            .unwrap_or_default()
            .split(',')
        {
            *unused.entry(uid).or_default() += 1;
        }
    }
    for pod in snapshot.pending.values() {
        let count = unused.get(&*pod.uid).copied().unwrap_or_default();
        if count > UNUSED.0 {
            found.push(format!(
                "{count} unused nodes were launched for pod {}",
                pod.key
            ));
        }
    }
}

fn after_or_never(at: Timestamp, ms: i64) -> Timestamp {
    if at == Timestamp::MAX {
        at
    } else {
        after(at, ms)
    }
}
