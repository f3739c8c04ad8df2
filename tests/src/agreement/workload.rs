//! Pods to place: a few kinds with some replicas each.

use std::collections::BTreeSet;

use mortise_apis::labels;
use serde_json::{Value, json};

use super::scenario::{
    CPUS, DEVICE, DRIVER, Drawing, DrawnPod, Feature, GATE, LABEL, NAMESPACES, PRIORITIES, ZONES,
};
use super::supply::storage_class;

const CPU_MILLI: [usize; 7] = [50, 100, 250, 500, 1_000, 2_000, 3_500];
const MEMORY_MIB: [usize; 7] = [64, 128, 256, 512, 1_024, 2_048, 4_096];

/// Draws all kinds.
pub(crate) fn draw(drawing: &mut Drawing) {
    for at in 0..drawing.apps.len() {
        kind(drawing, at);
    }
}

/// What the pods of a kind share.
struct Kind {
    app: String,
    namespace: &'static str,
    spec: Value,
    features: BTreeSet<Feature>,
}

fn kind(drawing: &mut Drawing, at: usize) {
    let Some(app) = drawing.apps.get(at).cloned() else {
        return;
    };
    let (namespace, _) = NAMESPACES[drawing.below(NAMESPACES.len())];
    let mut kind = Kind {
        app,
        namespace,
        spec: json!({"terminationGracePeriodSeconds": 0, "schedulingGates": [{"name": GATE}]}),
        features: BTreeSet::new(),
    };
    containers(drawing, &mut kind);
    node_constraints(drawing, &mut kind);
    spread(drawing, &mut kind);
    neighbours(drawing, &mut kind);
    if drawing.wants(Feature::Priority, 8) {
        kind.features.insert(Feature::Priority);
        let (class, _) = PRIORITIES[drawing.below(PRIORITIES.len())];
        kind.spec["priorityClassName"] = json!(class);
    }
    let shared = volumes(drawing, &mut kind);
    if kind.features.is_empty() {
        kind.features.insert(Feature::Resources);
    }
    for replica in 0..1 + drawing.below(6) {
        replica_of(drawing, &kind, replica, shared.as_deref());
    }
}

fn amounts(drawing: &mut Drawing) -> Value {
    let cpu = CPU_MILLI[drawing.below(CPU_MILLI.len())];
    let memory = MEMORY_MIB[drawing.below(MEMORY_MIB.len())];
    json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")})
}

fn containers(drawing: &mut Drawing, kind: &mut Kind) {
    let mut main = json!({"name": "main", "image": "registry.test/main", "resources": {"requests": amounts(drawing)}});
    if drawing.wants(Feature::ExtendedResource, 10) {
        kind.features.insert(Feature::ExtendedResource);
        main["resources"]["requests"][DEVICE] = json!("1");
        main["resources"]["limits"] = json!({DEVICE: "1"});
    }
    if drawing.wants(Feature::HostPorts, 8) {
        kind.features.insert(Feature::HostPorts);
        let port = [8080, 8081, 9100][drawing.below(3)];
        let mut own = json!({"containerPort": port, "hostPort": port, "protocol": drawing.pick(&["TCP", "TCP", "UDP"])});
        if drawing.one_in(3) {
            own["hostIP"] = json!(drawing.pick(&["10.1.1.1", "10.1.1.2"]));
        }
        main["ports"] = json!([own]);
    }
    if drawing.wants(Feature::Containers, 8) {
        kind.features.insert(Feature::Containers);
        let mut sidecar = json!({"name": "side", "image": "registry.test/side", "restartPolicy": "Always", "resources": {"requests": amounts(drawing)}});
        if drawing.one_in(3) {
            sidecar["ports"] = json!([{"containerPort": 8082, "hostPort": 8082}]);
        }
        let first = json!({"name": "first", "image": "registry.test/first", "resources": {"requests": amounts(drawing)}});
        kind.spec["initContainers"] = if drawing.one_in(2) {
            json!([sidecar, first])
        } else {
            json!([first, sidecar])
        };
        if drawing.one_in(3) {
            kind.spec["resources"] = json!({"requests": {"cpu": "7500m", "memory": "9Gi"}});
        }
    }
    kind.spec["containers"] = json!([main]);
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    if values.is_empty() {
        json!({"key": key, "operator": operator})
    } else {
        json!({"key": key, "operator": operator, "values": values})
    }
}

