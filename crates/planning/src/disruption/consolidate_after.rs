//! When `consolidateAfter` has elapsed on each node.

use jiff::{SignedDuration, Timestamp};

use mortise_apis::schema::conditions::{ConditionStatus, find};
use mortise_apis::{NodeClaim, NodePool};
use mortise_state::snapshot::{Snapshot, StateNode};

/// The condition `Consolidatable` is true at most this long after `consolidateAfter` has elapsed.
const CONDITION_LATE: SignedDuration = SignedDuration::from_secs(5);

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
