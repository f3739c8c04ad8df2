//! How many nodes of each NodePool may be disrupted for each reason.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::command::DisruptionReason;
use mortise_apis::names::PoolName;
use mortise_apis::values::BudgetSet;
use mortise_state::snapshot::{NodeKey, Snapshot};

/// A reason that no budget names.
const NO_REASON: &str = "";

/// Counts of one NodePool.
#[derive(Clone, Debug, Default)]
struct PoolCounts {
    nodes: i64,
    deleting: i64,
}

/// Budgets of every NodePool at one time.
///
/// # Source
/// karpenter-core 5.4: nodes that are managed, initialized and whose instance is not terminating count; of these, those
/// that are not ready, being deleted, or part of a command are disrupted already.
pub struct PoolBudgets {
    now: Timestamp,
    counts: BTreeMap<PoolName, PoolCounts>,
    budgets: BTreeMap<PoolName, BudgetSet>,
}

impl PoolBudgets {
    /// Counts the nodes. `taken`: nodes that some command removes. Cost: one pass over the nodes.
    pub fn new(snapshot: &Snapshot, taken: impl Fn(&NodeKey) -> bool, now: Timestamp) -> Self {
        let mut counts: BTreeMap<PoolName, PoolCounts> = BTreeMap::new();
        for node in snapshot.nodes.values() {
            let Some(claim) = &node.claim else { continue };
            let Some(pool) = node.pool() else { continue };
            if !node.initialized || claim.is_instance_terminating() {
                continue;
            }
            let count = counts.entry(pool).or_default();
            count.nodes += 1;
            if node.deleting || !node.is_ready() || taken(&node.key) {
                count.deleting += 1;
            }
        }
        let budgets = snapshot
            .pools
            .iter()
            .map(|(name, pool)| (name.clone(), pool.budgets()))
            .collect();
        Self {
            now,
            counts,
            budgets,
        }
    }

    /// How many nodes of the NodePool may be disrupted at a time for the reason; `None` means no limit.
    pub fn allowed(&self, pool: &PoolName, reason: DisruptionReason) -> Option<i64> {
        self.allowed_for(pool, reason.as_str())
    }

    fn allowed_for(&self, pool: &PoolName, reason: &str) -> Option<i64> {
        let Some(budgets) = self.budgets.get(pool) else {
            return Some(0);
        };
        budgets
            .evaluate(self.now, self.nodes(pool), reason)
            .allowed_or_zero()
    }

    /// How many of these may still be selected. Never negative.
    fn left(&self, pool: &PoolName, allowed: i64) -> i64 {
        let deleting = self.counts.get(pool).map_or(0, |count| count.deleting);
        allowed.saturating_sub(deleting).max(0)
    }

    /// How many more may be selected now. Never negative.
    pub fn remaining(&self, pool: &PoolName, reason: DisruptionReason) -> i64 {
        self.allowed(pool, reason)
            .map_or(i64::MAX, |allowed| self.left(pool, allowed))
    }

    /// What the budgets without reasons say, which hold for whatever disrupts a node: how many nodes may be disrupted at a time, and
    /// how many more now. Never negative.
    pub fn for_any_reason(&self, pool: &PoolName) -> (i64, i64) {
        let allowed = self.allowed_for(pool, NO_REASON).unwrap_or(i64::MAX);
        (allowed, self.left(pool, allowed))
    }

    /// Nodes of the pool that count.
    pub fn nodes(&self, pool: &PoolName) -> i64 {
        self.counts.get(pool).map_or(0, |count| count.nodes)
    }

    /// The remaining budgets, from which nodes are allocated one by one.
    pub fn allocation(&self, reason: DisruptionReason) -> BudgetAllocation<'_> {
        BudgetAllocation {
            budgets: self,
            reason,
            spent: BTreeMap::new(),
        }
    }
}

/// The budget of a NodePool for one reason at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetState {
    /// The pool.
    pub pool: PoolName,
    /// The reason, as budgets spell it: `Empty`, `Drifted`, `Underutilized`.
    pub reason: &'static str,
    /// How many nodes may be disrupted at a time; `None` means no limit.
    pub allowed: Option<i64>,
    /// How many nodes are disrupted already, for any reason.
    pub consumed: i64,
}

/// The budgets of every NodePool, for every reason. Sorted by NodePool. Cost: one pass over the nodes.
#[must_use]
pub fn budget_states(snapshot: &Snapshot, now: Timestamp) -> Vec<BudgetState> {
    let budgets = PoolBudgets::new(snapshot, |_| false, now);
    let pools = snapshot.pools.keys();
    pools
        .flat_map(|pool| {
            DisruptionReason::ALL.map(|reason| BudgetState {
                pool: pool.clone(),
                reason: reason.as_str(),
                allowed: budgets.allowed(pool, reason),
                consumed: budgets.counts.get(pool).map_or(0, |count| count.deleting),
            })
        })
        .collect()
}

/// The remaining budgets while nodes are selected.
pub struct BudgetAllocation<'a> {
    budgets: &'a PoolBudgets,
    reason: DisruptionReason,
    spent: BTreeMap<PoolName, i64>,
}

impl BudgetAllocation<'_> {
    /// Allocates one node of the NodePool; `false` when the budget allows no more.
    pub fn allocate(&mut self, pool: &PoolName) -> bool {
        let spent = self.spent.entry(pool.clone()).or_insert(0);
        if *spent >= self.budgets.remaining(pool, self.reason) {
            return false;
        }
        *spent += 1;
        true
    }
}
