//! What NodePoolPolicies ask of their NodePools, and how much of it is used.
//!
//! # Problem
//! A limit on the price per hour has to hold before it is known which offering a NodeClaim gets. So each NodeClaim counts: once
//! it is launched, with the price of its offering; before that, with the most expensive offering that it allows, whether or not that is
//! available now. It counts until it is gone, also while its node drains, because the instance costs as much until then.
//!
//! Unknown is not zero: where the price of a NodeClaim is unknown, nothing is launched under the limit, and the NodeClaim is named.
//!
//! # Cost
//! Computed when a policy is first asked for, once per snapshot: the number of NodeClaims that are not launched yet, and of the
//! NodePools. Nothing without policies.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;

use super::on_demand_use::{NodeCpu, OnDemandUse};
use super::price_use::{PriceLimit, PriceUse};
use super::zone_use::{ZoneUse, zone_of};
use super::{LaunchedNodes, Snapshot, StateNode};
use crate::catalog::{Catalog, HighestPrices, UNKNOWN_PRICE};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, PoolName};
use mortise_apis::node_pool_policy::{
    DriftWaves, LaunchRate, LimitSource, NodePoolPolicy, StatedPause,
};
use mortise_apis::values::money::MicroUsd;
use mortise_apis::values::{after, since, span_text};

/// A policy that is in force for at least one NodePool.
#[derive(Clone, Debug)]
pub struct PolicyUse {
    /// Its name.
    pub name: Arc<str>,
    /// The limit on nodes that holds at the time of the snapshot, and what is used of it.
    pub nodes: Option<NodesUse>,
    /// The limits on the price that hold at the time of the snapshot, and what is used of them.
    pub price: Option<PriceUse>,
    /// When an entry of the calendar begins or ends, so that other limits may hold.
    pub limits_until: Option<Timestamp>,
    /// The limit on new nodes, and what is used of it.
    pub rate: Option<RateUse>,
    /// The least share of capacity that is on-demand, and what is.
    pub on_demand: Option<OnDemandUse>,
    /// What zones have; only if they are balanced.
    pub zones: Option<ZoneUse>,
    /// Percent of use from which on a node is not consolidated.
    pub minimum_utilization: Option<i64>,
    /// What consolidation must save per hour for each pod that it moves.
    pub minimum_savings_per_move: Option<MicroUsd>,
    /// What evicting a pod of a churning workload costs: the price of an average pod for this long, in milliseconds.
    pub eviction_cost_ms: Option<i64>,
    /// How many pods of a workload consolidation moves in a day at most.
    pub max_moves_per_day: Option<usize>,
    /// Waves in which the drifted nodes of each of its NodePools are replaced.
    pub drift_waves: Option<DriftWaves>,
    /// Expired nodes wait for the budgets of their NodePool.
    pub expires_within_budgets: bool,
    /// A pause of the voluntary disruption of its NodePools.
    pub pause: Option<StatedPause>,
    /// By NodePool, what each instance type of its catalog can cost at most; only with a limit on the price.
    highest_prices: BTreeMap<PoolName, HighestPrices>,
}

/// Use of a limit on nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesUse {
    /// The limit.
    pub limit: i64,
    /// Where it is written.
    pub source: LimitSource,
    /// NodeClaims.
    pub used: i64,
}

/// Use of a limit on new nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateUse {
    /// The limit.
    pub limit: LaunchRate,
    /// NodeClaims that were created within the window.
    pub recent: i64,
    /// When the first of them leaves the window.
    pub frees_at: Option<Timestamp>,
}

/// A limit of a policy that a NodeClaim would exceed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyExceeded {
    /// The number of nodes.
    #[error("{stated_in}.nodes of NodePoolPolicy {policy} is {limit}, {used} are there")]
    Nodes {
        /// The policy.
        policy: Arc<str>,
        /// Where the limit is written.
        stated_in: LimitSource,
        /// The limit.
        limit: i64,
        /// NodeClaims that are there.
        used: i64,
    },
    /// The price.
    #[error("{}, {used} are in use, and the NodeClaim may cost {more}", limit.of_policy(policy))]
    Price {
        /// The policy.
        policy: Arc<str>,
        /// The limit.
        limit: PriceLimit,
        /// What is in use.
        used: MicroUsd,
        /// What the NodeClaim may cost.
        more: MicroUsd,
    },
    /// A price is unknown.
    #[error("{limit} of NodePoolPolicy {policy} cannot be kept: the price of {what} is unknown")]
    UnknownPrice {
        /// The policy.
        policy: Arc<str>,
        /// The limit.
        limit: PriceLimit,
        /// The NodeClaim, or `the new NodeClaim`.
        what: String,
    },
    /// The number of new nodes.
    #[error(
        "scaling.maxNewNodesPerWindow of NodePoolPolicy {policy} allows {limit} in {}, {recent} were created",
        span_text(*window_ms)
    )]
    Rate {
        /// The policy.
        policy: Arc<str>,
        /// The limit.
        limit: i64,
        /// Length of the window in milliseconds.
        window_ms: i64,
        /// NodeClaims within the window.
        recent: i64,
    },
}

