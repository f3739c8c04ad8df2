//! Changes of claims and pools that are worth a look at once, apart from those that are not.
//!
//! In a busy cluster some claim or pool is written every second: the time of its last pod event, its counters. What may
//! make a node a candidate is written a few times in its life.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, PoolName};
use mortise_state::index::Changes;
use mortise_state::snapshot::Snapshot;

/// What was true of claims and pools when they were checked last.
#[derive(Debug, Default)]
pub(super) struct ChangeFilter {
    claims: BTreeMap<ClaimName, ClaimFlags>,
    pools: BTreeMap<PoolName, Arc<NodePool>>,
}

/// What of a claim may open or close the way for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClaimFlags {
    consolidatable: bool,
    drifted: bool,
    initialized: bool,
    going: bool,
}

/// How much changes matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelevantChange {
    /// Not at once.
    None,
    /// A claim, or what a person has stopped or allowed in a NodePool, may open or close the way for a command.
    Claims,
    /// What nodes are made from changed: whatever was refused may be possible now.
    Supply,
}

impl ClaimFlags {
    fn of(claim: &NodeClaim) -> Self {
        Self {
            consolidatable: claim.is_true("Consolidatable"),
            drifted: claim.is_true("Drifted"),
            initialized: claim.is_true("Initialized"),
            going: claim.metadata.deletion_timestamp.is_some(),
        }
    }
}

impl ChangeFilter {
    /// Takes changes in, and says how much they matter.
    pub(super) fn takes(&mut self, changes: &Changes, snapshot: &Snapshot) -> RelevantChange {
        if changes.everything {
            self.claims = snapshot
                .claims
                .iter()
                .map(|(name, claim)| (name.clone(), ClaimFlags::of(claim)))
                .collect();
            self.pools = (*snapshot.pools).clone();
            return RelevantChange::Supply;
        }
        let mut matters = false;
        let mut supply = !changes.node_classes.is_empty();
        for name in &changes.claims {
            let now = snapshot
                .claims
                .get(&**name)
                .map(|claim| ClaimFlags::of(claim));
            let before = match now {
                Some(now) => self.claims.insert(name.clone(), now),
                None => self.claims.remove(name),
            };
            matters |= before != now;
        }
        for name in &changes.pools {
            let now = snapshot.pools.get(name).cloned();
            let before = match &now {
                Some(now) => self.pools.insert(name.clone(), Arc::clone(now)),
                None => self.pools.remove(name),
            };
            matters |= before.as_deref().map(holds) != now.as_deref().map(holds);
            supply |= match (before, now) {
                (Some(before), Some(now)) => !is_same(&before, &now),
                (before, now) => before.is_some() != now.is_some(),
            };
        }
        match (supply, matters) {
            (true, _) => RelevantChange::Supply,
            (false, true) => RelevantChange::Claims,
            (false, false) => RelevantChange::None,
        }
    }
}

/// What the annotations of a NodePool say of a pause, and of an upgrade.
fn holds(pool: &NodePool) -> [Option<&String>; 3] {
    let annotations = pool.metadata.annotations.as_ref();
    [labels::PAUSE, labels::PAUSE_UNTIL, labels::UPGRADED_AT].map(|key| annotations?.get(key))
}

fn is_same(a: &NodePool, b: &NodePool) -> bool {
    a.spec == b.spec
        && a.is_ready() == b.is_ready()
        && a.metadata.deletion_timestamp == b.metadata.deletion_timestamp
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use mortise_apis::labels::WellKnown;
    use mortise_state::index::Index;

    fn claim(conditions: &[&str], event: &str) -> Arc<NodeClaim> {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|name| json!({ "type": name, "status": "True", "reason": name, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }))
            .collect();
        let value = json!({
            "metadata": { "name": "c" }, "spec": { "nodeClassRef": { "group": "g", "kind": "K", "name": "n" }, "requirements": [] },
            "status": { "conditions": conditions, "lastPodEventTime": event },
        });
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn pool(weight: i32, nodes: i64) -> Arc<NodePool> {
        let value = json!({
            "metadata": { "name": "p" },
            "spec": { "weight": weight, "template": { "spec": { "nodeClassRef": { "group": "g", "kind": "K", "name": "n" }, "requirements": [] } } },
            "status": { "nodes": nodes },
        });
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn only_what_may_open_the_way_for_a_command_matters() {
        let mut snapshot = Index::new(WellKnown::none(), false, Timestamp::UNIX_EPOCH)
            .freeze(Timestamp::UNIX_EPOCH);
        let mut standing = ChangeFilter::default();
        let changed = || {
            let mut changes = Changes::default();
            changes.claims.insert("c".into());
            changes.pools.insert("p".into());
            changes
        };
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z");
        let mut see = |what: Option<(&[&str], &str, i32, i64)>| {
            match what {
                Some((conditions, event, weight, nodes)) => {
                    snapshot.claims.insert("c".into(), claim(conditions, event));
                    Arc::make_mut(&mut snapshot.pools).insert("p".into(), pool(weight, nodes));
                }
                None => {
                    snapshot.claims.remove("c");
                    Arc::make_mut(&mut snapshot.pools).clear();
                }
            }
            standing.takes(&changed(), &snapshot)
        };
        assert_eq!(see(Some((&[], early, 1, 1))), RelevantChange::Supply, "new");
        let same = see(Some((&[], late, 1, 2)));
        assert_eq!(same, RelevantChange::None, "a time and a counter");
        let mut claim = |conditions| see(Some((conditions, late, 1, 2)));
        assert_eq!(claim(&["Consolidatable"]), RelevantChange::Claims);
        assert_eq!(claim(&["Consolidatable", "Launched"]), RelevantChange::None);
        assert_eq!(
            claim(&["Consolidatable", "Drifted"]),
            RelevantChange::Claims
        );
        let spec = see(Some((&["Consolidatable", "Drifted"], late, 2, 2)));
        assert_eq!(spec, RelevantChange::Supply, "the pool's spec");
        assert_eq!(see(None), RelevantChange::Supply, "gone");
        assert_eq!(see(None), RelevantChange::None, "still gone");
    }
}
