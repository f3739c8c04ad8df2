//! Clusters made by arithmetic from a seed, so that everyone measures the same ones.

use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::requirements::{Operator, Requirement};
use mortise_apis::resources::Resources;
use mortise_apis::values::SplitMix64;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::{NodeClaim, NodePool, k8s};
use mortise_cloudprovider::{CapacityType, InstanceType, Offering, ResolvedNodeClass};
use mortise_deciders::ProvisioningDecider;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectOutput, Outcome};
use mortise_engine::engine::{Engine, EngineInput};
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use serde_json::{Value, json};

const ZONES: [&str; 4] = ["zone-a", "zone-b", "zone-c", "zone-d"];
const ARCHS: [&str; 2] = ["amd64", "arm64"];
const GIB: i64 = 1 << 30;

/// Teams, by which pools and pods are told apart.
pub(super) const TEAMS: usize = 10;

pub(super) fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T> {
    Ok(serde_json::from_value(value)?)
}

/// A number below `below` that depends on nothing but the seed and `of`.
fn draw(seed: u64, of: [usize; 2], below: usize) -> usize {
    let mixed = of.into_iter().fold(seed, |mixed, each| {
        SplitMix64::new(mixed ^ each as u64).next_u64()
    });
    usize::try_from(mixed % below.max(1) as u64).unwrap_or(0)
}

/// Types of four families in eight sizes and more generations than any region has, at prices that follow their size.
fn instance_types(count: usize) -> Vec<InstanceType> {
    let list =
        |key: &str, values: &[&str]| Requirement::new(key, Operator::In, values.iter().copied());
    let one = |at: usize| {
        let (family, rest) = (at % 4, at / 4);
        let (size, generation) = (rest % 8, rest / 8);
        let arch = ARCHS[generation % 2];
        let cpu = [1_i64, 2, 4, 8, 16, 32, 48, 96][size];
        let ratio = [2_i64, 4, 8, 16][family];
        let generation_price = 100 - i64::try_from(generation).unwrap_or(0);
        let price = cpu * (20_000 + 5_000 * ratio) * generation_price / 100;
        let name = format!("{}{generation}.{cpu}x", ["c", "m", "r", "x"][family]);
        let offerings = ZONES.iter().flat_map(|zone| {
            [(CapacityType::Spot, 35), (CapacityType::OnDemand, 100)].map(|(kind, percent)| {
                Offering {
                    zone: (*zone).into(),
                    capacity_type: kind,
                    price: Some(MicroUsd(price * percent / 100)),
                    available: true,
                    reservation: None,
                    labels: Vec::new(),
                }
            })
        });
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
            capacity: Resources::new(cpu * 1000, cpu * ratio * GIB)
                .with("pods", 58 + 50 * cpu.min(4)),
            overhead: Resources::new(80 + cpu * 2, 512 << 20),
            offerings: offerings.collect(),
            devices: Arc::default(),
        }
    };
    (0..count).map(one).collect()
}

fn pool(at: usize) -> Value {
    json!({
        "metadata": {"name": format!("pool-{at:02}"), "uid": format!("pool-{at}")},
        "spec": {
            "weight": 1 + at % 5,
            "limits": {"cpu": "1000000"},
            "template": {
                "metadata": {"labels": {"team": format!("team-{}", at % TEAMS)}},
                "spec": {
                    "nodeClassRef": {"group": "g", "kind": "Class", "name": "default"},
                    "requirements": [{"key": labels::ARCH, "operator": "In", "values": [ARCHS[at % 2]]}],
                    "taints": if at % 4 == 3 { json!([{"key": "dedicated", "value": format!("d{at}"), "effect": "NoSchedule"}]) } else { json!([]) },
                },
            },
        },
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

/// Which constraints deployments have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// Resources, and selectors of pools now and then.
    Plain,
    /// One in three deployments spreads or has affinity.
    Diverse,
    /// Every deployment has affinity, anti-affinity or spread.
    Affinity,
}

/// A pod of a deployment; pods of one deployment are alike.
pub(super) fn pod(seed: u64, deployment: usize, replica: usize, mix: Mix) -> Value {
    let app = format!("app-{deployment}");
    let cpu = [100, 250, 500, 750, 1000, 2000, 4000][draw(seed, [deployment, 1], 7)];
    let memory = [128, 256, 512, 1024, 2048, 4096, 8192, 16384][draw(seed, [deployment, 2], 8)];
    let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}}}]});
    if draw(seed, [deployment, 3], 6) == 0 {
        spec["nodeSelector"] =
            json!({"team": format!("team-{}", draw(seed, [deployment, 4], TEAMS))});
    }
    let kind = match mix {
        Mix::Plain => 9,
        Mix::Diverse => deployment % 12,
        Mix::Affinity => deployment % 4,
    };
    match kind {
        0 => spread(&mut spec, &app, labels::TOPOLOGY_ZONE),
        1 => together(&mut spec, &app, labels::TOPOLOGY_ZONE),
        2 => apart(&mut spec, &app, labels::HOSTNAME),
        3 => spread(&mut spec, &app, labels::HOSTNAME),
        _ => {}
    }
    json!({
        "metadata": {"name": format!("{app}-{replica}"), "namespace": "default", "uid": format!("uid-{app}-{replica}"), "labels": {"app": app},
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    })
}

