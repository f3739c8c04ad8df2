//! The on-demand capacity of NodePoolPolicies, after the commands under way: their nodes are gone, and what replaces them
//! is there. Two commands that each leave just enough would leave too little together.

use std::sync::Arc;

use super::candidate::Candidate;
use super::command::{DisruptionCommand, RelocationPlan};
use super::rejection::DisruptionRejection;
use crate::reason::DisruptionBlocker;
use crate::scheduling::PlannedClaim;
use mortise_apis::names::ClaimName;
use mortise_state::snapshot::{OnDemandUse, OnDemandUses, Snapshot};

/// What is on-demand, by policy.
#[derive(Debug, Default)]
pub(super) struct OnDemandBalance(OnDemandUses);

impl OnDemandBalance {
    /// The balance of a snapshot after these commands.
    ///
    /// # Cost
    /// One look-up per NodePool and per node of the commands; nothing without policies.
    pub(super) fn new<'c>(
        snapshot: &Snapshot,
        commands: impl Iterator<Item = &'c DisruptionCommand>,
    ) -> Self {
        let mut uses = OnDemandUses::of(snapshot);
        if uses.is_empty() {
            return Self(uses);
        }
        for command in commands {
            let nodes = command.targets.iter();
            for node in nodes.filter_map(|target| snapshot.nodes.get(&target.key)) {
                uses.remove(node, snapshot);
            }
            for (at, claim) in command.moves.claims.iter().enumerate() {
                let asked_for = command.replacements.get(at);
                let is_counted = asked_for.is_some_and(|each| counts(&each.claim, snapshot));
                if !is_counted {
                    add(&mut uses, claim, snapshot);
                }
            }
        }
        Self(uses)
    }

    /// What policies have without these nodes; `None` if no policy asks.
    pub(super) fn without(
        &self,
        candidates: &[&Candidate],
        snapshot: &Snapshot,
    ) -> Option<Arc<OnDemandUses>> {
        if self.0.is_empty() {
            return None;
        }
        let mut left = self.0.clone();
        for each in candidates {
            left.remove(&each.node, snapshot);
        }
        Some(Arc::new(left))
    }

    /// No more on-demand capacity is missing after the moves than now.
    pub(super) fn check(
        &self,
        moves: &RelocationPlan,
        candidates: &[&Candidate],
        snapshot: &Snapshot,
    ) -> Result<(), DisruptionRejection> {
        let Some(left) = self.without(candidates, snapshot) else {
            return Ok(());
        };
        let mut then = Arc::unwrap_or_clone(left);
        for claim in &moves.claims {
            add(&mut then, claim, snapshot);
        }
        let is_less = |(name, then): &(&Arc<str>, &OnDemandUse)| {
            let now = self.0.get(name).map_or(0, OnDemandUse::missing);
            then.missing() > now
        };
        let Some((policy, then)) = then.iter().find(is_less) else {
            return Ok(());
        };
        let blocker = DisruptionBlocker::OnDemandShare {
            policy: policy.to_string(),
            wanted: then.share.of(then.all),
            left: then.on_demand,
        };
        Err(DisruptionRejection::from_reason(blocker))
    }
}

/// Whether a snapshot counts a NodeClaim already: it is there, or expected.
pub(super) fn counts(claim: &ClaimName, snapshot: &Snapshot) -> bool {
    snapshot.claims.contains(claim.as_str())
        || snapshot.ledger.expected_claims().contains_key(claim)
}

/// Counts a node that is about to be launched.
fn add(uses: &mut OnDemandUses, claim: &PlannedClaim, snapshot: &Snapshot) {
    if let Some(cpu) = claim.cpu(snapshot)
        && let Some(of_pool) = uses.of_pool(&claim.pool, snapshot)
    {
        of_pool.add(cpu);
    }
}
