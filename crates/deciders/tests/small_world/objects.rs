//! Objects of the small world, and how it keeps them.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::labels;
use mortise_apis::names::{NamespacedName, ObjectRef};
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_engine::engine::EngineInput;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey};
use serde_json::{Value, json};

use super::SmallWorld;

const GIB: i64 = 1 << 30;

/// A type with 4 GiB per CPU and offerings in zones `a` and `b`: capacity type and price in milli-dollars an hour.
pub(crate) fn instance_type(name: &str, cpus: i64, offerings: &[(&str, i64)]) -> InstanceType {
    let offered: Vec<Offering> = ["a", "b"]
        .into_iter()
        .flat_map(|zone| {
            offerings
                .iter()
                .map(move |(capacity_type, price)| Offering {
                    zone: zone.into(),
                    capacity_type: CapacityType::parse(capacity_type).unwrap(),
                    price: Some(MicroUsd(price * 1_000)),
                    available: true,
                    reservation: None,
                    labels: Vec::new(),
                })
        })
        .collect();
    let types: Vec<&str> = offerings.iter().map(|(each, _)| *each).collect();
    let mut requirements = Requirements::new();
    requirements.add(Requirement::is(labels::INSTANCE_TYPE, name));
    requirements.add(Requirement::is(labels::ARCH, "amd64"));
    requirements.add(Requirement::is(labels::OS, "linux"));
    requirements.add(Requirement::new(
        labels::TOPOLOGY_ZONE,
        Operator::In,
        ["a", "b"],
    ));
    requirements.add(Requirement::new(labels::CAPACITY_TYPE, Operator::In, types));
    InstanceType {
        name: Arc::from(name),
        requirements,
        capacity: Resources::new(cpus * 1_000, cpus * 4 * GIB).with("pods", 110),
        overhead: Resources::default(),
        offerings: offered,
        devices: std::sync::Arc::default(),
    }
}

/// A merge patch: `null` removes.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Value::Object(target) = target else {
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// CPU of a quantity text in milli.
pub(crate) fn quantity_milli(text: &str) -> i64 {
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().unwrap(),
        None => text.parse::<i64>().unwrap() * 1_000,
    }
}

pub(crate) fn key_of(target: &ObjectRef) -> Option<(&'static str, String)> {
    Some(match target {
        ObjectRef::Node(name) => ("Node", name.to_string()),
        ObjectRef::Claim(name) => ("NodeClaim", name.to_string()),
        ObjectRef::Pool(name) => ("NodePool", name.to_string()),
        ObjectRef::Pod(name) => ("Pod", name.to_string()),
        ObjectRef::NodeClass(_) | ObjectRef::Overlay(_) => return None,
    })
}

