//! Devices that pods claim: who gets which, on what machine, and what is said when there are none.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod one_pool;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_core::apis::k8s::devices::ResourceSliceSpec;
use mortise_core::index::Object;
use mortise_core::record::{Blocker, Reason};
use mortise_core::scheduling::{LaunchPlan, SolveOptions, SolveReport, solve};
use one_pool::{World, instance_type, merge, node, pod};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const DRIVER: &str = "gpu.example.com";

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// A cluster with the classes `gpu` and `nic`; pods of it are placed with their claims.
fn cluster() -> World {
    let class = |name: &str| {
        let expression = format!("device.driver == '{name}.example.com'");
        json!({ "metadata": { "name": name }, "spec": { "selectors": [{ "cel": { "expression": expression } }] } })
    };
    World::new()
        .with(Object::DeviceClass(Box::new(read(class("gpu")))))
        .with(Object::DeviceClass(Box::new(read(class("nic")))))
}

/// A claim of the namespace `default` for these requests; `more` is merged into the object.
fn claim(name: &str, requests: Value, more: Value) -> Object {
    let mut claim = json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("claim-{name}") },
        "spec": { "devices": { "requests": requests } },
    });
    merge(&mut claim, more);
    Object::ResourceClaim(Box::new(read(claim)))
}