impl PolicyUse {
    /// What each instance type of a NodePool's catalog can cost at most; `None` without a limit on the price.
    #[must_use]
    pub fn highest_prices(&self, pool: &str) -> Option<&HighestPrices> {
        self.highest_prices.get(pool)
    }

    /// The percentage of its allocatable CPU or memory, whichever is more, that the pods of a node request, if that is enough for
    /// consolidation to leave the node, and the percentage that is. Rounded down.
    #[must_use]
    pub fn used_well_enough(&self, node: &StateNode) -> Option<(i64, i64)> {
        let minimum = self.minimum_utilization?;
        let percent = |used: i64, all: i64| {
            let percent = i128::from(used.max(0)) * 100 / i128::from(all.max(1));
            i64::try_from(percent).unwrap_or(i64::MAX)
        };
        let (used, all) = (&node.used, &node.allocatable);
        let most = percent(used.cpu, all.cpu).max(percent(used.memory, all.memory));
        (most >= minimum).then_some((most, minimum))
    }

    /// Whether it limits what is launched, and does not only say which nodes are disrupted.
    #[must_use]
    pub const fn limits_launches(&self) -> bool {
        self.nodes.is_some() || self.price.is_some() || self.rate.is_some()
    }

    /// When the limits are others, or more of them is free, although no object changes.
    #[must_use]
    pub fn outlived_at(&self) -> Option<Timestamp> {
        let frees_at = self.rate.as_ref().and_then(|rate| rate.frees_at);
        let month = self.price.as_ref().and_then(|price| price.month);
        let all = frees_at.into_iter().chain(self.limits_until);
        all.chain(month.map(|month| month.until)).min()
    }

    /// Whether one more NodeClaim that may cost this much is within the limits.
    ///
    /// # Errors
    /// The first limit that would be exceeded.
    pub fn admits(&self, more: MicroUsd) -> Result<(), PolicyExceeded> {
        if let Some(rate) = self
            .rate
            .as_ref()
            .filter(|rate| rate.recent >= rate.limit.nodes)
        {
            return Err(PolicyExceeded::Rate {
                policy: Arc::clone(&self.name),
                limit: rate.limit.nodes,
                window_ms: rate.limit.window_ms,
                recent: rate.recent,
            });
        }
        if let Some(nodes) = self
            .nodes
            .as_ref()
            .filter(|nodes| nodes.used >= nodes.limit)
        {
            return Err(PolicyExceeded::Nodes {
                policy: Arc::clone(&self.name),
                stated_in: nodes.source.clone(),
                limit: nodes.limit,
                used: nodes.used,
            });
        }
        let Some(price) = &self.price else {
            return Ok(());
        };
        let (policy, limit) = (Arc::clone(&self.name), price.limit());
        let unknown = price.unknown.as_ref();
        let unknown = unknown.map(|claim| format!("NodeClaim {claim}"));
        let unpriced = || (more == UNKNOWN_PRICE).then(|| "the new NodeClaim".to_owned());
        if let Some(what) = unknown.or_else(unpriced) {
            return Err(PolicyExceeded::UnknownPrice {
                policy,
                limit,
                what,
            });
        }
        if price.used + more > limit.most() {
            return Err(PolicyExceeded::Price {
                policy,
                limit,
                used: price.used,
                more,
            });
        }
        Ok(())
    }

    /// Counts one more NodeClaim.
    pub fn count(&mut self, more: MicroUsd) {
        if let Some(price) = &mut self.price {
            price.used += more;
        }
        if let Some(nodes) = &mut self.nodes {
            nodes.used += 1;
        }
        if let Some(rate) = &mut self.rate {
            rate.recent += 1;
        }
    }