fn term(app: &str, key: &str) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}]})
}

/// At most one pod of the app more in one domain than in another.
pub(super) fn spread(spec: &mut Value, app: &str, key: &str) {
    spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": app}}}]);
}

/// In a domain where pods of the app are.
pub(super) fn together(spec: &mut Value, app: &str, key: &str) {
    spec["affinity"]["podAffinity"] = term(app, key);
}

/// In a domain where no pod of the app is.
pub(super) fn apart(spec: &mut Value, app: &str, key: &str) {
    spec["affinity"]["podAntiAffinity"] = term(app, key);
}

/// DaemonSets as clusters have them: for every node, for every Linux node, for one processor architecture.
fn daemon_sets() -> [(&'static str, Value); 3] {
    let container = |cpu: &str, memory: &str| json!([{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]);
    let everywhere = json!([{"operator": "Exists"}]);
    [
        (
            "network",
            json!({"tolerations": everywhere, "containers": container("50m", "64Mi")}),
        ),
        (
            "logs",
            json!({"tolerations": everywhere, "nodeSelector": {labels::OS: "linux"}, "containers": container("50m", "128Mi")}),
        ),
        (
            "arm-agent",
            json!({"nodeSelector": {labels::ARCH: "arm64"}, "containers": container("20m", "32Mi")}),
        ),
    ]
}

/// A cluster behind the engine that the program runs, with provisioning as its only decider.
pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) now: Timestamp,
    seed: u64,
    /// One node in three is on-demand; otherwise all are spot.
    has_on_demand_nodes: bool,
}

impl World {
    /// Pools with their types, and DaemonSets.
    pub(super) fn new(seed: u64, pools: usize, types: usize) -> Result<Self> {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse()?;
        let engine = Engine::new(
            vec![Box::new(ProvisioningDecider::default())],
            Settings::default(),
            WellKnown::core(),
            seed,
            now,
        );
        let mut world = Self {
            engine,
            now,
            seed,
            has_on_demand_nodes: false,
        };
        for at in 0..pools {
            let pool: NodePool = read(pool(at))?;
            if at == 0 {
                world.resolve(&pool, types);
            }
            world.put(Object::Pool(Box::new(pool)));
        }
        for (name, spec) in daemon_sets() {
            let set = json!({"metadata": {"name": name, "namespace": "kube-system", "uid": format!("set-{name}")},
                "spec": {"selector": {"matchLabels": {"set": name}}, "template": {"metadata": {"labels": {"set": name}}, "spec": spec}}});
            world.put(Object::DaemonSet(Box::new(read(set)?)));
        }
        Ok(world)
    }

    /// One node in three is on-demand.
    pub(super) const fn with_on_demand_nodes(mut self) -> Self {
        self.has_on_demand_nodes = true;
        self
    }

    fn resolve(&mut self, pool: &NodePool, types: usize) {
        let class = NodeClassObject::new(pool.node_class_key(), json!({}));
        let resolved = ResolvedNodeClass {
            status: None,
            annotations: std::collections::BTreeMap::new(),
            finalizer: None,
            instance_types: instance_types(types),
            shifted_zones: Vec::new(),
            again_ms: None,
        };
        let outcome = Outcome {
            effect: Arc::new(Effect::Resolve(Box::new(class.into()))),
            result: Ok(EffectOutput::Resolved(Arc::new(resolved))),
        };
        let (decider, term) = (DeciderId::NodeClass, self.engine.term());
        self.engine.apply(
            EngineInput::Outcome {
                decider,
                term,
                outcome,
            },
            self.now,
        );
    }

    /// An object as a watch brings it.
    pub(super) fn put(&mut self, object: Object) {
        self.take(ObjectEvent::Applied(object, EventSource::Watch));
    }

    /// What a watch brings.
    pub(super) fn take(&mut self, news: ObjectEvent) {
        self.engine.apply(EngineInput::News(news), self.now);
    }

    /// Pending pods.
    pub(super) fn add_pods(&mut self, count: usize, replicas: usize, mix: Mix) -> Result<()> {
        for at in 0..count {
            let pod: k8s::Pod = read(pod(self.seed, at / replicas, at % replicas, mix))?;
            self.put(Object::Pod(Box::new(pod)));
        }
        Ok(())
    }

