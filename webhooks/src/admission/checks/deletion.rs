//! What goes with an object.

use std::sync::Arc;

use mortise_apis::schema::groups::NodeClassRef;
use mortise_state::snapshot::StateNode;
use serde_json::Value;

use super::super::text::{count, first_of};
use super::unevictable_pods::UnevictablePods;
use super::{AdmissionContext, AdmissionRequest, AdmissionResult, Check};

/// Annotation of ours: `true` refuses the deletion of a pool or class while it has nodes.
const DELETION_PROTECTION: &str = "/metadata/annotations/mortise.sh~1deletion-protection";
/// The same as a field.
const DELETION_PROTECTION_FIELD: &str = "metadata.annotations[\"mortise.sh/deletion-protection\"]";

/// Says what a deletion takes along.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    answer: &mut AdmissionResult,
) {
    let at = |pointer: &str| request.old_object.pointer(pointer);
    if at("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return;
    }
    let in_use = match request.kind.kind.as_str() {
        "NodePool" => warn_of_pool(context, request, answer),
        "NodeClaim" => {
            warn_of_claim(context, request, answer);
            None
        }
        _ => warn_of_class(context, request, answer),
    };
    let Some(what) = in_use else { return };
    if at(DELETION_PROTECTION).and_then(Value::as_str) == Some("true") {
        answer.warnings.clear();
        answer.findings.clear();
        answer.deny(
            Check::Deletion,
            DELETION_PROTECTION_FIELD,
            format!(
                "{DELETION_PROTECTION_FIELD}: \"true\" prevents the deletion while nodes exist ({what})"
            ),
            "remove the annotation first",
        );
    }
}

/// Returns what is drained; `None` if the pool has no nodes.
fn warn_of_pool(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    answer: &mut AdmissionResult,
) -> Option<String> {
    let (snapshot, name) = (context.snapshot, request.name.as_str());
    let nodes: Vec<&Arc<StateNode>> = snapshot.nodes_of_pool(name).collect();
    if nodes.is_empty() {
        return None;
    }
    let pods: usize = nodes.iter().map(|node| node.reschedulable().count()).sum();
    let drained = format!(
        "deleting NodePool \"{name}\" drains {} with {}",
        count(nodes.len(), "node"),
        count(pods, "pod")
    );
    answer.warn(Check::Deletion, "", drained.as_str(), "");
    let forced = request
        .old_object
        .pointer("/spec/template/spec/terminationGracePeriod")
        .is_some_and(Value::is_string);
    if !forced {
        let unevictable = UnevictablePods::from_nodes(snapshot, nodes.iter().copied());
        unevictable.warn("the drain", "", answer);
    }
    Some(drained)
}

fn warn_of_claim(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    answer: &mut AdmissionResult,
) {
    let name = request.name.as_str();
    let Some(node) = context.snapshot.node_of_claim(name) else {
        return;
    };
    let pods = node.reschedulable().count();
    if pods > 0 {
        answer.warn(
            Check::Deletion,
            "",
            format!(
                "deleting NodeClaim \"{name}\" drains node {} with {}",
                node.name(),
                count(pods, "pod")
            ),
            "",
        );
    }
}

/// Returns what uses the node class; `None` if no NodeClaim does.
fn warn_of_class(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    answer: &mut AdmissionResult,
) -> Option<String> {
    let (kind, name) = (request.kind.kind.as_str(), request.name.as_str());
    let uses = |reference: &NodeClassRef| {
        reference.kind == kind && reference.group == request.kind.group && reference.name == name
    };
    let claims = context
        .snapshot
        .claims
        .values()
        .filter(|claim| uses(&claim.spec.node_class_ref))
        .count();
    let pools: Vec<String> = context
        .snapshot
        .pools
        .values()
        .filter(|pool| uses(&pool.spec.template.spec.node_class_ref))
        .map(|pool| format!("\"{}\"", pool.name()))
        .collect();
    if !pools.is_empty() {
        answer.warn(
            Check::Deletion,
            "",
            format!(
                "deleting {kind} \"{name}\" stops launches of NodePool {}",
                first_of(&pools, 3)
            ),
            "",
        );
    }
    if claims == 0 {
        return None;
    }
    let used = format!(
        "{kind} \"{name}\" is used by {} and is deleted when they are",
        count(claims, "NodeClaim")
    );
    answer.warn(Check::Deletion, "", used.as_str(), "");
    Some(used)
}
