//! Half empty nodes are replaced by fewer or cheaper ones, and disruption budgets of pods are respected.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::availability::Availability;
use crate::objects::{AMD64, LINUX, ON_DEMAND, budget, deployment, kwok_class, pool, types};
use crate::scene::{SOON, Scene};

#[tokio::test]
async fn half_of_the_pods_need_half_of_the_nodes() -> Result<()> {
    let scene = Scene::kwok().await?;
    let requirements = [types(&["c-8x-amd64-linux"]), ON_DEMAND];
    scene
        .apply(&[
            kwok_class(),
            pool("default", &requirements, json!({})),
            budget("web", 18),
        ])
        .await?;
    // Seven pods of a CPU fit on a node: 42 fill six, 20 need three.
    scene
        .apply(&[deployment("web", 42, ("1", "1Gi"), json!({}))])
        .await?;
    let before = scene.running("web", 42).await?;
    scene.settled(6).await?;

    let availability = Availability::watch(&scene.plane.client(), "web").await?;
    scene.scale("web", 20).await?;
    scene.settled(3).await?;
    let after = scene.running("web", 20).await?;
    let least = availability.least();
    ensure!(
        least >= 18,
        "only {least} pods were available at some time, where the budget says 18"
    );

    let uids = |pods: &[k8s_openapi::api::core::v1::Pod]| -> BTreeSet<String> {
        pods.iter()
            .filter_map(|pod| pod.metadata.uid.clone())
            .collect()
    };
    let moved = uids(&after).difference(&uids(&before)).count();
    ensure!(moved > 0, "pods were moved");
    let evicted = scene.event("Evicted", "web-", "Evicted pod").await?;
    ensure!(evicted.involved_object.kind.as_deref() == Some("Pod"));
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn a_node_too_big_is_replaced_by_a_cheaper_one() -> Result<()> {
    let scene = Scene::kwok().await?;
    scene
        .apply(&[
            kwok_class(),
            pool("default", &[AMD64, LINUX, ON_DEMAND], json!({})),
        ])
        .await?;
    // Together they need 7.1 CPUs; the small one alone fits on the type with 2 CPUs and 4 GiB.
    scene
        .apply(&[
            deployment("small", 1, ("1100m", "1Gi"), json!({})),
            deployment("big", 1, ("6", "1Gi"), json!({})),
        ])
        .await?;
    scene.running("big", 1).await?;
    scene.running("small", 1).await?;
    let before = scene.settled(1).await?;
    let before = before.first().context("one")?;
    ensure!(
        before.instance_type() == "c-8x-amd64-linux",
        "{}",
        before.instance_type()
    );

    scene.scale("big", 0).await?;
    let after = wait_until("another node", SOON, || async {
        let launched_nodes = scene.settled(1).await?;
        let launched_node = launched_nodes.into_iter().next().context("one")?;
        ensure!(
            launched_node.node_name() != before.node_name(),
            "still {}",
            launched_node.instance_type()
        );
        Ok(launched_node)
    })
    .await?;
    ensure!(
        after.instance_type() == "c-2x-amd64-linux",
        "{}",
        after.instance_type()
    );
    let pods = scene.running("small", 1).await?;
    ensure!(after.pods(&pods).len() == 1, "the pod is on it");
    let replaces = after.claim.annotation("mortise.sh/replaces");
    ensure!(replaces == Some(&*before.claim.name()), "{replaces:?}");
    scene
        .event("DisruptionLaunching", &after.claim.name(), "")
        .await?;
    scene
        .event(
            "DisruptionTerminating",
            &before.claim.name(),
            "Underutilized",
        )
        .await?;
    scene.end().await;
    Ok(())
}

/// A pod that must not be disrupted keeps its node, and an event of the node states why it stays.
#[tokio::test]
async fn a_protected_pod_keeps_its_node() -> Result<()> {
    let scene = Scene::kwok().await?;
    scene
        .apply(&[
            kwok_class(),
            pool("default", &[AMD64, LINUX, ON_DEMAND], json!({})),
        ])
        .await?;
    let mut small = deployment("small", 1, ("1100m", "1Gi"), json!({}));
    small["spec"]["template"]["metadata"]["annotations"] =
        json!({ "karpenter.sh/do-not-disrupt": "true" });
    scene
        .apply(&[small, deployment("big", 1, ("6", "1Gi"), json!({}))])
        .await?;
    scene.running("big", 1).await?;
    let pods = scene.running("small", 1).await?;
    let before = scene.settled(1).await?;
    scene.scale("big", 0).await?;
    scene
        .event(
            "DisruptionBlocked",
            &before[0].claim.name(),
            "do-not-disrupt",
        )
        .await?;
    let after = scene.settled(1).await?;
    ensure!(after[0].node_name() == before[0].node_name());
    let still = scene.running("small", 1).await?;
    ensure!(
        still[0].metadata.uid == pods[0].metadata.uid,
        "the pod was not touched"
    );
    scene.end().await;
    Ok(())
}
