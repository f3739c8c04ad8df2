//! Small clusters drawn from a seed: NodePools, types, nodes, DaemonSets and pending pods with every kind of constraint.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Operator, Requirement};
use mortise_apis::resources::Resources;
use mortise_apis::values::SplitMix64;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::{NodeClaim, NodePool, k8s};
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::ledger::{LedgerOp, Nomination, NominationTarget};
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use mortise_state::snapshot::Snapshot;
use serde_json::{Value, json};

#[derive(Clone)]
pub(crate) struct Dice(SplitMix64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

const ZONES: [&str; 3] = ["z1", "z2", "z3"];
const ARCHS: [&str; 2] = ["amd64", "arm64"];
const TEAMS: [&str; 2] = ["red", "blue"];

/// Objects of a cluster, in an order that a test may change.
pub(crate) struct World {
    pub(crate) objects: Vec<Object>,
    catalog: Arc<Catalog>,
    nominations: Vec<(String, String)>,
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

fn catalog(dice: &mut Dice) -> Catalog {
    let count = 2 + dice.below(7);
    let mut types = Vec::new();
    for at in 0..count {
        let cpu = 1_i64 << dice.below(6);
        let memory = (cpu << 30) * (1 + dice.below(4) as i64);
        let name = format!("t{at}");
        let arch = dice.pick(&ARCHS);
        let mut offerings = Vec::new();
        for zone in ZONES {
            for (capacity_type, factor) in [(CapacityType::Spot, 40), (CapacityType::OnDemand, 100)]
            {
                if dice.one_in(4) {
                    continue;
                }
                offerings.push(Offering {
                    zone: zone.into(),
                    capacity_type,
                    price: (!dice.one_in(20))
                        .then(|| MicroUsd(cpu * 1000 * factor / 2 + dice.below(500) as i64)),
                    available: !dice.one_in(6),
                    reservation: None,
                    labels: Vec::new(),
                });
            }
        }
        let list = |key: &str, values: &[&str]| {
            Requirement::new(key, Operator::In, values.iter().copied())
        };
        types.push(InstanceType {
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
            capacity: Resources::new(cpu * 1000, memory).with("pods", 4 + dice.below(20) as i64),
            overhead: Resources::new(100, 100 << 20),
            offerings,
            devices: std::sync::Arc::default(),
        });
    }
    Catalog::build(types)
}

fn pool(dice: &mut Dice, at: usize) -> Value {
    let mut requirements = Vec::new();
    if dice.one_in(3) {
        requirements.push(json!({"key": labels::TOPOLOGY_ZONE, "operator": "In", "values": [ZONES[dice.below(3)], ZONES[dice.below(3)]]}));
    }
    if dice.one_in(4) {
        requirements
            .push(json!({"key": labels::CAPACITY_TYPE, "operator": "In", "values": ["spot"]}));
    }
    let mut template = json!({
        "metadata": {"labels": {}},
        "spec": {"nodeClassRef": {"group": "g", "kind": "Class", "name": "default"}, "requirements": requirements},
    });
    if dice.one_in(2) {
        template["metadata"]["labels"]["team"] = json!(dice.pick(&TEAMS));
    }
    if dice.one_in(4) {
        let effect = dice.pick(&["NoSchedule", "PreferNoSchedule"]);
        template["spec"]["taints"] =
            json!([{"key": "dedicated", "value": "red", "effect": effect}]);
    }
    let mut limits = json!({});
    if dice.one_in(3) {
        limits["cpu"] = json!((4 + dice.below(60)).to_string());
    }
    if dice.one_in(4) {
        limits["nodes"] = json!((dice.below(4)).to_string());
    }
    json!({
        "metadata": {"name": format!("pool-{at}"), "uid": format!("pool-{at}")},
        "spec": {"template": template, "limits": limits, "weight": 1 + dice.below(3)},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

fn node_and_claim(dice: &mut Dice, at: usize) -> (Value, Value) {
    let name = format!("n{at}");
    let zone = dice.pick(&ZONES);
    let initialized = !dice.one_in(4);
    let mut node_labels = json!({
        labels::NODEPOOL: "pool-0", labels::TOPOLOGY_ZONE: zone, labels::HOSTNAME: name, labels::ARCH: dice.pick(&ARCHS),
        labels::CAPACITY_TYPE: "spot", labels::INSTANCE_TYPE: "t0", labels::REGISTERED: "true",
    });
    if initialized {
        node_labels[labels::INITIALIZED] = json!("true");
    }
    if dice.one_in(2) {
        node_labels["team"] = json!(dice.pick(&TEAMS));
    }
    let amounts = json!({"cpu": (1 + dice.below(8)).to_string(), "memory": format!("{}Gi", 1 + dice.below(16)), "pods": (2 + dice.below(10)).to_string()});
    let mut meta = json!({"name": name, "uid": name, "labels": node_labels});
    if dice.one_in(6) {
        meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    let id = format!("cloud:///{name}");
    let taints = if dice.one_in(5) {
        json!([{"key": "dedicated", "value": "red", "effect": "NoSchedule"}])
    } else {
        json!([])
    };
    let node = json!({"metadata": meta, "spec": {"providerID": id, "taints": taints}, "status": {"capacity": amounts, "allocatable": amounts}});
    let claim = json!({
        "metadata": {"name": format!("c{at}"), "uid": format!("c{at}"), "labels": node_labels},
        "spec": {"nodeClassRef": {"group": "g", "kind": "Class", "name": "default"}, "requirements": []},
        "status": {"providerID": id, "nodeName": name, "capacity": amounts, "allocatable": amounts},
    });
    (node, claim)
}

/// A NodeClaim that was created and not launched yet.
fn expected_claim(dice: &mut Dice, at: usize) -> Value {
    let zones: Vec<&str> = ZONES.iter().copied().filter(|_| !dice.one_in(3)).collect();
    let mut requirements = vec![
        json!({"key": labels::NODEPOOL, "operator": "In", "values": ["pool-0"]}),
        json!({"key": labels::INSTANCE_TYPE, "operator": "In", "values": ["t0", "t1"]}),
    ];
    if !zones.is_empty() {
        requirements.push(json!({"key": labels::TOPOLOGY_ZONE, "operator": "In", "values": zones}));
    }
    json!({
        "metadata": {"name": format!("coming-{at}"), "uid": format!("coming-{at}"), "labels": {labels::NODEPOOL: "pool-0"}},
        "spec": {"nodeClassRef": {"group": "g", "kind": "Class", "name": "default"}, "requirements": requirements},
    })
}

fn selector(app: &str) -> Value {
    json!({"matchLabels": {"app": app}})
}

fn pod(dice: &mut Dice, name: &str) -> Value {
    let app = dice.pick(&["a", "b", "c"]);
    let cpu = [0, 100, 250, 500, 1000, 3000][dice.below(6)];
    let memory = [0, 128, 512, 2048, 6000][dice.below(5)];
    let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}}}]});
    if dice.one_in(8) {
        spec["containers"][0]["ports"] =
            json!([{"containerPort": 80, "hostPort": 8000 + dice.below(2), "protocol": "TCP"}]);
    }
    if dice.one_in(6) {
        spec["nodeSelector"] = json!({labels::ARCH: dice.pick(&ARCHS)});
    }
    let mut affinity = json!({});
    if dice.one_in(6) {
        let term = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({"nodeSelectorTerms": [
            term("team", "In", json!([dice.pick(&TEAMS)])),
            term(labels::TOPOLOGY_ZONE, "NotIn", json!([dice.pick(&ZONES)])),
        ]});
    }
    if dice.one_in(8) {
        affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([{"weight": 1 + dice.below(9), "preference":
            {"matchExpressions": [{"key": labels::TOPOLOGY_ZONE, "operator": "In", "values": [dice.pick(&ZONES)]}]}}]);
    }
    for (kind, chance) in [("podAffinity", 8), ("podAntiAffinity", 6)] {
        let term = json!({"labelSelector": selector(dice.pick(&[app, "b"])), "topologyKey": dice.pick(&[labels::HOSTNAME, labels::TOPOLOGY_ZONE])});
        if dice.one_in(chance) {
            affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term]);
        } else if dice.one_in(chance) {
            affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"weight": 1 + dice.below(99), "podAffinityTerm": term}]);
        }
    }
    if affinity != json!({}) {
        spec["affinity"] = affinity;
    }
    if dice.one_in(4) {
        spec["topologySpreadConstraints"] = json!([{
            "maxSkew": 1 + dice.below(2), "topologyKey": dice.pick(&[labels::HOSTNAME, labels::TOPOLOGY_ZONE, labels::CAPACITY_TYPE]),
            "whenUnsatisfiable": dice.pick(&["DoNotSchedule", "ScheduleAnyway"]), "labelSelector": selector(app),
        }]);
    }
    if dice.one_in(3) {
        spec["tolerations"] = json!([{"key": "dedicated", "operator": "Exists"}]);
    }
    if dice.one_in(5) {
        spec["priority"] = json!(dice.below(3) * 100);
    }
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": {"app": app},
            "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", dice.below(3))},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    })
}

