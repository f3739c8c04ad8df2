//! Resources that count against the limits of NodePools: existing and expected nodes, each once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Snapshot, StateNode};
use crate::ledger::ExpectedClaim;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::names::PoolName;
use mortise_apis::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, PoolLimits, Resources};

/// Resources of a NodePool that count against its limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolUsage {
    /// Number of nodes, including expected ones.
    pub nodes: i64,
    /// Total capacity; of a node that is not launched yet, the largest capacity that it can have.
    pub capacity: Resources,
}

/// A limit that would be exceeded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limit of {resource} is {limit}, usage would be {usage}")]
pub struct LimitExceeded {
    /// Resource name, or `nodes`.
    pub resource: String,
    /// The limit, in the resource's unit (milli-CPU, bytes, count).
    pub limit: i64,
    /// The usage that would result.
    pub usage: i64,
}

/// The largest capacity that the node of a NodeClaim can have: as planned, or as its requirements allow.
pub fn most_of(claim: &NodeClaim, snapshot: &Snapshot) -> Resources {
    claim.planned_capacity().unwrap_or_else(|| {
        let pool = claim.pool().and_then(|pool| snapshot.pools.get(&pool));
        largest_allowed(Some(claim), pool.map(|pool| &**pool), snapshot)
    })
}

/// The same for an expected NodeClaim.
fn expected_capacity(expected: &ExpectedClaim, snapshot: &Snapshot) -> Resources {
    expected.capacity.clone().unwrap_or_else(|| {
        let claim = snapshot.claims.get(&*expected.claim);
        let pool = snapshot.pools.get(&expected.pool);
        largest_allowed(
            claim.map(|claim| &**claim),
            pool.map(|pool| &**pool),
            snapshot,
        )
    })
}

/// The largest capacity that the node of a NodeClaim without a plan can have: of each resource, the maximum among the instance
/// types that the NodeClaim allows. Without a catalog it is unlimited: an unknown capacity must not count as zero.
fn largest_allowed(
    claim: Option<&NodeClaim>,
    pool: Option<&NodePool>,
    snapshot: &Snapshot,
) -> Resources {
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
    /// Usage of every NodePool, without nodes that are being deleted. Cost: the number of NodePools and expected NodeClaims.
    #[must_use]
    pub fn all(snapshot: &Snapshot) -> BTreeMap<PoolName, Self> {
        let mut pools = (*snapshot.pool_usage).clone();
        for expected in snapshot.ledger.expected_claims().values() {
            // An expected node counts with its planned capacity, which is the largest that it can have.
            let there = snapshot
                .node_of_claim(&expected.claim)
                .filter(|node| !node.deleting);
            let counted = there.and_then(|node| Some((node, pools.get_mut(&*node.pool()?)?)));
            if let Some((node, usage)) = counted
                && !usage.uncount(&node.capacity)
            {
                usage.nodes -= 1;
            }
            pools
                .entry(expected.pool.clone())
                .or_default()
                .count(&expected_capacity(expected, snapshot));
        }
        pools
    }

    /// Usage of NodePools by these nodes, without those that are being deleted.
    pub(crate) fn by_pool<'a>(
        nodes: impl Iterator<Item = &'a Arc<StateNode>>,
    ) -> BTreeMap<PoolName, Self> {
        let mut pools: BTreeMap<PoolName, Self> = BTreeMap::new();
        for node in nodes.filter(|node| !node.deleting) {
            if let Some(pool) = node.pool() {
                pools.entry(pool).or_default().count(&node.capacity);
            }
        }
        pools
    }

    /// Subtracts one node; `false`, and nothing changes, if the sums are too large to be exact.
    pub fn uncount(&mut self, capacity: &Resources) -> bool {
        if self.capacity.iter().any(|(_, amount)| amount == i64::MAX) {
            return false;
        }
        self.nodes -= 1;
        self.capacity.sub_assign(capacity);
        true
    }

    /// Adds one node.
    pub fn count(&mut self, capacity: &Resources) {
        self.nodes += 1;
        self.capacity.add_assign(capacity);
    }

    /// Whether one more node is within `limits` (`spec.limits` of a NodePool, with the pseudo-resource `nodes`).
    ///
    /// # Errors
    /// The first limit, by name, that would be exceeded.
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
