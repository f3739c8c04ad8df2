//! A small EC2 cluster: four instance types, a node class, NodePools, nodes with pods.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "test support: each test uses a part of it, and fails by panicking"
)]

#[path = "../node_classes/mod.rs"]
pub(crate) mod node_classes;

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::{NodeClaim, k8s};
use mortise_aws_class::labels::{self as aws_labels, well_known};
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use mortise_state::snapshot::Snapshot;
use mortise_webhooks::admission::{
    AdmissionContext, AdmissionRequest, AdmissionResult, AdmissionSettings, set_defaults, validate,
};
use node_classes::{EC2, KWOK, crds};
use serde_json::{Value, json};

const GIB: i64 = 1 << 30;

/// The fixed current time.
pub(crate) fn now() -> Timestamp {
    "2026-03-04T10:00:00Z".parse().unwrap()
}

/// A cluster whose objects are applied to an index.
pub(crate) struct TestCluster {
    index: Index,
    rules: AdmissionSettings,
}

static GOOD: LazyLock<Value> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("../data/good_manifests.yaml")).unwrap());

/// A valid object of each kind.
pub(crate) fn good(kind: &str) -> Value {
    GOOD[kind].clone()
}

/// Applies a merge patch: `null` removes.
pub(crate) fn merged(mut target: Value, patch: &Value) -> Value {
    merge(&mut target, patch);
    target
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// A NodePool with this name and changes.
pub(crate) fn pool(name: &str, change: &Value) -> Value {
    let named = merged(good("NodePool"), &json!({ "metadata": { "name": name } }));
    merged(named, change)
}

fn instance_type(name: &str, arch: &str, cpus: i64, milli: i64) -> InstanceType {
    let (family, size) = name.split_once('.').unwrap();
    let zones = ["us-east-1a", "us-east-1b"];
    let offerings = zones
        .iter()
        .flat_map(|zone| {
            [
                (CapacityType::Spot, milli / 3),
                (CapacityType::OnDemand, milli),
            ]
            .map(|(capacity_type, milli)| Offering {
                zone: Arc::from(*zone),
                capacity_type,
                price: Some(MicroUsd(milli * 1_000)),
                available: true,
                reservation: None,
                labels: Vec::new(),
            })
        })
        .collect();
    let mut requirements = Requirements::new();
    for (key, value) in [
        (labels::INSTANCE_TYPE, name.to_owned()),
        (labels::ARCH, arch.to_owned()),
        (labels::OS, "linux".to_owned()),
        (aws_labels::INSTANCE_FAMILY, family.to_owned()),
        (aws_labels::INSTANCE_SIZE, size.to_owned()),
        (aws_labels::INSTANCE_CPU, cpus.to_string()),
    ] {
        requirements.add(Requirement::is(key, value));
    }
    requirements.add(Requirement::new(labels::TOPOLOGY_ZONE, Operator::In, zones));
    requirements.add(Requirement::new(
        labels::CAPACITY_TYPE,
        Operator::In,
        ["spot", "on-demand"],
    ));
    InstanceType {
        name: Arc::from(name),
        requirements,
        capacity: Resources::new(cpus * 1_000, cpus * 4 * GIB).with("pods", 110),
        overhead: Resources::default(),
        devices: std::sync::Arc::default(),
        offerings,
    }
}

/// The available instance types.
pub(crate) fn catalog() -> Arc<Catalog> {
    Arc::new(Catalog::build(vec![
        instance_type("m5.large", "amd64", 2, 96),
        instance_type("m5.xlarge", "amd64", 4, 192),
        instance_type("c5.large", "amd64", 2, 85),
        instance_type("m6g.large", "arm64", 2, 77),
    ]))
}

impl TestCluster {
    /// A synced cluster with the class `default` and its catalog.
    pub(crate) fn new() -> Self {
        let rules = AdmissionSettings {
            deny_unsatisfiable: false,
            offline: false,
            crds: crds(&[EC2]),
        };
        let mut cluster = Self {
            index: Index::new(well_known(), false, now()),
            rules,
        };
        cluster.class("default", json!({}));
        cluster.index.set_catalog(
            &NodeClassKey::new("karpenter.k8s.aws", "EC2NodeClass", "default"),
            catalog(),
        );
        cluster.index.set_synced();
        cluster
    }

    /// A cluster with simulated nodes instead of EC2.
    pub(crate) fn kwok() -> Self {
        let mut cluster = Self::new();
        cluster.rules.crds = crds(&[KWOK]);
        cluster
    }

    /// Denies NodePools that no instance type satisfies.
    pub(crate) const fn strict(mut self) -> Self {
        self.rules.deny_unsatisfiable = true;
        self
    }

    pub(crate) fn apply(&mut self, object: Object) {
        self.index
            .apply(ObjectEvent::Applied(object, EventSource::Watch));
    }

    /// Applies a class, with changes.
    pub(crate) fn class(&mut self, name: &str, change: Value) {
        let named = merged(
            good("EC2NodeClass"),
            &json!({ "metadata": { "name": name } }),
        );
        self.apply(Object::from(NodeClassObject::new(
            NodeClassKey::new("karpenter.k8s.aws", "EC2NodeClass", name),
            merged(named, &change),
        )));
    }

    /// Applies an overlay.
    pub(crate) fn overlay(&mut self, overlay: &Value) {
        let typed = serde_json::from_value(overlay.clone()).unwrap();
        self.apply(Object::Overlay(Box::new(typed)));
    }

    /// Applies a NodePool that is ready.
    pub(crate) fn pool(&mut self, pool: &Value) {
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready", "message": "" }] } });
        let mut typed: mortise_apis::NodePool =
            serde_json::from_value(merged(pool.clone(), &ready)).unwrap();
        let hash = typed.hash().to_string();
        let annotations = typed.metadata.annotations.get_or_insert_default();
        annotations.insert(labels::NODEPOOL_HASH.to_owned(), hash);
        annotations.insert(labels::NODEPOOL_HASH_VERSION.to_owned(), "v3".to_owned());
        self.apply(Object::Pool(Box::new(typed)));
    }

    /// Applies a running node of a NodePool with a number of pods of one CPU each. Returns the name of its NodeClaim.
    pub(crate) fn node(&mut self, pool: &str, type_: &str, n: usize, pods: usize) -> String {
        let (name, id) = (
            format!("{pool}-{n}"),
            format!("aws:///us-east-1a/i-{pool}{n}"),
        );
        let hash = self
            .index
            .pool(&pool.into())
            .unwrap()
            .metadata
            .annotations
            .clone()
            .unwrap();
        let arch = if type_.starts_with("m6g") {
            "arm64"
        } else {
            "amd64"
        };
        let labels = json!({
            labels::NODEPOOL: pool, labels::INSTANCE_TYPE: type_, labels::TOPOLOGY_ZONE: "us-east-1a",
            labels::CAPACITY_TYPE: "on-demand", labels::ARCH: arch, labels::OS: "linux",
            aws_labels::INSTANCE_FAMILY: type_.split('.').next().unwrap(),
        });
        let cpu = if type_.ends_with(".xlarge") { 4 } else { 2 };
        let has =
            json!({ "cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * 4), "pods": "110" });
        let is = |type_: &str| json!({ "type": type_, "status": "True", "reason": type_, "message": "" });
        let conditions = ["Launched", "Registered", "Initialized"].map(is);
        let claim = json!({
            "metadata": { "name": name, "uid": name, "labels": labels, "annotations": hash, "creationTimestamp": now() },
            "spec": good("NodeClaim")["spec"],
            "status": { "providerID": id, "nodeName": name, "capacity": has, "allocatable": has,
                "conditions": conditions },
        });
        self.apply(Object::Claim(Box::new(
            serde_json::from_value(claim).unwrap(),
        )));
        let mut node_labels = labels;
        node_labels[labels::REGISTERED] = json!("true");
        node_labels[labels::INITIALIZED] = json!("true");
        let node = json!({
            "metadata": { "name": name, "labels": node_labels },
            "spec": { "providerID": id },
            "status": { "capacity": has, "allocatable": has, "conditions": [is("Ready")] },
        });
        self.apply(Object::Node(Box::new(
            serde_json::from_value(node).unwrap(),
        )));
        for pod in 0..pods {
            self.pod(&format!("{name}-{pod}"), &name, json!({}));
        }
        name
    }

    /// Applies a running pod with the label `app: web`, with changes.
    pub(crate) fn pod(&mut self, name: &str, node: &str, change: Value) {
        let pod = json!({
            "metadata": { "name": name, "namespace": "default", "uid": name, "labels": { "app": "web" },
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "rs", "controller": true }] },
            "spec": { "nodeName": node, "containers": [{ "name": "main", "resources": { "requests": { "cpu": "1" } } }] },
            "status": { "phase": "Running" },
        });
        let pod = serde_json::from_value(merged(pod, &change)).unwrap();
        self.apply(Object::Pod(Box::new(pod)));
    }

    /// Applies a PodDisruptionBudget for pods with the label `app: web`.
    pub(crate) fn pdb(&mut self, spec: Value, expected: i32) {
        let pdb = json!({
            "metadata": { "name": "web", "namespace": "default" },
            "spec": merged(json!({ "selector": { "matchLabels": { "app": "web" } } }), &spec),
            "status": { "expectedPods": expected, "currentHealthy": expected },
        });
        self.apply(Object::Pdb(Box::new(serde_json::from_value(pdb).unwrap())));
    }

    /// Changes the ledger.
    pub(crate) fn ledger(&mut self, op: mortise_state::ledger::LedgerOp) {
        self.index.change_ledger(op);
    }

    fn change_claim(&mut self, name: &str, change: impl FnOnce(&mut NodeClaim)) {
        let known = self.index.claim(&name.into()).unwrap();
        let mut claim = NodeClaim::clone(known);
        change(&mut claim);
        self.apply(Object::Claim(Box::new(claim)));
    }

    /// Marks a node as drifted since that time.
    pub(crate) fn drifted(&mut self, name: &str, at: Timestamp) {
        let drifted = json!({ "type": "Drifted", "status": "True", "reason": "NodePoolDrifted", "message": "", "lastTransitionTime": at });
        let drifted = serde_json::from_value(drifted).unwrap();
        self.change_claim(name, |claim| claim.status.conditions.push(drifted));
    }

    /// Sets the age at which a node expires.
    pub(crate) fn expires(&mut self, name: &str, age: &str) {
        let age = serde_json::from_value(json!(age)).unwrap();
        self.change_claim(name, |claim| claim.spec.expire_after = Some(age));
    }

    /// Moves a node to spot capacity.
    pub(crate) fn spot(&mut self, name: &str) {
        let mut node = k8s::Node::clone(self.index.node(&name.into()).unwrap());
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert(labels::CAPACITY_TYPE.to_owned(), "spot".to_owned());
        self.apply(Object::Node(Box::new(node)));
    }

    /// A node has one of a device.
    pub(crate) fn device(&mut self, name: &str, resource: &str) {
        let mut node = json!(self.index.node(&name.into()).unwrap());
        for list in ["capacity", "allocatable"] {
            node["status"][list][resource] = json!("1");
        }
        self.apply(Object::Node(Box::new(
            serde_json::from_value(node).unwrap(),
        )));
    }

    /// Applies a DaemonSet that runs on every node.
    pub(crate) fn daemon_set(&mut self, name: &str, cpu: &str) {
        let spec = json!({ "containers": [{ "name": "main", "resources": { "requests": { "cpu": cpu } } }],
            "tolerations": [{ "operator": "Exists" }] });
        let set = json!({
            "metadata": { "name": name, "namespace": "default", "uid": name },
            "spec": { "selector": {}, "template": { "metadata": { "labels": { "app": name } }, "spec": spec } },
        });
        self.apply(Object::DaemonSet(Box::new(
            serde_json::from_value(set).unwrap(),
        )));
    }

    /// Limits the volumes of the driver `disks` that a node can attach.
    pub(crate) fn volume_slots(&mut self, node: &str, count: i32) {
        let csi = json!({ "metadata": { "name": node },
            "spec": { "drivers": [{ "name": "disks", "nodeID": node, "topologyKeys": [], "allocatable": { "count": count } }] } });
        self.apply(Object::CsiNode(Box::new(
            serde_json::from_value(csi).unwrap(),
        )));
    }

    /// Applies a claim that is bound to a volume of the driver `disks`.
    pub(crate) fn claimed_volume(&mut self, name: &str) {
        let volume = json!({ "metadata": { "name": name },
            "spec": { "csi": { "driver": "disks", "volumeHandle": name } } });
        let claim = json!({
            "metadata": { "name": name, "namespace": "default", "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
            "spec": { "volumeName": name }, "status": { "phase": "Bound" },
        });
        self.apply(Object::Volume(Box::new(
            serde_json::from_value(volume).unwrap(),
        )));
        self.apply(Object::VolumeClaim(Box::new(
            serde_json::from_value(claim).unwrap(),
        )));
    }

    pub(crate) fn snapshot(&mut self) -> Snapshot {
        self.index.freeze(now())
    }

    /// Calls both webhooks in the order of the API server.
    pub(crate) fn admit(
        &mut self,
        operation: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> AdmissionResult {
        self.admit_object(operation, object, old, false)
    }

    pub(crate) fn dry_run(&mut self, object: &Value, old: &Value) -> AdmissionResult {
        self.admit_object("UPDATE", object, Some(old), true)
    }

    fn admit_object(
        &mut self,
        operation: &str,
        object: &Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> AdmissionResult {
        let some = if object.is_null() {
            old.unwrap()
        } else {
            object
        };
        let version = some["apiVersion"].as_str().unwrap();
        let (group, version) = version.split_once('/').unwrap();
        let request: AdmissionRequest = serde_json::from_value(json!({
            "uid": "1", "kind": { "group": group, "version": version, "kind": some["kind"] },
            "name": some["metadata"]["name"], "namespace": "default", "operation": operation, "object": object,
            "oldObject": old, "dryRun": dry_run,
        }))
        .unwrap();
        self.admit_request(&request)
    }

    /// Calls both webhooks with a request.
    pub(crate) fn admit_request(&mut self, request: &AdmissionRequest) -> AdmissionResult {
        let snapshot = self.snapshot();
        let first = set_defaults(&self.rules, &snapshot.well_known, request);
        if !first.denied.is_empty() {
            return first;
        }
        let context = AdmissionContext {
            snapshot: &snapshot,
            rules: &self.rules,
            now: now(),
            stop: &|| false,
        };
        validate(&context, request)
    }
}

/// Maximum length of a warning that clients show completely.
pub(crate) const WARNING_MAX: usize = 120;

/// Warnings of an allowed request.
pub(crate) fn warned(answer: &AdmissionResult) -> &[String] {
    assert_eq!(answer.denied, Vec::<String>::new());
    for text in &answer.warnings {
        assert!(text.chars().count() <= WARNING_MAX, "{text}");
    }
    &answer.warnings
}
