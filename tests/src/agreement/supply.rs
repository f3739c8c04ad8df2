//! What scenarios can use: instance types, pools, storage classes, DaemonSets, nodes and what runs on them.

use mortise_apis::labels;
use mortise_apis::requirements::{Operator, Requirement};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use serde_json::{Value, json};

use super::objects::csi_node;
use super::scenario::{CPUS, DEVICE, DRIVER, Drawing, LABEL, NAMESPACES, ZONES};

const ARCHS: [&str; 2] = ["amd64", "arm64"];
const GIB: i64 = 1 << 30;

/// Four to eight types of 2 to 16 CPUs, with holes in what is offered.
pub(crate) fn types(drawing: &mut Drawing) {
    for at in 0..4 + drawing.below(5) {
        // The first is large, amd64 and to be had everywhere, so that most pods have some place.
        let first = at == 0;
        let cpu = if first { 16 } else { 2_i64 << drawing.below(4) };
        let memory = cpu * GIB * if first { 4 } else { 2 << drawing.below(3) };
        let arch = if first { "amd64" } else { drawing.pick(&ARCHS) };
        let devices = if drawing.one_in(4) || first { 2 } else { 0 };
        let pods = 8 + 6 * cpu;
        let mut offerings = Vec::new();
        for zone in ZONES {
            for (capacity_type, factor) in [(CapacityType::OnDemand, 100), (CapacityType::Spot, 40)]
            {
                if !first && drawing.one_in(4) {
                    continue;
                }
                let price = cpu * 500 * factor + i64::try_from(drawing.below(3_000)).unwrap_or(0);
                offerings.push(Offering {
                    zone: zone.into(),
                    capacity_type,
                    price: Some(MicroUsd(price)),
                    available: first || !drawing.one_in(8),
                    reservation: None,
                    labels: Vec::new(),
                });
            }
        }
        let name = format!("t{at}-{cpu}x-{arch}");
        let cpus = cpu.to_string();
        let list = |key: &str, values: &[&str]| {
            Requirement::new(key, Operator::In, values.iter().copied())
        };
        let requirements = [
            list(labels::INSTANCE_TYPE, &[&name]),
            list(labels::ARCH, &[arch]),
            list(labels::OS, &["linux"]),
            list(labels::TOPOLOGY_ZONE, &ZONES),
            list(labels::CAPACITY_TYPE, &["spot", "on-demand"]),
            list(CPUS, &[&cpus]),
        ];
        let mut capacity = Resources::new(cpu * 1000, memory).with("pods", pods);
        if devices > 0 {
            capacity = capacity.with(DEVICE, devices);
        }
        drawing.types.push(InstanceType {
            name: name.as_str().into(),
            requirements: requirements.into_iter().collect(),
            capacity,
            overhead: Resources::new(100, 200 << 20),
            offerings,
            devices: std::sync::Arc::default(),
        });
    }
}

/// One pool for everything, and up to two special ones.
pub(crate) fn pools(drawing: &mut Drawing) -> Vec<Value> {
    let mut pools = vec![pool(0, &json!({}), json!([]), &json!([]), 10)];
    for at in 1..=drawing.below(3) {
        let mut requirements = Vec::new();
        if drawing.one_in(3) {
            let zones = [drawing.pick(&ZONES), drawing.pick(&ZONES)];
            requirements
                .push(json!({"key": labels::TOPOLOGY_ZONE, "operator": "In", "values": zones}));
        }
        if drawing.one_in(3) {
            let way = drawing.pick(&["spot", "on-demand"]);
            requirements
                .push(json!({"key": labels::CAPACITY_TYPE, "operator": "In", "values": [way]}));
        }
        if drawing.one_in(4) {
            requirements
                .push(json!({"key": "team", "operator": "In", "values": ["green", "white"]}));
        }
        let own = if drawing.one_in(2) {
            json!({"team": drawing.pick(&["red", "blue"])})
        } else {
            json!({})
        };
        let taints = match drawing.below(4) {
            0 => json!([{"key": "dedicated", "value": "red", "effect": "NoSchedule"}]),
            1 => json!([{"key": "dedicated", "value": "red", "effect": "PreferNoSchedule"}]),
            _ => json!([]),
        };
        let weight = 1 + drawing.below(20);
        pools.push(pool(at, &own, json!(requirements), &taints, weight));
    }
    pools
}

fn pool(at: usize, own: &Value, requirements: Value, taints: &Value, weight: usize) -> Value {
    // A label that is a requirement as well would be two.
    let stated = |key: &str| {
        let all = requirements.as_array().into_iter().flatten();
        all.into_iter().any(|each| each["key"] == key)
    };
    let own = if stated("team") { &json!({}) } else { own };
    json!({
        "metadata": {"name": format!("pool-{at}"), "uid": format!("pool-{at}")},
        "spec": {
            "template": {
                "metadata": {"labels": own},
                "spec": {"nodeClassRef": {"group": "g", "kind": "Class", "name": "default"}, "requirements": requirements, "taints": taints},
            },
            "limits": {},
            "weight": weight,
        },
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

/// Name of a storage class whose volumes can be anywhere, or in some zones only.
pub(crate) fn storage_class(drawing: &Drawing, zonal: bool) -> String {
    drawing.name(if zonal { "zonal" } else { "anywhere" })
}

/// Both storage classes.
pub(crate) fn storage_classes(drawing: &mut Drawing) {
    let class = |drawing: &Drawing, rest: &str| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": drawing.meta(rest),
            "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer",
        })
    };
    let anywhere = class(drawing, "anywhere");
    let mut zonal = class(drawing, "zonal");
    let mut zones = vec![drawing.pick(&ZONES)];
    if drawing.one_in(2) {
        zones.push(drawing.pick(&ZONES));
        zones.sort_unstable();
        zones.dedup();
    }
    zonal["allowedTopologies"] =
        json!([{"matchLabelExpressions": [{"key": labels::TOPOLOGY_ZONE, "values": zones}]}]);
    drawing.before.extend([anywhere, zonal]);
}