/// So many devices of class `gpu`; `more` is merged into what is asked for.
fn gpus(count: i64, more: Value) -> Value {
    let mut exactly =
        json!({ "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count });
    merge(&mut exactly, more);
    json!([{ "name": "req", "exactly": exactly }])
}

/// A pending pod with these claims.
fn claiming(name: &str, claims: &[&str]) -> Value {
    let claims: Vec<Value> = claims
        .iter()
        .map(|claim| json!({ "name": claim, "resourceClaimName": claim }))
        .collect();
    pod(name, name, "1", json!({ "resourceClaims": claims }))
}

/// A slice with these devices; `place` says who can use it.
fn slice(name: &str, driver: &str, devices: Value, place: Value) -> Object {
    let mut slice = json!({
        "metadata": { "name": name },
        "spec": { "driver": driver, "pool": { "name": name, "generation": 1, "resourceSliceCount": 1 }, "devices": devices },
    });
    merge(&mut slice["spec"], place);
    Object::ResourceSlice(Box::new(read(slice)))
}

fn on(node: &str) -> Value {
    json!({ "nodeName": node })
}

/// So many devices without anything to tell them apart but their names.
fn plain(count: usize) -> Value {
    (0..count)
        .map(|at| json!({ "name": format!("d{at}") }))
        .collect()
}

/// Types of this name bring these slices.
fn with_devices(mut world: World, name: &str, slices: Value) -> World {
    let slices: Vec<ResourceSliceSpec> = read(slices);
    for of in world.types.iter_mut().filter(|of| &*of.name == name) {
        of.devices = slices.clone().into();
    }
    world
}

/// What a type of GPU machines brings.
fn brings(devices: Value) -> Value {
    json!([{ "driver": DRIVER, "pool": { "name": "gpus" }, "devices": devices }])
}

fn placed(world: &World) -> (LaunchPlan, SolveReport) {
    let options = SolveOptions {
        pending: true,
        ignore_devices: false,
        ..SolveOptions::default()
    };
    solve(Timestamp::UNIX_EPOCH, &world.snapshot(), &options, &|| {
        false
    })
}

/// Pods by machine; new machines by their only or first type, pods without a place under `-`.
fn places(world: &World) -> BTreeMap<String, BTreeSet<String>> {
    let (plan, report) = placed(world);
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let name = |pod: &Arc<mortise_core::snapshot::Pod>| pod.key.name.to_string();
    for each in &plan.placements {
        let machine = each.node.to_string();
        let machine = machine.trim_start_matches("other:///").to_owned();
        all.entry(machine).or_default().insert(name(&each.pod));
    }
    for (at, claim) in plan.claims.iter().enumerate() {
        let of = format!("{} #{at}", claim.instance_types[0]);
        all.entry(of)
            .or_default()
            .extend(claim.pods.iter().map(name));
    }
    for (key, _) in report.unplaced.iter().flat_map(|each| &each.pods) {
        all.entry("-".to_owned())
            .or_default()
            .insert(key.name.to_string());
    }
    all
}

#[track_caller]
fn goes(world: &World, want: &[(&str, &[&str])]) {
    let want: BTreeMap<String, BTreeSet<String>> = want
        .iter()
        .map(|(machine, pods)| {
            (
                (*machine).to_owned(),
                pods.iter().map(|pod| (*pod).to_owned()).collect(),
            )
        })
        .collect();
    assert_eq!(places(world), want);
}

/// What is said of the pods that have no place.
fn refusal(world: &World) -> (String, String) {
    let (_, report) = placed(world);
    let unplaced = report.unplaced.first().unwrap();
    let detail = unplaced.reasons.iter().find_map(|reason| match reason {
        Reason::PoolRefused {
            blocker: Blocker::Devices,
            detail,
            ..
        } => Some(detail.clone()),
        _ => None,
    });
    (unplaced.message.clone(), detail.unwrap_or_default())
}

#[test]
fn devices_of_a_node_are_given_once() {
    let world = cluster()
        .node(node("n", "z1", json!({})))
        .with(slice("s", DRIVER, plain(2), on("n")))
        .with(claim("a", gpus(1, json!({})), json!({})))
        .with(claim("b", gpus(1, json!({})), json!({})))
        .with(claim("c", gpus(1, json!({})), json!({})));
    let world = ["a", "b", "c"]
        .iter()
        .fold(world, |world, name| world.pending(claiming(name, &[name])));
    goes(&world, &[("n", &["a", "b"]), ("-", &["c"])]);
    let (message, detail) = refusal(&world);
    assert_eq!(
        message,
        "allocating dynamic resources, no instance type can satisfy the allocation"
    );
    assert_eq!(
        detail,
        "claim \"c\" request \"req\" asks for 1 device of class \"gpu\": there is none that matches"
    );
}

#[test]
fn pods_without_claims_are_not_concerned() {
    let world = cluster()
        .node(node("n", "z1", json!({})))
        .with(slice("s", DRIVER, plain(1), on("n")))
        .with(claim("a", gpus(1, json!({})), json!({})))
        .pending(claiming("a", &["a"]))
        .pending(pod("plain", "plain", "1", json!({})));
    goes(&world, &[("n", &["a", "plain"])]);
    // As long as claims are ignored, pods with claims are left alone, and the flag is named.
    let (plan, report) = world.solve();
    assert_eq!(plan.placements.len(), 1);
    assert!(
        report.unplaced[0]
            .message
            .contains("--ignore-dra-requests=false")
    );
}

#[test]
fn new_machines_are_of_types_that_bring_the_devices() {
    let two = || {
        with_devices(cluster(), "amd64-16", brings(plain(2)))
            .with(claim("a", gpus(1, json!({})), json!({})))
            .with(claim("b", gpus(1, json!({})), json!({})))
            .with(claim("c", gpus(1, json!({})), json!({})))
    };
    let world = ["a", "b", "c"]
        .iter()
        .fold(two(), |world, name| world.pending(claiming(name, &[name])));
    goes(
        &world,
        &[("amd64-16 #0", &["a", "b"]), ("amd64-16 #1", &["c"])],
    );
    let (plan, _) = placed(&world);
    for claim in &plan.claims {
        let types: Vec<&str> = claim.instance_types.iter().map(|of| &**of).collect();
        assert_eq!(types, ["amd64-16"]);
        // The node counts as initialized when its driver has published.
        assert_eq!(claim.device_drivers, ["gpu.example.com".into()]);
    }
    // A pod that wants another architecture: types that it may use bring none.
    let arm = json!({ "nodeSelector": { "kubernetes.io/arch": "arm64" } });
    let mut other = claiming("a", &["a"]);
    merge(&mut other["spec"], arm);
    let (message, _) = refusal(&two().pending(other));
    assert_eq!(
        message,
        "no instance type satisfies both scheduling and dynamic resource requirements"
    );
    // More than a machine of any type brings.
    let many = with_devices(cluster(), "amd64-16", brings(plain(2)))
        .with(claim("a", gpus(3, json!({})), json!({})))
        .pending(claiming("a", &["a"]));
    let (_, detail) = refusal(&many);
    assert_eq!(
        detail,
        "claim \"a\" request \"req\" asks for 3 devices of class \"gpu\": 2 match, 2 are free"
    );
}

#[test]
fn new_machines_bring_what_those_of_the_same_kind_have() {
    let like = |pool: &str| {
        let labels = json!({
            "karpenter.sh/nodepool": pool, "node.kubernetes.io/instance-type": "amd64-16",
            "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
        });
        let world = cluster()
            .node(node("n", "z1", json!({ "metadata": { "labels": labels } })))
            .with(slice("s", DRIVER, plain(2), on("n")));
        ["a", "b", "c"].iter().fold(world, |world, name| {
            world
                .with(claim(name, gpus(1, json!({})), json!({})))
                .pending(claiming(name, &[name]))
        })
    };
    goes(
        &like("general"),
        &[("n", &["a", "b"]), ("amd64-16 #0", &["c"])],
    );
    // What nodes of another pool have says nothing.
    goes(&like("other"), &[("n", &["a", "b"]), ("-", &["c"])]);
}

#[test]
fn a_cheaper_machine_with_enough_devices_is_chosen() {
    let mut world = cluster();
    world.types.push(instance_type(8, "amd64"));
    let world = with_devices(world, "amd64-8", brings(plain(1)));
    let world = with_devices(world, "amd64-16", brings(plain(4)))
        .with(claim("a", gpus(1, json!({})), json!({})))
        .with(claim("b", gpus(2, json!({})), json!({})));
    goes(
        &world.pending(claiming("a", &["a"])),
        &[("amd64-8 #0", &["a"])],
    );
}

#[test]
fn a_claim_that_pods_share_ties_them_to_one_machine() {
    let world = with_devices(cluster(), "amd64-4", brings(plain(1))).with(claim(
        "shared",
        gpus(1, json!({})),
        json!({}),
    ));
    let pods = ["a", "b", "c", "d", "e"];
    let world = pods.iter().fold(world, |world, name| {
        world.pending(claiming(name, &["shared"]))
    });
    // Three fit on a machine of four CPUs; the others cannot have the device anywhere else.
    goes(
        &world,
        &[("amd64-4 #0", &["a", "b", "c"]), ("-", &["d", "e"])],
    );
    assert_eq!(
        refusal(&world).1,
        "claim \"shared\" gets devices of another machine"
    );
}

#[test]
fn claims_with_devices_go_where_these_are() {
    let allocated = |node: Value| {
        json!({ "status": { "allocation": {
            "devices": { "results": [{ "request": "req", "driver": DRIVER, "pool": "s", "device": "d0" }] },
            "nodeSelector": { "nodeSelectorTerms": [node] },
        }, "reservedFor": [{ "resource": "pods", "name": "x", "uid": "x" }] } })
    };
    let by_name =
        json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["m"] }] });
    let base = || {
        cluster()
            .node(node("m", "z1", json!({})))
            .node(node("n", "z1", json!({})))
            .with(slice("s", DRIVER, plain(1), on("m")))
            .with(slice("t", DRIVER, plain(1), on("n")))
    };
    let world = base()
        .with(claim(
            "held",
            gpus(1, json!({})),
            allocated(by_name.clone()),
        ))
        .with(claim("free", gpus(1, json!({})), json!({})))
        .pending(claiming("a", &["held"]))
        .pending(claiming("b", &["free"]));
    goes(&world, &[("m", &["a"]), ("n", &["b"])]);
    // Where the devices can be used in a zone, a new machine of that zone will do.
    let by_zone = json!({ "matchExpressions": [{ "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z3"] }] });
    let world = cluster()
        .with(claim("held", gpus(1, json!({})), allocated(by_zone)))
        .pending(claiming("a", &["held"]));
    let (plan, _) = placed(&world);
    assert_eq!(&*plan.claims[0].cheapest.as_ref().unwrap().zone, "z3");
    // A claim that only a pod on a leaving node uses is free again, and so is its device.
    let world = base()
        .with(claim("held", gpus(1, json!({})), allocated(by_name)))
        .running("m", claiming("x", &["held"]));
    let options = SolveOptions {
        without: BTreeSet::from([world.snapshot().node("m").unwrap().key.clone()]),
        ignore_devices: false,
        ..SolveOptions::default()
    };
    let (plan, _) = solve(Timestamp::UNIX_EPOCH, &world.snapshot(), &options, &|| {
        false
    });
    assert_eq!(plan.placements[0].node.to_string(), "other:///n");
}

