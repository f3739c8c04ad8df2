//! A cluster whose pods claim devices, and where they go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::k8s::devices::ResourceSliceSpec;
use mortise_planning::reason::{PoolBlocker, Reason};
use mortise_planning::scheduling::{LaunchPlan, SolveOptions, SolveReport, solve};
use mortise_state::resource_kinds::Object;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::one_pool::{World, merge, pod};

pub(crate) const DRIVER: &str = "gpu.example.com";

pub(crate) fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// A cluster with the classes `gpu` and `nic`; pods of it are placed with their claims.
pub(crate) fn cluster() -> World {
    let class = |name: &str| {
        let expression = format!("device.driver == '{name}.example.com'");
        json!({ "metadata": { "name": name }, "spec": { "selectors": [{ "cel": { "expression": expression } }] } })
    };
    World::new()
        .with(Object::DeviceClass(Box::new(read(class("gpu")))))
        .with(Object::DeviceClass(Box::new(read(class("nic")))))
}

/// A claim of the namespace `default` for these requests; `more` is merged into the object.
pub(crate) fn claim(name: &str, requests: Value, more: Value) -> Object {
    let mut claim = json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("claim-{name}") },
        "spec": { "devices": { "requests": requests } },
    });
    merge(&mut claim, more);
    Object::ResourceClaim(Box::new(read(claim)))
}

/// This number of devices of class `gpu`; `more` is merged into what is asked for.
pub(crate) fn gpus(count: i64, more: Value) -> Value {
    let mut exactly =
        json!({ "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count });
    merge(&mut exactly, more);
    json!([{ "name": "req", "exactly": exactly }])
}

/// A pending pod with these claims.
pub(crate) fn claiming(name: &str, claims: &[&str]) -> Value {
    let claims: Vec<Value> = claims
        .iter()
        .map(|claim| json!({ "name": claim, "resourceClaimName": claim }))
        .collect();
    pod(name, name, "1", json!({ "resourceClaims": claims }))
}

/// A slice with these devices; `place` says who can use it.
pub(crate) fn slice(name: &str, driver: &str, devices: Value, place: Value) -> Object {
    let mut slice = json!({
        "metadata": { "name": name },
        "spec": { "driver": driver, "pool": { "name": name, "generation": 1, "resourceSliceCount": 1 }, "devices": devices },
    });
    merge(&mut slice["spec"], place);
    Object::ResourceSlice(Box::new(read(slice)))
}

pub(crate) fn on(node: &str) -> Value {
    json!({ "nodeName": node })
}

/// This number of devices without anything to tell them apart but their names.
pub(crate) fn plain(count: usize) -> Value {
    (0..count)
        .map(|at| json!({ "name": format!("d{at}") }))
        .collect()
}

/// Types of this name bring these slices.
pub(crate) fn with_devices(mut world: World, name: &str, slices: Value) -> World {
    let slices: Vec<ResourceSliceSpec> = read(slices);
    for of in world.types.iter_mut().filter(|of| &*of.name == name) {
        of.devices = slices.clone().into();
    }
    world
}

/// What a type of GPU nodes brings.
pub(crate) fn brings(devices: Value) -> Value {
    json!([{ "driver": DRIVER, "pool": { "name": "gpus" }, "devices": devices }])
}

pub(crate) fn placed(world: &World) -> (LaunchPlan, SolveReport) {
    let options = SolveOptions {
        pending: true,
        ignore_devices: false,
        ..SolveOptions::default()
    };
    solve(Timestamp::UNIX_EPOCH, &world.snapshot(), &options, &|| {
        false
    })
}

/// Pods by node; new nodes by their only or first type, pods without a place under `-`.
pub(crate) fn places(world: &World) -> BTreeMap<String, BTreeSet<String>> {
    let (plan, report) = placed(world);
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let name = |pod: &Arc<mortise_state::snapshot::Pod>| pod.key.name.to_string();
    for each in &plan.placements {
        let node = each.node.to_string();
        let node = node.trim_start_matches("other:///").to_owned();
        all.entry(node).or_default().insert(name(&each.pod));
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
pub(crate) fn goes(world: &World, want: &[(&str, &[&str])]) {
    let want: BTreeMap<String, BTreeSet<String>> = want
        .iter()
        .map(|(node, pods)| {
            (
                (*node).to_owned(),
                pods.iter().map(|pod| (*pod).to_owned()).collect(),
            )
        })
        .collect();
    assert_eq!(places(world), want);
}

/// What is said of the pods that have no place.
pub(crate) fn refusal(world: &World) -> (String, String) {
    let (_, report) = placed(world);
    let unplaced = report.unplaced.first().unwrap();
    let detail = unplaced.reasons.iter().find_map(|reason| match reason {
        Reason::PoolRefused {
            blocker: PoolBlocker::Devices,
            detail,
            ..
        } => Some(detail.clone()),
        _ => None,
    });
    (unplaced.message.clone(), detail.unwrap_or_default())
}
