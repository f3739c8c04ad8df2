//! Commands must hold also where kube-scheduler asks no extender, and so places evicted pods otherwise than planned: it spreads them
//! over the nodes that have most free (`LeastAllocated`), and the last of them may fit on none.
//!
//! # Rule
//! - Nodes are removed without a new one only if their pods fit on the others also when each gets the node that has most free.
//! - Nodes are replaced by nodes that have room for all of their pods: wherever kube-scheduler places some, there is room for the
//!   others. A plan that needs room on other nodes for some of them is used only if it saves more by [`WORTH_THE_RISK_PERCENT`] of the
//!   price. One that fails costs another node, which is consolidated again.
//!
//! Where the extender is asked, pods get the nodes that are planned, and nothing of this is done.
//!
//! # Cost
//! One more simulation for each command that is found.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::candidate::Candidate;
use super::command::RelocationPlan;
use super::disruption_view::DisruptionView;
use super::rejection::DisruptionRejection;
use super::removal::removal;
use crate::reason::Reason;
use crate::scheduling::{SolveOptions, solve};
use mortise_apis::names::Uid;
use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::{NodeKey, Pod};

/// What a replacement must save more than one with room for all pods, in percent of the price of the nodes. In 20 days of waves of drift
/// 40 % move fewer pods than 33 % (63.8 next to 68.4 a day) at the same bill; in five, 50 % costs 6 % more.
const WORTH_THE_RISK_PERCENT: i128 = 40;

/// Whether a command holds as it is, or may fail where it is not followed.
pub(super) fn may_fail(moves: &RelocationPlan, view: &DisruptionView<'_>) -> bool {
    view.may_scatter() && !moves.placements.is_empty()
}

/// All nodes, also those that other commands remove: a replacement without them has room for all pods.
pub(super) fn all_nodes(view: &DisruptionView<'_>) -> BTreeSet<NodeKey> {
    let nodes = view.view().nodes.iter();
    nodes.map(|(key, _)| key.clone()).collect()
}

/// The better one of a replacement that needs room on other nodes, and one with room for all pods or why there is none.
pub(super) fn choose(
    planned: RelocationPlan,
    roomy: Result<RelocationPlan, DisruptionRejection>,
) -> Result<RelocationPlan, DisruptionRejection> {
    if matches!(&roomy, Err(rejection) if rejection.stopped) {
        return roomy;
    }
    let micros = |price: Option<MicroUsd>| i128::from(price.unwrap_or_default().0);
    let old = micros(planned.old);
    let otherwise = match &roomy {
        Ok(roomy) => roomy.new.map_or(old, |new| micros(Some(new))),
        Err(_) => old,
    };
    let saves_more = otherwise - micros(planned.new);
    if saves_more * 100 >= old * WORTH_THE_RISK_PERCENT {
        return Ok(planned);
    }
    roomy.map_err(|_| DisruptionRejection::from_reason(Reason::NeedsPlannedPlacement))
}

/// Checks that the pods of nodes that are removed fit on the others, each on the one that has most free.
pub(super) fn check_fit(
    candidates: &[&Candidate],
    room: &[Arc<Pod>],
    view: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> Result<(), DisruptionRejection> {
    // kube-scheduler knows nothing of nodes that accept no moved pods yet.
    let options = SolveOptions {
        scattered: true,
        existing_only: true,
        ..removal(candidates, view.closed(), room, view)
    };
    let (plan, report) = solve(view.now, view.view(), &options, stop);
    if report.stopped {
        return Err(DisruptionRejection::stopped());
    }
    let placed: BTreeSet<&Uid> = plan.placements.iter().map(|each| &each.pod.uid).collect();
    let mut pods = candidates.iter().flat_map(|each| each.pods.iter());
    if pods.all(|pod| placed.contains(&pod.uid)) {
        return Ok(());
    }
    Err(DisruptionRejection::from_reason(
        Reason::NeedsPlannedPlacement,
    ))
}