#[test]
fn alternatives_are_tried_in_order() {
    let request = json!([{ "name": "req", "firstAvailable": [
        { "name": "four", "deviceClassName": "gpu", "count": 4 },
        { "name": "two", "deviceClassName": "gpu", "count": 2, "allocationMode": "ExactCount" },
    ] }]);
    let with = |devices: usize| {
        cluster()
            .node(node("n", "z1", json!({})))
            .with(slice("s", DRIVER, plain(devices), on("n")))
            .with(claim("a", request.clone(), json!({})))
            .with(claim("b", gpus(1, json!({})), json!({})))
            .pending(claiming("a", &["a"]))
            .pending(claiming("b", &["b"]))
    };
    goes(&with(5), &[("n", &["a", "b"])]);
    // Four are there, and the first alternative takes them all.
    goes(&with(4), &[("n", &["a"]), ("-", &["b"])]);
    goes(&with(3), &[("n", &["a", "b"])]);
}

#[test]
fn all_means_all_that_match_and_none_in_use() {
    let all = json!([{ "name": "req", "exactly": { "deviceClassName": "gpu", "allocationMode": "All" } }]);
    let base = || {
        cluster()
            .node(node("n", "z1", json!({})))
            .with(claim("all", all.clone(), json!({})))
            .with(claim("one", gpus(1, json!({})), json!({})))
    };
    let both = |world: World| {
        world
            .pending(claiming("a", &["all"]))
            .pending(claiming("b", &["one"]))
    };
    goes(
        &both(base().with(slice("s", DRIVER, plain(2), on("n")))),
        &[("n", &["a"]), ("-", &["b"])],
    );
    // Some of the pool has not been published.
    let more = json!({ "nodeName": "n", "pool": { "resourceSliceCount": 2 } });
    let partly = base().with(slice("s", DRIVER, plain(2), more));
    goes(&both(partly), &[("n", &["b"]), ("-", &["a"])]);
}

