//! Whether a node is what its claim was promised.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::apis::k8s::Node;
use crate::apis::nodeclaim::NodeClaim;
use crate::deciders::Step;
use crate::effect::Event;
use crate::names::{ClaimName, ObjectRef};
use crate::object_ext::resources_of;
use crate::values::after;

/// How often a node is compared with its claim.
const PERIOD_MS: i64 = 10 * 60_000;

/// A node must have so much of what was promised. # Units: percent.
const ENOUGH: i128 = 90;

/// Requested resources of which the node has markedly less than its claim says, in upstream's words. Sorted by resource.
///
/// # Source
/// karpenter-core 4.6 (consistency).
pub(super) fn faults(
    claim: &NodeClaim,
    promised: Option<&BTreeMap<String, Quantity>>,
    node: &Node,
) -> Vec<String> {
    let asked = claim.spec.requests().map(resources_of).unwrap_or_default();
    let promised = promised.map(resources_of).unwrap_or_default();
    let there = resources_of(&node.status.capacity);
    let mut faults: Vec<String> = asked
        .iter()
        .filter(|(_, amount)| *amount != 0)
        .filter_map(|(name, _)| {
            let (wanted, found) = (promised.get(name), there.get(name));
            let percent = i128::from(found).saturating_mul(100) / i128::from(wanted.max(1));
            (wanted > 0 && percent < ENOUGH).then(|| {
                let text = |amount| crate::resources::quantity(name, amount);
                format!(
                    "expected {} of resource {name}, but found {} ({percent}% of expected)",
                    text(wanted),
                    text(found)
                )
            })
        })
        .collect();
    faults.sort_unstable();
    faults
}

/// Where nodes differ from what their claims were promised, as last found.
#[derive(Debug, Default)]
pub(super) struct Consistency {
    found: BTreeMap<ClaimName, (Timestamp, Vec<String>)>,
}

impl Consistency {
    /// Compares a node with its claim if that is due. Returns what differs, as last found; `None` before the first
    /// comparison. The time is when to compare again.
    pub(super) fn look(
        &mut self,
        now: Timestamp,
        claim: &NodeClaim,
        node: Option<&Node>,
        step: &mut Step,
    ) -> (Option<&[String]>, Option<Timestamp>) {
        let name = claim.name();
        let is_due = self.found.get(&name).is_none_or(|(next, _)| *next <= now);
        let node = node.filter(|_| is_due && claim.is_true("Initialized"));
        if let Some(node) = node {
            let faults = faults(claim, claim.status.capacity.as_ref(), node);
            for text in &faults {
                let target = ObjectRef::Claim(name.clone());
                step.event(Event::warning(
                    target,
                    "FailedConsistencyCheck",
                    text.clone(),
                ));
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
