//! Reasons for drift that need no cloud. Pure functions of NodeClaim, NodePool and catalog.

use jiff::Timestamp;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Requirements, requirements_of};
use mortise_apis::values::since;
use mortise_state::snapshot::Snapshot;

/// The template of the NodePool changed.
pub const NODE_POOL: &str = "NodePoolDrifted";
/// The requirements of the NodePool no longer allow the node.
pub const REQUIREMENTS: &str = "RequirementsDrifted";
/// The instance type, or the offering that was launched, is no longer in the catalog.
pub const INSTANCE_TYPE: &str = "InstanceTypeNotFound";

/// New catalogs may be incomplete; a missing type counts only for NodeClaims older than this.
const INSTANCE_TYPE_AGE_MS: i64 = 60 * 60_000;

/// Why the NodeClaim differs from its NodePool, as far as no cloud is needed.
#[must_use]
pub fn reason(
    snapshot: &Snapshot,
    claim: &NodeClaim,
    pool: &NodePool,
    now: Timestamp,
) -> Option<&'static str> {
    if hash_differs(claim, pool) {
        return Some(NODE_POOL);
    }
    let wanted = requirements_of(&pool.spec.template.spec.requirements);
    let has = Requirements::from_labels(
        claim
            .metadata
            .labels
            .iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value.as_str())),
    );
    if !has.is_compatible(&wanted, &WellKnown::none()) {
        return Some(REQUIREMENTS);
    }
    instance_type_is_gone(snapshot, claim, now).then_some(INSTANCE_TYPE)
}

/// Hashes of different algorithm versions are not comparable.
fn hash_differs(claim: &NodeClaim, pool: &NodePool) -> bool {
    let of_pool = |key: &str| {
        pool.metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(key))
            .map(String::as_str)
    };
    let both = |key: &str| claim.annotation(key).zip(of_pool(key));
    both(labels::NODEPOOL_HASH_VERSION).is_some_and(|(claim, pool)| claim == pool)
        && both(labels::NODEPOOL_HASH).is_some_and(|(claim, pool)| claim != pool)
}

fn instance_type_is_gone(snapshot: &Snapshot, claim: &NodeClaim, now: Timestamp) -> bool {
    let old = claim
        .metadata
        .creation_timestamp
        .as_ref()
        .is_some_and(|created| since(now, created.0) >= INSTANCE_TYPE_AGE_MS);
    let label = |key: &str| claim.label(key);
    let (true, Some(catalog), Some(name)) = (
        old,
        snapshot.catalogs.get(&claim.node_class_key()),
        label(labels::INSTANCE_TYPE),
    ) else {
        return false;
    };
    let Some(found) = catalog.get(name) else {
        return true;
    };
    let (zone, launched_as) = (label(labels::TOPOLOGY_ZONE), label(labels::CAPACITY_TYPE));
    // An instance of an expired reservation continues as an on-demand one.
    let same_kind = |kind: &str| {
        launched_as.is_none_or(|launched_as| {
            launched_as == kind
                || (launched_as == labels::CAPACITY_TYPE_RESERVED
                    && kind == labels::CAPACITY_TYPE_ON_DEMAND)
        })
    };
    !found.offerings.iter().any(|offering| {
        zone.is_none_or(|zone| zone == &*offering.zone)
            && same_kind(offering.capacity_type.as_str())
    })
}
