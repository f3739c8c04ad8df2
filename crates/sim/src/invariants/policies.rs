//! NodePoolPolicies hold, counted by the instances that run and by the NodeClaims that exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::labels;
use mortise_apis::values::since;
use mortise_state::snapshot::Snapshot;

use crate::cluster::Cluster;

/// The instances of a policy's NodePools cost no more than its limit, and no more NodeClaims are created within its window.
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
        if let Some(limit) = policy.hourly_price().filter(|limit| spent > limit.0) {
            found.push(format!(
                "policy {name} allows {limit}, and instances cost {spent} millionths"
            ));
        }
        let Some(rate) = policy.launch_rate() else {
            continue;
        };
        let is_new = |created: &jiff::Timestamp| since(cluster.now(), *created) < rate.window_ms;
        let claims = snapshot.claims.values().filter(|claim| {
            let by = claim.pool().and_then(|pool| in_force.get(&pool).copied());
            by.is_some_and(|by| by.name() == *name)
        });
        let created =
            claims.filter_map(|claim| Some(claim.metadata.creation_timestamp.as_ref()?.0));
        let new = i64::try_from(created.filter(is_new).count()).unwrap_or(i64::MAX);
        if new > rate.nodes {
            found.push(format!(
                "policy {name} allows {} new nodes, and {new} are",
                rate.nodes
            ));
        }
    }
}
