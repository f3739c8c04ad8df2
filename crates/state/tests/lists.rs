//! Lists, watches and responses to own writes in any order: objects that exist and were shown are in the snapshot, and deleted
//! objects are not restored.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use mortise_apis::labels::WellKnown;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey, ObjectKind};
use proptest::prelude::*;
use serde_json::json;

fn pool(name: &str, version: u64) -> Object {
    let value = json!({ "metadata": { "name": name, "resourceVersion": version.to_string() } });
    Object::Pool(Box::new(serde_json::from_value(value).unwrap()))
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::Pool(name.into())
}

fn listed(names: &[&str], version: Option<u64>) -> ObjectEvent {
    ObjectEvent::Listed {
        kind: ObjectKind::Pool,
        keys: names.iter().map(|name| key(name)).collect(),
        version,
    }
}

fn index() -> Index {
    let mut index = Index::new(WellKnown::core(), true, Timestamp::UNIX_EPOCH);
    index.set_synced();
    index
}

fn names(index: &mut Index) -> Vec<String> {
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    snapshot.pools.keys().map(ToString::to_string).collect()
}

#[test]
fn objects_created_after_a_list_was_read_survive_it() {
    let mut index = index();
    index.apply(ObjectEvent::Applied(pool("old", 5), EventSource::Watch));
    index.apply(ObjectEvent::Applied(pool("own", 12), EventSource::Write));
    index.apply(listed(&[], Some(10)));
    assert_eq!(names(&mut index), ["own"]);
    index.apply(listed(&[], Some(12)));
    assert_eq!(names(&mut index), [""; 0], "that list would have had it");
}

#[test]
fn objects_deleted_while_a_list_is_read_stay_deleted() {
    let mut index = index();
    index.apply(ObjectEvent::Applied(pool("a", 5), EventSource::Watch));
    index.apply(ObjectEvent::Deleted(key("a"), Some(12)));
    index.apply(ObjectEvent::Applied(pool("a", 5), EventSource::Watch));
    index.apply(listed(&["a"], Some(10)));
    assert_eq!(names(&mut index), [""; 0]);
    // A response in flight while a list was read that omits its object.
    index.apply(listed(&[], Some(20)));
    index.apply(ObjectEvent::Applied(pool("b", 18), EventSource::Write));
    assert_eq!(names(&mut index), [""; 0]);
    index.apply(ObjectEvent::Applied(pool("b", 21), EventSource::Write));
    assert_eq!(names(&mut index), ["b"]);
}

#[test]
fn the_deletion_of_an_older_object_does_not_delete_its_successor() {
    let mut index = index();
    index.apply(ObjectEvent::Applied(pool("a", 5), EventSource::Watch));
    index.apply(ObjectEvent::Applied(pool("a", 9), EventSource::Write));
    index.apply(ObjectEvent::Deleted(key("a"), Some(7)));
    assert_eq!(names(&mut index), ["a"]);
    index.apply(ObjectEvent::Deleted(key("a"), Some(11)));
    assert_eq!(names(&mut index), [""; 0]);
}

#[test]
fn a_list_without_a_version_is_newer_than_everything() {
    let mut index = index();
    index.apply(ObjectEvent::Applied(pool("a", 5), EventSource::Watch));
    index.apply(listed(&[], None));
    assert_eq!(names(&mut index), [""; 0]);
}

/// One event; numbers are taken modulo the number of objects.
#[derive(Clone, Copy, Debug)]
enum ClusterEvent {
    /// An object is created or changed, by an own write or by another client.
    Written { name: u8, own: bool },
    /// Another client deletes an object.
    Deleted { name: u8 },
    /// The response to an own write arrives.
    Answered { which: u8 },
    /// The watch, or the list that it begins with, delivers one item.
    Delivered,
    /// The watch expired: it lists again.
    Relists,
}

fn any_event() -> impl Strategy<Value = ClusterEvent> {
    prop_oneof![
        4 => (0_u8..4, any::<bool>()).prop_map(|(name, own)| ClusterEvent::Written { name, own }),
        2 => (0_u8..4).prop_map(|name| ClusterEvent::Deleted { name }),
        3 => (0_u8..8).prop_map(|which| ClusterEvent::Answered { which }),
        8 => Just(ClusterEvent::Delivered),
        1 => Just(ClusterEvent::Relists),
    ]
}

enum Watch {
    Lists {
        at: u64,
        rest: VecDeque<(String, u64)>,
        keys: BTreeSet<ObjectKey>,
    },
    Follows(u64),
}

