//! NodePools: usage, limits, cost and budgets.

use mortise_apis::values::money::MicroUsd;
use mortise_planning::disruption::budget_states;
use mortise_state::snapshot::{PoolUsage, Snapshot};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{FloatGauge, MOST_POOLS, RESOURCES};
use crate::metrics::numbers::unit;
use crate::metrics::{SeriesLimit, labels};

/// Registers the gauges. Returns the number of NodePools without series.
pub(super) fn register(live: &mut Registry, snapshot: &Snapshot, most: usize) -> usize {
    let usage = PoolUsage::all(snapshot);
    let used = Family::<labels::PoolResource, FloatGauge>::default();
    let limits = Family::<labels::PoolResource, FloatGauge>::default();
    let costs = Family::<labels::Pool, FloatGauge>::default();
    for (name, pool) in snapshot.pools.iter().take(most) {
        let labels = |resource: &str| labels::PoolResource {
            resource_type: resource.to_owned(),
            nodepool: name.to_string(),
        };
        if let Some(usage) = usage.get(name) {
            for resource in RESOURCES {
                let amount = if resource == "nodes" {
                    usage.nodes
                } else {
                    usage.capacity.get(resource)
                };
                if amount != 0 {
                    used.get_or_create(&labels(resource))
                        .set(unit(resource, amount));
                }
            }
        }
        let limit = pool.limits();
        for (resource, amount) in limit
            .resources
            .iter()
            .filter(|(resource, _)| RESOURCES.contains(&resource.as_str()))
        {
            limits
                .get_or_create(&labels(resource))
                .set(unit(resource, *amount));
        }
        if let Some(nodes) = limit.nodes {
            limits
                .get_or_create(&labels("nodes"))
                .set(unit("nodes", nodes));
        }
        // Added up as money: a sum of no floats at all would be -0.
        let cost = snapshot.nodes_of_pool(name).filter_map(|node| node.price);
        let cost = cost.fold(0_i64, |sum, price| sum.saturating_add(price.0));
        costs
            .get_or_create(&labels::Pool {
                nodepool: name.to_string(),
            })
            .set(MicroUsd(cost).dollars());
    }
    live.register(
        "karpenter_nodepools_usage",
        "Capacity of the nodes of a NodePool",
        used,
    );
    live.register("karpenter_nodepools_limit", "Limits of a pool", limits);
    live.register(
        "karpenter_nodepools_cost_total",
        "Price per hour of the nodes of a NodePool, without nodes of unknown price",
        costs,
    );
    snapshot.pools.len().saturating_sub(most)
}

/// Value of a budget without limit, as in Karpenter.
const NO_LIMIT: i64 = 2_147_483_647;
/// Maximum series of nodes that consume budgets: three for each NodePool with such a node.
const MOST_CONSUMING: usize = 30;

/// Disruptions that budgets allow, and nodes that consume them.
pub(super) fn budgets(
    live: &mut Registry,
    snapshot: &Snapshot,
    now: jiff::Timestamp,
    limit: &SeriesLimit,
) {
    let allowed = Family::<labels::PoolReason, Gauge>::default();
    let consumed = Family::<labels::PoolReason, Gauge>::default();
    let shown = snapshot.pools.keys();
    let shown: Vec<_> = shown.take(limit.scaled(MOST_POOLS)).collect();
    let mut states = budget_states(snapshot, now);
    states.retain(|state| shown.contains(&&state.pool));
    let mut shown_consuming = 0;
    for state in states {
        let labels = labels::PoolReason {
            nodepool: state.pool.to_string(),
            reason: state.reason,
        };
        let most = state.allowed.unwrap_or(NO_LIMIT);
        allowed.get_or_create(&labels).set(most);
        // Zero carries no information: a series exists once a node consumes.
        if state.consumed > 0 && shown_consuming < limit.scaled(MOST_CONSUMING) {
            shown_consuming += 1;
            consumed.get_or_create(&labels).set(state.consumed);
        }
    }
    live.register(
        "karpenter_nodepools_allowed_disruptions",
        "Nodes of a NodePool that its budgets allow to be disrupted at once",
        allowed,
    );
    live.register(
        "karpenter_nodepools_nodes_consuming_budgets",
        "Nodes of a NodePool that are terminating or not ready",
        consumed,
    );
}
