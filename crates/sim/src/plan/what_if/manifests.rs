//! Manifests that are applied to a recorded cluster, as `kubectl apply` and the controllers of Kubernetes would.

use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::names::NamespacedName;
use mortise_state::resource_kinds::{Object, ObjectKey, ResourceKind};
use serde_json::{Map, Value, json};

use super::workload::{self, Workload};
use crate::manifest_error::ManifestError;
use crate::recorded_cluster::RecordedCluster;

/// Namespace of namespaced objects that name none.
const NAMESPACE: &str = "default";

/// Applies a manifest.
///
/// # Errors
/// The kind cannot be applied, the object is invalid, or it refers to a node class that was not recorded.
pub fn apply(cluster: &mut RecordedCluster, manifest: &Value) -> Result<(), ManifestError> {
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or_default();
    if text("/metadata/name").unwrap_or_default().is_empty() {
        return Err(ManifestError::new("metadata.name", "missing"));
    }
    if workload::KINDS.contains(&kind) {
        let namespace = text("/metadata/namespace").unwrap_or(NAMESPACE);
        return Workload::new(manifest, namespace)?.apply(cluster);
    }
    if let Some(class) = cluster.served.iter().find(|class| class.kind == kind) {
        let problem = format!(
            "{} cannot be changed: only the cloud knows what instance types it would have; change prices with --price, and requirements in the NodePool",
            class.kind
        );
        return Err(ManifestError::new("kind", problem));
    }
    let rows = ResourceKind::table();
    let version = text("/apiVersion").unwrap_or_default();
    let named = || rows.iter().filter(|row| row.api.kind == kind);
    let of_version = named().find(|row| row.api.api_version() == version);
    let Some(row) = of_version.or_else(|| named().next()) else {
        let rows = rows.iter().map(|row| row.api.kind);
        let known = rows.chain(workload::KINDS);
        return Err(ManifestError::absent("kind", "kind", kind, known));
    };
    if version != row.api.api_version() {
        let only = row.api.api_version();
        return Err(ManifestError::absent(
            "apiVersion",
            "version",
            version,
            [only.as_str()],
        ));
    }
    let mut value = manifest.clone();
    if row.api.namespaced && text("/metadata/namespace").is_none() {
        value["metadata"]["namespace"] = json!(NAMESPACE);
    }
    let namespace = value.pointer("/metadata/namespace").and_then(Value::as_str);
    let name = text("/metadata/name").unwrap_or_default();
    let key = row.index.key(namespace.unwrap_or_default(), name);
    keep_state(&mut value, cluster.objects.get(&key), cluster)?;
    let object = row.index.deserialize(value);
    let object = object.map_err(|error| ManifestError::new("", error.to_string()))?;
    check_pool(cluster, &object)?;
    cluster.add(object);
    if let ObjectKey::Pdb(name) = key {
        workload::count_budget(cluster, &name);
    }
    Ok(())
}

/// Opens the disruption budgets of every NodePool.
///
/// # Errors
/// A NodePool cannot be written and read, which none should.
pub fn open_budgets(cluster: &mut RecordedCluster) -> Result<(), ManifestError> {
    for object in cluster.objects.values_mut() {
        let Object::Pool(pool) = object else { continue };
        let failed = |error: serde_json::Error| ManifestError::new("", error.to_string());
        let mut value = serde_json::to_value(&**pool).map_err(failed)?;
        value["spec"]["disruption"]["budgets"] = json!([{ "nodes": "100%" }]);
        **pool = serde_json::from_value::<NodePool>(value).map_err(failed)?;
    }
    Ok(())
}

/// What the API server and controllers keep of an object that is there, or give to a new one.
fn keep_state(
    value: &mut Value,
    present: Option<&Object>,
    cluster: &RecordedCluster,
) -> Result<(), ManifestError> {
    let present = match present {
        Some(object) => serde_json::to_value(object),
        None => Ok(Value::Null),
    };
    let present = present.map_err(|error| ManifestError::new("", error.to_string()))?;
    let known = present.pointer("/metadata").and_then(Value::as_object);
    let mut metadata: Map<String, Value> = known.cloned().unwrap_or_default();
    let generation = metadata
        .get("generation")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let name = value.pointer("/metadata/name").and_then(Value::as_str);
    let uid = json!(format!("what-if-{}", name.unwrap_or_default()));
    metadata.entry("uid").or_insert(uid);
    metadata
        .entry("creationTimestamp")
        .or_insert_with(|| json!(cluster.taken_at.to_string()));
    metadata.insert("generation".to_owned(), json!(generation + 1));
    if let Some(given) = value.get("metadata").and_then(Value::as_object) {
        for (field, content) in given {
            match (metadata.get_mut(field), content) {
                (Some(Value::Object(there)), Value::Object(given)) => there.extend(given.clone()),
                _ => drop(metadata.insert(field.clone(), content.clone())),
            }
        }
    }
    value["metadata"] = Value::Object(metadata);
    match present.get("status") {
        Some(status) => value["status"] = status.clone(),
        // A pod of a manifest waits for a node.
        None if value["kind"] == "Pod" => value["status"] = json!({ "phase": "Pending" }),
        None => {}
    }
    Ok(())
}

/// The node class of a NodePool was recorded, or nothing would be launched for it.
fn check_pool(cluster: &RecordedCluster, object: &Object) -> Result<(), ManifestError> {
    let Object::Pool(pool) = object else {
        return Ok(());
    };
    let class = pool.node_class_key();
    if cluster.catalogs.contains_key(&class) {
        return Ok(());
    }
    let field = "spec.template.spec.nodeClassRef";
    let known: Vec<String> = cluster.catalogs.keys().map(ToString::to_string).collect();
    let known = known.iter().map(String::as_str);
    Err(ManifestError::absent(
        field,
        "node class",
        &class.to_string(),
        known,
    ))
}

/// Namespace and name of a manifest.
pub(super) fn key_of(manifest: &Value, namespace: &str) -> NamespacedName {
    let name = manifest.pointer("/metadata/name").and_then(Value::as_str);
    NamespacedName::new(namespace, name.unwrap_or_default())
}
