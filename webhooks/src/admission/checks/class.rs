//! The node class that a pool refers to. GitOps may apply in any order, so nothing here refuses.

use mortise_apis::karpenter::nodepool::NodePool;
use serde_json::Value;

use super::super::text::did_you_mean;
use super::{AdmissionContext, AdmissionResult, Check};

/// The reference of a pool.
const REFERENCE: &str = "spec.template.spec.nodeClassRef";

/// A class that is not served, missing, going, or not ready.
pub(super) fn check_reference(
    context: &AdmissionContext<'_>,
    pool: &NodePool,
    answer: &mut AdmissionResult,
) {
    let snapshot = context.snapshot;
    let reference = &pool.spec.template.spec.node_class_ref;
    if reference.name.is_empty() || !snapshot.synced {
        return;
    }
    let (kind, name) = (&reference.kind, &reference.name);
    let served = context.rules.crds.kinds();
    if !served
        .iter()
        .any(|each| each.group == reference.group && each.kind == *kind)
    {
        let kinds: Vec<&str> = served.iter().map(|kind| kind.kind).collect();
        answer.warn(
            Check::NodeClass,
            REFERENCE,
            format!(
                "nodeClassRef: kind {kind}.{} is not supported; supported: {}",
                reference.group,
                kinds.join(", ")
            ),
        );
        return;
    }
    let key = pool.node_class_key();
    let Some(class) = snapshot.node_classes.get(&key) else {
        let names = snapshot
            .node_classes
            .keys()
            .filter(|known| known.kind == key.kind)
            .map(|known| known.name.to_string());
        let hint = did_you_mean(name, names);
        let missing = if context.rules.offline {
            "is not defined in the files"
        } else {
            "does not exist (yet)"
        };
        answer.warn(
            Check::NodeClass,
            format!("{REFERENCE}.name"),
            format!("nodeClassRef: {kind} \"{name}\" {missing}{hint}"),
        );
        return;
    };
    let at = |pointer: &str| class.object.pointer(pointer);
    if at("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        answer.warn(
            Check::NodeClass,
            REFERENCE,
            format!(
                "nodeClassRef: {kind} \"{name}\" is being deleted; nothing can be launched with it"
            ),
        );
        return;
    }
    let conditions = at("/status/conditions").and_then(Value::as_array);
    let text = |condition: &Value, field: &str| {
        condition
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let is_false = |condition: &&Value| text(condition, "status") == "False";
    let mut bad = conditions.into_iter().flatten().filter(is_false);
    // The root condition only repeats what the others say.
    let why = bad
        .clone()
        .find(|condition| text(condition, "type") != "Ready")
        .or_else(|| bad.next());
    if let Some(condition) = why {
        answer.warn(
            Check::NodeClass,
            REFERENCE,
            format!(
                "nodeClassRef: {kind} \"{name}\" is not ready: {}: {}",
                text(condition, "reason"),
                text(condition, "message")
            ),
        );
    }
}
