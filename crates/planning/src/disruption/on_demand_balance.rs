//! The on-demand capacity of NodePoolPolicies, after the commands under way: their nodes are gone, and what replaces them
//! is there. Two commands that each leave just enough would leave too little together.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::candidate::Candidate;
use super::command::{DisruptionCommand, RelocationPlan};
use super::rejection::DisruptionRejection;
use crate::reason::DisruptionBlocker;
use mortise_apis::names::PoolName;
use mortise_state::snapshot::{NodeCpu, OnDemandUse, Snapshot};

/// What is on-demand, by policy.
#[derive(Debug, Default)]
pub(super) struct OnDemandBalance(BTreeMap<Arc<str>, OnDemandUse>);

impl OnDemandBalance {
    /// The balance of a snapshot after these commands.
    ///
    /// # Cost
    /// One look-up per NodePool and per node of the commands; nothing without policies.
    pub(super) fn new<'c>(
        snapshot: &Snapshot,
        commands: impl Iterator<Item = &'c DisruptionCommand>,
    ) -> Self {
        let mut uses = BTreeMap::new();
        if !snapshot.policies.is_empty() {
            let policies = snapshot
                .pools
                .keys()
                .filter_map(|pool| snapshot.policy_of(pool));
            uses.extend(policies.filter_map(|policy| {
                let on_demand = policy.on_demand?;
                Some((Arc::clone(&policy.name), on_demand))
            }));
        }
        let mut this = Self(uses);
        if this.0.is_empty() {
            return this;
        }
        for command in commands {
            for target in &command.targets {
                let node = snapshot.nodes.get(&target.key);
                this.remove(
                    &target.pool,
                    node.and_then(|node| NodeCpu::of_node(node)),
                    snapshot,
                );
            }
            for (at, claim) in command.moves.claims.iter().enumerate() {
                let asked_for = command.replacements.get(at);
                let is_counted = asked_for.is_some_and(|each| {
                    snapshot.claims.contains(each.claim.as_str())
                        || snapshot.ledger.expected_claims().contains_key(&each.claim)
                });
                if !is_counted && let Some(cpu) = claim.cpu(snapshot) {
                    this.add(&claim.pool, cpu, snapshot);
                }
            }
        }
        this
    }

    fn of_pool(&mut self, pool: &PoolName, snapshot: &Snapshot) -> Option<&mut OnDemandUse> {
        let policy = snapshot.policy_of(pool)?;
        self.0.get_mut(&policy.name)
    }

    fn remove(&mut self, pool: &PoolName, cpu: Option<NodeCpu>, snapshot: &Snapshot) {
        if let Some(cpu) = cpu
            && let Some(on_demand) = self.of_pool(pool, snapshot)
        {
            on_demand.remove(cpu);
        }
    }

    fn add(&mut self, pool: &PoolName, cpu: NodeCpu, snapshot: &Snapshot) {
        if let Some(on_demand) = self.of_pool(pool, snapshot) {
            on_demand.add(cpu);
        }
    }

    /// What policies have without these nodes; `None` if no policy asks.
    pub(super) fn without(
        &self,
        candidates: &[&Candidate],
        snapshot: &Snapshot,
    ) -> Option<Arc<BTreeMap<Arc<str>, OnDemandUse>>> {
        if self.0.is_empty() {
            return None;
        }
        let mut left = Self(self.0.clone());
        for each in candidates {
            left.remove(&each.pool_name, NodeCpu::of_node(&each.node), snapshot);
        }
        Some(Arc::new(left.0))
    }

    /// No more on-demand capacity is missing after the moves than now.
    pub(super) fn check(
        &self,
        moves: &RelocationPlan,
        candidates: &[&Candidate],
        snapshot: &Snapshot,
    ) -> Result<(), DisruptionRejection> {
        let Some(left) = self.without(candidates, snapshot) else {
            return Ok(());
        };
        let mut then = Self(BTreeMap::clone(&left));
        for claim in &moves.claims {
            if let Some(cpu) = claim.cpu(snapshot) {
                then.add(&claim.pool, cpu, snapshot);
            }
        }
        let is_less = |(name, then): &(&Arc<str>, &OnDemandUse)| {
            let now = self.0.get(*name).map_or(0, OnDemandUse::missing);
            then.missing() > now
        };
        let Some((policy, then)) = then.0.iter().find(is_less) else {
            return Ok(());
        };
        let blocker = DisruptionBlocker::OnDemandShare {
            policy: policy.to_string(),
            wanted: then.share.of(then.all),
            left: then.on_demand,
        };
        Err(DisruptionRejection::from_reason(blocker))
    }
}
