//! Gangs: pods that run together or not at all get all nodes that they need, or none.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::objects::{deployment, kwok_class, limited_pool, merged, open_definition};
use crate::scene::{Scene, Setting};

const ZONE: &str = "topology.kubernetes.io/zone";

/// What `mortise explain pod` prints about the first pod of an app.
async fn explained(scene: &Scene, app: &str) -> Result<String> {
    let pods = scene.pods(app).await?;
    let name = pods.first().and_then(|pod| pod.metadata.name.as_deref());
    scene.explained(name.context("a pod")?).await
}

/// Kubernetes with its own gangs, and a scheduler that calls the extender. `topology`: also those that run in one zone.
async fn with_gangs_of_kubernetes(topology: bool) -> Result<Scene> {
    const TOPOLOGY: &str = "TopologyAwareWorkloadScheduling";
    Scene::start(Setting {
        api_server: vec![
            format!("--feature-gates=GenericWorkload=true,{TOPOLOGY}={topology}"),
            "--runtime-config=scheduling.k8s.io/v1alpha2=true".to_owned(),
        ],
        scheduler_gates: vec![
            ("GenericWorkload", true),
            ("GangScheduling", true),
            (TOPOLOGY, topology),
        ],
        extender: true,
        ..Setting::default()
    })
    .await
}

/// The gang scheduling of Kubernetes itself, as kube-scheduler does it with the extender.
#[tokio::test]
async fn kubernetes_gets_all_nodes_of_a_gang_or_none() -> Result<()> {
    let scene = with_gangs_of_kubernetes(false).await?;
    let group = |name: &str, min: i32| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": { "name": name },
            "spec": { "schedulingPolicy": { "gang": { "minCount": min } } },
        })
    };
    let workers = |name: &str, replicas: usize| {
        let over = json!({ "schedulingGroup": { "podGroupName": name } });
        deployment(name, replicas, ("1500m", "256Mi"), over)
    };
    scene
        .apply(&[
            kwok_class(),
            limited_pool(&json!({ "cpu": "6" })),
            group("train", 4),
            workers("train", 4),
        ])
        .await?;
    let text = "PodGroup default/train runs 4 pods together or none, and only 3 have a place; pod default/train-";
    scene.event("FailedScheduling", "train-", text).await?;
    let said = explained(&scene, "train").await?;
    ensure!(said.contains(text), "{said}");
    scene.stays_at(0).await?;

    // The room that it cannot use is there for others.
    let web = deployment("web", 1, ("1500m", "256Mi"), json!({}));
    scene.apply(&[web]).await?;
    scene.running("web", 1).await?;
    scene.stays_at(1).await?;

    scene.limit("general", &json!({ "cpu": "16" })).await?;
    scene.running("train", 4).await?;
    scene.settled(5).await?;

    scene.apply(&[group("late", 3), workers("late", 2)]).await?;
    scene.stays_at(5).await?;
    scene.scale("late", 3).await?;
    scene.running("late", 3).await?;
    scene.settled(8).await?;
    scene.end().await;
    Ok(())
}

/// Topology of Kubernetes' own groups: all nodes of a gang in one zone, as kube-scheduler demands before it binds the first pod.
#[tokio::test]
async fn kubernetes_gets_the_nodes_of_a_gang_in_one_zone() -> Result<()> {
    let scene = with_gangs_of_kubernetes(true).await?;
    let group = |name: &str, key: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": { "name": name },
            "spec": {
                "schedulingPolicy": { "gang": { "minCount": 3 } },
                "schedulingConstraints": { "topology": [{ "key": key }] },
            },
        })
    };
    let workers = |name: &str| {
        let over = json!({ "schedulingGroup": { "podGroupName": name } });
        deployment(name, 3, ("1500m", "256Mi"), over)
    };
    // A node that is free, in the last zone: one worker alone would start there, and the others in the first zone.
    let there = json!({ "nodeSelector": { ZONE: "test-zone-d" } });
    scene
        .apply(&[
            kwok_class(),
            limited_pool(&json!({ "cpu": "100" })),
            deployment("web", 1, ("1500m", "256Mi"), there),
        ])
        .await?;
    scene.running("web", 1).await?;
    scene.scale("web", 0).await?;
    scene.running("web", 0).await?;

    scene
        .apply(&[group("train", ZONE), workers("train")])
        .await?;
    scene.running("train", 3).await?;
    scene.settled(3).await?;
    ensure!(zones(&scene, "train").await? == ["test-zone-d"; 3]);
    // One more goes to where the others run.
    scene.scale("train", 4).await?;
    scene.running("train", 4).await?;
    scene.settled(4).await?;
    ensure!(zones(&scene, "train").await? == ["test-zone-d"; 4]);

    scene
        .apply(&[group("late", "example.com/rack"), workers("late")])
        .await?;
    let text = "PodGroup default/late runs in one example.com/rack, and no value of that label is known that new nodes may have";
    scene.event("FailedScheduling", "late-", text).await?;
    let said = explained(&scene, "late").await?;
    ensure!(said.contains(text), "{said}");
    scene.stays_at(4).await?;
    scene.end().await;
    Ok(())
}

