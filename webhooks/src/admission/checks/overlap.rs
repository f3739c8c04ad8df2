//! Pools that would serve the same pods with the same right.

use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels;

use super::super::text::first_of;
use super::{AdmissionContext, AdmissionResult, Check, PoolRequest};

/// Two pools of equal weight, with equal taints, that can launch the same instance types: which one is used is decided by
/// their names.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    request: &PoolRequest<'_>,
    answer: &mut AdmissionResult,
) {
    let (pool, before) = (request.pool, request.before);
    let unchanged = before.is_some_and(|old| {
        old.spec.weight == pool.spec.weight && old.requirements() == pool.requirements()
    });
    if unchanged || pool.is_static() {
        return;
    }
    let without_name = |pool: &NodePool| {
        let mut all = pool.requirements();
        all.remove(labels::NODEPOOL);
        all
    };
    let weight = pool.spec.weight.unwrap_or(0);
    let requirements = without_name(pool);
    let taints = |pool: &NodePool| {
        let mut all: Vec<(String, String, String)> = pool
            .spec
            .template
            .spec
            .taints()
            .iter()
            .map(|taint| {
                let value = taint.value.clone().unwrap_or_default();
                (taint.key.clone(), value, taint.effect.clone())
            })
            .collect();
        all.sort();
        all
    };
    let own = taints(pool);
    let rivals: Vec<_> = context
        .snapshot
        .pools
        .values()
        .filter(|other| other.metadata.name != pool.metadata.name)
        .filter(|other| other.metadata.deletion_timestamp.is_none() && !other.is_static())
        .filter(|other| other.spec.weight.unwrap_or(0) == weight && taints(other) == own)
        .filter(|other| {
            let theirs = without_name(other);
            let (here, there) = (
                context.snapshot.catalogs.get(&pool.node_class_key()),
                context.snapshot.catalogs.get(&other.node_class_key()),
            );
            theirs.does_intersect(&requirements)
                && match (here, there) {
                    (Some(here), Some(there)) if here.version() == there.version() => {
                        here.share_a_type(&requirements, &theirs)
                    }
                    _ => true,
                }
        })
        .map(|other| format!("\"{}\"", other.name()))
        .collect();
    if !rivals.is_empty() {
        answer.warn(
            Check::Overlap,
            "spec.weight",
            format!(
                "overlaps NodePool {} at equal weight {weight}: the last by name is used",
                first_of(&rivals, 2)
            ),
            "give them different weights",
        );
    }
}