    fn new(policy: &NodePoolPolicy, now: Timestamp) -> Self {
        let limits = policy.limits_in_force(now);
        Self {
            name: policy.name(),
            price: PriceUse::new(policy, &limits),
            nodes: limits.nodes.map(|limit| NodesUse {
                limit: limit.most,
                source: limit.source,
                used: 0,
            }),
            limits_until: limits.until,
            rate: policy.launch_rate().map(|limit| RateUse {
                limit,
                recent: 0,
                frees_at: None,
            }),
            on_demand: policy.on_demand_share().map(OnDemandUse::new),
            zones: policy.zone_balance().map(ZoneUse::new),
            minimum_utilization: policy.minimum_utilization(),
            minimum_savings_per_move: policy.minimum_savings_per_move(),
            eviction_cost_ms: policy.eviction_cost_ms(),
            max_moves_per_day: policy.max_moves_per_day(),
            drift_waves: policy.drift_waves(),
            expires_within_budgets: policy.expires_within_budgets(),
            pause: policy.pause(),
            highest_prices: BTreeMap::new(),
        }
    }

    fn count_launched(&mut self, nodes: &LaunchedNodes, now: Timestamp) {
        if let Some(of_nodes) = &mut self.nodes {
            of_nodes.used += nodes.count;
        }
        if let Some(price) = &mut self.price {
            price.count_launched(nodes.price());
        }
        for (zone, cpus) in nodes.zones() {
            if let Some(on_demand) = &mut self.on_demand {
                on_demand.all += cpus.all;
                on_demand.on_demand += cpus.on_demand;
            }
            if let Some(zones) = &mut self.zones {
                zones.add(zone, cpus.all);
            }
        }
        if let Some(rate) = &mut self.rate {
            let start = after(now, -rate.limit.window_ms);
            let recent = nodes.created_after(start);
            recent.for_each(|(created, count)| rate.count(created, count));
        }
    }

    fn count_existing(&mut self, name: &ClaimName, claim: &NodeClaim, snapshot: &Snapshot) {
        if (self.on_demand.is_some() || self.zones.is_some())
            && let Some(cpu) = NodeCpu::of_claim(name, claim, snapshot)
        {
            if let Some(on_demand) = &mut self.on_demand {
                on_demand.add(cpu);
            }
            if let Some(zones) = &mut self.zones
                && let Some(zone) = zone_of(claim, snapshot.node_of_claim(name).map(|node| &**node))
            {
                zones.add(&zone, cpu.cpu);
            }
        }
        if let Some(nodes) = &mut self.nodes {
            nodes.used += 1;
        }
        if let Some(price) = &mut self.price {
            price.count_existing(name, price_of_existing(name, claim, snapshot));
        }
        if let Some(rate) = &mut self.rate {
            let expected = snapshot.ledger.expected_claims().get(name);
            let created = claim.metadata.creation_timestamp.as_ref();
            let created = created.map(|time| time.0);
            let created = created
                .or_else(|| expected.map(|expected| expected.from))
                .unwrap_or(snapshot.taken_at);
            if since(snapshot.taken_at, created) < rate.limit.window_ms {
                rate.count(created, 1);
            }
        }
    }
}

impl RateUse {
    /// Counts NodeClaims that were created within the window.
    fn count(&mut self, created: Timestamp, count: i64) {
        self.recent += count;
        let end = after(created, self.limit.window_ms);
        self.frees_at = Some(self.frees_at.map_or(end, |known| known.min(end)));
    }
}

/// The most that a NodeClaim can cost that is not launched yet: the most expensive offering that it allows. [`UNKNOWN_PRICE`] without a
/// catalog, or if one of the prices is unknown.
#[must_use]
pub fn highest_price_of(claim: &NodeClaim, snapshot: &Snapshot) -> MicroUsd {
    let Some(catalog) = catalog_of(claim, snapshot) else {
        return UNKNOWN_PRICE;
    };
    let allowed = claim.requirements();
    let types = catalog.table().meeting(&allowed);
    let prices = HighestPrices::within(catalog, &allowed);
    let prices = types.iter().filter_map(|at| prices.of(at));
    prices.max().unwrap_or(UNKNOWN_PRICE)
}

