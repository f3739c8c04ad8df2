//! How old what each watch says is, and who may not decide on it when it is old.
//!
//! The snapshot as a whole may be current while one watch is not: it is silent, or late, or lists again and again. So
//! each watch is followed by itself. A watch counts as old when
//!
//! - it does not stand, and nothing came from it for 10 s;
//! - it stands, and nothing came for 90 s, neither a bookmark nor the list that is asked for before that;
//! - it has not shown one of our own writes for 10 s: what it says is late, by at least so much.
//!
//! Watches that are not followed here (in clusters without watches) are never old.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::decider_id::DeciderId;
use mortise_apis::values::since;
use mortise_state::resource_kinds::{EventSource, ObjectEvent, ObjectKind};
use mortise_state::watch_age::{Age, OldWatch};

/// A watch that does not stand is old after this.
const BROKEN_MS: i64 = 10_000;
/// A watch that says nothing is old after this. Bookmarks come every minute; where none comes, who watches lists in time.
pub const SILENT_MS: i64 = 90_000;
/// A watch that does not show our own write is old after this.
const BEHIND_MS: i64 = 10_000;
/// A decider that holds because of an old watch looks again after this.
pub const RECHECK_MS: i64 = 2_000;

/// What a watch says of itself, next to its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchState {
    /// A bookmark: everything up to this version was shown.
    Bookmark(Option<u64>),
    /// It stands.
    Stands,
    /// It does not stand: it failed, its version is too old, or a list showed what it had hidden.
    Broke,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    /// When something last came.
    heard: Timestamp,
    stands: bool,
    /// The newest version that it showed.
    shown: u64,
    /// Our oldest write that it has not shown, and the newest.
    unseen: Option<(OwnWrite, OwnWrite)>,
}

/// Version and time of a write.
type OwnWrite = (u64, Timestamp);

/// What was last heard of each watch.
#[derive(Clone, Debug, Default)]
pub struct Freshness {
    watches: BTreeMap<ObjectKind, Watched>,
}

impl Freshness {
    /// A watch says how it is. The first time it does, it begins to be followed.
    pub fn told(&mut self, kind: &ObjectKind, state: WatchState, now: Timestamp) {
        let watch = self.watches.entry(kind.clone()).or_insert(Watched {
            heard: now,
            stands: false,
            shown: 0,
            unseen: None,
        });
        match state {
            WatchState::Bookmark(version) => watch.shows(version, now),
            WatchState::Stands => watch.stands = true,
            WatchState::Broke => watch.stands = false,
        }
    }

    /// Takes in from whom news come.
    pub fn heard(&mut self, news: &ObjectEvent, now: Timestamp) {
        if self.watches.is_empty() {
            return;
        }
        match news {
            ObjectEvent::Applied(object, source) => {
                let kind = object.key().kind();
                let Some(watch) = self.watches.get_mut(&kind) else {
                    return;
                };
                match (source, object.version()) {
                    (EventSource::Watch, version) => watch.shows(version, now),
                    (EventSource::Write, Some(version)) => watch.wrote(version, now),
                    (EventSource::Write, None) => {}
                }
            }
            ObjectEvent::Listed { kind, version, .. } => {
                if let Some(watch) = self.watches.get_mut(kind) {
                    watch.shows(*version, now);
                }
            }
            // Our own writes end objects too; what a watch shows of that comes with its next word.
            ObjectEvent::Deleted(..) | ObjectEvent::Unreadable(_) => {}
        }
    }

    /// The watches that are old now, by kind.
    #[must_use]
    pub fn old(&self, now: Timestamp) -> Vec<OldWatch> {
        self.watches
            .iter()
            .filter_map(|(kind, watch)| watch.age(kind, now))
            .collect()
    }

    /// The first old watch among those that a decider depends on.
    #[must_use]
    pub fn holds(&self, decider: DeciderId, now: Timestamp) -> Option<OldWatch> {
        self.watches
            .iter()
            .filter(|(kind, _)| depends(decider, kind))
            .find_map(|(kind, watch)| watch.age(kind, now))
    }

    /// For how long nothing came from each watch, in milliseconds, by kind.
    pub fn silences(&self, now: Timestamp) -> impl Iterator<Item = (&ObjectKind, i64)> {
        let watches = self.watches.iter();
        watches.map(move |(kind, watch)| (kind, since(now, watch.heard)))
    }
}

impl Watched {
    fn shows(&mut self, version: Option<u64>, now: Timestamp) {
        self.heard = now;
        self.shown = self.shown.max(version.unwrap_or(0));
        let shown = self.shown;
        self.unseen = self.unseen.and_then(|(oldest, newest)| {
            if oldest.0 > shown {
                return Some((oldest, newest));
            }
            // Some write between the two may be the oldest now; the newest is the one that is known.
            (newest.0 > shown).then_some((newest, newest))
        });
    }

    fn wrote(&mut self, version: u64, now: Timestamp) {
        if version > self.shown {
            let (oldest, newest) = self.unseen.unwrap_or(((version, now), (version, now)));
            let newest = if version > newest.0 {
                (version, now)
            } else {
                newest
            };
            self.unseen = Some((oldest, newest));
        }
    }

    fn age(&self, kind: &ObjectKind, now: Timestamp) -> Option<OldWatch> {
        let late = self.unseen.map(|(oldest, _)| oldest.1);
        let (how, at) = if !self.stands && since(now, self.heard) >= BROKEN_MS {
            (Age::Broken, self.heard)
        } else if let Some(at) = late.filter(|at| since(now, *at) >= BEHIND_MS) {
            (Age::Behind, at)
        } else if since(now, self.heard) >= SILENT_MS {
            (Age::Silent, self.heard)
        } else {
            return None;
        };
        Some(OldWatch {
            kind: kind.to_string(),
            how,
            since: at,
        })
    }
}

