//! The virtual kube-scheduler: queue, filters, scores, back-off, one pod at a time.
//!
//! Written from what Kubernetes documents, over the objects themselves: it must not share an error with the solver, so it
//! uses none of its predicates.
//!
//! | noun | file |
//! |---|---|
//! | queue, events, back-off | `queue.rs` |
//! | what is known of the cluster | `cache.rs`, `pod.rs` |
//! | filters of a pod and a node | `filters.rs`, `selectors.rs` |
//! | pod affinity and anti-affinity | `neighbours.rs` |
//! | topology spread | `spread.rs` |
//! | volumes | `volumes.rs` |
//! | scores | `scores.rs` |
//!
//! It knows neither preemption nor devices, and no limits of volumes per node. Every node is looked at for every pod.

mod cache;
mod filters;
mod neighbours;
mod pod;
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
use cache::{Cache, Machine};
use neighbours::Neighbours;
use pod::PodView;
use queue::{Event, Filter, Queue};
use spread::Spreads;
use volumes::Volumes;

/// What the extender's score is worth beside the in-tree scores: weight 5, times 10.
const EXTENDER_WEIGHT: i64 = 50;

/// Queue, and what is known of the cluster. A pod that was given a node counts there from then on.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    cache: Cache,
    queue: Queue,
}

/// What became of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CycleResult {
    /// Goes to a node.
    Bind(PodKey, Uid, NodeName),
    /// Fits nowhere.
    Unschedulable(PodKey),
}

impl Scheduler {
    /// Takes in what happened to objects, in order.
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
            );
            if concerns {
                // One that cannot be read counts as gone; whoever shows it to the engine says so.
                let read = value.clone().and_then(|value| object(key, value).ok());
                self.take_in(key, read.as_ref(), now);
            }
        }
    }

    fn take_in(&mut self, key: &ObjectKey, object: Option<&Object>, now: Timestamp) {
        let identity = |pod: &Arc<PodView>| (pod.uid.clone(), Arc::clone(&pod.crowd));
        let known = |cache: &Cache, pod: &PodKey| cache.pods.get(pod).map(identity);
        let ObjectKey::Pod(pod) = key else {
            let events = self.cache.observe(key, object);
            return self.announce(&events, now);
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
        self.announce(&events, now);
    }

    /// Lets pods out of their parking place that an event may help.
    fn announce(&mut self, events: &[Event], now: Timestamp) {
        let Self { cache, queue } = self;
        for event in events {
            queue.happened(event, now, |waiting, other| {
                let waiting = cache.pods.get(waiting);
                waiting.is_some_and(|pod| neighbours::speak(cache, &pod.profile, other))
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
        let (mut feasible, mut refused_by) = self.feasible(&pod);
        if let (Some(extender), Some(body), false) =
            (extender, object(&pod.key), feasible.is_empty())
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
                refused_by.insert(Filter::Extender);
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
        let Some((node, _)) = best else {
            self.queue.failed(&key, refused_by, now);
            return Some(CycleResult::Unschedulable(key));
        };
        self.queue.remove(&key);
        let events = self.cache.assume(&key, &node);
        self.announce(&events, now);
        Some(CycleResult::Bind(key, pod.uid.clone(), node))
    }

    /// Nodes that every filter leaves with their in-tree score, and the filters that refused others.
    fn feasible(&self, pod: &PodView) -> (Vec<(NodeName, i64)>, BTreeSet<Filter>) {
        let volumes = Volumes::new(&self.cache, pod);
        let spreads = Spreads::new(&self.cache, pod);
        let neighbours = Neighbours::new(&self.cache, pod);
        let mut refused_by = BTreeSet::new();
        let mut left: Vec<(&NodeName, &Machine)> = Vec::new();
        for (name, machine) in self.cache.nodes() {
            let refused = filters::refused(pod, name, machine).or_else(|| {
                if !volumes.leave(name, machine) {
                    Some(Filter::Volumes)
                } else if !spreads.leave(machine) {
                    Some(Filter::Spread)
                } else if !neighbours.leave(machine) {
                    Some(Filter::PodAffinity)
                } else {
                    None
                }
            });
            match refused {
                Some(filter) => drop(refused_by.insert(filter)),
                None => left.push((name, machine)),
            }
        }
        let scores = scores::scores(pod, &left, &neighbours, &spreads);
        let names = left.into_iter().map(|(name, _)| name.clone());
        (names.zip(scores).collect(), refused_by)
    }

    /// When the next pod may be looked at.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.queue.next_due(now)
    }
}
