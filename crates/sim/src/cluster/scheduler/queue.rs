//! The scheduling queue: active pods, pods in backoff, and unschedulable pods, which wait for an event that may help.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::names::PodKey;
use mortise_apis::values::after;

use super::pod::Profile;

/// First and longest backoff of an unschedulable pod.
const BACKOFF_MS: (i64, i64) = (1_000, 10_000);
/// An unschedulable pod is tried again after this time, regardless of events.
const FLUSH_MS: i64 = 300_000;

/// The filter that rejected a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Filter {
    Unschedulable,
    Taints,
    NodeAffinity,
    Ports,
    Resources,
    Volumes,
    Spread,
    PodAffinity,
    Extender,
    /// Its group lacks pods, or does not exist.
    PodGroup,
}

/// An event in the cluster that may make pods schedulable.
#[derive(Clone, Debug)]
pub(super) enum ClusterEvent {
    NodeAdded,
    NodeLabels,
    /// Taints, or `unschedulable`.
    NodeTaints,
    /// Allocatable resources.
    NodeAllocatable,
    NodeDeleted,
    /// A pod with this profile was bound, or its profile changed.
    PodBound(Arc<Profile>),
    /// A bound pod with this profile was deleted, or is being deleted.
    PodDeleted(Arc<Profile>),
    /// A volume, a claim or a class was created, changed or deleted.
    Storage,
}

impl ClusterEvent {
    /// Whether it may help a pod that a filter has rejected.
    const fn helps(&self, filter: Filter) -> bool {
        match filter {
            // An extender may depend on anything.
            Filter::Extender => true,
            // Its next pod, and the group itself, bring it back.
            Filter::PodGroup => false,
            Filter::Unschedulable | Filter::Taints => {
                matches!(self, Self::NodeAdded | Self::NodeTaints)
            }
            Filter::NodeAffinity => matches!(self, Self::NodeAdded | Self::NodeLabels),
            Filter::Ports => matches!(self, Self::NodeAdded | Self::PodDeleted(_)),
            Filter::Resources => {
                matches!(
                    self,
                    Self::NodeAdded | Self::NodeAllocatable | Self::PodDeleted(_)
                )
            }
            Filter::Volumes => matches!(self, Self::NodeAdded | Self::NodeLabels | Self::Storage),
            Filter::Spread => !matches!(self, Self::NodeAllocatable | Self::Storage),
            Filter::PodAffinity => matches!(
                self,
                Self::NodeAdded | Self::NodeLabels | Self::PodBound(_) | Self::PodDeleted(_)
            ),
        }
    }

    /// Profile of the pod that the event concerns.
    pub(super) const fn profile(&self) -> Option<&Arc<Profile>> {
        match self {
            Self::PodBound(profile) | Self::PodDeleted(profile) => Some(profile),
            _ => None,
        }
    }
}

/// The order in which pods are tried: by priority, then age, then name.
type Rank = (i64, Timestamp, PodKey);

#[derive(Clone, Debug)]
enum SubQueue {
    Active,
    Backoff(Timestamp),
    Unschedulable(Timestamp),
}

#[derive(Clone, Debug)]
struct Entry {
    rank: Rank,
    sub_queue: SubQueue,
    failures: u32,
    tried_at: Timestamp,
    rejected_by: BTreeSet<Filter>,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: BTreeMap<PodKey, Entry>,
    active: BTreeSet<Rank>,
    backoff: BTreeSet<(Timestamp, PodKey)>,
    unschedulable: BTreeSet<(Timestamp, PodKey)>,
}

impl Queue {
    /// Pods in it.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a pending pod to the active queue. A known pod stays where it is.
    pub(super) fn add(&mut self, key: &PodKey, priority: i32, created: Timestamp, now: Timestamp) {
        if self.entries.contains_key(key) {
            return;
        }
        let rank = (-i64::from(priority), created, key.clone());
        self.active.insert(rank.clone());
        let entry = Entry {
            rank,
            sub_queue: SubQueue::Active,
            failures: 0,
            tried_at: now,
            rejected_by: BTreeSet::new(),
        };
        self.entries.insert(key.clone(), entry);
    }