/// The deciders that depend on some watch, see [`depends`].
pub const HOLDING: [DeciderId; 4] = [
    DeciderId::Termination,
    DeciderId::GarbageCollection,
    DeciderId::Repair,
    DeciderId::Disruption,
];

/// The table: which decider may not act on what while the watch of it is old.
///
/// | decider | depends on |
/// |---|---|
/// | disruption | Pods, Nodes, claims, pools, node classes, budgets of pods, DaemonSets, volumes and their claims, CSINodes |
/// | termination | Nodes, claims, Pods, volumes and their claims, attachments |
/// | repair | Nodes, claims, pools |
/// | garbage collection | Nodes, claims |
///
/// The others make and mark; what they do on old facts is done again or undone on new ones.
#[must_use]
pub const fn depends(decider: DeciderId, kind: &ObjectKind) -> bool {
    use ObjectKind as K;
    match decider {
        DeciderId::Disruption => matches!(
            kind,
            K::Pod
                | K::Node
                | K::Claim
                | K::Pool
                | K::NodeClass { .. }
                | K::Pdb
                | K::DaemonSet
                | K::VolumeClaim
                | K::Volume
                | K::CsiNode
        ),
        DeciderId::Termination => matches!(
            kind,
            K::Node | K::Claim | K::Pod | K::VolumeClaim | K::Volume | K::Attachment
        ),
        DeciderId::Repair => matches!(kind, K::Node | K::Claim | K::Pool),
        DeciderId::GarbageCollection => matches!(kind, K::Node | K::Claim),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use mortise_apis::values::after;
    use mortise_state::resource_kinds::Object;

    fn pool(version: u64, source: EventSource) -> ObjectEvent {
        let value = json!({ "metadata": { "name": "p", "resourceVersion": version.to_string() } });
        let pool = serde_json::from_value(value).unwrap();
        ObjectEvent::Applied(Object::Pool(Box::new(pool)), source)
    }

    fn at(ms: i64) -> Timestamp {
        after(Timestamp::UNIX_EPOCH, ms)
    }

    fn how(freshness: &Freshness, ms: i64) -> Option<Age> {
        freshness.old(at(ms)).first().map(|old| old.how)
    }

    #[test]
    fn what_is_not_followed_is_never_old() {
        let mut freshness = Freshness::default();
        freshness.heard(&pool(1, EventSource::Write), at(0));
        assert_eq!(how(&freshness, 1_000_000), None);
    }

    #[test]
    fn a_watch_is_old_when_it_is_silent_or_broken() {
        let mut freshness = Freshness::default();
        let kind = ObjectKind::Pool;
        freshness.told(&kind, WatchState::Stands, at(0));
        assert_eq!(how(&freshness, 89_999), None);
        assert_eq!(how(&freshness, 90_000), Some(Age::Silent));
        freshness.told(&kind, WatchState::Bookmark(None), at(95_000));
        assert_eq!(how(&freshness, 100_000), None);
        freshness.told(&kind, WatchState::Broke, at(100_000));
        assert_eq!(how(&freshness, 104_999), None);
        assert_eq!(how(&freshness, 105_000), Some(Age::Broken));
        // A list is as good as a watch for its moment.
        let list = ObjectEvent::Listed {
            kind: kind.clone(),
            keys: std::collections::BTreeSet::new(),
            version: Some(7),
        };
        freshness.heard(&list, at(106_000));
        assert_eq!(how(&freshness, 115_999), None);
        // That it stands again says nothing about what it shows.
        freshness.told(&kind, WatchState::Stands, at(200_000));
        assert_eq!(how(&freshness, 200_001), Some(Age::Silent));
        freshness.heard(&pool(8, EventSource::Watch), at(200_002));
        assert_eq!(how(&freshness, 200_003), None);
    }

    #[test]
    fn a_watch_that_does_not_show_our_writes_is_late() {
        let mut freshness = Freshness::default();
        let kind = ObjectKind::Pool;
        freshness.told(&kind, WatchState::Stands, at(0));
        freshness.heard(&pool(5, EventSource::Watch), at(0));
        freshness.heard(&pool(5, EventSource::Write), at(0));
        assert_eq!(how(&freshness, 10_000), None, "it has shown that");
        freshness.heard(&pool(8, EventSource::Write), at(1_000));
        freshness.heard(&pool(9, EventSource::Write), at(6_000));
        freshness.heard(&pool(7, EventSource::Watch), at(10_000));
        assert_eq!(how(&freshness, 11_000), Some(Age::Behind));
        freshness.told(&kind, WatchState::Bookmark(Some(8)), at(12_000));
        assert_eq!(how(&freshness, 15_999), None);
        assert_eq!(how(&freshness, 16_000), Some(Age::Behind));
        freshness.heard(&pool(9, EventSource::Watch), at(17_000));
        assert_eq!(how(&freshness, 60_000), None);
    }

    #[test]
    fn each_decider_holds_for_what_it_depends_on() {
        let mut freshness = Freshness::default();
        freshness.told(&ObjectKind::Pod, WatchState::Stands, at(0));
        freshness.told(&ObjectKind::Node, WatchState::Stands, at(80_000));
        let holds = |by| freshness.holds(by, at(90_000)).map(|old| old.kind);
        assert_eq!(holds(DeciderId::Disruption).as_deref(), Some("Pod"));
        assert_eq!(holds(DeciderId::Termination).as_deref(), Some("Pod"));
        assert_eq!(holds(DeciderId::Repair), None);
        assert_eq!(holds(DeciderId::GarbageCollection), None);
        assert_eq!(holds(DeciderId::Provisioning), None);
    }
}
