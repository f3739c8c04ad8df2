//! What only the cluster and the catalogue can tell.

mod budgets;
mod catalogue;
mod class;
mod deadlocks;
mod deletion;
mod others;
mod overlap;
mod usage;

pub(crate) use deadlocks::never_allows;
pub(super) use deletion::deletion;
pub(super) use others::{buffer, overlay};

use mortise_core::apis::nodepool::NodePool;

use super::Facts;
use super::note::Check;
use super::review::Answer;

/// Advice on a pool. `before` is the pool before an update.
pub(super) fn pool(
    facts: &Facts<'_>,
    pool: &NodePool,
    before: Option<&NodePool>,
    answer: &mut Answer,
) {
    class::reference(facts, pool, answer);
    catalogue::pool(facts, pool, answer);
    budgets::pool(facts, pool, before, answer);
    usage::pool(facts, pool, answer);
    overlap::pool(facts, pool, before, answer);
    deadlocks::pool(facts, pool, answer);
}