/// Something to ask of a node.
fn node_expression(drawing: &mut Drawing) -> Value {
    match drawing.below(8) {
        0 => expression(
            labels::TOPOLOGY_ZONE,
            "In",
            &[drawing.pick(&ZONES), drawing.pick(&ZONES)],
        ),
        1 => expression(labels::TOPOLOGY_ZONE, "NotIn", &[drawing.pick(&ZONES)]),
        2 => expression(labels::ARCH, "In", &[drawing.pick(&["amd64", "arm64"])]),
        3 => expression(CPUS, "Gt", &[drawing.pick(&["2", "4"])]),
        4 => expression(CPUS, "Lt", &[drawing.pick(&["8", "16", "17"])]),
        5 => expression(
            "team",
            drawing.pick(&["In", "NotIn"]),
            &[drawing.pick(&["red", "blue", "green"])],
        ),
        6 => expression(
            "team",
            drawing.pick(&["Exists", "DoesNotExist", "DoesNotExist"]),
            &[],
        ),
        _ => expression(
            labels::CAPACITY_TYPE,
            "In",
            &[drawing.pick(&["spot", "on-demand"])],
        ),
    }
}

fn node_term(drawing: &mut Drawing) -> Value {
    let all: Vec<Value> = (0..1 + drawing.below(2))
        .map(|_| node_expression(drawing))
        .collect();
    json!({"matchExpressions": all})
}

fn node_constraints(drawing: &mut Drawing, kind: &mut Kind) {
    if drawing.wants(Feature::NodeSelector, 6) {
        kind.features.insert(Feature::NodeSelector);
        kind.spec["nodeSelector"] = match drawing.below(5) {
            0 | 1 => json!({labels::ARCH: drawing.pick(&["amd64", "amd64", "arm64"])}),
            2 => json!({labels::TOPOLOGY_ZONE: drawing.pick(&ZONES)}),
            3 => json!({labels::CAPACITY_TYPE: drawing.pick(&["spot", "on-demand"])}),
            _ => json!({"team": drawing.pick(&["red", "blue"])}),
        };
    }
    if drawing.wants(Feature::NodeAffinity, 8) {
        kind.features.insert(Feature::NodeAffinity);
        let terms: Vec<Value> = (0..1 + drawing.below(3))
            .map(|_| node_term(drawing))
            .collect();
        kind.spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": terms});
    }
    if drawing.wants(Feature::PreferredNode, 8) {
        kind.features.insert(Feature::PreferredNode);
        let preferences: Vec<Value> = (0..1 + drawing.below(2))
            .map(|_| json!({"weight": 1 + drawing.below(100), "preference": node_term(drawing)}))
            .collect();
        kind.spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
            json!(preferences);
    }
    if drawing.wants(Feature::Tolerations, 4) {
        kind.features.insert(Feature::Tolerations);
        kind.spec["tolerations"] = match drawing.below(3) {
            0 => json!([{"key": "dedicated", "operator": "Exists"}]),
            1 => {
                json!([{"key": "dedicated", "operator": "Equal", "value": "red", "effect": "NoSchedule"}])
            }
            _ => json!([{"operator": "Exists"}]),
        };
    }
}

/// Selects the kind itself, or all pods of its tier.
fn selector(drawing: &mut Drawing, app: &str) -> Value {
    match drawing.below(8) {
        0 => json!({"matchLabels": {"tier": "new"}}),
        1 => {
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": [app, "app-0"]}]})
        }
        _ => json!({"matchLabels": {"app": app}}),
    }
}

fn spread(drawing: &mut Drawing, kind: &mut Kind) {
    let mut all = Vec::new();
    for (feature, when) in [
        (Feature::Spread, "DoNotSchedule"),
        (Feature::SoftSpread, "ScheduleAnyway"),
    ] {
        if !drawing.wants(feature, 6) {
            continue;
        }
        kind.features.insert(feature);
        let key = drawing.pick(&[
            labels::TOPOLOGY_ZONE,
            labels::TOPOLOGY_ZONE,
            labels::HOSTNAME,
            labels::CAPACITY_TYPE,
        ]);
        let mut own = json!({
            "maxSkew": 1 + drawing.below(2), "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector(drawing, &kind.app),
        });
        if feature == Feature::Spread && drawing.one_in(5) {
            own["minDomains"] = json!(2 + drawing.below(2));
        }
        if drawing.one_in(4) {
            own["nodeTaintsPolicy"] = json!("Honor");
        }
        if drawing.one_in(5) {
            own["nodeAffinityPolicy"] = json!("Ignore");
        }
        if drawing.one_in(5) {
            own["matchLabelKeys"] = json!(["revision"]);
        }
        all.push(own);
    }
    if !all.is_empty() {
        kind.spec["topologySpreadConstraints"] = json!(all);
    }
}

fn pod_term(drawing: &mut Drawing, app: &str) -> Value {
    let key = drawing.pick(&[labels::TOPOLOGY_ZONE, labels::HOSTNAME]);
    let mut term = json!({"labelSelector": selector(drawing, app), "topologyKey": key});
    match drawing.below(6) {
        0 => term["namespaces"] = json!(NAMESPACES.map(|(name, _)| name)),
        1 => {
            let team = drawing.pick(&["red", "blue"]);
            term["namespaceSelector"] = json!({"matchLabels": {"team": team}});
        }
        2 => term["namespaceSelector"] = json!({}),
        _ => {}
    }
    term
}