fn price_of_existing(name: &ClaimName, claim: &NodeClaim, snapshot: &Snapshot) -> MicroUsd {
    let node = snapshot.node_of_claim(name);
    if let Some(price) = node.and_then(|node| node.price) {
        return price;
    }
    let Some(launched) = node.and_then(|node| node.instance_type()) else {
        return highest_price_of(claim, snapshot);
    };
    let highest = catalog_of(claim, snapshot).and_then(|catalog| {
        let prices = HighestPrices::within(catalog, &claim.requirements());
        prices.of(catalog.position(launched)?)
    });
    highest.unwrap_or(UNKNOWN_PRICE)
}

pub(super) fn catalog_of<'a>(
    claim: &NodeClaim,
    snapshot: &'a Snapshot,
) -> Option<&'a Arc<Catalog>> {
    let overlaid = claim
        .pool()
        .and_then(|pool| snapshot.overlaid_catalogs.get(&pool));
    overlaid.or_else(|| snapshot.catalogs.get(&claim.node_class_key()))
}

/// The policies that are in force, by NodePool. A copy of a snapshot computes its own.
#[derive(Debug, Default)]
pub struct PolicyUseCell(OnceLock<BTreeMap<PoolName, Arc<PolicyUse>>>);

impl Clone for PolicyUseCell {
    /// Empty: a snapshot is copied to be changed.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PolicyUseCell {
    /// The policies of this snapshot, which the cell is part of.
    pub(super) fn get(&self, snapshot: &Snapshot) -> &BTreeMap<PoolName, Arc<PolicyUse>> {
        self.0.get_or_init(|| uses(snapshot))
    }
}

/// The policies by NodePool: of those that name it and ask anything of it, the oldest, and of equally old ones the first by name.
#[must_use]
pub fn policies_by_pool<'a>(
    policies: impl Iterator<Item = &'a Arc<NodePoolPolicy>>,
) -> BTreeMap<PoolName, &'a Arc<NodePoolPolicy>> {
    let asking = policies.filter(|policy| !policy.is_of_commitments_alone());
    let mut all: Vec<&Arc<NodePoolPolicy>> = asking.collect();
    all.sort_by_key(|policy| policy.seniority());
    let mut in_force = BTreeMap::new();
    for policy in all {
        for pool in &policy.spec.node_pools {
            in_force.entry(pool.as_str().into()).or_insert(policy);
        }
    }
    in_force
}

fn uses(snapshot: &Snapshot) -> BTreeMap<PoolName, Arc<PolicyUse>> {
    let in_force = snapshot.policies_in_force();
    let mut uses: BTreeMap<Arc<str>, PolicyUse> = BTreeMap::new();
    for (name, policy) in &in_force {
        let of = uses
            .entry(policy.name())
            .or_insert_with(|| PolicyUse::new(policy, snapshot.taken_at));
        if of.price.is_some()
            && let Some(pool) = snapshot.pools.get(name)
            && let Some(catalog) = snapshot.catalog_of(pool)
        {
            let prices = HighestPrices::within(catalog, &pool.requirements());
            of.highest_prices.insert(name.clone(), prices);
        }
    }
    for (name, claim) in snapshot.unseen_claims() {
        let policy = claim.pool().and_then(|pool| in_force.get(&pool).copied());
        if let Some(of) = policy.and_then(|policy| uses.get_mut(&policy.name())) {
            of.count_existing(name, claim, snapshot);
        }
    }
    for (pool, policy) in &in_force {
        if let Some(of) = uses.get_mut(&policy.name())
            && let Some(nodes) = snapshot.launched.get(pool)
        {
            of.count_launched(nodes, snapshot.taken_at);
            for name in nodes.unknown() {
                if let Some(claim) = snapshot.claims.get(name) {
                    of.count_existing(name, claim, snapshot);
                }
            }
        }
    }
    for (name, of) in &mut uses {
        let policy = snapshot.policies.get(name);
        if let (Some(price), Some(policy)) = (&mut of.price, policy) {
            price.close(policy.monthly_spending(), snapshot.taken_at);
        }
    }
    let uses: BTreeMap<Arc<str>, Arc<PolicyUse>> = uses
        .into_iter()
        .map(|(name, of)| (name, Arc::new(of)))
        .collect();
    in_force
        .into_iter()
        .filter_map(|(pool, policy)| Some((pool, Arc::clone(uses.get(&policy.name())?))))
        .collect()
}
