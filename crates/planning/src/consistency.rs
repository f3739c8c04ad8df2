//! Whether a node has the capacity that its NodeClaim states.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use mortise_apis::k8s::Node;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::resources::resources_of;

/// Part of the stated capacity that a node must have. # Units: percent.
const ENOUGH: i128 = 90;

/// Requested resources of which the node has markedly less than its NodeClaim states, with Karpenter's text. Sorted by
/// resource.
///
/// # Source
/// karpenter-core 4.6 (consistency).
#[must_use]
pub fn faults(
    claim: &NodeClaim,
    claimed: Option<&BTreeMap<String, Quantity>>,
    node: &Node,
) -> Vec<String> {
    let asked = claim.spec.requests().map(resources_of).unwrap_or_default();
    let claimed = claimed.map(resources_of).unwrap_or_default();
    let there = resources_of(&node.status.capacity);
    let mut faults: Vec<String> = asked
        .iter()
        .filter(|(_, amount)| *amount != 0)
        .filter_map(|(name, _)| {
            let (wanted, found) = (claimed.get(name), there.get(name));
            let percent = i128::from(found).saturating_mul(100) / i128::from(wanted.max(1));
            (wanted > 0 && percent < ENOUGH).then(|| {
                let text = |amount| mortise_apis::resources::quantity(name, amount);
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
