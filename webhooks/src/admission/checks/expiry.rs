//! Nodes that expire, with pods that never let them go.

use super::unevictable_pods::UnevictablePods;
use super::{AdmissionContext, AdmissionResult, PoolRequest};

/// A pool whose nodes expire or are replaced, with pods on them that never let them go.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    request: &PoolRequest<'_>,
    answer: &mut AdmissionResult,
) {
    let pool = request.pool;
    let template = &pool.spec.template.spec;
    if template.termination_grace_period.is_some() {
        return;
    }
    let expires = template
        .expire_after
        .as_ref()
        .filter(|after| !after.is_never());
    let Some(after) = expires else { return };
    let name = pool.name();
    let found =
        UnevictablePods::from_nodes(context.snapshot, context.snapshot.nodes_of_pool(&name));
    let drain = format!("expiry ({})", after.as_str());
    found.warn(&drain, "spec.template.spec.expireAfter", answer);
}
