//! The definition of each kind.

use kube_core::Resource;
use serde_json::{Value, json};

use super::restrictions::{KeyLocation, rules};
use super::structural::{root, schema_of};
use super::{CrdManifest, CrdSet};
use crate::karpenter::capacitybuffer::{CapacityBuffer, CapacityBufferSpec, CapacityBufferStatus};
use crate::karpenter::nodeclaim::{NodeClaim, NodeClaimSpec, NodeClaimStatus};
use crate::karpenter::nodeoverlay::{NodeOverlay, NodeOverlaySpec, NodeOverlayStatus};
use crate::karpenter::nodepool::{NodePool, NodePoolSpec, NodePoolStatus};
use crate::node_class::ec2nodeclass::{Ec2NodeClass, Ec2NodeClassSpec};
use crate::node_class::ec2nodeclass_status::Ec2NodeClassStatus;
use crate::node_class::kwoknodeclass::{KwokNodeClass, KwokNodeClassSpec, KwokNodeClassStatus};

/// All definitions of a set, by file name.
pub(super) fn manifests(set: CrdSet) -> Vec<CrdManifest> {
    let mut manifests = vec![
        capacity_buffer(),
        node_claim(set),
        node_overlay(set),
        node_pool(set),
    ];
    match set {
        CrdSet::Core => {}
        CrdSet::Kwok => manifests.push(kwok_node_class()),
        CrdSet::Aws => manifests.push(ec2_node_class()),
    }
    manifests.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    manifests
}

/// What stands beside the schema of a kind.
struct CrdLayout {
    scope: &'static str,
    category: &'static str,
    short_names: &'static [&'static str],
    columns: Value,
    scale: Option<Value>,
}

const CLUSTER: CrdLayout = CrdLayout {
    scope: "Cluster",
    category: "karpenter",
    short_names: &[],
    columns: Value::Null,
    scale: None,
};

const READY: &str = ".status.conditions[?(@.type==\"Ready\")].status";
const CREATED: &str = ".metadata.creationTimestamp";

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path })
}

/// A column that is shown with wide output only.
fn wide(name: &str, kind: &str, path: &str) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path, "priority": 1 })
}

fn definition<K: Resource<DynamicType = ()>>(shape: CrdLayout, schema: &Value) -> CrdManifest {
    let (group, kind, plural) = (K::group(&()), K::kind(&()), K::plural(&()));
    let mut names = json!({
        "categories": [shape.category],
        "kind": kind,
        "listKind": format!("{kind}List"),
        "plural": plural,
        "singular": kind.to_lowercase(),
    });
    insert(
        &mut names,
        "shortNames",
        (!shape.short_names.is_empty()).then(|| json!(shape.short_names)),
    );
    let mut subresources = json!({ "status": {} });
    insert(&mut subresources, "scale", shape.scale);
    let mut version = json!({
        "name": K::version(&()),
        "schema": { "openAPIV3Schema": schema },
        "served": true,
        "storage": true,
        "subresources": subresources,
    });
    insert(
        &mut version,
        "additionalPrinterColumns",
        shape.columns.is_array().then_some(shape.columns),
    );
    CrdManifest {
        file_name: format!("{group}_{plural}.yaml"),
        definition: json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": { "group": group, "names": names, "scope": shape.scope, "versions": [version] },
        }),
    }
}

fn insert(object: &mut Value, key: &str, value: Option<Value>) {
    if let (Some(object), Some(value)) = (object.as_object_mut(), value) {
        object.insert(key.to_owned(), value);
    }
}

/// Puts a value at a place of a schema. The place must be there: a renamed field would otherwise lose its rules without
/// a word, so the value goes where the API server refuses it.
fn set_field(schema: &mut Value, pointer: &str, key: &str, value: Value) {
    match schema.pointer_mut(pointer) {
        Some(at) => insert(at, key, Some(value)),
        None => insert(schema, &format!("no field at {pointer}"), Some(value)),
    }
}

const RULES: &str = "x-kubernetes-validations";

fn node_pool(set: CrdSet) -> CrdManifest {
    let mut spec = schema_of::<NodePoolSpec>();
    let template = "/properties/template/properties";
    set_field(
        &mut spec,
        &format!("{template}/metadata/properties/labels"),
        RULES,
        rules(set, KeyLocation::PoolLabels),
    );
    set_field(
        &mut spec,
        &format!("{template}/spec/properties/requirements/items/properties/key"),
        RULES,
        rules(set, KeyLocation::PoolRequirement),
    );
    if set == CrdSet::Aws {
        // The provider's release is built on an earlier one of the core, in which the field had no default.
        set_field(
            &mut spec,
            "/properties/disruption",
            "required",
            json!(["consolidateAfter"]),
        );
        if let Some(field) = spec
            .pointer_mut("/properties/disruption/properties/consolidateAfter")
            .and_then(Value::as_object_mut)
        {
            field.remove("default");
        }
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

fn node_claim(set: CrdSet) -> CrdManifest {
    let mut spec = schema_of::<NodeClaimSpec>();
    set_field(
        &mut spec,
        "/properties/requirements/items/properties/key",
        RULES,
        rules(set, KeyLocation::ClaimRequirement),
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

fn node_overlay(set: CrdSet) -> CrdManifest {
    let mut spec = schema_of::<NodeOverlaySpec>();
    let requirement = "/properties/requirements/items/properties";
    set_field(
        &mut spec,
        &format!("{requirement}/key"),
        RULES,
        rules(set, KeyLocation::OverlayRequirement),
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

fn kwok_node_class() -> CrdManifest {
    let mut status = schema_of::<KwokNodeClassStatus>();
    // Nothing has to be resolved for this provider: a class is ready from the start.
    let ready = json!({ "conditions": [{
        "lastTransitionTime": "2024-01-01T01:01:01Z",
        "message": "",
        "reason": "Ready",
        "status": "True",
        "type": "Ready",
    }] });
    insert(&mut status, "default", Some(ready));
    let schema = root(
        "Launch settings of simulated nodes, which exist only as objects.",
        schema_of::<KwokNodeClassSpec>(),
        status,
        false,
    );
    definition::<KwokNodeClass>(
        CrdLayout {
            short_names: &["kwoknc", "kwokncs"],
            ..CLUSTER
        },
        &schema,
    )
}

fn ec2_node_class() -> CrdManifest {
    let schema = root(
        "Launch settings of EC2 instances: AMIs, networks, disks, identity and user data.",
        schema_of::<Ec2NodeClassSpec>(),
        schema_of::<Ec2NodeClassStatus>(),
        false,
    );
    let columns = json!([
        column("Ready", "string", READY),
        column("Age", "date", CREATED),
        wide("Role", "string", ".spec.role"),
    ]);
    definition::<Ec2NodeClass>(
        CrdLayout {
            columns,
            short_names: &["ec2nc", "ec2ncs"],
            ..CLUSTER
        },
        &schema,
    )
}