#[test]
fn devices_of_a_claim_agree_as_it_says() {
    let devices = json!([
        { "name": "a0", "attributes": { "root": { "string": "a" }, "slot": { "int": 0 } } },
        { "name": "b0", "attributes": { "root": { "string": "b" }, "slot": { "int": 1 } } },
        { "name": "b1", "attributes": { "gpu.example.com/root": { "string": "b" }, "slot": { "int": 1 } } },
        { "name": "none" },
    ]);
    let with = |count: i64, constraint: Value| {
        cluster()
            .node(node("n", "z1", json!({})))
            .with(slice("s", DRIVER, devices.clone(), on("n")))
            .with(claim(
                "a",
                gpus(count, json!({})),
                json!({ "spec": { "devices": { "constraints": [constraint] } } }),
            ))
            .pending(claiming("a", &["a"]))
    };
    let same = json!({ "matchAttribute": "gpu.example.com/root" });
    goes(&with(2, same.clone()), &[("n", &["a"])]);
    let world = with(3, same);
    goes(&world, &[("-", &["a"])]);
    let distinct = json!({ "distinctAttribute": "gpu.example.com/slot" });
    goes(&with(2, distinct.clone()), &[("n", &["a"])]);
    goes(&with(3, distinct), &[("-", &["a"])]);
    // A constraint on other requests does not concern these.
    goes(
        &with(
            4,
            json!({ "requests": ["other"], "matchAttribute": "gpu.example.com/root" }),
        ),
        &[("n", &["a"])],
    );
}

