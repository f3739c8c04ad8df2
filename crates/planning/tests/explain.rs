//! `explain` names what is really in a pod's way: one row for each kind of pod that waits.

use std::sync::Arc;

use crate::one_pool::{World, ZONES, merge, node, pod, pool};
use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::names::PodKey;
use mortise_planning::reason::{PoolBlocker, Reason};
use mortise_planning::scheduling::{PodExplanation, PodSchedulingState, SolveOptions, explain};
use serde_json::{Value, json};

/// The cluster with the pod `p`, and what is said about the pod.
fn told(world: &World) -> PodExplanation {
    let snapshot = world.snapshot();
    let key = PodKey::new("default", "p");
    let pod = Arc::clone(snapshot.pods.get(&key).unwrap());
    explain(
        Timestamp::UNIX_EPOCH,
        &snapshot,
        &pod,
        &SolveOptions::default(),
    )
}

/// Everything that is said, in one text.
fn text(explanation: &PodExplanation) -> String {
    let reasons = explanation.reasons.iter().map(ToString::to_string);
    std::iter::once(explanation.state.to_string())
        .chain(reasons)
        .collect::<Vec<_>>()
        .join(" | ")
}

/// What blocks the only pool.
fn blocker(explanation: &PodExplanation) -> Option<PoolBlocker> {
    explanation.reasons.iter().find_map(|reason| match reason {
        Reason::PoolRefused { blocker, .. } => Some(*blocker),
        _ => None,
    })
}

/// A pod `p` of app `p` with one CPU.
fn p(more: Value) -> Value {
    pod("p", "p", "1", more)
}

fn requests(amounts: Value) -> Value {
    p(json!({"containers": [{"name": "c", "resources": {"requests": amounts}}]}))
}

fn affinity_to_nodes(terms: &[Value]) -> Value {
    let terms: Vec<Value> = terms
        .iter()
        .map(|all| json!({"matchExpressions": [all]}))
        .collect();
    p(
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}),
    )
}

fn among_pods(side: &str, app: &str, key: &str) -> Value {
    p(
        json!({"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key},
        ]}}}),
    )
}

fn with_claim(name: &str) -> Value {
    p(json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}))
}

fn volume_claim(name: &str, class: &str, volume: Option<&str>) -> Value {
    let phase = if volume.is_some() { "Bound" } else { "Pending" };
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"storageClassName": class, "volumeName": volume},
        "status": {"phase": phase},
    })
}

fn volume_in(name: &str, zone: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"csi": {"driver": "disk"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": labels::TOPOLOGY_ZONE, "operator": "In", "values": [zone]}]},
        ]}}},
    })
}

fn storage_class(name: &str, mode: &str) -> Value {
    json!({"metadata": {"name": name}, "provisioner": "disk", "volumeBindingMode": mode})
}

fn daemon_set(spec: Value) -> Value {
    let mut container = json!({"name": "d"});
    merge(&mut container, spec);
    json!({"metadata": {"name": "agent", "namespace": "kube-system"}, "spec": {"template": {"spec": {"containers": [container]}}}})
}

/// A cluster whose only pool has these requirements and further fields.
fn with_pool(requirements: Value, more: Value) -> World {
    World::new().pools([pool("general", requirements, more)])
}

fn requires(key: &str, values: &[&str]) -> Value {
    json!([{"key": key, "operator": "In", "values": values}])
}

/// One full node in every zone, each with a pod of app `a`, one of them with anti-affinity to app `p`.
fn a_pod_in_every_zone(against: Option<&str>) -> World {
    let full = json!({"cpu": "1", "memory": "1Gi", "pods": "1"});
    let mut world = World::new();
    for (at, zone) in ZONES.iter().enumerate() {
        let name = format!("n{at}");
        let spec = against.map_or_else(|| json!({}), |app| {
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": labels::TOPOLOGY_ZONE},
            ]}}})
        });
        world = world
            .node(node(
                &name,
                zone,
                json!({"status": {"capacity": full, "allocatable": full}}),
            ))
            .running(&name, pod(&format!("r{at}"), "a", "1", spec));
    }
    world
}

