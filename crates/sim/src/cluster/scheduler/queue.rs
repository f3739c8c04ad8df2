//! Pods that wait: ready to be tried, backing off, or parked until something happens that may help.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::names::PodKey;
use mortise_apis::values::after;

use super::pod::Profile;

/// First and longest back-off of a pod that fitted nowhere.
const BACKOFF_MS: (i64, i64) = (1_000, 10_000);
/// A pod that was parked so long is tried again, whatever happened.
const FLUSH_MS: i64 = 300_000;

/// Why a node was not taken: the filter that said no.
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
}

/// Something that happened in the cluster.
#[derive(Clone, Debug)]
pub(super) enum Event {
    NodeAdded,
    NodeLabels,
    /// Taints, or whether it takes pods.
    NodeTaints,
    /// What pods can have of it.
    NodeRoom,
    NodeGone,
    /// A pod with this profile has a node, or another profile than before.
    PodBound(Arc<Profile>),
    /// A pod with this profile has left its node, or is about to.
    PodGone(Arc<Profile>),
    /// A volume, a claim or a class came, changed or went.
    Storage,
}

impl Event {
    /// Whether it may help a pod that a filter has refused.
    const fn helps(&self, filter: Filter) -> bool {
        match filter {
            // Nobody knows what an extender looks at.
            Filter::Extender => true,
            Filter::Unschedulable | Filter::Taints => {
                matches!(self, Self::NodeAdded | Self::NodeTaints)
            }
            Filter::NodeAffinity => matches!(self, Self::NodeAdded | Self::NodeLabels),
            Filter::Ports => matches!(self, Self::NodeAdded | Self::PodGone(_)),
            Filter::Resources => {
                matches!(self, Self::NodeAdded | Self::NodeRoom | Self::PodGone(_))
            }
            Filter::Volumes => matches!(self, Self::NodeAdded | Self::NodeLabels | Self::Storage),
            Filter::Spread => !matches!(self, Self::NodeRoom | Self::Storage),
            Filter::PodAffinity => matches!(
                self,
                Self::NodeAdded | Self::NodeLabels | Self::PodBound(_) | Self::PodGone(_)
            ),
        }
    }

    /// The pod that it is about.
    pub(super) const fn profile(&self) -> Option<&Arc<Profile>> {
        match self {
            Self::PodBound(profile) | Self::PodGone(profile) => Some(profile),
            _ => None,
        }
    }
}

/// The order in which pods are tried: by priority, then age, then name.
type Rank = (i64, Timestamp, PodKey);

#[derive(Clone, Debug)]
enum Place {
    Ready,
    BacksOff(Timestamp),
    Parked(Timestamp),
}

#[derive(Clone, Debug)]
struct Entry {
    rank: Rank,
    place: Place,
    failures: u32,
    tried_at: Timestamp,
    refused_by: BTreeSet<Filter>,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: BTreeMap<PodKey, Entry>,
    ready: BTreeSet<Rank>,
    backing_off: BTreeSet<(Timestamp, PodKey)>,
    parked: BTreeSet<(Timestamp, PodKey)>,
}

impl Queue {
    /// A pod waits, and is ready to be tried. One that is known already stays where it is.
    pub(super) fn add(&mut self, key: &PodKey, priority: i32, created: Timestamp, now: Timestamp) {
        if self.entries.contains_key(key) {
            return;
        }
        let rank = (-i64::from(priority), created, key.clone());
        self.ready.insert(rank.clone());
        let entry = Entry {
            rank,
            place: Place::Ready,
            failures: 0,
            tried_at: now,
            refused_by: BTreeSet::new(),
        };
        self.entries.insert(key.clone(), entry);
    }

