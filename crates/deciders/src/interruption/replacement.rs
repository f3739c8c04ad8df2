//! Whether the pods of a node have room on nodes that are ready, so that it can be drained without leaving them pending.

use std::collections::BTreeSet;

use jiff::Timestamp;
use mortise_apis::names::Uid;
use mortise_apis::values::{after, since};
use mortise_engine::decider::StepInput;
use mortise_planning::scheduling::{SolveOptions, solve};
use mortise_state::snapshot::StateNode;

/// A solve at most this often: it is not free while many nodes are replaced.
const EVERY_MS: i64 = 1_000;

/// Pods of leaving nodes without room on a node that is ready, as of the last look.
#[derive(Debug, Default)]
pub(super) struct Replacements {
    looked: Option<Timestamp>,
    homeless: BTreeSet<Uid>,
}

impl Replacements {
    /// Looks again unless the last look was a moment ago. Returns when to come back in that case, or when time ran out.
    pub(super) fn look(
        &mut self,
        input: &StepInput<'_>,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), Timestamp> {
        if let Some(at) = self.looked.filter(|at| since(input.now, *at) < EVERY_MS) {
            return Err(after(at, EVERY_MS));
        }
        let view = input.snapshot.with_expected_claims();
        let options = SolveOptions {
            closed: input.snapshot.fenced_nodes(),
            pending: true,
            buffers: false,
            existing_only: true,
            seed: input.seed,
            ..input.settings.solve_options()
        };
        let (plan, report) = solve(input.now, &view, &options, stop);
        self.looked = Some(input.now);
        if report.stopped {
            return Err(after(input.now, EVERY_MS));
        }
        let unplaced = report.unplaced.iter().flat_map(|each| &each.pods);
        let coming = plan.placements.iter().filter(|each| each.uninitialized);
        self.homeless = unplaced
            .map(|(_, uid)| uid.clone())
            .chain(coming.map(|each| each.pod.uid.clone()))
            .collect();
        Ok(())
    }

    /// Whether every pod of a leaving node that a drain would evict now has room elsewhere, as of the last look. A node without such
    /// pods needs no look.
    pub(super) fn covers(&self, node: &StateNode) -> bool {
        node.reschedulable()
            .all(|pod| !self.homeless.contains(&pod.uid))
    }
}
