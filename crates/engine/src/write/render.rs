//! Requests of edits: the only place that knows their JSON.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::Condition;
use mortise_apis::karpenter::capacitybuffer::CapacityBufferStatus;
use mortise_apis::labels;
use mortise_apis::names::Uid;
use mortise_apis::node_pool_policy::NodePoolPolicyStatus;
use mortise_cloudprovider::PlannedInterruption;
use mortise_state::ledger::FenceReason;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::capacity_type_labels::CapacityTypeLabels;
use super::edit::ObjectEdit;
use super::finalizers::Finalizers;
use super::instance_metadata::InstanceMetadata;
use super::node_taints::{LoadBalancerExclusion, NodeTaints};
use super::registration::Registration;
use super::status::{InstanceStatus, NodeClaimStatusEdit, NodePoolStatusEdit, StatusEdit};

/// A request with the verb `patch` and a body of type `application/merge-patch+json`.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchBody {
    /// The subresource; `None`: the object itself.
    pub subresource: Option<&'static str>,
    /// The merge patch.
    pub merge: Value,
}

/// A time as Karpenter writes it into annotations: whole seconds, rounded down.
#[must_use]
pub fn annotation_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl ObjectEdit {
    /// The request. With a resource version it fails with a conflict if the object has another one.
    #[must_use]
    pub fn render(&self, at: Option<&str>) -> PatchBody {
        let mut merge = match self {
            Self::SetFinalizers(Finalizers(all)) => metadata("finalizers", all),
            Self::SetLaunchBatch { token, finalizers } => launch_batch(token, finalizers.as_ref()),
            Self::SetLabels(labels) => metadata("labels", labels),
            Self::SetInstanceMetadata(found) => instance_metadata(found),
            Self::SetHashes(all) | Self::SetTagged(all) => metadata("annotations", all),
            Self::SetCapacityType(edit) => metadata("labels", &capacity_type(edit)),
            Self::SetDeletionReason(reason) => metadata(
                "annotations",
                &json!({ labels::DELETION_REASON: reason.to_string() }),
            ),
            Self::SetFence(reason) => metadata(
                "annotations",
                &json!({ labels::FENCE: reason.map(|reason| reason.label()) }),
            ),
            Self::SetInterruption {
                plan,
                fence,
                deadline,
            } => interruption(plan, *fence, *deadline),
            Self::SetDeadline { at, reason } => {
                let mut all = Map::new();
                all.insert(
                    labels::TERMINATION_TIMESTAMP.to_owned(),
                    annotation_time(*at).into(),
                );
                if let Some(reason) = reason {
                    all.insert(
                        labels::DELETION_REASON.to_owned(),
                        reason.to_string().into(),
                    );
                }
                metadata("annotations", &all)
            }
            Self::Register(registration) => registered(registration),
            Self::Initialize => metadata("labels", &json!({ labels::INITIALIZED: "true" })),
            Self::SetTaints(edit) => tainted(edit),
            Self::SetDeletionCost(cost) => {
                // As one annotation says what the other must say, they change together.
                let text = cost.map(|cost| cost.to_string());
                let both = [labels::POD_DELETION_COST, labels::OWN_DELETION_COST];
                let both: BTreeMap<&str, &Option<String>> =
                    both.into_iter().map(|key| (key, &text)).collect();
                metadata("annotations", &both)
            }
            Self::SetReplicaPeaks(peaks) => {
                let annotation = BTreeMap::from([(labels::REPLICA_PEAKS, peaks.to_string())]);
                metadata("annotations", &annotation)
            }
            Self::HandOver(pod) => handed_over(pod),
            Self::SetStatus(edit) => json!({ "status": status(edit) }),
        };
        if let (Some(version), Value::Object(fields)) = (at, &mut merge) {
            let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
            if let Value::Object(metadata) = metadata {
                metadata.insert("resourceVersion".to_owned(), version.into());
            }
        }
        let is_status = matches!(self, Self::SetStatus(_));
        PatchBody {
            subresource: is_status.then_some("status"),
            merge,
        }
    }
}

fn interruption(
    plan: &PlannedInterruption,
    fence: Option<FenceReason>,
    deadline: Option<Timestamp>,
) -> Value {
    let mut all = Map::new();
    all.insert(labels::INTERRUPTION.to_owned(), plan.to_string().into());
    if let Some(fence) = fence {
        all.insert(labels::FENCE.to_owned(), fence.label().into());
    }
    if let Some(deadline) = deadline {
        let deadline = annotation_time(deadline).into();
        all.insert(labels::TERMINATION_TIMESTAMP.to_owned(), deadline);
    }
    metadata("annotations", &all)
}

/// An annotation of the pod template: any change of the template replaces all pods.
fn handed_over(pod: &Uid) -> Value {
    let annotation = BTreeMap::from([(labels::HANDED_OVER, pod.to_string())]);
    let template = metadata("annotations", &annotation);
    let mut merge = Map::new();
    let spec = Map::from_iter([("template".to_owned(), template)]);
    merge.insert("spec".to_owned(), Value::Object(spec));
    Value::Object(merge)
}

fn launch_batch(token: &str, finalizers: Option<&Finalizers>) -> Value {
    let token = (labels::LAUNCH_BATCH.to_owned(), Value::from(token));
    let mut merge = metadata("annotations", &Map::from_iter([token]));
    let fields = merge.get_mut("metadata").and_then(Value::as_object_mut);
    if let (Some(fields), Some(Finalizers(all))) = (fields, finalizers) {
        fields.insert("finalizers".to_owned(), all.clone().into());
    }
    merge
}

