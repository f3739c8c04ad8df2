//! What must hold for pods that wait: nobody waits in silence, no promise outlives its end or its reason, no promise stands
//! against another one, and no pod has machines launched for it that nobody uses, one after the other.
//!
//! Written against objects and the ledger alone; it asks neither the solver nor the decider whether they think so too.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::names::{ObjectRef, PodKey, Uid};
use mortise_apis::values::{after, since};
use mortise_engine::effect::Event;
use mortise_state::ledger::NominationTarget;
use mortise_state::snapshot::{Pod, Refusal, Snapshot, StateNode};

/// A stalled pod hears why within a minute, and again within five; the rest is for the look that says it, for events on
/// their way and for the time in which nobody leads.
const TOLD_MS: (i64, i64) = (90_000, 6 * 60_000);
/// A promise on a ready machine ends within this after kube-scheduler has refused its pod there.
const REFUSED_MS: i64 = 60_000;
/// A promise that something has come between is withdrawn by the next pass, some 10 s later; a leader may be missing.
const BROKEN_MS: i64 = 30_000;

/// Most machines of ten minutes that stand there unused although they were launched for a pod that still waits: pauses
/// between them double, and a new leader begins anew.
const UNUSED: (usize, i64) = (6, 10 * 60_000);

/// What is remembered of pods that wait, from one look to the next.
#[derive(Debug, Default)]
pub(super) struct PendingPods {
    /// Since when a pod is stalled.
    stalled: BTreeMap<PodKey, Timestamp>,
    /// When a pod was last told why it waits.
    told: BTreeMap<PodKey, Timestamp>,
    /// kube-scheduler's words on a pod, and when it changed them.
    refusals: BTreeMap<Uid, (Arc<Refusal>, Timestamp)>,
    /// Promises that stand against another pod, since when.
    broken: BTreeMap<(PodKey, PodKey), Timestamp>,
}

impl PendingPods {
    /// An event may say on a pod why it waits.
    pub(super) fn note_event(&mut self, event: &Event, now: Timestamp) {
        if let ObjectRef::Pod(pod) = &event.target
            && event.warning
        {
            self.told.insert(pod.clone(), now);
        }
    }

    /// Checks all of it.
    pub(super) fn check(&mut self, snapshot: &Snapshot, now: Timestamp, found: &mut Vec<String>) {
        self.check_told(snapshot, now, found);
        self.check_ends(snapshot, now, found);
        self.check_apart(snapshot, now, found);
        check_unused(snapshot, now, found);
    }

    /// No pod is stalled without a reason said on it.
    fn check_told(&mut self, snapshot: &Snapshot, now: Timestamp, found: &mut Vec<String>) {
        let ours = snapshot
            .pending
            .values()
            .filter(|pod| !pod.class.opts_out());
        let stalled: Vec<PodKey> = ours
            .filter(|pod| snapshot.stalled(pod, now).is_some())
            .map(|pod| pod.key.clone())
            .collect();
        self.stalled.retain(|key, _| stalled.contains(key));
        self.told.retain(|key, _| snapshot.pending.contains(key));
        for key in stalled {
            let since_when = *self.stalled.entry(key.clone()).or_insert(now);
            let told = self.told.get(&key);
            let is_told = told.is_some_and(|at| since(now, *at) <= TOLD_MS.1);
            if !is_told && since(now, since_when) > TOLD_MS.0 {
                found.push(format!("pod {key} waits and is told nothing"));
            }
        }
    }

    /// No promise outlives its end, nor kube-scheduler's refusal of its pod on a ready machine.
    fn check_ends(&mut self, snapshot: &Snapshot, now: Timestamp, found: &mut Vec<String>) {
        let refusals = &mut self.refusals;
        refusals.retain(|uid, _| snapshot.ledger.nomination(uid).is_some());
        for promise in snapshot.ledger.nominations() {
            if promise.until <= now {
                found.push(format!("the promise to {} is over", promise.pod));
            }
            let pod = snapshot.pending.get(&promise.pod);
            let Some(refusal) = pod.and_then(|pod| pod.refusal.clone()) else {
                continue;
            };
            let machine = snapshot.node_at(&promise.place);
            let is_ready = machine.is_some_and(|machine| machine.initialized);
            let entry = refusals.entry(promise.uid.clone());
            // What was said before the machine was ready, or before the promise, is no refusal there.
            let known = entry.or_insert_with(|| (Arc::clone(&refusal), Timestamp::MAX));
            if !is_ready || promise.from >= known.1 {
                *known = (refusal, Timestamp::MAX);
            } else if known.0 != refusal {
                *known = (refusal, now.min(known.1));
            }
            if now > after_or_never(known.1, REFUSED_MS) {
                found.push(format!(
                    "the promise to {} outlives a refusal on its ready machine",
                    promise.pod
                ));
            }
        }
    }

    /// Required anti-affinity holds between pods that are promised a place and all that have one or are promised one.
    fn check_apart(&mut self, snapshot: &Snapshot, now: Timestamp, found: &mut Vec<String>) {
        let placed: Vec<(&Arc<Pod>, &Arc<StateNode>, bool)> = snapshot
            .pods
            .values()
            .filter(|pod| pod.is_active())
            .filter_map(|pod| {
                let promise = snapshot.ledger.nomination(&pod.uid);
                let place = match (&pod.node, promise) {
                    (Some(node), _) => NominationTarget::Node(node.clone()),
                    (None, Some(promise)) => promise.place.clone(),
                    (None, None) => return None,
                };
                Some((pod, snapshot.node_at(&place)?, pod.node.is_none()))
            })
            .collect();
        let mut broken = Vec::new();
        for (own, on, is_promised) in &placed {
            for term in &own.class.anti_affinity.required {
                for (other, there, other_promised) in &placed {
                    let is_meant = own.uid != other.uid
                        && own.key.namespace == other.key.namespace
                        && term.namespaces.is_empty()
                        && term.namespace_selector.is_none()
                        && term
                            .selector
                            .as_ref()
                            .is_some_and(|selector| selector.matches_labels(&other.labels));
                    let is_shared = if &*term.key == mortise_apis::labels::HOSTNAME {
                        on.key == there.key
                    } else {
                        on.label(&term.key).is_some()
                            && on.label(&term.key) == there.label(&term.key)
                    };
                    if is_meant && is_shared && (*is_promised || *other_promised) {
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
                found.push(format!("{} and {} are promised one place", pair.0, pair.1));
            }
        }
    }
}

/// No pod has one machine after the other launched for it that nobody uses.
fn check_unused(snapshot: &Snapshot, now: Timestamp, found: &mut Vec<String>) {
    let mut unused: BTreeMap<&str, usize> = BTreeMap::new();
    let is_young = |machine: &&Arc<StateNode>| {
        let made = machine.created();
        made.is_some_and(|made| since(now, made) < UNUSED.1) && !machine.deleting
    };
    for machine in snapshot.nodes.values().filter(is_young) {
        let claim = machine.claim.as_deref();
        let asked = claim.and_then(|claim| claim.annotation(labels::NOMINATED_PODS));
        let (node, name) = machine.names();
        let is_used = machine.reschedulable().next().is_some()
            || snapshot
                .ledger
                .nominations_of_node(node, name)
                .next()
                .is_some();
        for uid in asked.filter(|_| !is_used).unwrap_or_default().split(',') {
            *unused.entry(uid).or_default() += 1;
        }
    }
    for pod in snapshot.pending.values() {
        let count = unused.get(&*pod.uid).copied().unwrap_or_default();
        if count > UNUSED.0 {
            found.push(format!(
                "{count} machines stand unused that were launched for pod {}",
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
