//! A cluster with one pool `general`, three zones, both architectures, and nodes of 4 and 16 CPUs.

#![allow(
    dead_code,
    reason = "each test binary uses its own part of this cluster"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::NodePool;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Operator, Requirement};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_planning::scheduling::{LaunchPlan, REPACK, SolveOptions, SolveReport, solve};
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use mortise_state::snapshot::Snapshot;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) const ZONES: [&str; 3] = ["z1", "z2", "z3"];

/// What a test changes of the cluster.
pub(crate) struct World {
    pub(crate) types: Vec<InstanceType>,
    pub(crate) pools: Vec<Value>,
    pub(crate) objects: Vec<Object>,
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// A type of this number of CPUs with 4 GiB each, on demand and spot in every zone.
pub(crate) fn instance_type(cpu: i64, arch: &str) -> InstanceType {
    let name = format!("{arch}-{cpu}");
    let list =
        |key: &str, values: &[&str]| Requirement::new(key, Operator::In, values.iter().copied());
    let offering = |zone: &str, capacity_type: CapacityType| Offering {
        zone: zone.into(),
        capacity_type,
        price: Some(MicroUsd(
            cpu * if capacity_type == CapacityType::Spot {
                400
            } else {
                1_000
            },
        )),
        available: true,
        reservation: None,
        labels: Vec::new(),
    };
    InstanceType {
        name: name.as_str().into(),
        requirements: [
            list(labels::INSTANCE_TYPE, &[&name]),
            list(labels::ARCH, &[arch]),
            list(labels::OS, &["linux"]),
            list(labels::TOPOLOGY_ZONE, &ZONES),
            list(labels::CAPACITY_TYPE, &["spot", "on-demand"]),
        ]
        .into_iter()
        .collect(),
        capacity: Resources::new(cpu * 1000, (cpu * 4) << 30)
            .with("pods", 110)
            .with("ephemeral-storage", 100 << 30),
        overhead: Resources::new(100, 200 << 20),
        offerings: ZONES
            .iter()
            .flat_map(|zone| {
                [CapacityType::OnDemand, CapacityType::Spot].map(|way| offering(zone, way))
            })
            .collect(),
        devices: Arc::default(),
    }
}

/// A pool with further fields of its spec.
pub(crate) fn pool(name: &str, requirements: Value, more: Value) -> Value {
    let mut pool = json!({
        "metadata": {"name": name, "uid": name},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "g", "kind": "Class", "name": "default"}, "requirements": requirements,
        }}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    });
    merge(&mut pool, more);
    pool
}

/// As a JSON merge patch, except for lists, which replace.
pub(crate) fn merge(into: &mut Value, more: Value) {
    match more {
        Value::Object(more) if into.is_object() => {
            for (key, value) in more {
                merge(&mut into[key], value);
            }
        }
        other => *into = other,
    }
}

/// A pending pod of namespace `default` with one container; `more` is merged into its spec.
pub(crate) fn pod(name: &str, app: &str, cpu: &str, more: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    });
    merge(&mut pod["spec"], more);
    pod
}

/// A node of another owner with 8 CPUs in a zone; `more` is merged into the object.
pub(crate) fn node(name: &str, zone: &str, more: Value) -> Value {
    let amounts = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
    let mut node = json!({
        "metadata": {"name": name, "uid": name, "labels": {
            labels::HOSTNAME: name, labels::TOPOLOGY_ZONE: zone, labels::ARCH: "amd64", labels::OS: "linux",
            labels::CAPACITY_TYPE: "on-demand", labels::INSTANCE_TYPE: "amd64-8",
        }},
        "spec": {"providerID": format!("other:///{name}")},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    merge(&mut node, more);
    node
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            types: [(4, "amd64"), (16, "amd64"), (4, "arm64"), (16, "arm64")]
                .map(|(cpu, arch)| instance_type(cpu, arch))
                .to_vec(),
            pools: vec![pool("general", json!([]), json!({}))],
            objects: Vec::new(),
        }
    }

    pub(crate) fn pool(mut self, pool: Value) -> Self {
        self.pools.push(pool);
        self
    }

    /// Only these pools.
    pub(crate) fn pools(mut self, pools: impl IntoIterator<Item = Value>) -> Self {
        self.pools = pools.into_iter().collect();
        self
    }

    pub(crate) fn with(mut self, object: Object) -> Self {
        self.objects.push(object);
        self
    }

    pub(crate) fn pending(self, pod: Value) -> Self {
        self.with(Object::Pod(Box::new(read(&pod))))
    }

    pub(crate) fn node(self, node: Value) -> Self {
        self.with(Object::Node(Box::new(read(&node))))
    }

    /// A pod that runs on a node.
    pub(crate) fn running(self, node: &str, mut pod: Value) -> Self {
        pod["spec"]["nodeName"] = json!(node);
        pod["status"] = json!({"phase": "Running"});
        self.pending(pod)
    }

    pub(crate) fn volume_claim(self, of: Value) -> Self {
        self.with(Object::VolumeClaim(Box::new(read(&of))))
    }

    pub(crate) fn volume(self, of: Value) -> Self {
        self.with(Object::Volume(Box::new(read(&of))))
    }

    pub(crate) fn storage_class(self, of: Value) -> Self {
        self.with(Object::StorageClass(Box::new(read(&of))))
    }

    pub(crate) fn daemon_set(self, of: Value) -> Self {
        self.with(Object::DaemonSet(Box::new(read(&of))))
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let now = Timestamp::UNIX_EPOCH;
        let mut index = Index::new(WellKnown::core(), false, now);
        let catalog = Arc::new(Catalog::build(self.types.clone()));
        for each in &self.pools {
            let pool: NodePool = read(each);
            index.set_catalog(&pool.node_class_key(), Arc::clone(&catalog));
            index.apply(ObjectEvent::Applied(
                Object::Pool(Box::new(pool)),
                EventSource::Watch,
            ));
        }
        for object in &self.objects {
            index.apply(ObjectEvent::Applied(object.clone(), EventSource::Watch));
        }
        index.set_synced();
        index.freeze(now)
    }

    pub(crate) fn solve(&self) -> (LaunchPlan, SolveReport) {
        self.repacked(REPACK)
    }

    /// With this number of steps for each pod to make the new nodes cheaper.
    pub(crate) fn repacked(&self, repack: u32) -> (LaunchPlan, SolveReport) {
        let options = SolveOptions {
            pending: true,
            repack,
            ..SolveOptions::default()
        };
        solve(Timestamp::UNIX_EPOCH, &self.snapshot(), &options, &|| false)
    }

    /// Names of the pods that the plan puts on each node; pods without a place are on none.
    pub(crate) fn places(&self) -> BTreeMap<String, Vec<String>> {
        let (plan, _) = self.solve();
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for placement in &plan.placements {
            let of = all.entry(placement.node.to_string()).or_default();
            of.push(placement.pod.key.name.to_string());
        }
        for (at, claim) in plan.claims.iter().enumerate() {
            let names = claim.pods.iter().map(|pod| pod.key.name.to_string());
            all.insert(format!("new-{at}"), names.collect());
        }
        all
    }
}
