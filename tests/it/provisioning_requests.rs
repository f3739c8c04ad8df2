//! ProvisioningRequests on the real control plane: room for all pods or none, which kube-scheduler leaves to those who asked for it.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::objects::{deployment, kwok_class, limited_pool, merged, open_definition};
use crate::scene::{SOON, Scene, Setting};

const CHECK: &str = "check-capacity.autoscaling.x-k8s.io";
const ATOMIC: &str = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";
/// One such pod fits on a node.
const SIZE: (&str, &str) = ("1500m", "256Mi");

async fn scene() -> Result<Scene> {
    let definition = open_definition(
        "autoscaling.x-k8s.io",
        "v1",
        "ProvisioningRequest",
        json!({ "status": {} }),
    );
    Scene::start(Setting {
        manifests: vec![definition],
        flags: vec!["--provisioning-requests".to_owned()],
        extender: true,
        ..Setting::default()
    })
    .await
}

/// A request for pods, and the template that it names.
fn request(name: &str, class: &str, count: usize, parameters: &Value) -> [Value; 2] {
    let mut template = deployment(name, 1, SIZE, json!({}))["spec"]["template"].take();
    let template = json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": name }, "template": template.take(),
    });
    let request = json!({
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest", "metadata": { "name": name },
        "spec": {
            "podSets": [{ "podTemplateRef": { "name": name }, "count": count }],
            "provisioningClassName": class, "parameters": parameters,
        },
    });
    [template, request]
}

/// A Deployment whose pods use a request.
fn users(request: &str, replicas: usize) -> Value {
    let annotation = "autoscaling.x-k8s.io/consume-provisioning-request";
    let metadata = json!({ "annotations": { annotation: request } });
    let over = json!({ "spec": { "template": { "metadata": metadata } } });
    merged(deployment(request, replicas, SIZE, json!({})), over)
}

fn requests(scene: &Scene) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("autoscaling.x-k8s.io", "v1", "ProvisioningRequest");
    Api::default_namespaced_with(scene.plane.client(), &ApiResource::from_gvk(&kind))
}

/// Waits for a condition with this status and reason, whose message has `part` in it: the first pass may be before the NodePool is ready.
async fn told(scene: &Scene, name: &str, expected: [&str; 3], part: &str) -> Result<()> {
    wait_until(&format!("{name} to be {expected:?}"), SOON, || async move {
        let request = requests(scene).get(name).await?;
        let conditions = &request.data["status"]["conditions"];
        let mut all = conditions.as_array().into_iter().flatten();
        let is_meant = |each: &&Value| {
            let [type_, status, reason, message] = ["type", "status", "reason", "message"]
                .map(|field| each[field].as_str().unwrap_or_default());
            [type_, status, reason] == expected && message.contains(part)
        };
        all.find(is_meant).with_context(|| conditions.to_string())?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn room_is_launched_kept_from_others_and_used() -> Result<()> {
    let scene = scene().await?;
    let [template, batch] = request("batch", ATOMIC, 3, &json!({}));
    scene
        .apply(&[
            kwok_class(),
            limited_pool(&json!({ "nodes": "9" })),
            template,
            batch,
        ])
        .await?;
    let done = ["Provisioned", "True", "CapacityIsProvisioned"];
    told(&scene, "batch", done, "").await?;
    told(&scene, "batch", ["Accepted", "True", "Accepted"], "").await?;
    let before = scene.settled(3).await?;

    // Another pod gets a node of its own, although three stand empty.
    let web = deployment("web", 1, SIZE, json!({}));
    scene.apply(&[web]).await?;
    scene.running("web", 1).await?;
    scene.settled(4).await?;

    scene.apply(&[users("batch", 3)]).await?;
    let pods = scene.running("batch", 3).await?;
    scene.settled(4).await?;
    let booked = before.iter().map(|node| node.pods(&pods).len());
    ensure!(
        booked.clone().all(|pods| pods == 1),
        "{:?}",
        Vec::from_iter(booked)
    );
    let shown = scene.mortise.debug("requests").await?;
    let is_booked = shown[0]["phase"] == "booked" && shown[0]["pods"] == 0;
    ensure!(is_booked, "{shown}");
    // Pods that exist in memory only have no events.
    let nominated = scene.events("Nominated").await?;
    let names = nominated
        .iter()
        .filter_map(|event| event.involved_object.name.as_deref());
    let virtual_names: Vec<&str> = names.filter(|name| name.starts_with("batch-0-")).collect();
    ensure!(virtual_names.is_empty(), "{virtual_names:?}");
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn a_request_gets_all_its_room_or_none_and_says_why() -> Result<()> {
    let scene = scene().await?;
    let [template, train] = request("train", ATOMIC, 4, &json!({}));
    let pods = users("train", 4);
    scene
        .apply(&[
            kwok_class(),
            limited_pool(&json!({ "nodes": "3" })),
            template,
            train,
            pods,
        ])
        .await?;
    let lacking = ["Provisioned", "False", "CapacityIsNotFound"];
    let why = "ProvisioningRequest default/train runs 4 pods together or none, and only 3 have a place; pod default/train-0-";
    told(&scene, "train", lacking, why).await?;
    scene.stays_at(0).await?;
    // Its pods wait for it, and say so.
    let pod = scene.pods("train").await?.into_iter().next();
    let name = pod.and_then(|pod| pod.metadata.name).context("a pod")?;
    let held = "no node is launched for it alone, since ProvisioningRequest train asks for all of its pods";
    // So do those that stand for it, which the API does not have.
    for (name, expected) in [(name.as_str(), held), ("train-0-0", why)] {
        let said = scene.explained(name).await?;
        ensure!(said.contains(expected), "{name}: {said}");
    }

    scene.limit("general", &json!({ "nodes": "4" })).await?;
    scene.running("train", 4).await?;
    scene.settled(4).await?;
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn a_check_finds_room_on_nodes_that_are_there() -> Result<()> {
    let scene = scene().await?;
    let once = json!({ "noRetry": "true" });
    let [template, early] = request("early", CHECK, 1, &once);
    scene
        .apply(&[
            kwok_class(),
            limited_pool(&json!({ "nodes": "9" })),
            template,
            early,
        ])
        .await?;
    told(
        &scene,
        "early",
        ["Failed", "True", "CapacityIsNotFound"],
        "",
    )
    .await?;
    scene.stays_at(0).await?;

    scene
        .apply(&[deployment("web", 2, SIZE, json!({}))])
        .await?;
    scene.running("web", 2).await?;
    scene.scale("web", 1).await?;
    scene.running("web", 1).await?;
    let [template, late] = request("late", CHECK, 1, &json!({}));
    scene.apply(&[template, late]).await?;
    told(
        &scene,
        "late",
        ["Provisioned", "True", "CapacityIsFound"],
        "",
    )
    .await?;
    // The room is booked: the pod that comes back gets a new node.
    scene.scale("web", 2).await?;
    scene.running("web", 2).await?;
    scene.apply(&[users("late", 1)]).await?;
    scene.running("late", 1).await?;
    scene.settled(3).await?;
    scene.end().await;
    Ok(())
}
