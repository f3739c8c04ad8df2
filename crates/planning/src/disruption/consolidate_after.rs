//! When `consolidateAfter` has elapsed on each node, and which nodes wait for each other.
//!
//! # Problem
//! After a scale-in, pods leave many nodes within seconds. Alone, the first node that is consolidatable finds all others closed
//! to relocated pods: it is replaced by a new node, which the free capacity of the others makes superfluous minutes later. Its
//! pods move twice.
//!
//! # Rule
//! A node is not replaced by a new one while others become consolidatable soon: those whose `consolidateAfter` elapses within a quarter of
//! its own after it, and within 30 s. No node waits longer, whatever other pods do. Where `consolidateAfter` is zero, none waits. A
//! node whose pods fit on nodes that are there waits for nothing.

use jiff::{SignedDuration, Timestamp};

use mortise_apis::schema::conditions::{ConditionStatus, find};
use mortise_apis::{NodeClaim, NodePool};
use mortise_state::snapshot::{Snapshot, StateNode};

/// The condition `Consolidatable` is true at most this long after `consolidateAfter` has elapsed.
const CONDITION_LATE: SignedDuration = SignedDuration::from_secs(5);

/// A node waits for others at most this long.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(30);

/// A node waits for others at most this part of `consolidateAfter`.
const PART_OF_CONSOLIDATE_AFTER: i32 = 4;

/// When `consolidateAfter` has elapsed since pods were bound or removed, as it is written, or since initialization; `None` for a
/// node that is not initialized, and where it never elapses.
#[must_use]
pub fn elapses_at(claim: &NodeClaim, pool: &NodePool) -> Option<Timestamp> {
    let initialized = find(&claim.status.conditions, "Initialized")
        .filter(|condition| condition.status == ConditionStatus::True)?;
    let event = claim.status.last_pod_event_time.as_ref();
    let since = event.or(initialized.last_transition_time.as_ref())?.0;
    let wait = pool.consolidate_after()?;
    Some(since.checked_add(wait).unwrap_or(Timestamp::MAX))
}

/// Until when pods that are relocated to the node would restart its `consolidateAfter`.
pub(super) fn closed_until(node: &StateNode, snapshot: &Snapshot) -> Option<Timestamp> {
    let claim = node.claim.as_ref().filter(|_| node.initialized)?;
    let pool = node.pool().and_then(|pool| snapshot.pools.get(&pool))?;
    let at = elapses_at(claim, pool)?;
    // It is a candidate as soon as its condition says so, and may be the better one to remove. Without a wait, pods restart nothing.
    let is_instant = pool.consolidate_after().is_some_and(|wait| wait.is_zero());
    if is_instant || claim.is_true("Consolidatable") {
        Some(at)
    } else {
        Some(at.checked_add(CONDITION_LATE).unwrap_or(Timestamp::MAX))
    }
}

/// When nodes that are not consolidatable yet will be.
#[derive(Debug)]
pub(super) struct UpcomingNodes {
    /// When `consolidateAfter` elapses, in order, and when the node is known to be consolidatable.
    nodes: Vec<(Timestamp, Timestamp)>,
}

impl UpcomingNodes {
    /// Cost: O(n log n) of the nodes.
    pub(super) fn new(snapshot: &Snapshot, now: Timestamp) -> Self {
        let nodes = snapshot.nodes.values().filter(|node| !node.deleting);
        let times = nodes.filter_map(|node| {
            let pool = node.pool().and_then(|pool| snapshot.pools.get(&pool))?;
            let elapses = elapses_at(node.claim.as_ref()?, pool)?;
            Some((elapses, closed_until(node, snapshot)?))
        });
        let mut nodes: Vec<_> = times.filter(|(_, until)| *until > now).collect();
        nodes.sort_unstable();
        Self { nodes }
    }

    /// Until when a consolidatable node waits for others; `None` when it does not.
    pub(super) fn waits_until(&self, claim: &NodeClaim, pool: &NodePool) -> Option<Timestamp> {
        let wait = pool.consolidate_after()?;
        let longest = LONGEST_WAIT.min(wait / PART_OF_CONSOLIDATE_AFTER);
        let latest = elapses_at(claim, pool)?.checked_add(longest).ok()?;
        let within = self
            .nodes
            .partition_point(|(elapses, _)| *elapses <= latest);
        let (_, until) = self.nodes.get(within.checked_sub(1)?)?;
        Some(*until)
    }
}