#[test]
fn tainted_devices_need_a_toleration_and_administrators_take_nothing() {
    let tainted = json!([{ "name": "d", "taints": [{ "key": "sick", "value": "yes", "effect": "NoSchedule" }] }]);
    let with = |more: Value| {
        cluster()
            .node(node("n", "z1", json!({})))
            .with(slice("s", DRIVER, tainted.clone(), on("n")))
            .with(claim("a", gpus(1, more), json!({})))
            .pending(claiming("a", &["a"]))
    };
    goes(&with(json!({})), &[("-", &["a"])]);
    goes(
        &with(json!({ "tolerations": [{ "key": "sick", "operator": "Exists" }] })),
        &[("n", &["a"])],
    );
    goes(
        &with(json!({ "tolerations": [{ "key": "sick", "operator": "Equal", "value": "no" }] })),
        &[("-", &["a"])],
    );
    let world = cluster()
        .node(node("n", "z1", json!({})))
        .with(slice("s", DRIVER, plain(1), on("n")))
        .with(claim("a", gpus(1, json!({})), json!({})))
        .with(claim(
            "admin",
            gpus(1, json!({ "adminAccess": true })),
            json!({}),
        ))
        .pending(claiming("a", &["a"]))
        .pending(claiming("b", &["admin"]));
    goes(&world, &[("n", &["a", "b"])]);
}

#[test]
fn parts_of_devices_are_counted() {
    // Two halves of one piece of hardware, or the whole of it.
    let draws = |amount: &str| json!([{ "counterSet": "board", "counters": { "memory": { "value": amount } } }]);
    let devices = json!([
        { "name": "half-0", "attributes": { "size": { "string": "half" } }, "consumesCounters": draws("40Gi") },
        { "name": "half-1", "attributes": { "size": { "string": "half" } }, "consumesCounters": draws("40Gi") },
        { "name": "whole", "attributes": { "size": { "string": "whole" } }, "consumesCounters": draws("80Gi") },
    ]);
    let counters = json!({ "nodeName": "n", "sharedCounters": [{ "name": "board", "counters": { "memory": { "value": "80Gi" } } }] });
    let of = |size: &str| {
        let expression = format!("device.attributes['{DRIVER}'].size == '{size}'");
        gpus(
            1,
            json!({ "selectors": [{ "cel": { "expression": expression } }] }),
        )
    };
    let with = |sizes: [&str; 3]| {
        let world = cluster().node(node("n", "z1", json!({}))).with(slice(
            "s",
            DRIVER,
            devices.clone(),
            counters.clone(),
        ));
        ["a", "b", "c"]
            .iter()
            .zip(sizes)
            .fold(world, |world, (name, size)| {
                world
                    .with(claim(name, of(size), json!({})))
                    .pending(claiming(name, &[name]))
            })
    };
    goes(
        &with(["half", "half", "whole"]),
        &[("n", &["a", "b"]), ("-", &["c"])],
    );
    goes(
        &with(["whole", "half", "half"]),
        &[("n", &["a"]), ("-", &["b", "c"])],
    );
}

#[test]
fn shares_of_a_device_fill_it_up() {
    let device = json!([{ "name": "d", "allowMultipleAllocations": true, "capacity": {
        "memory": { "value": "16Gi", "requestPolicy": { "default": "4Gi", "validRange": { "min": "2Gi", "step": "2Gi" } } },
    } }]);
    let with = |amounts: [&str; 3]| {
        let world = cluster().node(node("n", "z1", json!({}))).with(slice(
            "s",
            DRIVER,
            device.clone(),
            on("n"),
        ));
        ["a", "b", "c"]
            .iter()
            .zip(amounts)
            .fold(world, |world, (name, amount)| {
                let asked = gpus(
                    1,
                    json!({ "capacity": { "requests": { "memory": amount } } }),
                );
                world
                    .with(claim(name, asked, json!({})))
                    .pending(claiming(name, &[name]))
            })
    };
    // 5 become 6, and 6 + 8 + 2 is all of it.
    goes(&with(["5Gi", "8Gi", "1Gi"]), &[("n", &["a", "b", "c"])]);
    goes(
        &with(["5Gi", "8Gi", "3Gi"]),
        &[("n", &["a", "b"]), ("-", &["c"])],
    );
}