/// Marks every offering for which `is` holds as sold out.
fn sold_out(mut world: World, is: impl Fn(&str, &str) -> bool) -> World {
    for of in &mut world.types {
        for offering in &mut of.offerings {
            offering.available &= !is(&offering.zone, offering.capacity_type.as_str());
        }
    }
    world
}

/// The kind of blocker of the only pool, and texts that name it.
type Expected = (PoolBlocker, &'static [&'static str]);

/// Pods that some pool refuses.
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn refused() -> Vec<(&'static str, World, Expected)> {
    let plain = |pod: Value| World::new().pending(pod);
    let in_pool =
        |requirements: Value, more: Value, pod: Value| with_pool(requirements, more).pending(pod);
    let select = |key: &str, value: &str| p(json!({"nodeSelector": {key: value}}));
    let spec = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let taint =
        |effect: &str| spec(json!({"taints": [{"key": "team", "value": "red", "effect": effect}]}));
    let limits = |limits: Value| json!({"spec": {"limits": limits}});
    let status = |more: Value| {
        let mut status = json!({"type": "Ready", "status": "False", "reason": "NodeClassReady=False", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let mut class = json!({"type": "NodeClassReady", "status": "False", "reason": "SubnetsNotFound", "message": "no subnet matches", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        merge(&mut status, more.clone());
        merge(&mut class, more);
        json!({"status": {"conditions": [status, class]}})
    };
    let spread = |key: &str| {
        p(json!({"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "a"}},
        }]}))
    };
    let zone = labels::TOPOLOGY_ZONE;
    vec![
        ("too much CPU", plain(requests(json!({"cpu": "20"}))), (PoolBlocker::Resources, &["amd64-16 has 15900m of cpu", "20 requested", "lacks 4100m of cpu"])),
        ("CPU in the wrong unit", plain(requests(json!({"cpu": "2000000"}))), (PoolBlocker::Resources, &["of cpu", "2M requested"])),
        ("too much memory", plain(requests(json!({"memory": "65Gi"}))), (PoolBlocker::Resources, &["-16 has", "of memory", "65Gi requested"])),
        ("too much local disk", plain(requests(json!({"ephemeral-storage": "200Gi"}))), (PoolBlocker::Resources, &["100Gi of ephemeral-storage"])),
        ("a device that no type has", plain(requests(json!({"vendor.com/gpu": "1"}))), (PoolBlocker::Resources, &["no type that comes into question has vendor.com/gpu"])),
        ("more devices than a type has", {
            let mut world = plain(requests(json!({"vendor.com/gpu": "8"})));
            for of in &mut world.types {
                of.capacity = of.capacity.clone().with("vendor.com/gpu", 2);
            }
            world
        }, (PoolBlocker::Resources, &["has 2 of vendor.com/gpu", "8 requested", "lacks 6"])),
        ("DaemonSets take the rest", plain(requests(json!({"cpu": "15"}))).daemon_set(daemon_set(json!({"resources": {"requests": {"cpu": "1"}}}))),
            (PoolBlocker::DaemonSets, &["of which DaemonSets take 1", "16 requested"])),
        ("a DaemonSet has the host port", plain(p(json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 9100, "protocol": "TCP"}]}]})))
            .daemon_set(daemon_set(json!({"ports": [{"containerPort": 1, "hostPort": 9100, "protocol": "TCP"}]}))), (PoolBlocker::HostPorts, &["host port", "9100", "DaemonSet"])),
        ("a taint", in_pool(json!([]), taint("NoSchedule"), p(json!({}))), (PoolBlocker::Taint, &["taint team=red:NoSchedule is not tolerated"])),
        ("a taint that evicts", in_pool(json!([]), taint("NoExecute"), p(json!({}))), (PoolBlocker::Taint, &["team=red:NoExecute"])),
        ("a label that no node has", plain(select("tier", "gold")), (PoolBlocker::Labels, &["no node of the NodePool has label tier"])),
        ("a mistyped label", plain(select("kubernetes.io/arh", "amd64")), (PoolBlocker::Labels, &["kubernetes.io/arh"])),
        ("a value that contradicts itself", plain(p(json!({"nodeSelector": {"tier": "gold"}, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["silver"]}]}]}}}}))), (PoolBlocker::Labels, &["tier"])),
        ("an unknown zone", plain(select(zone, "z9")), (PoolBlocker::Types, &["topology.kubernetes.io/zone In [z9], required by the pod", "z1 (4)"])),
        ("another architecture", {
            let mut world = plain(select(labels::ARCH, "arm64"));
            world.types.retain(|of| of.name.starts_with("amd64"));
            world
        }, (PoolBlocker::Types, &["kubernetes.io/arch In [arm64], required by the pod", "amd64 (2)"])),
        ("another operating system", plain(select(labels::OS, "windows")), (PoolBlocker::Types, &["kubernetes.io/os In [windows]", "linux (4)"])),
        ("an unknown instance type", plain(select(labels::INSTANCE_TYPE, "huge")), (PoolBlocker::Types, &["node.kubernetes.io/instance-type In [huge]"])),
        ("a node by name", plain(select(labels::HOSTNAME, "gone")), (PoolBlocker::HostName, &["kubernetes.io/hostname In [gone]", "a new node has a new name"])),
        ("what the pool excludes", in_pool(requires(zone, &["z1"]), json!({}), affinity_to_nodes(&[json!({"key": zone, "operator": "NotIn", "values": ["z1"]})])),
            (PoolBlocker::Labels, &["the pod requires topology.kubernetes.io/zone NotIn [z1]", "the NodePool topology.kubernetes.io/zone In [z1]"])),
        ("two alternatives", plain(affinity_to_nodes(&[json!({"key": zone, "operator": "In", "values": ["z9"]}), json!({"key": "tier", "operator": "Exists"})])),
            (PoolBlocker::Labels, &["alternative 1: none of 4 types has topology.kubernetes.io/zone In [z9]", "alternative 2: no node of the NodePool has label tier"])),
        ("a capacity type that is not sold", {
            let mut world = plain(select(labels::CAPACITY_TYPE, "spot"));
            for of in &mut world.types {
                of.offerings.retain(|offering| offering.capacity_type.as_str() != "spot");
            }
            world
        }, (PoolBlocker::Offerings, &["spot"])),
        ("a capacity type that is sold out", sold_out(plain(select(labels::CAPACITY_TYPE, "spot")), |_, way| way == "spot"), (PoolBlocker::SoldOut, &["sold out at present", "(spot)"])),
        ("a zone that is sold out", sold_out(plain(select(zone, "z2")), |zone, _| zone == "z2"), (PoolBlocker::SoldOut, &["sold out at present", "in z2"])),
        ("everything is sold out", sold_out(plain(p(json!({}))), |_, _| true), (PoolBlocker::NoTypes, &["sold out at present"])),
        ("reserved capacity that is used up", {
            let mut world = plain(select(labels::CAPACITY_TYPE, "reserved"));
            for of in &mut world.types {
                of.requirements.replace(mortise_apis::requirements::Requirement::new(labels::CAPACITY_TYPE, mortise_apis::requirements::Operator::In, ["reserved", "on-demand"]));
                let mut own = of.offerings[0].clone();
                own.capacity_type = mortise_cloudprovider::CapacityType::Reserved;
                own.reservation = Some(("cr-1".into(), 0));
                of.offerings.push(own);
            }
            world
        }, (PoolBlocker::SoldOut, &["reserved capacity is used up"])),
        ("a pool whose own requirements leave nothing", in_pool(requires(labels::ARCH, &["s390x"]), json!({}), p(json!({}))), (PoolBlocker::NoTypes, &["kubernetes.io/arch In [s390x], required by the pool"])),
        ("a pool that is not ready", in_pool(json!([]), status(json!({})), p(json!({}))), (PoolBlocker::NotReady, &["NodeClassReady is False", "no subnet matches"])),
        ("a pool that is being deleted", in_pool(json!([]), json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}}), p(json!({}))), (PoolBlocker::NotReady, &["being deleted"])),
        ("the limit on nodes", in_pool(json!([]), limits(json!({"nodes": "0"})), p(json!({}))), (PoolBlocker::NodeLimit, &["limit nodes is 0"])),
        ("the limit on CPU", in_pool(json!([]), limits(json!({"cpu": "3"})), p(json!({}))), (PoolBlocker::Limit, &["limit cpu is 3", "smallest type that would do has 4"])),
        ("a limit that leaves small types", in_pool(json!([]), limits(json!({"cpu": "10"})), requests(json!({"cpu": "8"}))), (PoolBlocker::Limit, &["limit cpu is 10", "smallest type that would do has 16"])),
        ("minValues", in_pool(json!([{"key": labels::INSTANCE_TYPE, "operator": "Exists", "minValues": 4}]), json!({}), requests(json!({"cpu": "8"}))),
            (PoolBlocker::MinValues, &["node.kubernetes.io/instance-type has 2 values left, minValues is 4"])),
        ("a volume in a zone of another pool", in_pool(requires(zone, &["z1"]), json!({}), with_claim("data")).volume_claim(volume_claim("data", "", Some("pv"))).volume(volume_in("pv", "z3")),
            (PoolBlocker::Volumes, &["volumes", "topology.kubernetes.io/zone In [z3]", "the NodePool topology.kubernetes.io/zone In [z1]"])),
        ("a volume away from where the pod must be", plain({
            let mut both = with_claim("data");
            both["spec"]["nodeSelector"] = json!({zone: "z1"});
            both
        }).volume_claim(volume_claim("data", "", Some("pv"))).volume(volume_in("pv", "z3")), (PoolBlocker::Volumes, &["topology.kubernetes.io/zone In [z3]"])),
        ("anti-affinity in every zone", a_pod_in_every_zone(None).pending(among_pods("podAntiAffinity", "a", zone)), (PoolBlocker::PodAntiAffinity, &["anti-affinity by topology.kubernetes.io/zone to pods with app in (a)", "in every domain"])),
        ("others' anti-affinity in every zone", a_pod_in_every_zone(Some("p")).pending(p(json!({}))), (PoolBlocker::PodAntiAffinity, &["pods with anti-affinity by topology.kubernetes.io/zone to pods with app in (p), of which this is one"])),
        ("affinity to no pod", plain(among_pods("podAffinity", "none", zone)), (PoolBlocker::PodAffinity, &["pods with app in (none): there are none"])),
        ("affinity to a node that is full", a_pod_in_every_zone(None).pending(among_pods("podAffinity", "a", labels::HOSTNAME)), (PoolBlocker::PodAffinity, &["affinity by kubernetes.io/hostname", "no free capacity"])),
        ("spread over what no node has", plain(spread("rack")), (PoolBlocker::Spread, &["over rack with maxSkew 1 leaves no domain"])),
        ("spread where the pool is not", {
            let full = json!({"cpu": "1", "memory": "1Gi", "pods": "1"});
            let full = |name: &str, zone: &str| node(name, zone, json!({"status": {"capacity": full, "allocatable": full}}));
            in_pool(requires(zone, &["z1"]), json!({}), p(json!({"topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": zone, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "p"]}]},
            }]})))
                .node(full("n1", "z1")).running("n1", pod("r1", "a", "1", json!({})))
                .node(full("n2", "z2")).running("n2", pod("r2", "other", "1", json!({})))
        }, (PoolBlocker::Spread, &["maxSkew 1", "z2", "topology.kubernetes.io/zone In [z1]"])),
    ]
}

