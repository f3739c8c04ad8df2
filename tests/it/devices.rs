//! Devices that pods claim: which node is launched, and what it waits for. The test itself acts as the driver that publishes
//! the devices of nodes.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::resource::v1::ResourceClaim;
use mortise_apis::NodeClaim;
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::objects::{ON_DEMAND, deployment, kwok_class, pod, pool};
use crate::scene::{SOON, Scene, Setting};

const DRIVER: &str = "gpu.example.com";

/// Two devices, as the driver publishes them.
fn devices() -> Value {
    json!([
        { "name": "gpu-0", "attributes": { "model": { "string": "large" } }, "capacity": { "memory": { "value": "40Gi" } } },
        { "name": "gpu-1", "attributes": { "model": { "string": "large" } }, "capacity": { "memory": { "value": "40Gi" } } },
    ])
}

/// Two types, of which the more expensive one has devices.
fn types() -> Value {
    let of = |name: &str, price: f64, devices: Value| {
        let offering = json!({ "Available": true, "Price": price, "Requirements": [
            { "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"] },
            { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
        ] });
        json!({
            "name": name, "architecture": "amd64", "operatingSystems": ["linux"],
            "resources": { "cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "20Gi" },
            "offerings": [offering], "devices": devices,
        })
    };
    let slices = json!([{ "driver": DRIVER, "pool": { "name": "gpus" }, "devices": devices() }]);
    json!([of("plain-8", 0.2, json!([])), of("gpu-8", 0.9, slices)])
}

/// A claim for this number of devices with at least 32 GiB each.
fn request(count: u32) -> Value {
    let expression = format!(
        "device.attributes['{DRIVER}'].model == 'large' && device.capacity['{DRIVER}'].memory.compareTo(quantity('32Gi')) >= 0"
    );
    json!({ "devices": { "requests": [{ "name": "gpu", "exactly": {
        "deviceClassName": "gpu", "count": count, "selectors": [{ "cel": { "expression": expression } }],
    } }] } })
}

fn template(name: &str, count: u32) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": { "name": name },
        "spec": { "spec": request(count) },
    })
}

/// Pods that have one claim each, made from a template.
fn claiming(template: &str) -> Value {
    json!({ "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": template }] })
}

/// What the driver does when it has started on a node.
async fn publish(scene: &Scene, node: &str) -> Result<()> {
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": format!("gpus-of-{node}") },
        "spec": {
            "driver": DRIVER, "nodeName": node, "devices": devices(),
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
        },
    });
    scene.apply(&[slice]).await
}

fn initialized(claim: &NodeClaim) -> Option<(&str, &str)> {
    let mut all = claim.status.conditions.iter();
    let own = all.find(|condition| condition.type_ == "Initialized")?;
    Some((own.status.as_str(), own.reason.as_str()))
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn a_node_is_launched_for_the_devices_that_it_brings() -> Result<()> {
    let file = std::env::temp_dir().join(format!("device-types-{}.json", std::process::id()));
    std::fs::write(&file, types().to_string())?;
    let scene = Scene::start(Setting {
        flags: vec![
            "--ignore-dra-requests=false".to_owned(),
            format!("--instance-types-file-path={}", file.display()),
        ],
        ..Setting::default()
    })
    .await?;
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "gpu" },
        "spec": { "selectors": [{ "cel": { "expression": format!("device.driver == '{DRIVER}'") } }] },
    });
    scene
        .apply(&[
            class,
            template("one-gpu", 1),
            template("three-gpus", 3),
            kwok_class(),
            pool("default", &[ON_DEMAND], json!({})),
            deployment("training", 3, ("1", "1Gi"), claiming("one-gpu")),
            pod("greedy", "greedy", ("1", "1Gi"), claiming("three-gpus")),
        ])
        .await?;
    // Three pods with a device each: two nodes of the type that has two.
    let nodes = wait_until(
        "two nodes with devices that wait for their driver",
        SOON,
        || async {
            let (claims, nodes) = (scene.claims().await?, scene.nodes().await?);
            ensure!(
                claims.len() == 2 && nodes.len() == 2,
                "{:?}, {:?}",
                claims.keys(),
                nodes.keys()
            );
            for claim in claims.values() {
                ensure!(claim.annotation("karpenter.sh/requested-dra-drivers") == Some(DRIVER));
                let waits = Some(("Unknown", "DRADriverPoolsNotPublished"));
                ensure!(initialized(claim) == waits, "{:?}", initialized(claim));
            }
            let of_type = |node: &&k8s_openapi::api::core::v1::Node| {
                let labels = node.metadata.labels.as_ref();
                labels
                    .and_then(|labels| labels.get("node.kubernetes.io/instance-type"))
                    .map(String::as_str)
                    == Some("gpu-8")
            };
            ensure!(
                nodes.values().all(|node| of_type(&node)),
                "another type was launched"
            );
            Ok(nodes)
        },
    )
    .await?;
    for node in nodes.keys() {
        publish(&scene, node).await?;
    }
    // kube-scheduler allocates the devices as planned, and no further node is launched.
    let pods = scene.running("training", 3).await?;
    let used: BTreeSet<_> = pods
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
        .collect();
    ensure!(used.len() == 2, "{used:?}");
    let claims = scene.list::<ResourceClaim>().await?;
    let given = claims
        .iter()
        .filter_map(|claim| claim.status.as_ref()?.allocation.as_ref());
    ensure!(given.count() == 3, "{claims:?}");
    wait_until("both nodes to be initialized", SOON, || async {
        let claims = scene.claims().await?;
        ensure!(claims.len() == 2, "{:?}", claims.keys());
        for claim in claims.values() {
            ensure!(
                initialized(claim).is_some_and(|(status, _)| status == "True"),
                "{:?}",
                initialized(claim)
            );
        }
        Ok(())
    })
    .await?;
    // No instance type has three, and the event states that.
    let part = "allocating dynamic resources, no instance type can satisfy the allocation";
    scene.event("FailedScheduling", "greedy", part).await?;
    let told = scene
        .mortise
        .debug("explain?pod=default/greedy")
        .await?
        .to_string();
    ensure!(
        told.contains("asks for 3 devices of class") && told.contains("2 match, 2 are free"),
        "{told}"
    );
    // A fourth pod has the device that is left.
    scene.scale("training", 4).await?;
    scene.running("training", 4).await?;
    scene.settled(2).await?;
    // When the pods are deleted, so are the nodes.
    scene.scale("training", 0).await?;
    scene.empty().await?;
    std::fs::remove_file(&file)?;
    scene.end().await;
    Ok(())
}
