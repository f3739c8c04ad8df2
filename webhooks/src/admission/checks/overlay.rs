//! Overlays against the catalog and against other overlays.

use mortise_apis::karpenter::nodeoverlay::NodeOverlay;
use mortise_apis::labels;
use mortise_state::overlays::rivals;

use super::super::text::{count, first_of};
use super::catalog::unknown_values;
use super::{AdmissionContext, AdmissionRequest, AdmissionResult, Check};

/// An overlay that matches no instance type of any class.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    answer: &mut AdmissionResult,
) {
    let Ok(overlay) = serde_json::from_value::<NodeOverlay>(request.object.clone()) else {
        return; // refused by the definition
    };
    let requirements = overlay.requirements();
    let catalogs = &context.snapshot.catalogs;
    if catalogs.is_empty() {
        return;
    }
    let matches = |catalog: &&std::sync::Arc<mortise_state::catalog::Catalog>| {
        catalog.count_meeting(&requirements) > 0
    };
    if catalogs.values().any(|catalog| matches(&catalog)) {
        warn_of_conflicts(context, &overlay, answer);
        return;
    }
    let Some(catalog) = catalogs.values().next() else {
        return;
    };
    for requirement in requirements.iter() {
        let at = overlay
            .spec
            .requirements
            .iter()
            .position(|each| labels::normalize(&each.key) == requirement.key());
        let place = at.map_or_else(
            || "spec.requirements".to_owned(),
            |at| format!("spec.requirements[{at}]"),
        );
        for unknown in unknown_values(catalog, &context.snapshot.well_known, requirement) {
            answer.warn(
                Check::Catalog,
                place.as_str(),
                unknown.problem,
                unknown.hint,
            );
        }
    }
    answer.warn(
        Check::Overlay,
        "spec.requirements",
        "the overlay matches no instance type, so it changes nothing",
        "",
    );
}

/// Overlays of equal weight that set the same thing: the last by name is used, the other rejected as a whole.
fn warn_of_conflicts(
    context: &AdmissionContext<'_>,
    overlay: &NodeOverlay,
    answer: &mut AdmissionResult,
) {
    let own = overlay.name();
    for rival in rivals(context.snapshot, overlay) {
        let what = match (rival.price, rival.resources.as_slice()) {
            (0, resources) => format!(
                "{} of {}",
                first_of(resources, 1),
                count(rival.capacity, "type")
            ),
            (types, _) => format!("the price of {}", count(types, "type")),
        };
        let loser = if rival.name < own { "that" } else { "this" };
        answer.warn(
            Check::Overlap,
            "spec.weight",
            format!(
                "NodeOverlay \"{}\" of equal weight sets {what} too, and {loser} one is rejected",
                rival.name
            ),
            "change a weight",
        );
    }
}
