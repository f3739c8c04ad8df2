//! Overlays and buffers against what is there.

use mortise_apis::karpenter::nodeoverlay::NodeOverlay;
use mortise_apis::labels;
use mortise_state::overlays::rivals;
use serde_json::Value;

use super::super::review::AdmissionRequest;
use super::super::text::{count, did_you_mean, first_of};
use super::catalog::unknown_values;
use super::{AdmissionContext, AdmissionResult, Check};

/// An overlay that matches no instance type of any class.
pub(in crate::admission) fn check_overlay(
    context: &AdmissionContext<'_>,
    object: &Value,
    answer: &mut AdmissionResult,
) {
    let Ok(overlay) = serde_json::from_value::<NodeOverlay>(object.clone()) else {
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
        for text in unknown_values(catalog, &context.snapshot.well_known, requirement) {
            answer.warn(Check::Catalog, place.as_str(), text);
        }
    }
    answer.warn(
        Check::Overlay,
        "spec.requirements",
        "the overlay matches no instance type, so it changes nothing",
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
                "NodeOverlay \"{}\" of equal weight sets {what} too, and {loser} one is rejected; change a weight",
                rival.name
            ),
        );
    }
}

/// A buffer that follows pods which are not there.
pub(in crate::admission) fn check_buffer(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    answer: &mut AdmissionResult,
) {
    let text = |pointer: &str| request.object.pointer(pointer).and_then(Value::as_str);
    let namespace = Some(request.namespace.as_str())
        .filter(|namespace| !namespace.is_empty())
        .or_else(|| text("/metadata/namespace"));
    let (Some(namespace), Some(kind), Some(name)) = (
        namespace,
        text("/spec/scalableRef/kind"),
        text("/spec/scalableRef/name"),
    ) else {
        return;
    };
    if !context.snapshot.synced {
        return;
    }
    // Workloads are known by their pods; one with zero replicas has none, so this is no more than a hint.
    let owners: std::collections::BTreeSet<&str> = context
        .snapshot
        .pods
        .values()
        .filter(|pod| *pod.key.namespace == *namespace)
        .filter_map(|pod| pod.owner.as_ref())
        .filter(|owner| &*owner.kind == owner_kind(kind))
        .map(|owner| workload_name(kind, &owner.name))
        .collect();
    if !owners.contains(name) {
        let hint = did_you_mean(name, owners.iter());
        if !hint.is_empty() {
            answer.warn(
                Check::Buffer,
                "spec.scalableRef.name",
                format!("scalableRef: no pod of a {kind} \"{name}\" runs in {namespace}{hint}"),
            );
        }
    }
}

/// Pods of a Deployment belong to its ReplicaSets.
fn owner_kind(kind: &str) -> &str {
    if kind == "Deployment" {
        "ReplicaSet"
    } else {
        kind
    }
}

fn workload_name<'a>(kind: &str, owner: &'a str) -> &'a str {
    match owner.rsplit_once('-') {
        Some((deployment, _)) if kind == "Deployment" => deployment,
        _ => owner,
    }
}
