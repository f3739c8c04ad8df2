//! What only the cluster and the catalogue can tell.

mod budgets;
mod catalog;
mod class;
mod deletion;
mod overlap;
mod overlays_and_buffers;
mod unevictable_pods;
mod usage;

pub(super) use deletion::check_deletion;
pub(super) use overlays_and_buffers::{check_buffer, check_overlay};
pub use unevictable_pods::why_never_allows;

use mortise_apis::karpenter::nodepool::NodePool;

use super::AdmissionContext;
use super::finding::Check;
use super::review::AdmissionResult;

/// Advice on a pool. `before` is the pool before an update.
pub(super) fn check_pool(
    context: &AdmissionContext<'_>,
    pool: &NodePool,
    before: Option<&NodePool>,
    answer: &mut AdmissionResult,
) {
    class::check_reference(context, pool, answer);
    catalog::check_requirements(context, pool, answer);
    budgets::check_budgets(context, pool, before, answer);
    usage::check_limits_and_replicas(context, pool, answer);
    overlap::check_overlap(context, pool, before, answer);
    unevictable_pods::check_expiry(context, pool, answer);
}
