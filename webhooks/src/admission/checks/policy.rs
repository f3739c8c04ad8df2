//! Policies against their NodePools and against other policies.

use std::sync::Arc;

use mortise_apis::labels;
use mortise_apis::names::PoolName;
use mortise_apis::node_pool_policy::NodePoolPolicy;
use mortise_apis::requirements::Requirement;
use mortise_apis::values::Quantity;
use mortise_state::snapshot::{PolicyUse, PriceLimit};

use super::super::text::did_you_mean;
use super::{AdmissionContext, AdmissionRequest, AdmissionResult, Check, commitments};

/// A policy that holds for less than it says, or is exceeded from the start.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    answer: &mut AdmissionResult,
) {
    let Ok(mut policy) = serde_json::from_value::<NodePoolPolicy>(request.object.clone()) else {
        return; // refused by the definition
    };
    if !context.snapshot.synced {
        return;
    }
    let known = context.snapshot.policies.get(&policy.name());
    // A policy that is created is the youngest.
    let created = known.and_then(|known| known.metadata.creation_timestamp.clone());
    let now = || k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(context.snapshot.taken_at);
    policy.metadata.creation_timestamp = Some(created.unwrap_or_else(now));
    let mut after = context.snapshot.clone();
    Arc::make_mut(&mut after.policies).insert(policy.name(), Arc::new(policy.clone()));
    let in_force = after.policies_in_force();
    let is_for_all = policy.is_of_commitments_alone();
    // Files may hold a policy alone.
    let pools = &context.snapshot.pools;
    for (at, name) in policy.spec.node_pools.iter().enumerate() {
        if answer.is_full() {
            return;
        }
        let field = format!("spec.nodePools[{at}]");
        let pool = PoolName::from(name.as_str());
        let older = in_force.get(&pool).filter(|by| by.name() != policy.name());
        if let Some(older) = older.filter(|_| !is_for_all) {
            answer.warn(
                Check::Policy,
                field,
                format!(
                    "older NodePoolPolicy \"{}\" holds for \"{name}\", this one does not",
                    older.name()
                ),
                "a NodePool has one policy",
            );
        } else if !pools.is_empty() && !pools.contains_key(&pool) {
            answer.warn(
                Check::Policy,
                field,
                format!("there is no NodePool \"{name}\""),
                did_you_mean(name, pools.keys().map(|known| known.as_str())),
            );
        }
    }
    if let Some(until) = policy.pause().and_then(|pause| pause.until)
        && until <= context.snapshot.taken_at
    {
        answer.warn(
            Check::Policy,
            "spec.disruption.pause.until",
            format!("{until} has passed, so nothing is paused"),
            "write a later time, or take the pause out",
        );
    }
    commitments::run(context, &policy, answer);
    if policy.on_demand_share().is_some() {
        let pools = pools_with(context, &policy, labels::CAPACITY_TYPE, |own| {
            !own.has(labels::CAPACITY_TYPE_ON_DEMAND)
        });
        unchanged(&pools, "no on-demand capacity: onDemand", answer);
    }
    if policy.zone_balance().is_some() {
        let pools = pools_with(context, &policy, labels::TOPOLOGY_ZONE, |own| {
            !own.is_complement() && own.values().len() == 1
        });
        unchanged(&pools, "one zone alone: zoneBalance", answer);
    }
    let own = policy.spec.node_pools.iter().find_map(|pool| {
        let found = after.policy_of(pool)?;
        (found.name == policy.name()).then_some(found)
    });
    if let Some(now) = own.and_then(|own| own.on_demand)
        && now.missing() > 0
    {
        let [on_demand, all, wanted] =
            [now.on_demand, now.all, now.share.of(now.all)].map(Quantity::from_milli);
        answer.warn(
            Check::Policy,
            "spec.scaling.onDemand",
            format!(
                "{on_demand} of {all} CPUs are on-demand, {wanted} are asked for: new nodes are, until then; others stay"
            ),
            "",
        );
    }
    if let Some(own) = own {
        exceeded(own, answer);
    }
}

/// Limits that are exceeded from the start.
fn exceeded(own: &PolicyUse, answer: &mut AdmissionResult) {
    if let Some(nodes) = own.nodes.as_ref().filter(|nodes| nodes.used > nodes.limit) {
        answer.warn(
            Check::Policy,
            format!("spec.{}.nodes", nodes.source),
            format!(
                "{} is below the {} nodes that are there: none is launched until others are gone; none is removed",
                nodes.limit, nodes.used
            ),
            "",
        );
    }
    if let Some(price) = &own.price {
        let limit = price.limit();
        let field = format!("spec.{limit}");
        if let Some(claim) = &price.unknown {
            answer.warn(
                Check::Policy,
                field,
                format!("the price of NodeClaim {claim} is unknown, so no node is launched"),
                "",
            );
        } else if price.used > limit.most() {
            let (most, used) = (limit.most(), price.used);
            let text = match limit {
                PriceLimit::Hourly(_) => format!(
                    "{most} is below the {used} in use: no nodes are launched until others are gone; none is removed"
                ),
                PriceLimit::Month(_) => format!(
                    "leaves {most} until the month ends, below the {used} in use: none is launched, none removed"
                ),
            };
            answer.warn(Check::Policy, field, text, "");
        }
    }
}

/// The NodePools of a policy whose requirement of this key is so, with their positions.
fn pools_with<'p>(
    context: &AdmissionContext<'_>,
    policy: &'p NodePoolPolicy,
    key: &str,
    is_so: impl Fn(&Requirement) -> bool,
) -> Vec<(usize, &'p str)> {
    let names = policy.spec.node_pools.iter().map(String::as_str);
    let found = names.enumerate().filter(|(_, name)| {
        let pool = context.snapshot.pools.get(*name);
        let requirements = pool.map(|pool| pool.requirements());
        requirements.is_some_and(|all| all.get(key).is_some_and(&is_so))
    });
    found.collect()
}

/// Warns of NodePools that allow only what leaves a part of the policy nothing to do.
fn unchanged(pools: &[(usize, &str)], what: &str, answer: &mut AdmissionResult) {
    for (at, name) in pools {
        answer.warn(
            Check::Policy,
            format!("spec.nodePools[{at}]"),
            format!("NodePool \"{name}\" allows {what} changes none of its nodes"),
            "",
        );
    }
}
