//! How many nodes of each pool may still be disrupted for a reason.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::command::DisruptionReason;
use mortise_apis::names::PoolName;
use mortise_apis::values::BudgetSet;
use mortise_state::snapshot::{NodeKey, Snapshot};

/// Counts of one pool.
#[derive(Clone, Debug, Default)]
struct PoolCounts {
    nodes: i64,
    going: i64,
}

/// Budgets of every pool at one moment.
///
/// # Source
/// karpenter-core 5.4: nodes that are managed, initialized and whose instance is not terminating count; of these, those that
/// are not ready, going, or taken by a command are disrupted already.
pub struct PoolBudgets {
    now: Timestamp,
    counts: BTreeMap<PoolName, PoolCounts>,
    budgets: BTreeMap<PoolName, BudgetSet>,
}

impl PoolBudgets {
    /// Counts the machines. `taken`: machines that some command has chosen. Cost: one pass over the machines.
    pub fn of(snapshot: &Snapshot, taken: impl Fn(&NodeKey) -> bool, now: Timestamp) -> Self {
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
                count.going += 1;
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

    /// How many nodes of the pool may be disrupted at a time for the reason; `None` means no limit.
    pub fn allowed(&self, pool: &PoolName, reason: DisruptionReason) -> Option<i64> {
        let nodes = self.counts.get(pool).map_or(0, |count| count.nodes);
        let Some(budgets) = self.budgets.get(pool) else {
            return Some(0);
        };
        budgets
            .evaluate(self.now, nodes, reason.as_str())
            .allowed_or_zero()
    }

    /// How many more may be chosen now. Never negative.
    pub fn remaining(&self, pool: &PoolName, reason: DisruptionReason) -> i64 {
        let going = self.counts.get(pool).map_or(0, |count| count.going);
        self.allowed(pool, reason)
            .map_or(i64::MAX, |allowed| allowed.saturating_sub(going).max(0))
    }

    /// Nodes of the pool that count.
    pub fn nodes(&self, pool: &PoolName) -> i64 {
        self.counts.get(pool).map_or(0, |count| count.nodes)
    }

    /// A ledger from which a choice of machines is taken one by one.
    pub fn purse(&self, reason: DisruptionReason) -> BudgetAllocation<'_> {
        BudgetAllocation {
            budgets: self,
            reason,
            spent: BTreeMap::new(),
        }
    }
}

/// What a pool's budgets say about one reason at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetState {
    /// The pool.
    pub pool: PoolName,
    /// The reason, as budgets spell it: `Empty`, `Drifted`, `Underutilized`.
    pub reason: &'static str,
    /// How many machines may be disrupted at a time; `None` means no limit.
    pub allowed: Option<i64>,
    /// How many machines are disrupted already, for whatever reason.
    pub consumed: i64,
}

/// The budgets of every pool, for every reason. Sorted by pool. Cost: one pass over the machines.
#[must_use]
pub fn budget_states(snapshot: &Snapshot, now: Timestamp) -> Vec<BudgetState> {
    let budgets = PoolBudgets::of(snapshot, |_| false, now);
    let pools = snapshot.pools.keys();
    pools
        .flat_map(|pool| {
            DisruptionReason::ALL.map(|reason| BudgetState {
                pool: pool.clone(),
                reason: reason.as_str(),
                allowed: budgets.allowed(pool, reason),
                consumed: budgets.counts.get(pool).map_or(0, |count| count.going),
            })
        })
        .collect()
}

/// What is left of the budgets while machines are chosen.
pub struct BudgetAllocation<'a> {
    budgets: &'a PoolBudgets,
    reason: DisruptionReason,
    spent: BTreeMap<PoolName, i64>,
}

impl BudgetAllocation<'_> {
    /// Takes one machine of the pool; `false` when the budget allows no more.
    pub fn take(&mut self, pool: &PoolName) -> bool {
        let spent = self.spent.entry(pool.clone()).or_insert(0);
        if *spent >= self.budgets.remaining(pool, self.reason) {
            return false;
        }
        *spent += 1;
        true
    }
}
