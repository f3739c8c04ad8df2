//! NodePoolPolicies hold, counted by the instances that run and by the NodeClaims that exist.
//!
//! What is spent in a month is counted here from the instances alone, whatever the statuses of policies show.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::names::PoolName;
use mortise_apis::node_pool_policy::{LimitsInForce, Month, MonthlySpending, NodePoolPolicy};
use mortise_apis::values::money::{MicroUsd, Spent};
use mortise_apis::values::{after, since};
use mortise_state::snapshot::Snapshot;

use crate::cluster::Cluster;

/// Time in milliseconds between the plan of a NodeClaim and its creation: a limit of the calendar may have begun in between.
const PLANNED_BEFORE_MS: i64 = 5_000;

/// The limits that allowed the newest of these NodeClaims. A limit that has fallen since removes no node.
fn limits_of_newest_launch(policy: &NodePoolPolicy, created: &[Timestamp]) -> Vec<LimitsInForce> {
    let newest = created.iter().max().copied().unwrap_or_default();
    [newest, after(newest, -PLANNED_BEFORE_MS)]
        .map(|time| policy.limits_in_force(time))
        .into()
}

/// What the larger of two limits allows; `None` if one of them allows anything.
fn largest<T: Ord>(limits: impl Iterator<Item = Option<T>>) -> Option<T> {
    let limits: Option<Vec<T>> = limits.collect();
    limits?.into_iter().max()
}

/// The policy that holds for each NodePool.
type PoliciesByPool<'a> = BTreeMap<PoolName, &'a Arc<NodePoolPolicy>>;

/// What the instances of a policy have cost in a month.
#[derive(Clone, Copy)]
struct MonthBill {
    so_far: MonthlySpending,
    /// The limit has held for once. Nodes that run when a month begins may cost too much for it.
    has_held: bool,
}

/// What was spent, by policy.
#[derive(Default)]
pub(super) struct PolicyChecks(BTreeMap<Arc<str>, MonthBill>);

/// What the instances of each policy cost per hour.
fn hourly_prices(in_force: &PoliciesByPool<'_>, cluster: &Cluster) -> BTreeMap<Arc<str>, MicroUsd> {
    let mut prices: BTreeMap<Arc<str>, MicroUsd> = BTreeMap::new();
    for (_, instance) in cluster.cloud.instances() {
        let label = |key: &str| instance.labels.get(key).map(String::as_str);
        let policy = label(labels::NODEPOOL).and_then(|pool| in_force.get(pool));
        let Some(policy) = policy.filter(|_| instance.terminates_at.is_none()) else {
            continue;
        };
        let offerings = instance.instance_type.offerings.iter();
        let own = offerings.filter(|each| {
            label(labels::TOPOLOGY_ZONE) == Some(&*each.zone)
                && label(labels::CAPACITY_TYPE) == Some(each.capacity_type.as_str())
        });
        let price = own.filter_map(|each| each.price).min().unwrap_or_default();
        *prices.entry(policy.name()).or_default() += price;
    }
    prices
}

impl PolicyChecks {
    /// The instances of a policy's NodePools cost no more than its limits, are no more than it allows, and no more NodeClaims are
    /// created within its window.
    pub(super) fn check(
        &mut self,
        snapshot: &Snapshot,
        cluster: &Cluster,
        found: &mut Vec<String>,
    ) {
        if snapshot.policies.is_empty() {
            return;
        }
        let in_force = snapshot.policies_in_force();
        let prices = hourly_prices(&in_force, cluster);
        for (name, policy) in snapshot.policies.iter() {
            let price = prices.get(name).copied().unwrap_or_default();
            let created = creation_times(name, &in_force, snapshot);
            check_launches(policy, price, (&created, cluster.now()), found);
            if let Some(limit) = policy.monthly_limit() {
                self.check_month(name, (price, limit), cluster.now(), found);
            }
        }
    }

    /// What was spent in the month, and what the instances cost until it ends, is within the limit.
    fn check_month(
        &mut self,
        name: &Arc<str>,
        (price, limit): (MicroUsd, Spent),
        now: Timestamp,
        found: &mut Vec<String>,
    ) {
        let bill = self.0.entry(Arc::clone(name)).or_insert_with(|| MonthBill {
            so_far: MonthlySpending::none(now),
            has_held: false,
        });
        let month = Month::of(now);
        if Month::of(bill.so_far.at) != month {
            bill.has_held = false;
        }
        let so_far = bill.so_far.after(now, bill.so_far.price);
        bill.so_far = MonthlySpending { price, ..so_far };
        // The status is up to a minute behind the prices, and its times are whole seconds.
        let left_ms = since(month.end(), now) - 2 * 60_000;
        let all = so_far.spent + Spent::at_price(price, left_ms);
        if all <= limit {
            bill.has_held = true;
        } else if bill.has_held {
            found.push(format!(
                "policy {name} allows {limit} a month, {} are spent, and instances at {price} run on",
                so_far.spent
            ));
        }
    }
}

/// When the NodeClaims were created that a policy holds for.
fn creation_times(
    name: &Arc<str>,
    in_force: &PoliciesByPool<'_>,
    snapshot: &Snapshot,
) -> Vec<Timestamp> {
    let claims = snapshot.claims.values().filter(|claim| {
        let by = claim.pool().and_then(|pool| in_force.get(&pool).copied());
        by.is_some_and(|by| by.name() == *name)
    });
    let created = claims.filter_map(|claim| Some(claim.metadata.creation_timestamp.as_ref()?.0));
    created.collect()
}

/// The limits on the price per hour, the number of nodes, and that of new ones.
fn check_launches(
    policy: &NodePoolPolicy,
    price: MicroUsd,
    (created, now): (&[Timestamp], Timestamp),
    found: &mut Vec<String>,
) {
    let name = policy.name();
    let limits = limits_of_newest_launch(policy, created);
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let hourly = limits.iter().map(|each| each.hourly_price.as_ref());
    let hourly = largest(hourly.map(|price| price.map(|limit| limit.most)));
    if let Some(limit) = hourly.filter(|limit| price > *limit) {
        found.push(format!(
            "policy {name} allows {limit}, and instances cost {price}"
        ));
    }
    let nodes = limits.iter().map(|each| each.nodes.as_ref());
    let nodes = largest(nodes.map(|nodes| nodes.map(|limit| limit.most)));
    if let Some(limit) = nodes.filter(|limit| number(created.len()) > *limit) {
        found.push(format!(
            "policy {name} allows {limit} nodes, and {} are",
            created.len()
        ));
    }
    let Some(rate) = policy.launch_rate() else {
        return;
    };
    let is_new = |created: &&Timestamp| since(now, **created) < rate.window_ms;
    let new = number(created.iter().filter(is_new).count());
    if new > rate.nodes {
        found.push(format!(
            "policy {name} allows {} new nodes, and {new} are",
            rate.nodes
        ));
    }
}
