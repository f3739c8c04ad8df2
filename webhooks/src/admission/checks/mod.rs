//! What only the cluster and the catalogue can tell.

mod budgets;
mod catalogue;
mod class;
mod deletion;
mod overlap;
mod overlays_and_buffers;
mod unevictable_pods;
mod usage;

pub(super) use deletion::deletion;
pub(super) use overlays_and_buffers::{buffer, overlay};
pub(crate) use unevictable_pods::never_allows;

use mortise_apis::karpenter::nodepool::NodePool;

use super::AdmissionContext;
use super::finding::Check;
use super::review::AdmissionResult;

/// Advice on a pool. `before` is the pool before an update.
pub(super) fn pool(
    facts: &AdmissionContext<'_>,
    pool: &NodePool,
    before: Option<&NodePool>,
    answer: &mut AdmissionResult,
) {
    class::reference(facts, pool, answer);
    catalogue::pool(facts, pool, answer);
    budgets::pool(facts, pool, before, answer);
    usage::pool(facts, pool, answer);
    overlap::pool(facts, pool, before, answer);
    unevictable_pods::pool(facts, pool, answer);
}
