//! Invariants of gangs: none runs in part, none gets room for a part of its pods, and none waits while there may be room for it.
//!
//! What gangs have is read from objects and the ledger. Whether there may be room is asked of a pass that knows nothing of gangs: their
//! rules in planning and in the deciders are what is checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::names::NamespacedName;
use mortise_apis::values::since;
use mortise_planning::scheduling::{SolveOptions, solve};
use mortise_state::snapshot::{Pod, Snapshot};

use crate::gang_history::{GangHistory, WaitingGang};

/// A gang may have room for a part of its pods for this long: a launch that fails takes places away, which the next passes look for
/// elsewhere or give up.
const PARTIAL_MS: i64 = 3 * 60_000;
/// A gang may wait for this long while there may be room for it: launches that fail are followed by pauses, and leaders may be missing.
const WAITING_MS: i64 = 10 * 60_000;
/// How often it is asked whether there may be room.
const ASK_MS: i64 = 60_000;

/// Gangs that have not run, between two checks.
#[derive(Debug, Default)]
pub(super) struct GangChecks {
    /// Since when a gang has had room for a part of its pods.
    partial: BTreeMap<Arc<NamespacedName>, Timestamp>,
    /// Since when a gang has had no room although there may be some.
    waiting: BTreeMap<Arc<NamespacedName>, Timestamp>,
    asked: Option<Timestamp>,
}

impl GangChecks {
    /// No scheduler binds a part of a gang.
    pub(super) fn check_bound(gangs: &GangHistory, found: &mut Vec<String>) {
        for gang in gangs.waiting() {
            let WaitingGang { bound, size, .. } = gang;
            if bound > 0 && bound < size {
                found.push(format!("gang {} runs in part", gang.group));
            }
        }
    }

    /// The service gives a gang room for all pods that run together, and does so when there is some.
    pub(super) fn check_room(
        &mut self,
        gangs: &GangHistory,
        snapshot: &Snapshot,
        now: Timestamp,
        found: &mut Vec<String>,
    ) {
        let is_asked = self.asked.is_none_or(|asked| since(now, asked) >= ASK_MS);
        if is_asked {
            self.asked = Some(now);
        }
        let mut partial = BTreeMap::new();
        let mut waiting = BTreeMap::new();
        for gang in gangs.waiting() {
            let Some(complete) = gang.complete else {
                continue;
            };
            let pods = gang.pods.iter().filter_map(|key| snapshot.pods.get(key));
            let pods: Vec<&Arc<Pod>> = pods.filter(|pod| pod.node.is_none()).collect();
            let nominated = pods.iter();
            let nominated = nominated.filter(|pod| snapshot.ledger.nomination(&pod.uid).is_some());
            let nominated = nominated.count();
            let group = gang.group;
            if nominated > 0 {
                if nominated + gang.bound < gang.size {
                    let from = self.partial.get(group).copied().unwrap_or(now);
                    partial.insert(Arc::clone(group), from);
                }
                continue;
            }
            let known = self.waiting.get(group).copied();
            let may_run = if is_asked && since(now, complete) >= ASK_MS {
                has_room(&pods, snapshot, now)
            } else {
                known.is_some()
            };
            if may_run {
                waiting.insert(Arc::clone(group), known.unwrap_or(now));
            }
        }
        self.partial = partial;
        self.waiting = waiting;
        for (gang, from) in &self.partial {
            if since(now, *from) > PARTIAL_MS {
                found.push(format!("gang {gang} has room for a part of its pods"));
            }
        }
        for (gang, from) in &self.waiting {
            if since(now, *from) > WAITING_MS {
                found.push(format!("gang {gang} waits although there may be room"));
            }
        }
    }
}

/// Whether each of these pods would get a place if no other pod waited.
fn has_room(pods: &[&Arc<Pod>], snapshot: &Snapshot, now: Timestamp) -> bool {
    let options = SolveOptions {
        extra: pods.iter().map(|pod| Arc::clone(pod)).collect(),
        closed: snapshot.fenced_nodes(),
        ..SolveOptions::default()
    };
    let (plan, _) = solve(now, snapshot, &options, &|| false);
    !pods.is_empty() && plan.placed() >= pods.len()
}
