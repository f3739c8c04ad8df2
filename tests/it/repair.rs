//! Nodes that stay unhealthy are replaced, unless too many are unhealthy at once.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use mortise_apis::NodePool;
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::objects::{deployment, kwok_class, never, small_pool};
use crate::scene::{LaunchedNode, SOON, Scene};

/// Three nodes with a pod each, and a NodePool with this toleration duration for unhealthy nodes.
async fn scene(after: &str) -> Result<Scene> {
    let scene = Scene::with(&["--feature-gates=NodeRepair=true"]).await?;
    let mut pool = small_pool("default", never());
    pool["metadata"]["annotations"] = json!({ "mortise.sh/repair-toleration-duration": after });
    let web = deployment("web", 3, ("1500m", "64Mi"), json!({}));
    scene.apply(&[kwok_class(), pool, web]).await?;
    scene.running("web", 3).await?;
    scene.settled(3).await?;
    Ok(scene)
}

/// The node's kubelet dies: kwok no longer keeps it alive, and it is not Ready.
async fn make_unhealthy(scene: &Scene, launched_node: &LaunchedNode) -> Result<()> {
    let nodes: Api<Node> = Api::all(scene.plane.client());
    let own = json!({ "metadata": {
        "annotations": { "kwok.x-k8s.io/node": null },
        "labels": { "kwok-partition": null, "kwok.x-k8s.io/node": null },
    } });
    let (name, params) = (launched_node.node_name(), PatchParams::default());
    nodes.patch(name, &params, &Patch::Merge(&own)).await?;
    // kwok may be writing a last time.
    wait_until("a node that is not Ready", SOON, || async {
        let now = k8s_openapi::jiff::Timestamp::now().to_string();
        let unhealthy = json!({ "status": { "conditions": [
            { "type": "Ready", "status": "False", "reason": "KubeletDied", "lastTransitionTime": now, "lastHeartbeatTime": now },
        ] } });
        nodes.patch_status(name, &params, &Patch::Merge(&unhealthy)).await?;
        let node = nodes.get(name).await?;
        let conditions = node.status.context("a status")?.conditions.unwrap_or_default();
        ensure!(conditions.iter().any(|each| each.type_ == "Ready" && each.status != "True"), "healed");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_unhealthy_node_is_replaced_and_its_pod_comes_back() -> Result<()> {
    let scene = scene("2s").await?;
    let launched_nodes = scene.settled(3).await?;
    make_unhealthy(&scene, &launched_nodes[0]).await?;
    let claim = launched_nodes[0].claim.name().to_string();
    scene
        .event("DisruptionTerminating", &claim, "Unhealthy")
        .await?;
    wait_until("the unhealthy node to be gone", SOON, || async {
        ensure!(
            !scene.claims().await?.contains_key(&claim),
            "{claim} is there"
        );
        Ok(())
    })
    .await?;
    scene.running("web", 3).await?;
    scene.settled(3).await?;
    let disrupted = scene
        .mortise
        .metric(
            "karpenter_nodeclaims_disrupted_total",
            &["reason=\"unhealthy\""],
        )
        .await?;
    ensure!(disrupted > 0.5, "{disrupted}");
    let page = scene.mortise.metrics().await?;
    ensure!(
        page.contains("karpenter_nodeclaims_unhealthy_disrupted_total{condition=\"Ready\""),
        "{page}"
    );
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn two_of_three_are_too_many() -> Result<()> {
    let scene = scene("1h").await?;
    let launched_nodes = scene.settled(3).await?;
    let nodes = &launched_nodes[..2];
    for launched_node in nodes {
        make_unhealthy(&scene, launched_node).await?;
    }
    let sooner =
        json!({ "metadata": { "annotations": { "mortise.sh/repair-toleration-duration": "1s" } } });
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    pools
        .patch("default", &PatchParams::default(), &Patch::Merge(&sooner))
        .await?;
    scene
        .event(
            "NodeRepairBlocked",
            nodes[1].node_name(),
            "more than 20% nodes are unhealthy in the nodepool",
        )
        .await?;
    scene
        .event("NodeRepairBlocked", "default", "in the nodepool")
        .await?;
    scene.end().await;
    Ok(())
}
