//! The node class that a pool refers to. GitOps may apply in any order, so nothing here refuses.

use mortise_apis::schema::conditions::{ConditionStatus, READY};

use super::super::text::did_you_mean;
use super::{AdmissionContext, AdmissionResult, Check, PoolRequest};

/// The reference of a pool.
const REFERENCE: &str = "spec.template.spec.nodeClassRef";

/// A class that is not served, missing, going, or not ready.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    request: &PoolRequest<'_>,
    answer: &mut AdmissionResult,
) {
    let pool = request.pool;
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
                "nodeClassRef: kind {kind}.{} is not supported",
                reference.group
            ),
            format!("supported: {}", kinds.join(", ")),
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
            format!("nodeClassRef: {kind} \"{name}\" {missing}"),
            hint,
        );
        return;
    };
    if class.is_being_deleted() {
        answer.warn(
            Check::NodeClass,
            REFERENCE,
            format!("nodeClassRef: {kind} \"{name}\" is being deleted"),
            "nothing can be launched with it",
        );
        return;
    }
    let mut bad = class
        .conditions
        .iter()
        .filter(|condition| condition.status == ConditionStatus::False);
    // The root condition only repeats what the others say.
    let why = bad
        .clone()
        .find(|condition| condition.type_ != READY)
        .or_else(|| bad.next());
    if let Some(condition) = why {
        answer.warn(
            Check::NodeClass,
            REFERENCE,
            format!(
                "nodeClassRef: {kind} \"{name}\" is not ready: {}: {}",
                condition.reason, condition.message
            ),
            "",
        );
    }
}