fn neighbours(drawing: &mut Drawing, kind: &mut Kind) {
    let other = drawing.below(drawing.apps.len());
    let other = drawing.apps.get(other).cloned().unwrap_or_default();
    let own = kind.app.clone();
    let whom = |drawing: &mut Drawing, chance: usize| {
        if drawing.one_in(chance) {
            other.clone()
        } else {
            own.clone()
        }
    };
    if drawing.wants(Feature::Affinity, 8) {
        kind.features.insert(Feature::Affinity);
        let app = whom(drawing, 2);
        kind.spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!([pod_term(drawing, &app)]);
    }
    if drawing.wants(Feature::AntiAffinity, 6) {
        kind.features.insert(Feature::AntiAffinity);
        let app = whom(drawing, 3);
        kind.spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!([pod_term(drawing, &app)]);
    }
    if drawing.wants(Feature::PreferredPods, 6) {
        kind.features.insert(Feature::PreferredPods);
        let side = drawing.pick(&["podAffinity", "podAntiAffinity"]);
        let app = whom(drawing, 2);
        kind.spec["affinity"][side]["preferredDuringSchedulingIgnoredDuringExecution"] =
            json!([{"weight": 1 + drawing.below(100), "podAffinityTerm": pod_term(drawing, &app)}]);
    }
}

/// A claim for a volume.
fn volume_claim(
    drawing: &Drawing,
    namespace: &str,
    name: &str,
    class: &str,
    volume: Option<&str>,
) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": class,
    });
    if let Some(volume) = volume {
        spec["volumeName"] = json!(volume);
    }
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: drawing.number.to_string()}},
        "spec": spec,
    })
}

/// A volume in one or two zones, kept for a claim.
fn volume(drawing: &mut Drawing, namespace: &str, claim: &str) -> Value {
    let zone = |drawing: &mut Drawing| json!({"matchExpressions": [{"key": labels::TOPOLOGY_ZONE, "operator": "In", "values": [drawing.pick(&ZONES)]}]});
    let mut terms = vec![zone(drawing)];
    if drawing.one_in(3) {
        terms.push(zone(drawing));
    }
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": format!("pv-{claim}"), "labels": {LABEL: drawing.number.to_string()}},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "", "claimRef": {"namespace": namespace, "name": claim},
            "csi": {"driver": DRIVER, "volumeHandle": claim},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    })
}

/// Adds what all replicas share of storage; returns the storage class of what each has for itself.
fn volumes(drawing: &mut Drawing, kind: &mut Kind) -> Option<String> {
    let bound = drawing.wants(Feature::BoundVolumes, 10);
    if bound {
        kind.features.insert(Feature::BoundVolumes);
        let claim = drawing.name(&format!("{}-shared", kind.app));
        let of = volume(drawing, kind.namespace, &claim);
        let name = of["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let asked = volume_claim(drawing, kind.namespace, &claim, "", Some(&name));
        drawing.before.extend([of, asked]);
        kind.spec["volumes"] =
            json!([{"name": "shared", "persistentVolumeClaim": {"claimName": claim}}]);
    }
    if !drawing.wants(Feature::NewVolumes, 8) {
        return None;
    }
    kind.features.insert(Feature::NewVolumes);
    let zonal = drawing.one_in(2);
    Some(storage_class(drawing, zonal))
}

fn replica_of(drawing: &mut Drawing, kind: &Kind, replica: usize, own_class: Option<&str>) {
    let name = drawing.name(&format!("{}-{replica}", kind.app));
    let mut spec = kind.spec.clone();
    if let Some(class) = own_class {
        let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
        if drawing.one_in(3) {
            volumes.push(json!({"name": "own", "ephemeral": {"volumeClaimTemplate": {
                "metadata": {"labels": {LABEL: drawing.number.to_string()}},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": class},
            }}}));
        } else {
            let claim = format!("{name}-own");
            let asked = volume_claim(drawing, kind.namespace, &claim, class, None);
            drawing.before.push(asked);
            volumes.push(json!({"name": "own", "persistentVolumeClaim": {"claimName": claim}}));
        }
        spec["volumes"] = json!(volumes);
    }
    let revision = if drawing.one_in(4) { "old" } else { "new" };
    drawing.pods.push(DrawnPod {
        object: json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": kind.namespace,
                "labels": {LABEL: drawing.number.to_string(), "app": kind.app, "tier": "new", "revision": revision},
            },
            "spec": spec,
        }),
        features: kind.features.clone(),
    });
}