impl World {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let catalog = Arc::new(catalog(&mut dice));
        let mut objects: Vec<Object> = Vec::new();
        for at in 0..1 + dice.below(3) {
            objects.push(Object::Pool(Box::new(read::<NodePool>(pool(
                &mut dice, at,
            )))));
        }
        let nodes = dice.below(5);
        for at in 0..nodes {
            let (node, claim) = node_and_claim(&mut dice, at);
            objects.push(Object::Node(Box::new(read(node))));
            objects.push(Object::Claim(Box::new(read::<NodeClaim>(claim))));
            for bound in 0..dice.below(4) {
                let mut pod = pod(&mut dice, &format!("bound-{at}-{bound}"));
                pod["spec"]["nodeName"] = json!(format!("n{at}"));
                pod["status"] = json!({"phase": "Running"});
                objects.push(Object::Pod(Box::new(read(pod))));
            }
        }
        let claims = dice.below(3);
        for at in 0..claims {
            objects.push(Object::Claim(Box::new(read(expected_claim(&mut dice, at)))));
        }
        for at in 0..dice.below(3) {
            let mut template = json!({"containers": [{"name": "d", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]});
            if dice.one_in(2) {
                template["nodeSelector"] = json!({labels::ARCH: dice.pick(&ARCHS)});
            }
            if dice.one_in(3) {
                template["containers"][0]["ports"] = json!([{"hostPort": 8000, "protocol": "TCP"}]);
            }
            let set = json!({"metadata": {"name": format!("d{at}"), "namespace": "kube-system"}, "spec": {"template": {"spec": template}}});
            objects.push(Object::DaemonSet(Box::new(read(set))));
        }
        let pending = 1 + dice.below(25);
        let mut nominations = Vec::new();
        for at in 0..pending {
            let name = format!("p{at:02}");
            objects.push(Object::Pod(Box::new(read(pod(&mut dice, &name)))));
            if claims > 0 && dice.one_in(8) {
                nominations.push((name, format!("coming-{}", dice.below(claims))));
            }
        }
        Self {
            objects,
            catalog,
            nominations,
        }
    }