#[test]
fn devices_of_a_zone_narrow_a_new_machine() {
    let zone = json!({ "nodeSelector": { "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z2"] }] },
    ] } });
    let world = cluster()
        .with(slice("s", DRIVER, plain(1), zone))
        .with(claim("a", gpus(1, json!({})), json!({})))
        .with(claim("b", gpus(1, json!({})), json!({})))
        .pending(claiming("a", &["a"]))
        .pending(claiming("b", &["b"]));
    let (plan, report) = placed(&world);
    assert_eq!(&*plan.claims[0].cheapest.as_ref().unwrap().zone, "z2");
    // The node does not publish these devices: it does not wait for them.
    assert!(plan.claims[0].device_drivers.is_empty());
    assert_eq!(report.unplaced.len(), 1);
}

#[test]
fn a_claim_that_is_still_to_be_made_counts_as_its_template() {
    let template = |name: &str| {
        Object::ResourceClaimTemplate(Box::new(read(json!({
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "spec": { "devices": { "requests": gpus(1, json!({})) } } },
        }))))
    };
    let of_template = |name: &str, status: Value| {
        let claims = json!([{ "name": "gpu", "resourceClaimTemplateName": "t" }]);
        let mut pod = pod(name, name, "1", json!({ "resourceClaims": claims }));
        pod["status"]["resourceClaimStatuses"] = status;
        pod
    };
    let base = || with_devices(cluster(), "amd64-16", brings(plain(1)));
    let world = base()
        .with(template("t"))
        .pending(of_template("a", json!([])))
        .pending(of_template("b", json!([])));
    goes(&world, &[("amd64-16 #0", &["a"]), ("amd64-16 #1", &["b"])]);
    // The cluster says that no claim is needed.
    let world = base().pending(of_template("a", json!([{ "name": "gpu" }])));
    goes(&world, &[("amd64-4 #0", &["a"])]);
    let missing = base().pending(of_template("a", json!([])));
    assert_eq!(
        refusal(&missing).0,
        "allocating dynamic resources, resourceclaimtemplate \"default/t\" not found"
    );
    let made = base().pending(of_template(
        "a",
        json!([{ "name": "gpu", "resourceClaimName": "a-gpu" }]),
    ));
    assert_eq!(
        refusal(&made).0,
        "allocating dynamic resources, resourceclaim \"default/a-gpu\" not found"
    );
}

#[test]
fn what_cannot_be_understood_is_named() {
    let with = |requests: Value| {
        let world = cluster()
            .node(node("n", "z1", json!({})))
            .with(slice("s", DRIVER, plain(1), on("n")))
            .with(claim("a", requests, json!({})))
            .pending(claiming("a", &["a"]));
        let (message, detail) = refusal(&world);
        format!("{message} / {detail}")
    };
    let selecting = |expression: &str| {
        gpus(
            1,
            json!({ "selectors": [{ "cel": { "expression": expression } }] }),
        )
    };
    for (requests, want) in [
        (
            gpus(1, json!({ "deviceClassName": "tpu" })),
            "DeviceClass \"tpu\" not found",
        ),
        (
            gpus(1, json!({ "selectors": [{}] })),
            "unsupported selector type (only CEL is supported)",
        ),
        (
            gpus(1, json!({ "allocationMode": "Some" })),
            "allocation mode \"Some\" is not known (ExactCount, All)",
        ),
        (gpus(40, json!({})), "exceeding maximum of 32"),
        (
            selecting("device.driver = 'x'"),
            "failed to compile: unexpected '=' at 14",
        ),
        (
            json!([{ "name": "req" }]),
            "asks for nothing that is understood",
        ),
        (
            json!([{ "name": "req", "exactly": null, "firstAvailable": [] }]),
            "asks for nothing that is understood",
        ),
    ] {
        let said = with(requests);
        assert!(said.contains(want), "{said}");
    }
}

/// What each of some devices is, as one letter.
fn device_kinds() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0_u8..3, 0..6)
}

