//! The limits of NodePoolPolicies, as the NodeClaims of one step use them up.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_state::snapshot::{PolicyUse, Snapshot, highest_price_of};

/// The policies that NodeClaims of the step belong to, by name, with what is used of them.
#[derive(Debug, Default)]
pub(super) struct PolicyAdmission(BTreeMap<Arc<str>, PolicyUse>);

impl PolicyAdmission {
    /// Counts a NodeClaim if its policy allows it, or says which limit it would exceed. `before` is the state before the step.
    pub(super) fn admit(&mut self, claim: &NodeClaim, before: &Snapshot) -> Result<(), String> {
        let policy = claim.pool().and_then(|pool| before.policy_of(&pool));
        let Some(policy) = policy.filter(|policy| policy.limits_launches()) else {
            return Ok(());
        };
        let used = self
            .0
            .entry(Arc::clone(&policy.name))
            .or_insert_with(|| PolicyUse::clone(policy));
        let price = highest_price_of(claim, before);
        used.admits(price).map_err(|refused| refused.to_string())?;
        used.count(price);
        Ok(())
    }
}