impl SmallWorld {
    /// Stores an object under a new version and tells the engine.
    pub(crate) fn put(&mut self, kind: &'static str, name: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let news = match kind {
            "Pod" => Object::Pod(Box::new(serde_json::from_value(object.clone()).unwrap())),
            "Node" => Object::Node(Box::new(serde_json::from_value(object.clone()).unwrap())),
            "NodeClaim" => Object::Claim(Box::new(serde_json::from_value(object.clone()).unwrap())),
            "NodePool" => Object::Pool(Box::new(serde_json::from_value(object.clone()).unwrap())),
            "PodDisruptionBudget" => {
                Object::Pdb(Box::new(serde_json::from_value(object.clone()).unwrap()))
            }
            other => panic!("no such kind: {other}"),
        };
        self.objects.insert((kind, name.to_owned()), object);
        self.engine.apply(
            EngineInput::News(ObjectEvent::Applied(news, EventSource::Watch)),
            self.now,
        );
        if matches!(kind, "Pod" | "Node") {
            self.wake_scheduler();
        }
    }

    pub(crate) fn change(&mut self, kind: &'static str, name: &str, patch: &Value) {
        let Some(mut object) = self.get(kind, name).cloned() else {
            panic!("{kind} {name} is not there")
        };
        merge(&mut object, patch);
        self.put(kind, name, object);
    }

    pub(crate) fn remove(&mut self, kind: &'static str, name: &str) {
        if self.objects.remove(&(kind, name.to_owned())).is_none() {
            return;
        }
        let key = match kind {
            "Pod" => ObjectKey::Pod(NamespacedName::parse(name)),
            "Node" => ObjectKey::Node(name.into()),
            "NodeClaim" => ObjectKey::Claim(name.into()),
            "NodePool" => ObjectKey::Pool(name.into()),
            "PodDisruptionBudget" => ObjectKey::Pdb(NamespacedName::parse(name)),
            other => panic!("no such kind: {other}"),
        };
        self.engine
            .apply(EngineInput::News(ObjectEvent::Deleted(key, None)), self.now);
        if kind == "Pod" {
            self.wake_scheduler();
        }
    }

    /// A pool that is ready and has no disruption budget, changed by `patch`.
    pub(crate) fn pool(&mut self, name: &str, patch: Value) {
        let mut pool = json!({
            "metadata": { "name": name, "uid": format!("pool-{name}"), "creationTimestamp": self.stamp() },
            "spec": {
                "template": { "spec": {
                    "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
                    "requirements": [],
                } },
                "disruption": { "consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{ "nodes": "100%" }] },
            },
            "status": { "conditions": [
                { "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": self.stamp() },
            ] },
        });
        if let Some(known) = self.get("NodePool", name) {
            pool = known.clone();
        }
        merge(&mut pool, &patch);
        self.put("NodePool", name, pool);
    }

    pub(crate) fn stamp(&self) -> String {
        self.now.to_string()
    }

    /// Pods of an app, each with so much CPU (milli) and as many MiB; changed by `patch`.
    pub(crate) fn pods(&mut self, app: &str, count: usize, cpu: i64, patch: &Value) {
        for _ in 0..count {
            self.created += 1;
            let name = format!("default/{app}-{:05}", self.created);
            let mut pod = json!({
                "metadata": {
                    "name": name.trim_start_matches("default/"), "namespace": "default", "uid": format!("uid-{}", self.created),
                    "creationTimestamp": self.stamp(), "labels": { "app": app },
                    "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": format!("rs-{app}"), "controller": true }],
                },
                "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": format!("{cpu}m"), "memory": format!("{cpu}Mi") } } }] },
                "status": { "phase": "Pending" },
            });
            merge(&mut pod, patch);
            self.put("Pod", &name, pod);
        }
    }

    /// Removes pods of an app, the last ones first, and nobody re-creates them.
    pub(crate) fn scale_down(&mut self, app: &str, by: usize) {
        let prefix = format!("default/{app}-");
        let mut names = self.names("Pod");
        names.retain(|name| name.starts_with(&prefix));
        for name in names.iter().rev().take(by) {
            self.remove("Pod", name);
        }
    }

    /// A running machine of ours of some type, without pods.
    pub(crate) fn machine(&mut self, name: &str, of: &str, pool: &str) {
        let instance = self
            .types()
            .iter()
            .find(|each| *each.name == *of)
            .cloned()
            .unwrap();
        let offering = &instance.offerings[0];
        let all_labels = json!({
            labels::NODEPOOL: pool,
            labels::INSTANCE_TYPE: of,
            labels::TOPOLOGY_ZONE: &*offering.zone,
            labels::CAPACITY_TYPE: offering.capacity_type.as_str(),
            labels::ARCH: "amd64",
            labels::OS: "linux",
            labels::HOSTNAME: name,
        });
        self.put(
            "NodeClaim",
            name,
            json!({
                "metadata": { "name": name, "uid": format!("claim-{name}"), "creationTimestamp": self.stamp(), "labels": all_labels },
                "spec": { "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" }, "requirements": [] },
            }),
        );
        self.delivered(name, &instance, &all_labels);
        self.booted(name);
    }

    /// The cloud has delivered: status of the claim.
    pub(crate) fn delivered(&mut self, claim: &str, of: &InstanceType, all_labels: &Value) {
        let amounts: BTreeMap<_, _> = of.capacity.to_api();
        self.change(
            "NodeClaim",
            claim,
            &json!({
                "metadata": { "labels": all_labels },
                "status": {
                    "providerID": format!("kwok://{claim}"), "nodeName": claim, "capacity": amounts, "allocatable": amounts,
                    "conditions": [self.condition("Launched")],
                },
            }),
        );
    }

    /// The Node is there and ready.
    pub(crate) fn booted(&mut self, claim: &str) {
        let Some(object) = self.get("NodeClaim", claim).cloned() else {
            return;
        };
        let mut all_labels = object["metadata"]["labels"].clone();
        merge(
            &mut all_labels,
            &json!({ labels::REGISTERED: "true", labels::INITIALIZED: "true", labels::HOSTNAME: claim }),
        );
        let mut allocatable = object["status"]["allocatable"].clone();
        if let Some(cpu) = self.cpu_of_nodes {
            allocatable["cpu"] = json!(cpu);
        }
        self.put(
            "Node",
            claim,
            json!({
                "metadata": { "name": claim, "uid": format!("node-{claim}"), "creationTimestamp": self.stamp(), "labels": all_labels },
                "spec": { "providerID": format!("kwok://{claim}") },
                "status": {
                    "capacity": object["status"]["capacity"], "allocatable": allocatable,
                    "conditions": [{ "type": "Ready", "status": "True" }],
                },
            }),
        );
        let conditions: Vec<Value> = [
            "Launched",
            "Registered",
            "Initialized",
            "Consolidatable",
            "Ready",
        ]
        .into_iter()
        .map(|each| self.condition(each))
        .collect();
        self.change(
            "NodeClaim",
            claim,
            &json!({ "status": { "conditions": conditions } }),
        );
    }

    pub(crate) fn condition(&self, type_: &str) -> Value {
        json!({ "type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": self.stamp() })
    }
}