/// The zones of the nodes that the pods of an app run on.
async fn zones(scene: &Scene, app: &str) -> Result<Vec<String>> {
    let (pods, nodes) = (scene.pods(app).await?, scene.nodes().await?);
    let zone = |pod: &Pod| {
        let node = pod.spec.as_ref()?.node_name.as_ref()?;
        nodes
            .get(node)?
            .metadata
            .labels
            .as_ref()?
            .get(ZONE)
            .cloned()
    };
    let zones = pods
        .iter()
        .map(|pod| zone(pod).context("a pod with a zone"));
    zones.collect()
}

/// Groups of schedulers that are no part of Kubernetes: what they write is read from their objects, whoever binds the pods.
#[tokio::test]
async fn groups_of_other_schedulers_are_read() -> Result<()> {
    let scene = Scene::start(Setting {
        manifests: vec![
            open_definition("scheduling.x-k8s.io", "v1alpha1", "PodGroup", json!(null)),
            open_definition("scheduling.volcano.sh", "v1beta1", "PodGroup", json!(null)),
        ],
        ..Setting::default()
    })
    .await?;
    let group = |of: &str, name: &str, min: i32, phase: &str| {
        json!({
            "apiVersion": of, "kind": "PodGroup", "metadata": { "name": name },
            "spec": { "minMember": min }, "status": { "phase": phase },
        })
    };
    let workers = |name: &str, metadata: Value| {
        let own = deployment(name, 2, ("1500m", "256Mi"), json!({}));
        let over = json!({ "spec": { "template": { "metadata": metadata } } });
        merged(own, over)
    };
    let of_label = json!({ "labels": { "scheduling.x-k8s.io/pod-group": "co" } });
    let of_annotation = json!({ "annotations": { "scheduling.k8s.io/group-name": "vol" } });
    let volcano = |phase: &str| group("scheduling.volcano.sh/v1beta1", "vol", 2, phase);
    scene
        .apply(&[
            kwok_class(),
            limited_pool(&json!({ "cpu": "100" })),
            workers("co", of_label),
            volcano("Pending"),
            workers("vol", of_annotation),
        ])
        .await?;
    scene
        .event(
            "FailedScheduling",
            "co-",
            "PodGroup default/co does not exist",
        )
        .await?;
    scene
        .event(
            "FailedScheduling",
            "vol-",
            "PodGroup default/vol is not admitted by its queue",
        )
        .await?;
    let coscheduling = group("scheduling.x-k8s.io/v1alpha1", "co", 3, "Pending");
    scene.apply(&[coscheduling]).await?;
    scene
        .event(
            "FailedScheduling",
            "co-",
            "PodGroup default/co needs 3 pods to run together, and has 2",
        )
        .await?;
    ensure!(scene.claims().await?.is_empty(), "a node was launched");
    scene.scale("co", 3).await?;
    scene.running("co", 3).await?;
    scene.apply(&[volcano("Inqueue")]).await?;
    scene.running("vol", 2).await?;
    scene.settled(5).await?;
    scene.end().await;
    Ok(())
}
