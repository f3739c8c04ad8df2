//! The watches of the virtual API server: what each shows when, bookmarks, and what can be wrong with one of them alone.
//!
//! The virtual scheduler reads the same picture as the service, so a watch of pods that is disturbed here disturbs both.

use std::collections::BTreeSet;

use mortise_core::decider_id::DeciderId;
use mortise_core::effect::Effect;
use mortise_core::engine::{EffectRequest, EngineInput};
use mortise_core::freshness::{HOLDING, WatchState};
use mortise_core::names::ObjectRef;
use mortise_core::resource_kinds::{EventSource, ObjectEvent, ObjectKey, ObjectKind};

use crate::api_server::{Change, object};
use crate::simulation::{Action, Simulation};

/// A watch shows a change after this.
const WATCH_MS: i64 = 5;
/// Bookmarks come this often, in seconds.
const BOOKMARK_S: i64 = 60;
/// A watch that is too old again and again is listed again this often, in seconds.
const RELIST_S: i64 = 15;

/// What is wrong with one watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// It stands and shows nothing.
    Silent,
    /// Everything comes so many milliseconds later.
    Late(i64),
    /// It is too old whenever it begins (410); only lists come.
    Expired,
}

/// Kinds whose watches say how they are.
pub(crate) const FOLLOWED: [ObjectKind; 5] = [
    ObjectKind::Pod,
    ObjectKind::Node,
    ObjectKind::Claim,
    ObjectKind::Pool,
    ObjectKind::Pdb,
];

impl Simulation {
    /// From now on something is wrong with the watch of a kind, or nothing is any more: what it held back is shown then.
    pub fn disturb_watch(&mut self, kind: &ObjectKind, fault: Option<WatchFault>) {
        let before = self.watch_faults.remove(kind);
        let held_back = self.held_back.remove(kind).unwrap_or_default();
        if let Some(fault) = fault {
            self.watch_faults.insert(kind.clone(), fault);
        }
        match (before, fault) {
            (_, Some(WatchFault::Expired)) => self.say(kind, WatchState::Broke),
            (Some(WatchFault::Expired), None) => {
                self.list(kind);
                self.say(kind, WatchState::Stands);
            }
            _ => {}
        }
        if !held_back.is_empty() {
            self.in_ms(WATCH_MS, Action::Watch(held_back));
        }
    }

    pub(crate) fn say(&mut self, kind: &ObjectKind, state: WatchState) {
        self.input(|| EngineInput::Watch {
            kind: kind.clone(),
            state,
        });
    }

    /// Sends what was written on its way to the service.
    pub(crate) fn send_changes(&mut self, changes: Vec<Change>) {
        let mut usual = Vec::new();
        for change in changes {
            let kind = change.key.kind();
            match self.watch_faults.get(&kind) {
                None => usual.push(change),
                Some(WatchFault::Silent) => self.held_back.entry(kind).or_default().push(change),
                Some(WatchFault::Late(ms)) => {
                    self.in_ms(WATCH_MS + ms, Action::Watch(vec![change]));
                }
                Some(WatchFault::Expired) => {} // in the next list
            }
        }
        if !usual.is_empty() {
            self.in_ms(WATCH_MS, Action::Watch(usual));
        }
    }

    /// Bookmarks, and lists in place of watches, when it is time; called every second.
    pub(crate) fn tick_watches(&mut self) {
        let second = self.now().as_second();
        for kind in FOLLOWED {
            let late = match self.watch_faults.get(&kind) {
                Some(WatchFault::Silent) => continue,
                Some(WatchFault::Expired) => {
                    if second % RELIST_S == 0 {
                        self.list(&kind);
                    }
                    continue;
                }
                Some(WatchFault::Late(ms)) => *ms,
                None => 0,
            };
            if second % BOOKMARK_S == 0 {
                let version = self.store.version();
                // After whatever was written until now.
                self.in_ms(late + WATCH_MS + 1, Action::Bookmark(kind, version));
            }
        }
    }

    /// Reads a kind anew, as a watch does that is too old.
    pub(crate) fn list(&mut self, kind: &ObjectKind) {
        let of_kind = self.store.iter().filter(|(key, _)| key.kind() == *kind);
        let all: Vec<_> = of_kind
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let keys: BTreeSet<ObjectKey> = all.iter().map(|(key, _)| key.clone()).collect();
        let version = Some(self.store.version());
        for (key, value) in all {
            self.input(|| {
                EngineInput::News(match object(&key, value.clone()) {
                    Ok(object) => ObjectEvent::Applied(object, EventSource::Watch),
                    Err(_) => ObjectEvent::Unreadable(key.clone()),
                })
            });
        }
        self.input(|| {
            EngineInput::News(ObjectEvent::Listed {
                kind: kind.clone(),
                keys: keys.clone(),
                version,
            })
        });
    }

    /// No decider does what cannot be taken back while a watch that it depends on is old.
    pub(crate) fn check_held(&mut self, replica: usize, orders: &[EffectRequest]) {
        for order in orders.iter().filter(|order| is_final(order)) {
            let (by, now) = (order.decider, self.now());
            if let Some(old) = self.freshness(replica).holds(by, now) {
                let effect = order.effect.label();
                self.stats
                    .violations
                    .push(format!("{now}: {by} orders {effect} although {old}"));
            }
        }
    }
}

/// It ends something, by one of those who hold.
fn is_final(order: &EffectRequest) -> bool {
    HOLDING.contains(&order.decider)
        && match &*order.effect {
            Effect::Terminate { .. } | Effect::Evict { .. } => true,
            Effect::Delete { target, .. } => match target {
                ObjectRef::Pod(_) => true,
                // A claim goes with its Node, which somebody deleted: nothing is decided there.
                ObjectRef::Claim(_) => order.decider != DeciderId::Termination,
                _ => false,
            },
            _ => false,
        }
}