/// Pods that do not come before any pool.
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn elsewhere() -> Vec<(&'static str, World, &'static str)> {
    let plain = |pod: Value| World::new().pending(pod);
    let meta = |more: Value| {
        let mut pod = p(json!({}));
        merge(&mut pod["metadata"], more);
        plain(pod)
    };
    let owner = |kind: &str| {
        meta(
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "o", "controller": true}]}),
        )
    };
    vec![
        (
            "scheduling gates",
            plain(p(json!({"schedulingGates": [{"name": "g"}]}))),
            "has scheduling gates",
        ),
        (
            "deleted",
            meta(json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]})),
            "deleted before it was bound",
        ),
        (
            "of a DaemonSet",
            owner("DaemonSet"),
            "no nodes are launched for DaemonSet pods",
        ),
        ("of a node", owner("Node"), "static pod of its node"),
        (
            "evicting others",
            {
                let mut pod = p(json!({}));
                pod["status"]["nominatedNodeName"] = json!("n1");
                plain(pod)
            },
            "preempts pods for it on node n1",
        ),
        (
            "opted out",
            plain(affinity_to_nodes(&[
                json!({"key": labels::NODEPOOL, "operator": "DoesNotExist"}),
            ])),
            "requires nodes without karpenter.sh/nodepool",
        ),
        (
            "matchFields",
            plain(p(
                json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}}),
            )),
            "matchFields is not supported",
        ),
        (
            "a label that no pod may ask for",
            plain(p(json!({"nodeSelector": {"karpenter.sh/mine": "x"}}))),
            "label karpenter.sh/mine is restricted",
        ),
        (
            "a capacity type that does not exist",
            plain(p(json!({"nodeSelector": {labels::CAPACITY_TYPE: "cheap"}}))),
            "expected one of: [on-demand reserved spot]",
        ),
        (
            "a volume claim that is missing",
            plain(with_claim("data")),
            "\"data\" not found",
        ),
        (
            "a storage class that is missing",
            plain(with_claim("data")).volume_claim(volume_claim("data", "fast", None)),
            "storageclasses.storage.k8s.io \"fast\" not found",
        ),
        (
            "a volume claim without a class",
            plain(with_claim("data")).volume_claim(volume_claim("data", "", None)),
            "must define a storage class",
        ),
        (
            "a volume that is still to come",
            plain(with_claim("data"))
                .volume_claim(volume_claim("data", "fast", None))
                .storage_class(storage_class("fast", "Immediate")),
            "binds immediately",
        ),
        (
            "a volume that is gone",
            plain(with_claim("data")).volume_claim(volume_claim("data", "", Some("pv"))),
            "persistentvolumes \"pv\" not found",
        ),
        (
            "device claims",
            plain(p(
                json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}),
            )),
            "device claims (spec.resourceClaims)",
        ),
        (
            "no pools",
            World::new().pools([]).pending(p(json!({}))),
            "there is no pool",
        ),
    ]
}

