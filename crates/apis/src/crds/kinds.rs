//! The definition of each kind.

use serde_json::{Value, json};

use super::restrictions::rules;
use crate::karpenter::capacitybuffer::{CapacityBuffer, CapacityBufferSpec, CapacityBufferStatus};
use crate::karpenter::nodeclaim::{NodeClaim, NodeClaimSpec, NodeClaimStatus};
use crate::karpenter::nodeoverlay::{NodeOverlay, NodeOverlaySpec, NodeOverlayStatus};
use crate::karpenter::nodepool::{NodePool, NodePoolSpec, NodePoolStatus};
use crate::node_class::{KeyLocation, NodeClassRegistry};
use crate::node_pool_policy::{NodePoolPolicy, NodePoolPolicySpec, NodePoolPolicyStatus};
use crate::schema::crd_manifest::{
    CLUSTER, CREATED, CrdLayout, CrdManifest, READY, RULES, column, definition, set_field, wide,
};
use crate::schema::structural::{root, schema_of};

/// All definitions where these classes are served, by file name.
pub(super) fn manifests(classes: &NodeClassRegistry) -> Vec<CrdManifest> {
    let mut manifests = vec![
        capacity_buffer(),
        node_claim(classes),
        node_overlay(classes),
        node_pool(classes),
        node_pool_policy(),
    ];
    manifests.extend(classes.iter().map(|class| class.crd()));
    manifests.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    manifests
}

fn node_pool(classes: &NodeClassRegistry) -> CrdManifest {
    let mut spec = schema_of::<NodePoolSpec>();
    let template = "/properties/template/properties";
    set_field(
        &mut spec,
        &format!("{template}/metadata/properties/labels"),
        RULES,
        rules(classes, KeyLocation::PoolLabels),
    );
    set_field(
        &mut spec,
        &format!("{template}/spec/properties/requirements/items/properties/key"),
        RULES,
        rules(classes, KeyLocation::PoolRequirement),
    );
    for class in classes.iter() {
        class.edit_spec_of("NodePool", &mut spec);
    }
    let schema = root(
        "Template of nodes to launch for unschedulable pods, with limits and disruption settings.",
        spec,
        schema_of::<NodePoolStatus>(),
        true,
    );
    let columns = json!([
        column(
            "NodeClass",
            "string",
            ".spec.template.spec.nodeClassRef.name"
        ),
        column("Nodes", "string", ".status.nodes"),
        column("Ready", "string", READY),
        column("Age", "date", CREATED),
        wide("Weight", "integer", ".spec.weight"),
        wide("CPU", "string", ".status.resources.cpu"),
        wide("Memory", "string", ".status.resources.memory"),
    ]);
    let scale =
        json!({ "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes" });
    definition::<NodePool>(
        CrdLayout {
            columns,
            scale: Some(scale),
            ..CLUSTER
        },
        &schema,
    )
}

fn node_claim(classes: &NodeClassRegistry) -> CrdManifest {
    let mut spec = schema_of::<NodeClaimSpec>();
    set_field(
        &mut spec,
        "/properties/requirements/items/properties/key",
        RULES,
        rules(classes, KeyLocation::ClaimRequirement),
    );
    let schema = root(
        "Request for one node, and its observed state.",
        spec,
        schema_of::<NodeClaimStatus>(),
        true,
    );
    let columns = json!([
        column(
            "Type",
            "string",
            ".metadata.labels.node\\.kubernetes\\.io/instance-type"
        ),
        column(
            "Capacity",
            "string",
            ".metadata.labels.karpenter\\.sh/capacity-type"
        ),
        column(
            "Zone",
            "string",
            ".metadata.labels.topology\\.kubernetes\\.io/zone"
        ),
        column("Node", "string", ".status.nodeName"),
        column("Ready", "string", READY),
        column("Age", "date", CREATED),
        wide("ImageID", "string", ".status.imageID"),
        wide("ID", "string", ".status.providerID"),
        wide(
            "NodePool",
            "string",
            ".metadata.labels.karpenter\\.sh/nodepool"
        ),
        wide("NodeClass", "string", ".spec.nodeClassRef.name"),
        wide(
            "Drifted",
            "string",
            ".status.conditions[?(@.type==\"Drifted\")].status"
        ),
    ]);
    definition::<NodeClaim>(CrdLayout { columns, ..CLUSTER }, &schema)
}

fn node_overlay(classes: &NodeClassRegistry) -> CrdManifest {
    let mut spec = schema_of::<NodeOverlaySpec>();
    let requirement = "/properties/requirements/items/properties";
    set_field(
        &mut spec,
        &format!("{requirement}/key"),
        RULES,
        rules(classes, KeyLocation::OverlayRequirement),
    );
    if let Some(fields) = spec.pointer_mut(requirement).and_then(Value::as_object_mut) {
        fields.remove("minValues");
    }
    let schema = root(
        "Overrides the price or adds extended resources of instance types in scheduling decisions.",
        spec,
        schema_of::<NodeOverlayStatus>(),
        true,
    );
    let columns = json!([
        column("Ready", "string", READY),
        column("Age", "date", CREATED),
        wide("Weight", "integer", ".spec.weight"),
    ]);
    definition::<NodeOverlay>(
        CrdLayout {
            columns,
            short_names: &["overlays"],
            ..CLUSTER
        },
        &schema,
    )
}

fn capacity_buffer() -> CrdManifest {
    let schema = root(
        "Reserves capacity for a number of identical pods, so that pods start without waiting for a node.",
        schema_of::<CapacityBufferSpec>(),
        schema_of::<CapacityBufferStatus>(),
        true,
    );
    let columns = json!([
        column("Strategy", "string", ".spec.provisioningStrategy"),
        column("PodTemplate", "string", ".status.podTemplateRef.name"),
        column("Replicas", "integer", ".status.replicas"),
        column("ConditionsType", "string", ".status.conditions[*].type"),
        column("ConditionsStatus", "string", ".status.conditions[*].status"),
        column("ConditionsReason", "string", ".status.conditions[*].reason"),
        column("Age", "date", CREATED),
    ]);
    let shape = CrdLayout {
        scope: "Namespaced",
        category: "autoscaling",
        short_names: &["cb"],
        columns,
        scale: None,
    };
    definition::<CapacityBuffer>(shape, &schema)
}

fn node_pool_policy() -> CrdManifest {
    let schema = root(
        "Limits what NodePools cost together, how fast they grow, and which of their nodes are consolidated.",
        schema_of::<NodePoolPolicySpec>(),
        schema_of::<NodePoolPolicyStatus>(),
        true,
    );
    let columns = json!([
        column("HourlyPrice", "string", ".spec.limits.hourlyPrice"),
        column("Nodes", "integer", ".spec.limits.nodes"),
        column(
            "NewNodes",
            "integer",
            ".spec.scaling.maxNewNodesPerWindow.nodes"
        ),
        column(
            "Window",
            "string",
            ".spec.scaling.maxNewNodesPerWindow.window"
        ),
        column(
            "Utilization",
            "string",
            ".spec.disruption.minimumUtilization"
        ),
        column("Ready", "string", READY),
        column("Age", "date", CREATED),
        wide("NodePools", "string", ".spec.nodePools"),
    ]);
    definition::<NodePoolPolicy>(CrdLayout { columns, ..CLUSTER }, &schema)
}