/// Whether requests for so many devices of a kind each, of one claim, can be met: by trying everything.
fn oracle(devices: &[u8], requests: &[(u8, usize)], same: bool) -> bool {
    fn go(devices: &[u8], used: u32, needs: &[u8], picked: &mut Vec<usize>, same: bool) -> bool {
        let Some((kind, rest)) = needs.split_first() else {
            return !same || picked.iter().all(|at| at % 2 == picked[0] % 2);
        };
        (0..devices.len()).any(|at| {
            // Kind 0 of a request means any.
            if used & (1 << at) != 0 || (*kind != 0 && devices[at] != *kind) {
                return false;
            }
            picked.push(at);
            let found = go(devices, used | (1 << at), rest, picked, same);
            picked.pop();
            found
        })
    }
    let needs: Vec<u8> = requests
        .iter()
        .flat_map(|(kind, count)| std::iter::repeat_n(*kind, *count))
        .collect();
    go(devices, 0, &needs, &mut Vec::new(), same)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn devices_are_found_whenever_there_are_any(
        kinds in device_kinds(),
        requests in prop::collection::vec((0_u8..3, 1_usize..3), 1..4),
        same in any::<bool>(),
        brought in any::<bool>(),
    ) {
        let devices: Vec<Value> = kinds.iter().enumerate().map(|(at, kind)| json!({
            "name": format!("d{at}"),
            "attributes": { "kind": { "int": kind }, "side": { "int": at % 2 } },
        })).collect();
        let asked: Vec<Value> = requests.iter().enumerate().map(|(at, (kind, count))| {
            let expression = format!("{kind} == 0 || device.attributes['{DRIVER}'].kind == {kind}");
            json!({ "name": format!("r{at}"), "exactly": {
                "deviceClassName": "gpu", "count": count, "selectors": [{ "cel": { "expression": expression } }],
            } })
        }).collect();
        let constraints = if same { json!([{ "matchAttribute": "gpu.example.com/side" }]) } else { json!([]) };
        let world = cluster()
            .with(claim("a", json!(asked), json!({ "spec": { "devices": { "constraints": constraints } } })))
            .pending(claiming("a", &["a"]));
        let world = if brought {
            with_devices(world, "amd64-4", brings(json!(devices)))
        } else {
            world.node(node("n", "z1", json!({}))).with(slice("s", DRIVER, json!(devices), on("n")))
        };
        let found = !places(&world).contains_key("-");
        prop_assert_eq!(found, oracle(&kinds, &requests, same));
    }

    #[test]
    fn no_device_is_promised_twice(
        on_node in 0_usize..4, brought in 0_usize..4, counts in prop::collection::vec(1_i64..4, 1..8),
    ) {
        let world = with_devices(cluster(), "amd64-16", brings(plain(brought)))
            .node(node("n", "z1", json!({})))
            .with(slice("s", DRIVER, plain(on_node), on("n")));
        let named: Vec<(String, i64)> = counts.iter().enumerate().map(|(at, count)| (format!("p{at}"), *count)).collect();
        let build = |order: &[(String, i64)]| order.iter().fold(
            World { types: world.types.clone(), pools: world.pools.clone(), objects: world.objects.clone() },
            |world, (name, count)| world.with(claim(name, gpus(*count, json!({})), json!({}))).pending(claiming(name, &[name])),
        );
        let found = places(&build(&named));
        for (machine, pods) in &found {
            let total: i64 = named.iter().filter(|(name, _)| pods.contains(name)).map(|(_, count)| count).sum();
            let has = match machine.as_str() { "n" => on_node, "-" => continue, _ => brought };
            prop_assert!(total <= i64::try_from(has).unwrap(), "{} has {} for {}", machine, has, total);
        }
        let refused = found.get("-").cloned().unwrap_or_default();
        for (name, count) in &named {
            let fits_new = *count <= i64::try_from(brought).unwrap();
            prop_assert!(!(refused.contains(name) && fits_new), "{} of {} has no place", name, count);
        }
        let mut turned = named.clone();
        turned.reverse();
        prop_assert_eq!(places(&build(&turned)), found);
    }
}
