//! What goes with an object.

use std::sync::Arc;

use mortise_apis::schema::groups::NodeClassRef;
use mortise_state::snapshot::StateNode;
use serde_json::Value;

use super::super::review::AdmissionRequest;
use super::super::text::{count, first_of};
use super::unevictable_pods::UnevictablePods;
use super::{AdmissionContext, AdmissionResult, Check};

/// Annotation of ours: `true` refuses the deletion of a pool or class while it has nodes.
const DELETION_PROTECTION: &str = "/metadata/annotations/mortise.sh~1deletion-protection";

/// Says what a deletion takes along.
pub(in crate::admission) fn check_deletion(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    answer: &mut AdmissionResult,
) {
    let snapshot = context.snapshot;
    let (kind, name) = (request.kind.kind.as_str(), request.name.as_str());
    let deleting = request
        .old_object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null());
    if deleting {
        return;
    }
    let what = match kind {
        "NodePool" => {
            let nodes: Vec<&Arc<StateNode>> = snapshot.nodes_of_pool(name).collect();
            let pods: usize = nodes.iter().map(|node| node.reschedulable().count()).sum();
            if nodes.is_empty() {
                return;
            }
            let forced = request
                .old_object
                .pointer("/spec/template/spec/terminationGracePeriod")
                .is_some_and(Value::is_string);
            let drained = format!(
                "deleting NodePool \"{name}\" drains {} with {}",
                count(nodes.len(), "node"),
                count(pods, "pod")
            );
            answer.warn(Check::Deletion, "", drained.as_str());
            if !forced {
                let unevictable = UnevictablePods::from_nodes(snapshot, nodes.iter().copied());
                for text in unevictable.warnings("the drain") {
                    answer.warn(Check::BlockedDrain, "", text);
                }
            }
            drained
        }
        "NodeClaim" => {
            let Some(node) = snapshot.node_of_claim(name) else {
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
                );
            }
            return;
        }
        "NodeOverlay" | "CapacityBuffer" => return,
        _ => {
            let uses = |reference: &NodeClassRef| {
                reference.kind == kind
                    && reference.group == request.kind.group
                    && reference.name == name
            };
            let claims = snapshot
                .claims
                .values()
                .filter(|claim| uses(&claim.spec.node_class_ref))
                .count();
            let pools: Vec<String> = snapshot
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
                );
            }
            if claims == 0 {
                return;
            }
            let used = format!(
                "{kind} \"{name}\" is used by {} and is deleted when they are",
                count(claims, "NodeClaim")
            );
            answer.warn(Check::Deletion, "", used.as_str());
            used
        }
    };
    if request
        .old_object
        .pointer(DELETION_PROTECTION)
        .and_then(Value::as_str)
        == Some("true")
    {
        answer.warnings.clear();
        answer.findings.clear();
        answer.deny(Check::Deletion, "metadata.annotations[\"mortise.sh/deletion-protection\"]", format!(
            "metadata.annotations[\"mortise.sh/deletion-protection\"]: \"true\" prevents the deletion while nodes exist ({what}); remove the annotation first"
        ));
    }
}
