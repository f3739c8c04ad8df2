//! Pods that kube-scheduler refuses where they were expected, and pods that nothing is on its way for.
//!
//! # Rule
//! A nomination to a ready node ends some time after kube-scheduler was seen to refuse its pod
//! ([`mortise_state::index::Index::expire_nominations`]). Then our snapshot of the node or of the pod is wrong, and the
//! pod is expected elsewhere: on another node, or on a new one. If that is refused too, a third would probably not
//! help; nothing more is launched for the pod for an hour. A nomination that ends although kube-scheduler was not seen
//! to refuse the pod (it is slow, or away) is made again on the same node.
//!
//! Whatever the cause, a pod that has been unschedulable for a minute, and for which no node is on its way, has a
//! record and an event with the reason at least every five minutes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::pending_pods::{PendingPod, PendingPods};
use super::{after, since};
use mortise_apis::names::{ObjectRef, PodKey, Uid};
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::record::Verdict;
use mortise_planning::reason::Reason;
use mortise_state::snapshot::{NodeKey, Pod, Snapshot, Stalled};

/// A node on which a pod was refused is no place for it for this long.
const REFUSED_MS: i64 = 60 * 60_000;
/// After this number of refusals nothing is launched for a pod.
const MOST_REFUSALS: usize = 2;
/// How often such pods are listed. Cost: the number of waiting pods.
const REVIEW_MS: i64 = 10_000;
/// Most of them that one step speaks of.
const MOST_SAID: usize = 200;

/// A ready node on which a pod was expected and refused.
#[derive(Clone, Debug)]
pub(super) struct RejectedNode {
    key: NodeKey,
    name: String,
    /// When the pod's nomination there ended.
    at: Timestamp,
}

impl PendingPod {
    /// Takes in what kube-scheduler says of the pod; returns whether its nomination has ended.
    pub(super) fn hear(
        &mut self,
        pod: &Pod,
        nominated: bool,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> bool {
        if self.refusal != pod.refusal {
            self.refusal.clone_from(&pod.refusal);
            let on = snapshot.ledger.nomination(&pod.uid);
            let state_node = on.and_then(|nomination| snapshot.node_at(&nomination.place));
            self.refused |= self.refusal.is_some()
                && state_node.is_some_and(|state_node| {
                    state_node.initialized && !snapshot.boot_taints.keep_closed(state_node)
                })
                && !snapshot.is_gang_coming(pod);
        }
        if nominated {
            return false;
        }
        let Some(name) = self.nominated_to.take() else {
            return false;
        };
        let state_node = snapshot
            .node_of_claim(&name)
            .or_else(|| snapshot.node(&name));
        let state_node =
            state_node.filter(|state_node| state_node.initialized && !state_node.deleting);
        if let Some(state_node) = state_node.filter(|_| self.refused) {
            self.refused_on.push(RejectedNode {
                key: state_node.key.clone(),
                name: state_node.name().to_owned(),
                at: now,
            });
        }
        self.refused = false;
        true
    }

    fn refusals(&self, now: Timestamp) -> impl Iterator<Item = &RejectedNode> {
        let all = self.refused_on.iter();
        all.filter(move |refused| since(now, refused.at) < REFUSED_MS)
    }
}

impl PendingPods {
    /// Nodes on which pods are not expected any more.
    pub(super) fn rejected_nodes(&self, now: Timestamp) -> BTreeMap<Uid, BTreeSet<NodeKey>> {
        let refused = self.by_key.values().filter_map(|waiting| {
            let refusals = waiting.refusals(now);
            let nodes: BTreeSet<NodeKey> = refusals.map(|it| it.key.clone()).collect();
            (!nodes.is_empty()).then(|| (waiting.uid.clone(), nodes))
        });
        refused.collect()
    }

    /// Pods for which nothing more is done for now.
    pub(super) fn abandoned(&self, input: &StepInput<'_>) -> impl Iterator<Item = &PodKey> {
        let (now, ledger) = (input.now, &input.snapshot.ledger);
        let abandoned = self.by_key.iter().filter(move |(_, waiting)| {
            let pauses = waiting.launch_backoff.pauses_until(now).is_some();
            waiting.refusals(now).count() >= MOST_REFUSALS
                || (pauses && ledger.nomination(&waiting.uid).is_none())
        });
        abandoned.map(|(key, _)| key)
    }

    /// Speaks of pods that nothing is on its way for, from time to time.
    pub(super) fn review(&mut self, input: &StepInput<'_>, step: &mut Step) {
        if self.is_empty() || self.review_at.is_some_and(|at| at > input.now) {
            return;
        }
        self.review_at = Some(after(input.now, REVIEW_MS));
        let mut left = MOST_SAID;
        let stalled: Vec<(PodKey, Reason)> = self
            .by_key
            .iter()
            .filter_map(|(key, waiting)| Some((key.clone(), waiting.stalled(key, input)?)))
            .collect();
        for (key, reason) in stalled {
            let subject = ObjectRef::Pod(key);
            if left == 0 || !self.is_news(&subject, &reason, input) {
                continue;
            }
            left -= 1;
            let (by, verdict) = (DeciderId::Provisioning, Verdict::Stalled);
            step.announce(input, by, [subject], verdict, vec![reason]);
        }
    }
}

impl PendingPod {
    /// Why nothing is on its way for the pod; `None` if something is, if it has not waited for long, or if the solve
    /// has said why already.
    fn stalled(&self, key: &PodKey, input: &StepInput<'_>) -> Option<Reason> {
        let pod = input.snapshot.pending.get(key)?;
        let stalled = input.snapshot.stalled(pod, input.now)?;
        let message = pod.refusal.as_ref()?.message.to_string();
        let refusals = self.refusals(input.now);
        let nodes: Vec<String> = refusals.map(|refused| refused.name.clone()).collect();
        if nodes.len() >= MOST_REFUSALS {
            return Some(Reason::RejectedOn { nodes, message });
        }
        if let (Stalled::NoNode, Some(reason)) = (stalled, self.launch_backoff.reason(input.now)) {
            return Some(reason);
        }
        match stalled {
            Stalled::NoNode => self.held_up.clone(),
            Stalled::OnReadyNode => {
                let nomination = input.snapshot.ledger.nomination(&self.uid)?;
                let state_node = input.snapshot.node_at(&nomination.place)?;
                // Not one that it was nominated to until just now.
                let (node, claim) = state_node.names();
                self.nominated_to
                    .as_deref()
                    .filter(|own| [node, claim].contains(&Some(own)))?;
                let node = state_node.name().to_owned();
                Some(Reason::NotTakenOn { node, message })
            }
        }
    }
}
