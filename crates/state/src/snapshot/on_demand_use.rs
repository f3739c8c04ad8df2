//! How much of the capacity of a policy's NodePools is on-demand.
//!
//! # Rule
//! CPUs of instances count, by instance type, until a node is being deleted: what leaves is replaced already. A NodeClaim that is not
//! launched yet counts as the cheapest instance type that it allows, and as spot if it allows spot, because providers prefer it.
//! Reserved capacity counts as on-demand: it is not reclaimed for its price.

use super::{Snapshot, StateNode, UsesByPolicy};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::ClaimName;
use mortise_apis::node_pool_policy::OnDemandShare;
use mortise_apis::requirements::Requirements;
use mortise_cloudprovider::CapacityType;

/// CPUs of a policy's NodePools, in thousandths, and what must be on-demand of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDemandUse {
    /// What is asked.
    pub share: OnDemandShare,
    /// CPUs that are on-demand.
    pub on_demand: i64,
    /// All CPUs.
    pub all: i64,
}

/// What is on-demand, by policy.
pub type OnDemandUses = UsesByPolicy<OnDemandUse>;

/// CPUs of one node, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCpu {
    /// How many.
    pub cpu: i64,
    /// Whether they are on-demand.
    pub is_on_demand: bool,
}

impl OnDemandUse {
    /// Nothing counted yet.
    #[must_use]
    pub const fn new(share: OnDemandShare) -> Self {
        Self {
            share,
            on_demand: 0,
            all: 0,
        }
    }

    /// On-demand CPUs that are missing, in thousandths; never negative.
    #[must_use]
    pub fn missing(&self) -> i64 {
        (self.share.of(self.all) - self.on_demand).max(0)
    }

    /// Whether one more node with this CPU must be on-demand.
    #[must_use]
    pub fn must_be_on_demand(&self, cpu: i64) -> bool {
        let with_spot = Self {
            all: self.all + cpu,
            ..*self
        };
        with_spot.missing() > 0
    }

    /// Counts one more node.
    pub const fn add(&mut self, node: NodeCpu) {
        self.all += node.cpu;
        if node.is_on_demand {
            self.on_demand += node.cpu;
        }
    }

    /// Counts one node less.
    pub const fn remove(&mut self, node: NodeCpu) {
        self.all -= node.cpu;
        if node.is_on_demand {
            self.on_demand -= node.cpu;
        }
    }
}

impl OnDemandUses {
    /// Those of the policies that ask for a share.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        Self::of_policies(snapshot, |policy| policy.on_demand)
    }

    /// Counts a node no more.
    pub fn remove(&mut self, node: &StateNode, snapshot: &Snapshot) {
        if let Some(cpu) = NodeCpu::of_node(node)
            && let Some(pool) = node.pool()
            && let Some(of_pool) = self.of_pool(&pool, snapshot)
        {
            of_pool.remove(cpu);
        }
    }
}

impl NodeCpu {
    /// Those of a node that is not launched yet: spot if these requirements allow it, because providers prefer it.
    #[must_use]
    pub fn planned(cpu: i64, asked: &Requirements) -> Self {
        let asked = asked.get(labels::CAPACITY_TYPE);
        let allows_spot = asked.is_none_or(|own| own.has(CapacityType::Spot.as_str()));
        Self {
            cpu,
            is_on_demand: !allows_spot,
        }
    }

    /// Those of a node that was launched; `None` if it is being deleted or not launched.
    #[must_use]
    pub fn of_node(node: &StateNode) -> Option<Self> {
        if node.deleting || node.capacity.cpu <= 0 {
            return None;
        }
        let capacity_type = node.label(labels::CAPACITY_TYPE);
        Some(Self {
            cpu: node.capacity.cpu,
            is_on_demand: capacity_type != Some(CapacityType::Spot.as_str()),
        })
    }

    /// Those of a NodeClaim; `None` if it is being deleted.
    pub(super) fn of_claim(
        name: &ClaimName,
        claim: &NodeClaim,
        snapshot: &Snapshot,
    ) -> Option<Self> {
        if claim.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let node = snapshot.node_of_claim(name);
        if node.is_some_and(|node| node.deleting) {
            return None;
        }
        if let Some(known) = node.and_then(|node| Self::of_node(node)) {
            return Some(known);
        }
        let allowed = claim.requirements();
        let catalog = super::policy_use::catalog_of(claim, snapshot)?;
        let table = catalog.table();
        let kinds = table.kinds_meeting(&allowed, &snapshot.well_known);
        let mut types = table.offered(&kinds);
        types.and(&table.meeting(&allowed));
        let (cheapest, _) = *table.by_price(&types, &kinds).first()?;
        let cpu = catalog.types().get(cheapest)?.capacity.cpu;
        Some(Self::planned(cpu, &allowed))
    }
}
