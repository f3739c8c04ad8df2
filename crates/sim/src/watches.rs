//! The watches of the virtual API server: when each delivers an event, bookmarks, and the faults of a single watch.
//!
//! The virtual scheduler gets every change immediately: a fault of a watch affects the service alone.

use std::collections::{BTreeMap, BTreeSet};

use mortise_engine::engine::EngineInput;
use mortise_engine::freshness::WatchState;
use mortise_state::resource_kinds::{EventSource, ObjectEvent, ObjectKey, ObjectKind};

use crate::clock::{Action, Clock, StoreEvent};
use crate::cluster::{Cluster, object};
use crate::faults::WatchFault;
use crate::replicas::{FOLLOWED, Replicas, as_sent};

/// Delay of watch events.
const WATCH_MS: i64 = 5;
/// Interval of bookmarks, in seconds.
const BOOKMARK_S: i64 = 60;
/// Interval of relists while a watch keeps expiring, in seconds.
const RELIST_S: i64 = 15;

/// Faults of watches, and the events that they delay.
#[derive(Default)]
pub(crate) struct Watches {
    faults: BTreeMap<ObjectKind, WatchFault>,
    delayed: BTreeMap<ObjectKind, Vec<StoreEvent>>,
}

impl Watches {
    /// Sets or clears the fault of the watch of a kind. When it is cleared, the watch delivers what it has missed.
    pub(crate) fn disturb(
        &mut self,
        kind: &ObjectKind,
        fault: Option<WatchFault>,
        cluster: &mut Cluster,
        replicas: &mut Replicas,
    ) {
        let before = self.faults.remove(kind);
        let delayed = self.delayed.remove(kind).unwrap_or_default();
        if let Some(fault) = fault {
            self.faults.insert(kind.clone(), fault);
        }
        match (before, fault) {
            (_, Some(WatchFault::Expired)) => {
                report_state(kind, WatchState::Broke, cluster, replicas)
            }
            (Some(WatchFault::Expired), None) => {
                relist(kind, cluster, replicas);
                report_state(kind, WatchState::Stands, cluster, replicas);
            }
            _ => {}
        }
        if !delayed.is_empty() {
            cluster.clock.in_ms(WATCH_MS, Action::Watch(delayed));
        }
    }

    /// Plans the delivery of written changes to the service.
    pub(crate) fn send(&mut self, events: Vec<StoreEvent>, clock: &mut Clock) {
        let mut usual = Vec::new();
        for event in events {
            let kind = event.key.kind();
            match self.faults.get(&kind) {
                None => usual.push(event),
                Some(WatchFault::Silent) => self.delayed.entry(kind).or_default().push(event),
                Some(WatchFault::Late(ms)) => {
                    clock.in_ms(WATCH_MS + ms, Action::Watch(vec![event]));
                }
                Some(WatchFault::Expired) => {} // in the next list
            }
        }
        if !usual.is_empty() {
            clock.in_ms(WATCH_MS, Action::Watch(usual));
        }
    }

    /// Plans bookmarks and relists that are due; called every second.
    pub(crate) fn tick(&self, cluster: &mut Cluster, replicas: &mut Replicas) {
        let second = cluster.now().as_second();
        for kind in FOLLOWED {
            let late = match self.faults.get(&kind) {
                Some(WatchFault::Silent) => continue,
                Some(WatchFault::Expired) => {
                    if second % RELIST_S == 0 {
                        relist(&kind, cluster, replicas);
                    }
                    continue;
                }
                Some(WatchFault::Late(ms)) => *ms,
                None => 0,
            };
            if second % BOOKMARK_S == 0 {
                let version = cluster.api_server.version();
                // After every change that is written so far.
                let bookmark = Action::Bookmark(kind, version);
                cluster.clock.in_ms(late + WATCH_MS + 1, bookmark);
            }
        }
    }
}

/// Reports the state of the watch of a kind to every replica.
pub(crate) fn report_state(
    kind: &ObjectKind,
    state: WatchState,
    cluster: &Cluster,
    replicas: &mut Replicas,
) {
    replicas.apply_all(cluster.now(), || EngineInput::Watch {
        kind: kind.clone(),
        state,
    });
}

/// Lists a kind, as an expired watch does.
fn relist(kind: &ObjectKind, cluster: &Cluster, replicas: &mut Replicas) {
    let now = cluster.now();
    let all = cluster
        .api_server
        .iter()
        .filter(|(key, _)| key.kind() == *kind);
    let mut keys: BTreeSet<ObjectKey> = BTreeSet::new();
    for (key, value) in all {
        keys.insert(key.clone());
        let is_recorded = replicas.is_recorded();
        replicas.apply_all(now, || {
            EngineInput::News(match object(key, value.clone()) {
                Ok(object) => {
                    ObjectEvent::Applied(as_sent(object, is_recorded), EventSource::Watch)
                }
                Err(_) => ObjectEvent::Unreadable(key.clone()),
            })
        });
    }
    let version = Some(cluster.api_server.version());
    replicas.apply_all(now, || {
        EngineInput::News(ObjectEvent::Listed {
            kind: kind.clone(),
            keys: keys.clone(),
            version,
        })
    });
}
