//! Limits and fixed sizes against what is there.

use std::collections::BTreeMap;

use mortise_apis::resources::{NODES, quantity};
use mortise_state::snapshot::PoolUsage;

use super::super::text::count;
use super::{AdmissionContext, AdmissionResult, Check, PoolRequest};

/// Limits below what the pool has, and a fixed size that takes nodes away.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    request: &PoolRequest<'_>,
    answer: &mut AdmissionResult,
) {
    let pool = request.pool;
    let replicas = pool.spec.replicas;
    let unlimited = pool.spec.limits.as_ref().is_none_or(BTreeMap::is_empty);
    let is_new = !context.snapshot.pools.contains_key(&pool.name());
    if is_new || (unlimited && replicas.is_none()) {
        return;
    }
    let usage = PoolUsage::all(context.snapshot)
        .remove(&pool.name())
        .unwrap_or_default();
    let limits = pool.limits();
    let nodes = limits.nodes.map(|limit| (NODES, limit, usage.nodes));
    let others = limits
        .resources
        .iter()
        .map(|(name, limit)| (name.as_str(), *limit, usage.capacity.get(name)));
    for (name, limit, used) in nodes.into_iter().chain(others) {
        if limit >= used {
            continue;
        }
        let amount = |amount: i64| quantity(name, amount).to_string();
        answer.warn(Check::Limits, format!("spec.limits.{name}"), format!(
            "limits.{name} {} is below the {} in use: no nodes are launched until others terminate; none is removed",
            amount(limit),
            amount(used)
        ), "");
    }
    if let Some(replicas) = replicas.filter(|replicas| *replicas < usage.nodes) {
        let surplus = usize::try_from(usage.nodes - replicas).unwrap_or(usize::MAX);
        answer.warn(
            Check::Limits,
            "spec.replicas",
            format!(
                "replicas {replicas} is below the existing {}: {} will be drained",
                count(usize::try_from(usage.nodes).unwrap_or(usize::MAX), "node"),
                count(surplus, "node")
            ),
            "",
        );
    }
}