    /// The cluster, with its objects applied in the order of `objects`.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let now = Timestamp::UNIX_EPOCH;
        let mut index = Index::new(WellKnown::core(), false, now);
        for object in &self.objects {
            if let Object::Pool(pool) = object {
                index.set_catalog(&pool.node_class_key(), Arc::clone(&self.catalog));
            }
        }
        for object in &self.objects {
            index.apply(ObjectEvent::Applied(object.clone(), EventSource::Watch));
        }
        for (pod, claim) in &self.nominations {
            let found = index.freeze(now);
            let key = mortise_apis::names::PodKey::new("default", pod.as_str());
            let Some(pod) = found.pods.get(&key) else {
                continue;
            };
            index.change_ledger(LedgerOp::Nominate(Nomination {
                pod: key,
                uid: pod.uid.clone(),
                place: NominationTarget::Claim(claim.as_str().into()),
                requests: pod.class.requests.clone(),
                priority: pod.class.priority,
                from: now,
                until: Timestamp::MAX,
            }));
        }
        index.set_synced();
        index.freeze(now)
    }

    /// The same objects in another order.
    pub(crate) fn shuffle(&mut self, seed: u64) {
        let mut dice = Dice::new(seed);
        for at in (1..self.objects.len()).rev() {
            self.objects.swap(at, dice.below(at + 1));
        }
    }
}

/// Reads a pod spec's terms back, for checks that must not use the solver's own code.
pub(crate) fn raw_pods(world: &World) -> Vec<&k8s::Pod> {
    let pods = world.objects.iter().filter_map(|object| match object {
        Object::Pod(pod) => Some(&**pod),
        _ => None,
    });
    pods.collect()
}
