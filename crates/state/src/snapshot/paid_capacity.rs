//! What policies say is paid for in advance, and for which nodes.
//!
//! # Cost
//! Read again when a policy changes, or when a commitment ends. Each node is asked about once, when it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::StateNode;
use crate::catalog::InstanceTypeTable;
use mortise_apis::labels;
use mortise_apis::names::PoolName;
use mortise_apis::node_pool_policy::{Commitment, CommitmentAmount, NodePoolPolicy};
use mortise_apis::requirements::Requirements;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::CapacityType;

/// A commitment of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaidCapacity {
    /// The policy.
    pub policy: Arc<str>,
    /// What it pays for.
    pub commitment: Commitment,
    /// The NodePools of the policy.
    pub(super) pools: Arc<BTreeSet<PoolName>>,
}

/// The commitments of all policies, whichever of them is in force, in the order in which they are used.
#[derive(Clone, Debug, Default)]
pub struct PaidCapacities {
    all: Arc<[PaidCapacity]>,
    by_pool: BTreeMap<PoolName, Vec<usize>>,
}

impl PaidCapacities {
    /// Those that have not ended.
    pub(crate) fn of(policies: &BTreeMap<Arc<str>, Arc<NodePoolPolicy>>, now: Timestamp) -> Self {
        let mut all = Vec::new();
        let mut by_pool: BTreeMap<PoolName, Vec<usize>> = BTreeMap::new();
        for (name, policy) in policies {
            if policy.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let pools = policy.spec.node_pools.iter();
            let pools: BTreeSet<PoolName> = pools.map(|pool| pool.as_str().into()).collect();
            let pools = Arc::new(pools);
            for commitment in policy.commitments(now) {
                for pool in &*pools {
                    by_pool.entry(pool.clone()).or_default().push(all.len());
                }
                all.push(PaidCapacity {
                    policy: Arc::clone(name),
                    commitment,
                    pools: Arc::clone(&pools),
                });
            }
        }
        let all = all.into();
        Self { all, by_pool }
    }

    /// All of them.
    #[must_use]
    pub const fn all(&self) -> &Arc<[PaidCapacity]> {
        &self.all
    }

    /// When the first of them ends.
    #[must_use]
    pub fn until(&self) -> Option<Timestamp> {
        let all = self.all.iter();
        all.filter_map(|each| each.commitment.until).min()
    }

    /// Those that are for a NodePool, with their positions.
    pub(super) fn of_pool(&self, pool: &str) -> impl Iterator<Item = (usize, &PaidCapacity)> {
        let all = self.by_pool.get(pool).into_iter().flatten();
        all.filter_map(|at| Some((*at, self.all.get(*at)?)))
    }

    /// The positions of those that may pay for a node: nothing pays for one that is not on-demand.
    pub(crate) fn paying_for(&self, node: &StateNode) -> Arc<[usize]> {
        let is_payable = !self.all.is_empty()
            && node.label(labels::CAPACITY_TYPE) == Some(CapacityType::OnDemand.as_str());
        let pool = node.label(labels::NODEPOOL).filter(|_| is_payable);
        let of_pool = pool.into_iter().flat_map(|pool| self.of_pool(pool));
        let paying = of_pool.filter(|(_, of)| of.is_met_by_node(node));
        paying.map(|(at, _)| at).collect()
    }
}

impl PaidCapacity {
    /// Whether it pays for nodes of a NodePool.
    #[must_use]
    pub fn is_for(&self, pool: &str) -> bool {
        self.pools.contains(pool)
    }

    /// Whether a node has the labels that it asks for.
    fn is_met_by_node(&self, node: &StateNode) -> bool {
        let mut asked = self.commitment.requirements.iter();
        asked.all(|own| match node.label(own.key()) {
            Some(value) => own.has(value),
            None => own.allows_absence(),
        })
    }

    /// Whether all nodes with these requirements have the labels that it asks for and that no instance type has.
    #[must_use]
    pub fn is_met_by(&self, of_node: &Requirements, table: &InstanceTypeTable) -> bool {
        let mut asked = self.commitment.requirements.iter();
        asked.all(|own| {
            table.has_label(own.key())
                || match of_node.get(own.key()) {
                    Some(known) => {
                        !known.is_complement()
                            && !known.values().is_empty()
                            && known.values().iter().all(|value| own.has(value))
                    }
                    None => own.allows_absence(),
                }
        })
    }

    pub(super) const fn amount(&self) -> i64 {
        match self.commitment.amount {
            CommitmentAmount::OnDemandPrice(price) => price.0,
            CommitmentAmount::Instances(instances) => instances,
        }
    }

    /// Takes what a node uses of what is left, of which this part of its price is not paid for yet. Returns what is paid of that.
    /// Instances pay for whole nodes: not for the rest of one that dollars have paid for in part.
    pub(super) fn take(&self, left: &mut i64, rest: MicroUsd, price: MicroUsd) -> MicroUsd {
        match self.commitment.amount {
            CommitmentAmount::OnDemandPrice(_) => {
                let paid = rest.0.min(*left);
                *left -= paid;
                MicroUsd(paid)
            }
            CommitmentAmount::Instances(_) if *left > 0 && rest == price => {
                *left -= 1;
                price
            }
            CommitmentAmount::Instances(_) => MicroUsd(0),
        }
    }
}
