//! Limits on resources that no node has.

use super::super::text::did_you_mean;
use super::{AdmissionContext, AdmissionResult, Check, PoolRequest};

/// Resource names without a domain that a node can have.
const RESOURCES: [&str; 5] = ["cpu", "memory", "ephemeral-storage", "pods", "nodes"];

/// Names without a domain that are none of a node's resources.
pub(super) fn run(
    _: &AdmissionContext<'_>,
    request: &PoolRequest<'_>,
    answer: &mut AdmissionResult,
) {
    let pool = request.pool;
    for name in pool.spec.limits.iter().flatten().map(|(name, _)| name) {
        if answer.is_full() {
            return;
        }
        let known = RESOURCES.contains(&name.as_str());
        if !known && !name.contains('/') && !name.starts_with("hugepages-") {
            answer.warn(
                Check::Limits,
                format!("spec.limits.{name}"),
                format!("limits.{name}: no node has this resource, so it has no effect"),
                did_you_mean(name, RESOURCES),
            );
        }
    }
}
