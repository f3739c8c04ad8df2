//! NodePoolPolicies hold, counted by the instances that run and by the NodeClaims that exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::node_pool_policy::{LimitsInForce, NodePoolPolicy};
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

/// The instances of a policy's NodePools cost no more than its limit, are no more than it allows, and no more NodeClaims are
/// created within its window.
pub(super) fn check_policies(snapshot: &Snapshot, cluster: &Cluster, found: &mut Vec<String>) {
    let in_force = snapshot.policies_in_force();
    if in_force.is_empty() {
        return;
    }
    let mut spent: BTreeMap<Arc<str>, i64> = BTreeMap::new();
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
        *spent.entry(policy.name()).or_default() += price.0;
    }
    for (name, policy) in snapshot.policies.iter() {
        let spent = spent.get(name).copied().unwrap_or_default();
        let claims = snapshot.claims.values().filter(|claim| {
            let by = claim.pool().and_then(|pool| in_force.get(&pool).copied());
            by.is_some_and(|by| by.name() == *name)
        });
        let created =
            claims.filter_map(|claim| Some(claim.metadata.creation_timestamp.as_ref()?.0));
        let created: Vec<Timestamp> = created.collect();
        let limits = limits_of_newest_launch(policy, &created);
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let prices = limits.iter().map(|each| each.hourly_price.as_ref());
        let price = largest(prices.map(|price| price.map(|limit| limit.most)));
        if let Some(limit) = price.filter(|limit| spent > limit.0) {
            found.push(format!(
                "policy {name} allows {limit}, and instances cost {spent} millionths"
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
            continue;
        };
        let is_new = |created: &&Timestamp| since(cluster.now(), **created) < rate.window_ms;
        let new = number(created.iter().filter(is_new).count());
        if new > rate.nodes {
            found.push(format!(
                "policy {name} allows {} new nodes, and {new} are",
                rate.nodes
            ));
        }
    }
}
