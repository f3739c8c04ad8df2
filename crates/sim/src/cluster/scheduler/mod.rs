//! The virtual kube-scheduler: queue, filters, scores, back-off, one pod at a time.
//!
//! Written from the documentation of Kubernetes and over the objects themselves: it must not share an error with the solver,
//! so it uses none of its predicates.
//!
//! | noun | file |
//! |---|---|
//! | queue, events, back-off | `queue.rs` |
//! | cache of the cluster | `cache.rs`, `pod.rs` |
//! | filters of a pod and a node | `filters.rs`, `selectors.rs` |
//! | pod affinity and anti-affinity | `neighbours.rs` |
//! | topology spread | `spread.rs` |
//! | volumes | `volumes.rs` |
//! | groups of pods that are bound together | `pod_groups.rs` |
//! | scores | `scores.rs` |
//!
//! It supports neither preemption nor devices nor volume limits per node. Every node is evaluated for every pod.

mod cache;
mod filters;
mod neighbours;
mod pod;
mod pod_groups;
mod queue;
mod scores;
mod selectors;
mod spread;
#[cfg(test)]
mod tests;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::k8s;
use mortise_apis::names::{NodeName, PodKey, Uid};
use mortise_state::resource_kinds::{Object, ObjectKey};
use mortise_state::snapshot::Snapshot;

use super::api_server::object;
use super::extender::Extender;
use crate::clock::StoreEvent;
pub(super) use filters::{tolerates_all, wants_node};
pub(crate) use pod_groups::GroupResult;

use cache::{Cache, NodeInfo};
use neighbours::Neighbours;
use pod::PodView;
use queue::{ClusterEvent, Filter, Queue};
use spread::Spreads;
use volumes::Volumes;

/// Weight of the extender's score relative to the in-tree scores: 5, times 10.
const EXTENDER_WEIGHT: i64 = 50;

/// Queue and cache. A scheduled pod is assumed on its node immediately.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    cache: Cache,
    queue: Queue,
    ignores_groups: bool,
}

/// What an extender is called with.
#[derive(Clone, Copy)]
struct ExtenderCall<'a> {
    snapshot: &'a Arc<Snapshot>,
    now: Timestamp,
    /// `None`: none is called.
    extender: Option<&'a dyn Extender>,
    /// Pods as the API server has them.
    object: &'a dyn Fn(&PodKey) -> Option<k8s::Pod>,
}

/// Result of a scheduling cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CycleResult {
    /// The pod is bound to a node.
    Bind(PodKey, Uid, NodeName),
    /// No node is feasible.
    Unschedulable(PodKey),
    /// The pods of a group were tried.
    Group(GroupResult),
}

impl Scheduler {
    /// Pods that have no node.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Observes changes of objects, in order.
    pub(crate) fn observe(&mut self, changes: &[StoreEvent], now: Timestamp) {
        for StoreEvent {
            key, object: value, ..
        } in changes
        {
            let concerns = matches!(
                key,
                ObjectKey::Pod(_)
                    | ObjectKey::Node(_)
                    | ObjectKey::Namespace(_)
                    | ObjectKey::VolumeClaim(_)
                    | ObjectKey::Volume(_)
                    | ObjectKey::StorageClass(_)
                    | ObjectKey::CoschedulingPodGroup(_)
            );
            if concerns {
                // An object that cannot be parsed counts as deleted; its delivery to the engine reports it.
                let read = value.clone().and_then(|value| object(key, value).ok());
                self.observe_object(key, read.as_ref(), now);
            }
        }
    }

    fn observe_object(&mut self, key: &ObjectKey, object: Option<&Object>, now: Timestamp) {
        let identity = |pod: &Arc<PodView>| (pod.uid.clone(), Arc::clone(&pod.profile_key));
        let known = |cache: &Cache, pod: &PodKey| cache.pods.get(pod).map(identity);
        if let ObjectKey::CoschedulingPodGroup(group) = key {
            drop(self.cache.observe(key, object));
            for pod in self.cache.groups.members(group) {
                self.queue.activate(pod, now);
            }
            return;
        }
        let ObjectKey::Pod(pod) = key else {
            let events = self.cache.observe(key, object);
            return self.requeue_helped(&events, now);
        };
        let before = known(&self.cache, pod);
        let events = self.cache.observe(key, object);
        if before != known(&self.cache, pod) {
            self.queue.remove(pod);
        }
        match self.cache.pods.get(pod).filter(|view| view.is_waiting()) {
            Some(view) => self.queue.add(pod, view.priority(), view.created, now),
            None => self.queue.remove(pod),
        }
        self.requeue_helped(&events, now);
    }