/// Up to two DaemonSets.
pub(crate) fn daemon_sets(drawing: &mut Drawing) {
    for at in 0..drawing.below(3) {
        let name = drawing.name(&format!("daemon-{at}"));
        let number = drawing.number.to_string();
        let cpu = format!("{}m", 50 * (1 + drawing.below(4)));
        let mut spec = json!({
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "d", "image": "registry.test/d", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}],
        });
        if drawing.one_in(3) {
            spec["nodeSelector"] = json!({labels::ARCH: drawing.pick(&ARCHS)});
        }
        if drawing.one_in(2) {
            spec["tolerations"] = json!([{"operator": "Exists"}]);
        }
        if drawing.one_in(3) {
            let port = 9100 + at;
            spec["containers"][0]["ports"] = json!([{"containerPort": port, "hostPort": port}]);
        }
        let (namespace, _) = NAMESPACES[drawing.below(NAMESPACES.len())];
        drawing.before.push(json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: number}},
            "spec": {
                "selector": {"matchLabels": {"daemon": name}},
                "template": {"metadata": {"labels": {"daemon": name, LABEL: number}}, "spec": spec},
            },
        }));
    }
}

/// Up to four nodes that are there before, with pods on them.
pub(crate) fn nodes(drawing: &mut Drawing) {
    for at in 0..drawing.below(5) {
        let of = drawing.below(drawing.types.len());
        let Some(of) = drawing.types.get(of).cloned() else {
            return;
        };
        let zone = drawing.pick(&ZONES);
        let name = drawing.name(&format!("old-{at}"));
        let arch = of
            .requirements
            .get(labels::ARCH)
            .and_then(|own| own.values().first().cloned())
            .unwrap_or_default();
        let cpus = of.capacity.cpu / 1000;
        let way = drawing.pick(&["spot", "on-demand"]);
        let mut own = json!({
            LABEL: drawing.number.to_string(), labels::HOSTNAME: name, labels::ARCH: arch, labels::OS: "linux",
            labels::INSTANCE_TYPE: of.name, labels::NODEPOOL: "pool-0", labels::CAPACITY_TYPE: way, CPUS: cpus.to_string(),
        });
        if !drawing.one_in(12) {
            own[labels::TOPOLOGY_ZONE] = json!(zone);
        }
        if drawing.one_in(2) {
            own["team"] = json!(drawing.pick(&["red", "blue"]));
        }
        let taints = if drawing.one_in(6) {
            json!([{"key": "dedicated", "value": "red", "effect": "NoSchedule"}])
        } else {
            json!([])
        };
        let cordoned = drawing.one_in(10);
        let node = super::objects::node(
            &name,
            own,
            taints,
            cordoned,
            &of.capacity.to_api(),
            &of.allocatable().to_api(),
        );
        let volumes = 1 + drawing.below(3);
        drawing.before.push(node);
        let limit = drawing.one_in(2).then_some(volumes);
        drawing.before.push(csi_node(&name, drawing.number, limit));
        let mut left = of.allocatable().cpu - 800;
        for of_node in 0..drawing.below(4) {
            let cpu = 100 * (1 + i64::try_from(drawing.below(8)).unwrap_or(0));
            left -= cpu;
            if left < 0 {
                break;
            }
            let running = bound(drawing, &name, at * 10 + of_node, cpu);
            drawing.before.push(running);
        }
    }
}

/// A pod that runs on a node.
fn bound(drawing: &mut Drawing, node: &str, at: usize, cpu: i64) -> Value {
    let app = drawing.below(drawing.apps.len());
    let app = drawing.apps.get(app).cloned().unwrap_or_default();
    let (namespace, _) = NAMESPACES[drawing.below(NAMESPACES.len())];
    let mut spec = json!({
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "registry.test/c", "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": "128Mi"}}}],
    });
    if drawing.one_in(6) {
        let other = drawing.below(drawing.apps.len());
        let other = drawing.apps.get(other).cloned().unwrap_or_default();
        spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([{
            "labelSelector": {"matchLabels": {"app": other}},
            "topologyKey": drawing.pick(&[labels::HOSTNAME, labels::HOSTNAME, labels::TOPOLOGY_ZONE]),
        }]);
    }
    if drawing.one_in(6) {
        let port = 8080 + drawing.below(2);
        spec["containers"][0]["ports"] = json!([{"containerPort": port, "hostPort": port}]);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": drawing.name(&format!("bound-{at}")), "namespace": namespace,
            "labels": {LABEL: drawing.number.to_string(), "app": app, "tier": "running"},
        },
        "spec": spec,
    })
}