    /// Pending pods of gangs. Unless it is whole, the last pod of each fits on no node.
    pub(super) fn add_gangs(&mut self, gangs: usize, pods: usize, is_whole: bool) -> Result<()> {
        for gang in 0..gangs {
            let name = format!("gang-{gang}");
            let group = json!({"metadata": {"name": name, "namespace": "default", "uid": name},
                "spec": {"schedulingPolicy": {"gang": {"minCount": pods}}}});
            self.put(Object::PodGroup(Box::new(read(group)?)));
            for at in 0..pods {
                let mut pod = pod(self.seed, 9 + 12 * gang, at, Mix::Plain);
                let cpu = if is_whole || at + 1 < pods {
                    "2"
                } else {
                    "1000"
                };
                pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
                pod["spec"]["nodeSelector"] = json!({});
                pod["spec"]["schedulingGroup"] = json!({"podGroupName": name});
                self.put(Object::Pod(Box::new(read(pod)?)));
            }
        }
        Ok(())
    }

    /// Nodes with this number of pods each, DaemonSet pods included. One in three has free capacity for small pods; those of
    /// the last team have none.
    pub(super) fn add_nodes(&mut self, nodes: usize, pools: usize, pods_each: usize) -> Result<()> {
        for at in 0..nodes {
            let name = format!("node-{at:05}");
            let team = at % pools % TEAMS;
            let is_on_demand = self.has_on_demand_nodes && at % 3 == 1;
            let capacity_type = if is_on_demand { "on-demand" } else { "spot" };
            let all_labels = json!({
                labels::NODEPOOL: format!("pool-{:02}", at % pools), labels::TOPOLOGY_ZONE: ZONES[at / pools % 4], labels::HOSTNAME: name,
                labels::ARCH: ARCHS[at % pools % 2], labels::OS: "linux", labels::CAPACITY_TYPE: capacity_type,
                labels::INSTANCE_TYPE: "m0.8x", labels::REGISTERED: "true", labels::INITIALIZED: "true",
                "team": format!("team-{team}"),
            });
            let taints = if at % pools % 4 == 3 {
                json!([{"key": "dedicated", "value": format!("d{}", at % pools), "effect": "NoSchedule"}])
            } else {
                json!([])
            };
            let amounts = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
            let id = format!("cloud:///{name}");
            let node = json!({"metadata": {"name": name, "uid": name, "labels": all_labels}, "spec": {"providerID": id, "taints": taints},
                "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}});
            let claim = json!({
                "metadata": {"name": format!("claim-{at:05}"), "uid": format!("claim-{at}"), "labels": all_labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"nodeClassRef": {"group": "g", "kind": "Class", "name": "default"}, "requirements": []},
                "status": {"providerID": id, "nodeName": name, "capacity": amounts, "allocatable": amounts},
            });
            self.put(Object::Node(Box::new(read(node)?)));
            self.put(Object::Claim(Box::new(read::<NodeClaim>(claim)?)));
            let daemons = daemon_sets().len();
            for each in 0..pods_each {
                let value = if each < daemons {
                    daemon_pod(each, at, &name)
                } else {
                    self.bound_pod(
                        at * pods_each + each,
                        at % 3 == 0 && team != TEAMS - 1,
                        &name,
                    )
                };
                self.put(Object::Pod(Box::new(read(value)?)));
            }
        }
        Ok(())
    }

    fn bound_pod(&self, number: usize, small: bool, node: &str) -> Value {
        let mut pod = pod(self.seed, number / 200, number, Mix::Diverse);
        pod["spec"]["nodeName"] = json!(node);
        let (cpu, memory) = if small {
            ("250m", "1000Mi")
        } else {
            ("450m", "1500Mi")
        };
        pod["spec"]["containers"][0]["resources"]["requests"] =
            json!({"cpu": cpu, "memory": memory});
        pod["status"] = json!({"phase": "Running"});
        pod["metadata"]["name"] = json!(format!("bound-{number}"));
        pod["metadata"]["uid"] = json!(format!("bound-{number}"));
        pod
    }

    /// Every list has been read, and this process leads.
    pub(super) fn start(&mut self) {
        self.engine.apply(EngineInput::Synced, self.now);
        self.engine.apply(EngineInput::Leading(true), self.now);
    }
}

fn daemon_pod(set: usize, at: usize, node: &str) -> Value {
    let sets = daemon_sets();
    let (name, spec) = &sets[set];
    let mut spec = spec.clone();
    spec["nodeName"] = json!(node);
    json!({
        "metadata": {"name": format!("{name}-{at}"), "namespace": "kube-system", "uid": format!("{name}-{at}"), "labels": {"set": name},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": format!("set-{name}"), "controller": true}]},
        "spec": spec,
        "status": {"phase": "Running"},
    })
}