    /// Requeues the unschedulable pods that an event may help.
    fn requeue_helped(&mut self, events: &[ClusterEvent], now: Timestamp) {
        let Self { cache, queue, .. } = self;
        for event in events {
            queue.requeue_helped(event, now, |waiting, other| {
                let waiting = cache.pods.get(waiting);
                waiting.is_some_and(|pod| neighbours::is_affected(cache, &pod.profile, other))
            });
        }
    }

    /// One scheduling cycle.
    pub(crate) fn cycle(
        &mut self,
        snapshot: &Arc<Snapshot>,
        now: Timestamp,
        extender: Option<&dyn Extender>,
        object: impl Fn(&PodKey) -> Option<k8s::Pod>,
    ) -> Option<CycleResult> {
        let key = self.queue.next(now)?;
        let Some(pod) = self.cache.pods.get(&key).cloned() else {
            self.queue.remove(&key);
            return None;
        };
        let call = ExtenderCall {
            snapshot,
            now,
            extender,
            object: &object,
        };
        if let Some(group) = self.tried_with(&pod) {
            return Some(CycleResult::Group(self.try_group(&group, &call)));
        }
        let node = match self.find_node(&pod, &call) {
            Ok(node) => node,
            Err(rejected_by) => {
                self.queue.add_unschedulable(&key, rejected_by, now);
                return Some(CycleResult::Unschedulable(key));
            }
        };
        self.queue.remove(&key);
        let events = self.cache.assume(&key, &node);
        self.requeue_helped(&events, now);
        Some(CycleResult::Bind(key, pod.uid.clone(), node))
    }

    /// The best node for a pod, or the filters that rejected all of them.
    fn find_node(
        &self,
        pod: &PodView,
        call: &ExtenderCall<'_>,
    ) -> Result<NodeName, BTreeSet<Filter>> {
        let ExtenderCall { snapshot, now, .. } = *call;
        let (mut feasible, mut rejected_by) = self.feasible(pod);
        if let (Some(extender), Some(body), false) =
            (call.extender, (call.object)(&pod.key), feasible.is_empty())
        {
            let names =
                |of: &[(NodeName, i64)]| of.iter().map(|(name, _)| name.to_string()).collect();
            let offered: Vec<String> = names(&feasible);
            let kept: BTreeSet<String> = extender
                .filter(snapshot, now, &body, &offered)
                .into_iter()
                .collect();
            feasible.retain(|(name, _)| kept.contains(name.as_str()));
            if feasible.len() < offered.len() {
                rejected_by.insert(Filter::Extender);
            }
            if feasible.len() > 1 {
                let offered: Vec<String> = names(&feasible);
                let scores: BTreeMap<String, i64> = extender
                    .prioritize(snapshot, now, &body, &offered)
                    .into_iter()
                    .collect();
                for (name, score) in &mut feasible {
                    *score += EXTENDER_WEIGHT * scores.get(name.as_str()).copied().unwrap_or(0);
                }
            }
        }
        let best = feasible
            .into_iter()
            .max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        best.map(|(node, _)| node).ok_or(rejected_by)
    }

    /// Nodes that pass every filter with their in-tree score, and the filters that rejected others.
    fn feasible(&self, pod: &PodView) -> (Vec<(NodeName, i64)>, BTreeSet<Filter>) {
        let volumes = Volumes::new(&self.cache, pod);
        let spreads = Spreads::new(&self.cache, pod);
        let neighbours = Neighbours::new(&self.cache, pod);
        let mut rejected_by = BTreeSet::new();
        let mut passed: Vec<(&NodeName, &NodeInfo)> = Vec::new();
        for (name, info) in self.cache.nodes() {
            let rejection = filters::rejection(pod, name, info).or_else(|| {
                if !volumes.is_feasible(name, info) {
                    Some(Filter::Volumes)
                } else if !spreads.is_feasible(info) {
                    Some(Filter::Spread)
                } else if !neighbours.is_feasible(info) {
                    Some(Filter::PodAffinity)
                } else {
                    None
                }
            });
            match rejection {
                Some(filter) => drop(rejected_by.insert(filter)),
                None => passed.push((name, info)),
            }
        }
        let scores = scores::scores(pod, &passed, &neighbours, &spreads);
        let names = passed.into_iter().map(|(name, _)| name.clone());
        (names.zip(scores).collect(), rejected_by)
    }

    /// When the next pod can be tried.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.queue.next_due(now)
    }
}