    /// Removes a pod that is no longer pending.
    pub(super) fn remove(&mut self, key: &PodKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.detach(&entry);
        }
    }

    fn detach(&mut self, entry: &Entry) {
        let key = &entry.rank.2;
        match entry.sub_queue {
            SubQueue::Active => {
                self.active.remove(&entry.rank);
            }
            SubQueue::Backoff(until) => {
                self.backoff.remove(&(until, key.clone()));
            }
            SubQueue::Unschedulable(since) => {
                self.unschedulable.remove(&(since, key.clone()));
            }
        }
    }

    fn move_to(&mut self, key: &PodKey, sub_queue: SubQueue) {
        let Some(mut entry) = self.entries.remove(key) else {
            return;
        };
        self.detach(&entry);
        match sub_queue {
            SubQueue::Active => {
                self.active.insert(entry.rank.clone());
            }
            SubQueue::Backoff(until) => {
                self.backoff.insert((until, key.clone()));
            }
            SubQueue::Unschedulable(since) => {
                self.unschedulable.insert((since, key.clone()));
            }
        }
        entry.sub_queue = sub_queue;
        self.entries.insert(key.clone(), entry);
    }

    /// Adds a pod that was tried without success to the unschedulable pods.
    pub(super) fn add_unschedulable(
        &mut self,
        key: &PodKey,
        rejected_by: BTreeSet<Filter>,
        now: Timestamp,
    ) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures += 1;
            entry.tried_at = now;
            entry.rejected_by = rejected_by;
            self.move_to(key, SubQueue::Unschedulable(now));
        }
    }

    /// The same for a pod whose group lacks pods: that is no failure, and has no backoff.
    pub(super) fn park(&mut self, key: &PodKey, now: Timestamp) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.tried_at = now;
            entry.rejected_by = BTreeSet::from([Filter::PodGroup]);
            self.move_to(key, SubQueue::Unschedulable(now));
        }
    }

    /// Requeues the unschedulable pods that an event may help. `is_affected`: the terms of a pod select the pod of the event,
    /// or the other way round.
    pub(super) fn requeue_helped(
        &mut self,
        event: &ClusterEvent,
        now: Timestamp,
        is_affected: impl Fn(&PodKey, &Arc<Profile>) -> bool,
    ) {
        let helped = |key: &PodKey| {
            let Some(rejected_by) = self.entries.get(key).map(|entry| &entry.rejected_by) else {
                return false;
            };
            // No filter rejected it: there was no node at all.
            rejected_by.is_empty()
                || rejected_by.iter().any(|filter| {
                    let between_pods = matches!(filter, Filter::Spread | Filter::PodAffinity);
                    event.helps(*filter)
                        && (!between_pods || event.profile().is_none_or(|of| is_affected(key, of)))
                })
        };
        let keys = self.unschedulable.iter().map(|(_, key)| key);
        let helped: Vec<PodKey> = keys.filter(|key| helped(key)).cloned().collect();
        for key in helped {
            self.activate(&key, now);
        }
    }

    /// Moves an unschedulable pod to backoff, or to the active queue if its backoff is over.
    pub(super) fn activate(&mut self, key: &PodKey, now: Timestamp) {
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        let doublings = entry.failures.saturating_sub(1).min(8);
        let until = after(
            entry.tried_at,
            (BACKOFF_MS.0 << doublings).min(BACKOFF_MS.1),
        );
        let sub_queue = if until > now {
            SubQueue::Backoff(until)
        } else {
            SubQueue::Active
        };
        self.move_to(key, sub_queue);
    }

    /// The next pod to try.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<PodKey> {
        while let Some((since, key)) = self.unschedulable.first().cloned()
            && after(since, FLUSH_MS) <= now
        {
            self.activate(&key, now);
        }
        while let Some((until, key)) = self.backoff.first().cloned()
            && until <= now
        {
            self.move_to(&key, SubQueue::Active);
        }
        self.active.first().map(|(_, _, key)| key.clone())
    }

    /// When the next pod can be tried.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        if !self.active.is_empty() {
            return Some(now);
        }
        let over = self.backoff.first().map(|(until, _)| *until);
        let flushed = self
            .unschedulable
            .first()
            .map(|(since, _)| after(*since, FLUSH_MS));
        over.into_iter().chain(flushed).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        after(Timestamp::UNIX_EPOCH, ms)
    }

    fn pod(name: &str) -> PodKey {
        PodKey::new("default", name)
    }

    fn tried(queue: &mut Queue, name: &str, filter: Filter, now: i64) {
        assert_eq!(queue.next(at(now)), Some(pod(name)), "at {now}");
        queue.add_unschedulable(&pod(name), BTreeSet::from([filter]), at(now));
    }

    #[test]
    fn pods_are_tried_by_priority_then_age() {
        let mut queue = Queue::default();
        queue.add(&pod("young"), 0, at(2), at(9));
        queue.add(&pod("old"), 0, at(1), at(9));
        queue.add(&pod("important"), 7, at(3), at(9));
        for name in ["important", "old", "young"] {
            assert_eq!(queue.next(at(9)), Some(pod(name)));
            queue.remove(&pod(name));
        }
        assert_eq!((queue.next(at(9)), queue.next_due(at(9))), (None, None));
    }

    #[test]
    fn a_rejected_pod_waits_for_an_event_that_helps_with_a_backoff_of_up_to_ten_seconds() {
        let mut queue = Queue::default();
        queue.add(&pod("a"), 0, at(0), at(0));
        let always = |_: &PodKey, _: &Arc<Profile>| true;
        let mut now = 0;
        for wait in [1_000, 2_000, 4_000, 8_000, 10_000, 10_000] {
            tried(&mut queue, "a", Filter::Resources, now);
            queue.requeue_helped(&ClusterEvent::NodeLabels, at(now), always);
            queue.requeue_helped(&ClusterEvent::Storage, at(now), always);
            assert_eq!(queue.next_due(at(now)), Some(at(now + FLUSH_MS)), "no help");
            queue.requeue_helped(&ClusterEvent::NodeAdded, at(now), always);
            assert_eq!(queue.next(at(now + wait - 1)), None);
            now += wait;
            assert_eq!(queue.next_due(at(now - wait)), Some(at(now)));
        }
        tried(&mut queue, "a", Filter::Resources, now);
        queue.requeue_helped(&ClusterEvent::NodeAdded, at(now + 60_000), always);
        assert_eq!(
            queue.next(at(now + 60_000)),
            Some(pod("a")),
            "its backoff is over"
        );
    }

    #[test]
    fn events_requeue_the_pods_that_they_may_help() {
        let profile = Arc::new(Profile {
            namespace: "default".to_owned(),
            labels: BTreeMap::new(),
            near: Vec::new(),
            apart: Vec::new(),
            preferred: Vec::new(),
            spread: Vec::new(),
        });
        let bound = || ClusterEvent::PodBound(Arc::clone(&profile));
        let gone = || ClusterEvent::PodDeleted(Arc::clone(&profile));
        use Filter as F;
        let filters = [
            F::Unschedulable,
            F::Taints,
            F::NodeAffinity,
            F::Ports,
            F::Resources,
            F::Volumes,
            F::Spread,
            F::PodAffinity,
            F::Extender,
        ];
        let rows: [(ClusterEvent, Vec<Filter>); 8] = [
            (ClusterEvent::NodeAdded, filters.to_vec()),
            (
                ClusterEvent::NodeLabels,
                vec![
                    F::NodeAffinity,
                    F::Volumes,
                    F::Spread,
                    F::PodAffinity,
                    F::Extender,
                ],
            ),
            (
                ClusterEvent::NodeTaints,
                vec![F::Unschedulable, F::Taints, F::Spread, F::Extender],
            ),
            (
                ClusterEvent::NodeAllocatable,
                vec![F::Resources, F::Extender],
            ),
            (ClusterEvent::NodeDeleted, vec![F::Spread, F::Extender]),
            (bound(), vec![F::Spread, F::PodAffinity, F::Extender]),
            (
                gone(),
                vec![
                    F::Ports,
                    F::Resources,
                    F::Spread,
                    F::PodAffinity,
                    F::Extender,
                ],
            ),
            (ClusterEvent::Storage, vec![F::Volumes, F::Extender]),
        ];
        for (event, helped) in rows {
            for filter in filters {
                for is_affected in [true, false] {
                    let mut queue = Queue::default();
                    queue.add(&pod("a"), 0, at(0), at(0));
                    tried(&mut queue, "a", filter, 0);
                    queue.requeue_helped(&event, at(0), |_, _| is_affected);
                    let between = matches!(filter, F::Spread | F::PodAffinity);
                    let concerns = is_affected || !between || event.profile().is_none();
                    let wanted = helped.contains(&filter) && concerns;
                    let moved = queue.next(at(1_000)).is_some();
                    assert_eq!(moved, wanted, "{event:?} {filter:?} {is_affected}");
                }
            }
        }
    }

    #[test]
    fn a_pod_that_nothing_helps_is_tried_again_after_five_minutes() {
        let mut queue = Queue::default();
        queue.add(&pod("a"), 0, at(0), at(0));
        tried(&mut queue, "a", Filter::PodAffinity, 0);
        assert_eq!(queue.next(at(FLUSH_MS - 1)), None);
        tried(&mut queue, "a", Filter::PodAffinity, FLUSH_MS);
    }
}
