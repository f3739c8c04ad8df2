//! Which scheduler new pods get: that of their namespace's label. Installed only where the administrator asks for it.
//!
//! Where kube-scheduler cannot be configured (managed control planes), a second one that asks the extender runs next to
//! it, and pods have to name it. This writes the name into the pods of namespaces that have the label
//! `mortise.sh/scheduler-name`. A pod that names another scheduler than the default one keeps it. Whatever goes wrong,
//! the pod passes as it is.

use mortise_apis::labels;
use mortise_state::snapshot::Snapshot;
use serde_json::{Value, json};

use super::review::{AdmissionRequest, AdmissionResult};

const DEFAULT: &str = "default-scheduler";

/// Answers a request about a pod that is made.
#[must_use]
pub fn set_scheduler_name(snapshot: &Snapshot, request: &AdmissionRequest) -> AdmissionResult {
    let none = AdmissionResult::default();
    let spec = request.object.get("spec").filter(|spec| spec.is_object());
    let (true, Some(spec)) = (request.operation == "CREATE", spec) else {
        return none;
    };
    let given = spec.get("schedulerName").and_then(Value::as_str);
    let bound = spec.get("nodeName").and_then(Value::as_str);
    if given.is_some_and(|name| !name.is_empty() && name != DEFAULT)
        || bound.is_some_and(|node| !node.is_empty())
    {
        return none;
    }
    let labels = snapshot
        .namespaces
        .get(&*request.namespace)
        .and_then(|namespace| namespace.metadata.labels.as_ref());
    let wanted = labels.and_then(|labels| labels.get(labels::SCHEDULER_NAME));
    match wanted {
        Some(name) if !name.is_empty() && name != DEFAULT => AdmissionResult {
            patch: vec![json!({ "op": "add", "path": "/spec/schedulerName", "value": name })],
            ..none
        },
        _ => none,
    }
}