fn metadata(field: &str, value: &impl Serialize) -> Value {
    json!({ "metadata": { field: value } })
}

/// In a merge patch `null` removes a label.
fn capacity_type(edit: &CapacityTypeLabels) -> Map<String, Value> {
    let removed = edit.removed.iter().map(|key| (key.clone(), Value::Null));
    let own = edit.capacity_type.as_str().into();
    let set = std::iter::once((labels::CAPACITY_TYPE.to_owned(), own));
    removed.chain(set).collect()
}

fn instance_metadata(found: &InstanceMetadata) -> Value {
    let mut annotations = found.annotations.clone();
    annotations.insert(
        labels::PROVIDER_ID.to_owned(),
        found.provider_id.to_string(),
    );
    json!({ "metadata": { "labels": found.labels, "annotations": annotations } })
}

fn registered(registration: &Registration) -> Value {
    let mut metadata = Map::new();
    if let Some(finalizers) = &registration.finalizers {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
    if let Some(owners) = &registration.owners {
        metadata.insert("ownerReferences".to_owned(), json!(owners));
    }
    for (field, added) in [
        ("labels", &registration.labels),
        ("annotations", &registration.annotations),
    ] {
        if !added.is_empty() {
            metadata.insert(field.to_owned(), json!(added));
        }
    }
    let mut merge = Map::new();
    if !metadata.is_empty() {
        merge.insert("metadata".to_owned(), Value::Object(metadata));
    }
    if let Some(taints) = &registration.taints {
        merge.insert("spec".to_owned(), json!({ "taints": taints }));
    }
    Value::Object(merge)
}

fn tainted(edit: &NodeTaints) -> Value {
    let mut merge = Map::new();
    if let Some(all) = &edit.all {
        merge.insert("spec".to_owned(), json!({ "taints": all }));
    }
    if let Some(exclusion) = edit.exclusion {
        let value = match exclusion {
            LoadBalancerExclusion::Set => Some(labels::EXCLUDE_LB_VALUE),
            LoadBalancerExclusion::Clear => None,
        };
        merge.insert(
            "metadata".to_owned(),
            json!({ "labels": { labels::EXCLUDE_LB: value } }),
        );
    }
    Value::Object(merge)
}

fn status(edit: &StatusEdit) -> Value {
    match edit {
        StatusEdit::NodeClaim(edit) => node_claim_status(edit),
        StatusEdit::NodePool(edit) => node_pool_status(edit),
        StatusEdit::NodeClass(status) => status.clone(),
        StatusEdit::NodeOverlay(conditions) | StatusEdit::ProvisioningRequest(conditions) => {
            Value::Object(with_conditions(Map::new(), Some(conditions)))
        }
        StatusEdit::NodePoolPolicy(NodePoolPolicyStatus {
            conditions,
            spending,
        }) => {
            let mut fields = with_conditions(Map::new(), Some(conditions));
            fields.insert("spending".to_owned(), json!(spending));
            Value::Object(fields)
        }
        StatusEdit::CapacityBuffer(status) => capacity_buffer_status(status),
    }
}

fn with_conditions(
    mut fields: Map<String, Value>,
    all: Option<&Vec<Condition>>,
) -> Map<String, Value> {
    if let Some(all) = all {
        fields.insert("conditions".to_owned(), json!(all));
    }
    fields
}

/// Every field: what is not known any more is removed.
fn capacity_buffer_status(status: &CapacityBufferStatus) -> Value {
    let CapacityBufferStatus {
        conditions,
        pod_template_ref,
        replicas,
        pod_template_generation,
        provisioning_strategy,
    } = status;
    json!({
        "conditions": conditions,
        "podTemplateRef": pod_template_ref,
        "replicas": replicas,
        "podTemplateGeneration": pod_template_generation,
        "provisioningStrategy": provisioning_strategy,
    })
}

fn node_claim_status(edit: &NodeClaimStatusEdit) -> Value {
    let mut fields = Map::new();
    if let Some(instance) = &edit.instance {
        add_instance(&mut fields, instance);
    }
    if let Some(name) = &edit.node_name {
        fields.insert("nodeName".to_owned(), json!(name));
    }
    if let Some(at) = &edit.last_pod_event {
        fields.insert("lastPodEventTime".to_owned(), json!(at.to_string()));
    }
    Value::Object(with_conditions(fields, edit.conditions.as_ref()))
}

fn add_instance(fields: &mut Map<String, Value>, instance: &InstanceStatus) {
    fields.insert("providerID".to_owned(), json!(instance.provider_id));
    if let Some(image) = &instance.image_id {
        fields.insert("imageID".to_owned(), json!(image));
    }
    for (field, amounts) in [
        ("capacity", &instance.capacity),
        ("allocatable", &instance.allocatable),
    ] {
        if !amounts.is_empty() {
            fields.insert(field.to_owned(), json!(amounts));
        }
    }
}

fn node_pool_status(edit: &NodePoolStatusEdit) -> Value {
    let mut fields = Map::new();
    if let Some(usage) = &edit.usage {
        fields.insert("resources".to_owned(), json!(usage.resources));
        fields.insert("nodes".to_owned(), Value::from(usage.nodes));
    }
    if let Some(generation) = edit.node_class_generation {
        fields.insert("nodeClassObservedGeneration".to_owned(), json!(generation));
    }
    Value::Object(with_conditions(fields, edit.conditions.as_ref()))
}
