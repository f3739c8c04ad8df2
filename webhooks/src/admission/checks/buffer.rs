//! Buffers against the pods that are there.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::text::did_you_mean;
use super::{AdmissionContext, AdmissionRequest, AdmissionResult, Check};

/// A buffer that follows pods which are not there.
pub(super) fn run(
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
    let owners: BTreeSet<&str> = context
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
                format!("scalableRef: no pod of a {kind} \"{name}\" runs in {namespace}"),
                hint,
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
