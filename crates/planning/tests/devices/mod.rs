//! Devices that pods claim: who gets which, on what node, and what is said when there are none.

mod cluster;
mod laws;

use std::collections::BTreeSet;

use jiff::Timestamp;
use mortise_planning::scheduling::{SolveOptions, solve};
use mortise_state::resource_kinds::Object;
use serde_json::{Value, json};

use crate::one_pool::{World, instance_type, merge, node, pod};
use cluster::{
    DRIVER, brings, claim, claiming, cluster, goes, gpus, on, placed, plain, read, refusal, slice,
    with_devices,
};

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
fn new_nodes_are_of_types_that_bring_the_devices() {
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
    // More than a node of any type brings.
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
fn new_nodes_bring_what_those_of_the_same_kind_have() {
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
fn a_cheaper_node_with_enough_devices_is_chosen() {
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
fn a_claim_that_pods_share_ties_them_to_one_node() {
    let world = with_devices(cluster(), "amd64-4", brings(plain(1))).with(claim(
        "shared",
        gpus(1, json!({})),
        json!({}),
    ));
    let pods = ["a", "b", "c", "d", "e"];
    let world = pods.iter().fold(world, |world, name| {
        world.pending(claiming(name, &["shared"]))
    });
    // Three fit on a node of four CPUs; the others cannot have the device anywhere else.
    goes(
        &world,
        &[("amd64-4 #0", &["a", "b", "c"]), ("-", &["d", "e"])],
    );
    assert_eq!(
        refusal(&world).1,
        "ResourceClaim \"shared\" is allocated on another node"
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
    // Where the devices can be used in a zone, a new node of that zone will do.
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
    let tainted = json!([{ "name": "d", "taints": [{ "key": "faulty", "value": "yes", "effect": "NoSchedule" }] }]);
    let with = |more: Value| {
        cluster()
            .node(node("n", "z1", json!({})))
            .with(slice("s", DRIVER, tainted.clone(), on("n")))
            .with(claim("a", gpus(1, more), json!({})))
            .pending(claiming("a", &["a"]))
    };
    goes(&with(json!({})), &[("-", &["a"])]);
    goes(
        &with(json!({ "tolerations": [{ "key": "faulty", "operator": "Exists" }] })),
        &[("n", &["a"])],
    );
    goes(
        &with(json!({ "tolerations": [{ "key": "faulty", "operator": "Equal", "value": "no" }] })),
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
fn devices_of_a_zone_narrow_a_new_node() {
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
        (json!([{ "name": "req" }]), "has no supported request"),
        (
            json!([{ "name": "req", "exactly": null, "firstAvailable": [] }]),
            "has no supported request",
        ),
    ] {
        let said = with(requests);
        assert!(said.contains(want), "{said}");
    }
}