#[test]
fn every_kind_of_blocker_is_named() {
    let mut wrong = Vec::new();
    let rows = refused();
    let count = rows.len();
    for (name, world, (want, parts)) in rows {
        let told = told(&world);
        let said = text(&told);
        let named = parts.iter().all(|part| said.contains(part));
        if told.state != PodSchedulingState::Unschedulable || blocker(&told) != Some(want) || !named
        {
            wrong.push(format!(
                "{name}: want {want:?} {parts:?}, got {:?}: {said}",
                blocker(&told)
            ));
        }
    }
    let others = elsewhere();
    let count = count + others.len();
    for (name, world, part) in others {
        let said = text(&told(&world));
        if !said.contains(part) {
            wrong.push(format!("{name}: want {part:?}, got {said}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(count >= 50, "{count} kinds");
}

/// What is said of a pod that only waits its turn.
#[test]
fn a_pod_that_fits_is_said_to_fit() {
    let told = told(&World::new().pending(p(json!({}))));
    assert_eq!(
        told.state.to_string(),
        "pending; NodePool general can launch a node for it (amd64-4)"
    );
    assert!(told.reasons.is_empty() && told.unconfirmed.is_none());
    let here = World::new().node(node("n1", "z1", json!({})));
    let mut unseen = p(json!({"schedulerName": "other"}));
    unseen["status"] = json!({"phase": "Pending"});
    let told = self::told(&here.pending(unseen));
    assert_eq!(told.state.to_string(), "pending; fits on node/n1");
    assert_eq!(told.unconfirmed.as_deref(), Some("other"));
}