/// An API server, a watch of it, and responses in flight.
struct World {
    version: u64,
    objects: BTreeMap<String, u64>,
    /// Every change by its version; `false`: deleted.
    log: BTreeMap<u64, (String, bool)>,
    answers: Vec<(String, u64)>,
    watch: Watch,
    index: Index,
    /// The newest version of each object that the index was given.
    seen: BTreeMap<String, u64>,
    /// The version at which the index last saw each object deleted.
    deleted: BTreeMap<String, u64>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            version: 1,
            objects: BTreeMap::new(),
            log: BTreeMap::new(),
            answers: Vec::new(),
            watch: Watch::Follows(0),
            index: index(),
            seen: BTreeMap::new(),
            deleted: BTreeMap::new(),
        };
        world.relist();
        world
    }

    fn relist(&mut self) {
        let rest: VecDeque<_> = self.objects.clone().into_iter().collect();
        let keys = rest.iter().map(|(name, _)| key(name)).collect();
        self.watch = Watch::Lists {
            at: self.version,
            rest,
            keys,
        };
    }

    fn applied(&mut self, name: String, version: u64, source: EventSource) {
        self.index
            .apply(ObjectEvent::Applied(pool(&name, version), source));
        let seen = self.seen.entry(name).or_default();
        *seen = version.max(*seen);
    }

    /// Returns whether anything was left to deliver.
    fn deliver_next(&mut self) -> bool {
        match &mut self.watch {
            Watch::Lists { at, rest, keys } => {
                let (at, keys) = (*at, keys.clone());
                if let Some((name, version)) = rest.pop_front() {
                    self.applied(name, version, EventSource::Watch);
                    return true;
                }
                let seen: Vec<_> = self.seen.keys().cloned().collect();
                for name in seen.into_iter().filter(|name| !keys.contains(&key(name))) {
                    self.deleted.insert(name, at);
                }
                self.index.apply(ObjectEvent::Listed {
                    kind: ObjectKind::Pool,
                    keys,
                    version: Some(at),
                });
                self.watch = Watch::Follows(at);
                true
            }
            Watch::Follows(at) => {
                let next = self.log.range(*at + 1..).next();
                let Some((version, (name, is_there))) = next else {
                    return false;
                };
                let (version, name, is_there) = (*version, name.clone(), *is_there);
                self.watch = Watch::Follows(version);
                if is_there {
                    self.applied(name, version, EventSource::Watch);
                } else {
                    self.index
                        .apply(ObjectEvent::Deleted(key(&name), Some(version)));
                    self.deleted.insert(name, version);
                }
                true
            }
        }
    }

    fn apply(&mut self, event: ClusterEvent) {
        match event {
            ClusterEvent::Written { name, own } => {
                let name = format!("p{name}");
                self.version += 1;
                self.objects.insert(name.clone(), self.version);
                self.log.insert(self.version, (name.clone(), true));
                if own {
                    self.answers.push((name, self.version));
                }
            }
            ClusterEvent::Deleted { name } => {
                let name = format!("p{name}");
                if self.objects.remove(&name).is_some() {
                    self.version += 1;
                    self.log.insert(self.version, (name, false));
                }
            }
            ClusterEvent::Answered { which } => {
                if !self.answers.is_empty() {
                    let which = usize::from(which) % self.answers.len();
                    let (name, version) = self.answers.remove(which);
                    self.applied(name, version, EventSource::Write);
                }
            }
            ClusterEvent::Delivered => {
                self.deliver_next();
            }
            ClusterEvent::Relists => self.relist(),
        }
    }

    fn check(&mut self) {
        let shown = names(&mut self.index);
        for (name, version) in &self.objects {
            // Seen with its present version, so certainly this object and not an older one of its name.
            if self.seen.get(name) == Some(version) {
                assert!(
                    shown.contains(name),
                    "{name}@{version} was shown and exists"
                );
            }
        }
        for name in &shown {
            let (seen, deleted) = (self.seen.get(name), self.deleted.get(name));
            assert!(
                seen > deleted,
                "{name}: seen at {seen:?}, deleted at {deleted:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn lists_watches_and_responses_agree_in_any_order(all in prop::collection::vec(any_event(), 1..60)) {
        let mut world = World::new();
        for each in all {
            world.apply(each);
            world.check();
        }
        while world.deliver_next() {
            world.check();
        }
        for (name, version) in std::mem::take(&mut world.answers) {
            world.applied(name, version, EventSource::Write);
        }
        let there: Vec<_> = world.objects.keys().cloned().collect();
        prop_assert_eq!(names(&mut world.index), there);
    }
}
