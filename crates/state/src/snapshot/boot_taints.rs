//! Taints that nodes have when they join and lose soon, although their NodePool does not declare them as startup taints.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use mortise_apis::names::PoolName;
use mortise_apis::values::after;

use super::StateNode;

/// A taint, whatever its value is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTaint {
    /// Its key.
    pub key: String,
    /// `NoSchedule` or `NoExecute`.
    pub effect: String,
}

impl From<&Taint> for BootTaint {
    fn from(taint: &Taint) -> Self {
        Self {
            key: taint.key.clone(),
            effect: taint.effect.clone(),
        }
    }
}

/// Boot taints by NodePool, as learned from nodes that lost them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootTaints(BTreeMap<PoolName, BTreeMap<BootTaint, i64>>);

impl BootTaints {
    /// The boot taints of a NodePool, with the longest time from a Node's creation to the removal of its taint, in milliseconds.
    pub fn of_pool(&self, pool: &PoolName) -> impl Iterator<Item = (&BootTaint, i64)> {
        let all = self.0.get(pool).into_iter().flatten();
        all.map(|(taint, longest_ms)| (taint, *longest_ms))
    }

    /// Whether a node still has a boot taint that does not count: kube-scheduler refuses its pods until the taint is removed, and that
    /// says nothing about the node.
    #[must_use]
    pub fn keep_closed(&self, state_node: &StateNode) -> bool {
        let pool = state_node.claim.as_ref().and_then(|claim| claim.pool());
        let known = pool.and_then(|pool| self.0.get(&pool));
        let (Some(known), Some(node)) = (known, &state_node.node) else {
            return false;
        };
        let mut taints = node.spec.taints.iter();
        taints.any(|taint| {
            known.contains_key(&BootTaint::from(taint)) && !state_node.taints.contains(taint)
        })
    }

    /// A node of the NodePool lost this taint, so long after its creation. Returns whether that says something new.
    pub(crate) fn learn(&mut self, pool: PoolName, taint: BootTaint, ms: i64) -> bool {
        let longest = self.0.entry(pool).or_default().entry(taint).or_insert(-1);
        let is_longer = ms > *longest;
        *longest = ms.max(*longest);
        is_longer
    }

    /// Until when this taint is expected to be removed from a node of the NodePool: twice the longest time that it took, and a
    /// minute. `None`: it is no boot taint.
    #[must_use]
    pub fn expected_until(
        &self,
        pool: &PoolName,
        taint: &Taint,
        created: Timestamp,
    ) -> Option<Timestamp> {
        let longest = self.0.get(pool)?.get(&BootTaint::from(taint))?;
        Some(after(created, longest * 2 + 60_000))
    }
}
