//! What is used of something that policies ask for, by policy, while nodes come and go within a pass.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{PolicyUse, Snapshot};
use mortise_apis::names::PoolName;

/// What is used, by the names of the policies that ask.
#[derive(Clone, Debug)]
pub struct UsesByPolicy<U>(BTreeMap<Arc<str>, U>);

impl<U> Default for UsesByPolicy<U> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<U> UsesByPolicy<U> {
    /// Those of the policies in force.
    ///
    /// # Cost
    /// A look-up per NodePool; nothing without policies.
    pub(super) fn of_policies(
        snapshot: &Snapshot,
        of_policy: impl Fn(&PolicyUse) -> Option<U>,
    ) -> Self {
        if snapshot.policies.is_empty() {
            return Self::default();
        }
        let pools = snapshot.pools.keys();
        let policies = pools.filter_map(|pool| snapshot.policy_of(pool));
        let uses =
            policies.filter_map(|policy| Some((Arc::clone(&policy.name), of_policy(policy)?)));
        Self(uses.collect())
    }

    /// No policy asks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each by the name of its policy.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &U)> {
        self.0.iter()
    }

    /// That of a policy.
    #[must_use]
    pub fn get(&self, policy: &str) -> Option<&U> {
        self.0.get(policy)
    }

    /// That of the policy that is in force for a NodePool.
    pub fn of_pool(&mut self, pool: &PoolName, snapshot: &Snapshot) -> Option<&mut U> {
        if self.is_empty() {
            return None;
        }
        self.0.get_mut(&snapshot.policy_of(pool)?.name)
    }
}
