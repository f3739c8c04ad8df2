//! When nodes are compared with their claims, and what was found last.

use std::collections::BTreeMap;

use jiff::Timestamp;

use mortise_apis::k8s::Node;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, ObjectRef};
use mortise_apis::values::after;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::record::Verdict;
use mortise_planning::consistency;
use mortise_planning::reason::Reason;

/// How often a node is compared with its claim.
const PERIOD_MS: i64 = 10 * 60_000;

/// Where nodes differ from what their claims expected, as last found.
#[derive(Debug, Default)]
pub(super) struct Consistency {
    found: BTreeMap<ClaimName, (Timestamp, Vec<String>)>,
}

impl Consistency {
    /// Compares a node with its claim if that is due. Returns what differs, as last found; `None` before the first
    /// comparison. The time is when to compare again.
    pub(super) fn evaluate(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        node: Option<&Node>,
        step: &mut Step,
    ) -> (Option<&[String]>, Option<Timestamp>) {
        let (name, now) = (claim.name(), input.now);
        let is_due = self.found.get(&name).is_none_or(|(next, _)| *next <= now);
        let node = node.filter(|_| is_due && claim.is_true("Initialized"));
        if let Some(node) = node {
            let faults = consistency::faults(claim, claim.status.capacity.as_ref(), node);
            for text in &faults {
                let target = ObjectRef::Claim(name.clone());
                let (by, verdict) = (DeciderId::Conditions, Verdict::Observed);
                let problem = text.clone();
                step.announce(
                    input,
                    by,
                    [target],
                    verdict,
                    vec![Reason::Inconsistent { problem }],
                );
            }
            self.found
                .insert(name.clone(), (after(now, PERIOD_MS), faults));
        }
        match self.found.get(&name) {
            Some((next, faults)) => (Some(faults), Some(*next)),
            None => (None, None),
        }
    }

    /// Forgets a claim.
    pub(super) fn forget(&mut self, claim: &ClaimName) {
        self.found.remove(claim);
    }
}
