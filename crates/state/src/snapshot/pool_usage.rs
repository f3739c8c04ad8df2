//! Limits of pools, counted exactly: what is there, what is coming, and nothing twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Snapshot, StateNode};
use crate::ledger::ExpectedClaim;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::names::PoolName;
use mortise_apis::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, PoolLimits, Resources};

/// What a pool takes of its limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolUsage {
    /// Machines, coming ones included.
    pub nodes: i64,
    /// Their capacity; of a machine that is not launched yet, the most that it can have.
    pub capacity: Resources,
}

/// A limit that would not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limit of {resource} is {limit}, usage would be {usage}")]
pub struct LimitExceeded {
    /// Resource name, or `nodes`.
    pub resource: String,
    /// The limit, in the resource's unit (milli-CPU, bytes, count).
    pub limit: i64,
    /// What the usage would be.
    pub usage: i64,
}

/// The most that the machine of a claim can have: what its plan says, or what it allows.
pub fn most_of(claim: &NodeClaim, snapshot: &Snapshot) -> Resources {
    claim.planned_capacity().unwrap_or_else(|| {
        let pool = claim.pool().and_then(|pool| snapshot.pools.get(&pool));
        allowed(Some(claim), pool.map(|pool| &**pool), snapshot)
    })
}

/// The same of one that is expected.
fn most(coming: &ExpectedClaim, snapshot: &Snapshot) -> Resources {
    coming.capacity.clone().unwrap_or_else(|| {
        let claim = snapshot.claims.get(&*coming.claim);
        let pool = snapshot.pools.get(&coming.pool);
        allowed(
            claim.map(|claim| &**claim),
            pool.map(|pool| &**pool),
            snapshot,
        )
    })
}

/// The most that the machine of a claim can have whose plan is not known: of each resource, the most that a type has which
/// the claim allows. Where no catalogue says, no amount is too much: what is not known is never nothing.
fn allowed(claim: Option<&NodeClaim>, pool: Option<&NodePool>, snapshot: &Snapshot) -> Resources {
    let own = claim.map(NodeClaim::node_class_key);
    let of_pool = pool.filter(|pool| own.as_ref().is_none_or(|own| pool.node_class_key() == *own));
    let catalog = of_pool
        .and_then(|pool| snapshot.catalog_of(pool))
        .or_else(|| snapshot.catalogs.get(own.as_ref()?));
    if let Some(catalog) = catalog.filter(|catalog| !catalog.types().is_empty()) {
        let asked = claim.map(NodeClaim::requirements).unwrap_or_default();
        let mut types = catalog.table().meeting(&asked);
        if types.is_empty() {
            types = crate::catalog::Bits::all(catalog.types().len());
        }
        let types = types.iter().filter_map(|at| catalog.types().get(at));
        return types.fold(Resources::zero(), |most, each| most.max(&each.capacity));
    }
    let limits = pool.map(NodePool::limits).unwrap_or_default();
    let limited = limits.resources.iter().map(|(name, _)| name.as_str());
    let names = [CPU, MEMORY, PODS, EPHEMERAL_STORAGE]
        .into_iter()
        .chain(limited);
    names.fold(Resources::zero(), |most, name| most.with(name, i64::MAX))
}

impl PoolUsage {
    /// Usage of every pool, machines that leave not counted. Cost: pools and coming claims.
    #[must_use]
    pub fn all(snapshot: &Snapshot) -> BTreeMap<PoolName, Self> {
        let mut pools = (*snapshot.pool_usage).clone();
        for coming in snapshot.ledger.coming().values() {
            // A coming machine is counted by its promise, which knows the most it can have.
            let there = snapshot
                .node_of_claim(&coming.claim)
                .filter(|node| !node.deleting);
            let counted = there.and_then(|node| Some((node, pools.get_mut(&*node.pool()?)?)));
            if let Some((node, usage)) = counted
                && !usage.uncount(&node.capacity)
            {
                usage.nodes -= 1;
            }
            pools
                .entry(coming.pool.clone())
                .or_default()
                .count(&most(coming, snapshot));
        }
        pools
    }

    /// Usage of pools by these machines, those that leave not counted.
    pub(crate) fn of_machines<'a>(
        machines: impl Iterator<Item = &'a Arc<StateNode>>,
    ) -> BTreeMap<PoolName, Self> {
        let mut pools: BTreeMap<PoolName, Self> = BTreeMap::new();
        for node in machines.filter(|node| !node.deleting) {
            if let Some(pool) = node.pool() {
                pools.entry(pool).or_default().count(&node.capacity);
            }
        }
        pools
    }

    /// Takes one machine away; `false`, and nothing changes, when sums are too large to be exact.
    pub fn uncount(&mut self, capacity: &Resources) -> bool {
        if self.capacity.iter().any(|(_, amount)| amount == i64::MAX) {
            return false;
        }
        self.nodes -= 1;
        self.capacity.sub_assign(capacity);
        true
    }

    /// Adds one machine.
    pub fn count(&mut self, capacity: &Resources) {
        self.nodes += 1;
        self.capacity.add_assign(capacity);
    }

    /// Whether one more machine keeps within `limits` (a pool's `spec.limits`, with the pseudo-resource `nodes`).
    ///
    /// # Errors
    /// The first limit, by name, that would not hold.
    pub fn admits(&self, limits: &PoolLimits, more: &Resources) -> Result<(), LimitExceeded> {
        if let Some(limit) = limits.nodes
            && self.nodes + 1 > limit
        {
            return Err(LimitExceeded {
                resource: "nodes".to_owned(),
                limit,
                usage: self.nodes + 1,
            });
        }
        for (name, limit) in &limits.resources {
            let usage = self.capacity.get(name).saturating_add(more.get(name));
            if usage > *limit {
                return Err(LimitExceeded {
                    resource: name.clone(),
                    limit: *limit,
                    usage,
                });
            }
        }
        Ok(())
    }
}
