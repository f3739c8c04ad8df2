//! Which nodes a pool with too many of them deletes first.

use std::sync::Arc;

use jiff::Timestamp;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::ClaimName;
use mortise_apis::values::{NillableDuration, since};
use mortise_planning::disruption::cost;
use mortise_state::snapshot::{Snapshot, StateNode};

/// Cost and remaining life are weighed in thousandths, so that a node at the end of its life costs next to nothing.
const WHOLE: i128 = 1_000;

/// How little is lost with a node: the smallest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DeletionRank {
    /// There is no instance yet.
    Unlaunched,
    /// No pod would have to move.
    Empty,
    /// Pods would have to move.
    Used,
    /// A user asked that the node, or a pod on it, be left alone.
    Protected,
}

/// The claims in the order in which they are deleted.
///
/// Within a rank, nodes that would be replaced for drift anyway go first, then those where the cost of moving their
/// pods times what remains of their life is least, then the older ones.
///
/// # Source
/// karpenter-core 7.2; drift as a tie-break is ours.
pub(super) fn by_loss(
    claims: &[Arc<NodeClaim>],
    snapshot: &Snapshot,
    now: Timestamp,
) -> Vec<Arc<NodeClaim>> {
    let mut ranked: Vec<_> = claims
        .iter()
        .map(|claim| (key(claim, snapshot, now), claim))
        .collect();
    ranked.sort_by(|a, b| a.0.cmp(&b.0));
    ranked
        .into_iter()
        .map(|(_, claim)| Arc::clone(claim))
        .collect()
}

fn key(
    claim: &NodeClaim,
    snapshot: &Snapshot,
    now: Timestamp,
) -> (DeletionRank, bool, i128, Option<Timestamp>, ClaimName) {
    let name = claim.name();
    let state_node = snapshot
        .node_of_claim(&name)
        .map(|state_node| &**state_node);
    let cost = state_node.map_or(0, |state_node| i128::from(cost::of_node(state_node).0));
    let created = claim
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|time| time.0);
    (
        rank(claim, state_node, now),
        !claim.is_true("Drifted"),
        cost * life_left(claim, created, now),
        created,
        name,
    )
}

fn rank(claim: &NodeClaim, state_node: Option<&StateNode>, now: Timestamp) -> DeletionRank {
    let Some(state_node) = state_node.filter(|_| claim.provider_id().is_some()) else {
        return DeletionRank::Unlaunched;
    };
    if state_node.do_not_disrupt() || state_node.pods.iter().any(|pod| !pod.is_disruptable(now)) {
        DeletionRank::Protected
    } else if state_node.reschedulable().next().is_none() {
        DeletionRank::Empty
    } else {
        DeletionRank::Used
    }
}

/// Thousandths of the claim's life that are left; all of it when it never expires.
fn life_left(claim: &NodeClaim, created: Option<Timestamp>, now: Timestamp) -> i128 {
    let life = claim.spec.expire_after.as_ref().and_then(|text| {
        NillableDuration::parse(text.as_str())
            .ok()?
            .duration()
            .map(jiff::SignedDuration::from)
    });
    let (Some(life), Some(created)) = (life, created) else {
        return WHOLE;
    };
    let life = life.as_millis().max(1);
    let left = life - i128::from(since(now, created));
    (left.clamp(0, life) * WHOLE) / life
}