    /// A pod does not wait any more.
    pub(super) fn remove(&mut self, key: &PodKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.unplace(&entry);
        }
    }

    fn unplace(&mut self, entry: &Entry) {
        let key = &entry.rank.2;
        match entry.place {
            Place::Ready => drop(self.ready.remove(&entry.rank)),
            Place::BacksOff(until) => drop(self.backing_off.remove(&(until, key.clone()))),
            Place::Parked(since) => drop(self.parked.remove(&(since, key.clone()))),
        }
    }

    fn place(&mut self, key: &PodKey, place: Place) {
        let Some(mut entry) = self.entries.remove(key) else {
            return;
        };
        self.unplace(&entry);
        match place {
            Place::Ready => drop(self.ready.insert(entry.rank.clone())),
            Place::BacksOff(until) => drop(self.backing_off.insert((until, key.clone()))),
            Place::Parked(since) => drop(self.parked.insert((since, key.clone()))),
        }
        entry.place = place;
        self.entries.insert(key.clone(), entry);
    }

    /// A pod was tried in vain.
    pub(super) fn failed(&mut self, key: &PodKey, refused_by: BTreeSet<Filter>, now: Timestamp) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures += 1;
            entry.tried_at = now;
            entry.refused_by = refused_by;
            self.place(key, Place::Parked(now));
        }
    }

    /// Something happened: parked pods that it may help leave their place. `speaks` says whether a pod's own terms, or terms
    /// about it, speak of the pod that came or went.
    pub(super) fn happened(
        &mut self,
        event: &Event,
        now: Timestamp,
        speaks: impl Fn(&PodKey, &Arc<Profile>) -> bool,
    ) {
        let helped = |key: &PodKey| {
            let Some(refused_by) = self.entries.get(key).map(|entry| &entry.refused_by) else {
                return false;
            };
            // Nobody refused it: there was no node at all.
            refused_by.is_empty()
                || refused_by.iter().any(|filter| {
                    let between_pods = matches!(filter, Filter::Spread | Filter::PodAffinity);
                    event.helps(*filter)
                        && (!between_pods || event.profile().is_none_or(|of| speaks(key, of)))
                })
        };
        let keys = self.parked.iter().map(|(_, key)| key);
        let helped: Vec<PodKey> = keys.filter(|key| helped(key)).cloned().collect();
        for key in helped {
            self.unpark(&key, now);
        }
    }

    /// From parked to backing off, or to ready when that time is over.
    fn unpark(&mut self, key: &PodKey, now: Timestamp) {
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        let doublings = entry.failures.saturating_sub(1).min(8);
        let until = after(
            entry.tried_at,
            (BACKOFF_MS.0 << doublings).min(BACKOFF_MS.1),
        );
        let place = if until > now {
            Place::BacksOff(until)
        } else {
            Place::Ready
        };
        self.place(key, place);
    }

    /// The next pod to try.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<PodKey> {
        while let Some((since, key)) = self.parked.first().cloned()
            && after(since, FLUSH_MS) <= now
        {
            self.unpark(&key, now);
        }
        while let Some((until, key)) = self.backing_off.first().cloned()
            && until <= now
        {
            self.place(&key, Place::Ready);
        }
        self.ready.first().map(|(_, _, key)| key.clone())
    }

    /// When the next pod can be tried.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        if !self.ready.is_empty() {
            return Some(now);
        }
        let over = self.backing_off.first().map(|(until, _)| *until);
        let flushed = self
            .parked
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
        queue.failed(&pod(name), BTreeSet::from([filter]), at(now));
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
    fn a_refused_pod_waits_for_an_event_that_helps_and_backs_off_up_to_ten_seconds() {
        let mut queue = Queue::default();
        queue.add(&pod("a"), 0, at(0), at(0));
        let always = |_: &PodKey, _: &Arc<Profile>| true;
        let mut now = 0;
        for wait in [1_000, 2_000, 4_000, 8_000, 10_000, 10_000] {
            tried(&mut queue, "a", Filter::Resources, now);
            queue.happened(&Event::NodeLabels, at(now), always);
            queue.happened(&Event::Storage, at(now), always);
            assert_eq!(queue.next_due(at(now)), Some(at(now + FLUSH_MS)), "no help");
            queue.happened(&Event::NodeAdded, at(now), always);
            assert_eq!(queue.next(at(now + wait - 1)), None);
            now += wait;
            assert_eq!(queue.next_due(at(now - wait)), Some(at(now)));
        }
        tried(&mut queue, "a", Filter::Resources, now);
        queue.happened(&Event::NodeAdded, at(now + 60_000), always);
        assert_eq!(
            queue.next(at(now + 60_000)),
            Some(pod("a")),
            "its back-off is over"
        );
    }

    #[test]
    fn what_happens_helps_those_whom_it_concerns() {
        let profile = Arc::new(Profile {
            namespace: "default".to_owned(),
            labels: BTreeMap::new(),
            near: Vec::new(),
            apart: Vec::new(),
            wishes: Vec::new(),
            spread: Vec::new(),
        });
        let bound = || Event::PodBound(Arc::clone(&profile));
        let gone = || Event::PodGone(Arc::clone(&profile));
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
        let rows: [(Event, Vec<Filter>); 8] = [
            (Event::NodeAdded, filters.to_vec()),
            (
                Event::NodeLabels,
                vec![
                    F::NodeAffinity,
                    F::Volumes,
                    F::Spread,
                    F::PodAffinity,
                    F::Extender,
                ],
            ),
            (
                Event::NodeTaints,
                vec![F::Unschedulable, F::Taints, F::Spread, F::Extender],
            ),
            (Event::NodeRoom, vec![F::Resources, F::Extender]),
            (Event::NodeGone, vec![F::Spread, F::Extender]),
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
            (Event::Storage, vec![F::Volumes, F::Extender]),
        ];
        for (event, helped) in rows {
            for filter in filters {
                for speaks in [true, false] {
                    let mut queue = Queue::default();
                    queue.add(&pod("a"), 0, at(0), at(0));
                    tried(&mut queue, "a", filter, 0);
                    queue.happened(&event, at(0), |_, _| speaks);
                    let between = matches!(filter, F::Spread | F::PodAffinity);
                    let concerns = speaks || !between || event.profile().is_none();
                    let wanted = helped.contains(&filter) && concerns;
                    let moved = queue.next(at(1_000)).is_some();
                    assert_eq!(moved, wanted, "{event:?} {filter:?} {speaks}");
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
