//! How the capacity of a policy's NodePools is spread over zones.
//!
//! # Rule
//! CPUs of instances count, by instance type, until a node is being deleted. A NodeClaim that is not launched yet counts in its zone if it
//! allows one alone, as the cheapest instance type that it allows; one that may go to several counts nowhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Snapshot, StateNode, UsesByPolicy};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::node_pool_policy::PriceIncrease;

/// CPUs of a policy's NodePools by zone, in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneUse {
    /// How much more a node may cost in the zone with the fewest.
    pub increase: PriceIncrease,
    cpus: BTreeMap<Arc<str>, i64>,
}

/// What zones have, by policy.
pub type ZoneUses = UsesByPolicy<ZoneUse>;

impl ZoneUse {
    /// Nothing counted yet.
    #[must_use]
    pub const fn new(increase: PriceIncrease) -> Self {
        Self {
            increase,
            cpus: BTreeMap::new(),
        }
    }

    /// What is in a zone.
    #[must_use]
    pub fn cpus_in(&self, zone: &str) -> i64 {
        self.cpus.get(zone).copied().unwrap_or(0)
    }

    /// The zones in which something is.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        let all = self.cpus.iter().filter(|(_, cpus)| **cpus > 0);
        all.map(|(zone, cpus)| (&**zone, *cpus))
    }

    /// Counts CPUs in a zone; what is negative is taken away.
    pub fn add(&mut self, zone: &str, cpus: i64) {
        match self.cpus.get_mut(zone) {
            Some(known) => *known += cpus,
            None => {
                self.cpus.insert(zone.into(), cpus);
            }
        }
    }
}

impl ZoneUses {
    /// Those of the policies that balance zones.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        Self::of_policies(snapshot, |policy| policy.zones.clone())
    }

    /// Counts a node no more.
    pub fn remove(&mut self, node: &StateNode, snapshot: &Snapshot) {
        if let Some(pool) = node.pool()
            && let Some(of_pool) = self.of_pool(&pool, snapshot)
            && let Some(zone) = node.label(labels::TOPOLOGY_ZONE)
            && !node.deleting
        {
            of_pool.add(zone, -node.capacity.cpu);
        }
    }
}

/// The zone of a NodeClaim: that of its node, or the only one that it allows.
pub(super) fn zone_of(claim: &NodeClaim, node: Option<&StateNode>) -> Option<Arc<str>> {
    if let Some(zone) = node.and_then(|node| node.label(labels::TOPOLOGY_ZONE)) {
        return Some(zone.into());
    }
    let allowed = claim.requirements();
    let asked = allowed.get(labels::TOPOLOGY_ZONE)?;
    match asked.values() {
        [only] if !asked.is_complement() => Some(Arc::clone(only)),
        _ => None,
    }
}
