//! Pools with `spec.replicas` have exactly this number of nodes, regardless of pods.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use mortise_apis::{NodeClaim, NodePool};
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::objects::{ON_DEMAND, deployment, kwok_class, pool, types};
use crate::scene::{LaunchedNode, SOON, Scene, Setting};

async fn scene() -> Result<Scene> {
    Scene::start(Setting {
        flags: vec!["--feature-gates=StaticCapacity=true".to_owned()],
        ..Setting::default()
    })
    .await
}

fn fixed(replicas: i64, over: Value) -> Value {
    let requirements = [types(&["c-2x-amd64-linux", "c-4x-amd64-linux"]), ON_DEMAND];
    let mut pool = pool("fixed", &requirements, over);
    pool["spec"]["replicas"] = json!(replicas);
    pool
}

fn names(launched_nodes: &[LaunchedNode]) -> BTreeSet<String> {
    launched_nodes
        .iter()
        .map(|launched_node| launched_node.claim.name().to_string())
        .collect()
}

async fn edit(scene: &Scene, merge: Value) -> Result<()> {
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    pools
        .patch("fixed", &PatchParams::default(), &Patch::Merge(&merge))
        .await?;
    Ok(())
}

#[tokio::test]
async fn nodes_follow_replicas_and_the_scale_subresource() -> Result<()> {
    let scene = scene().await?;
    scene.apply(&[kwok_class(), fixed(3, json!({}))]).await?;
    let three = scene.settled(3).await?;
    ensure!(
        three
            .iter()
            .all(|launched_node| launched_node.instance_type() == "c-2x-amd64-linux"),
        "the cheapest type of the template"
    );
    edit(&scene, json!({ "spec": { "replicas": 5 } })).await?;
    let five = scene.settled(5).await?;
    ensure!(names(&three).is_subset(&names(&five)), "the three stay");

    // Pods keep the node they are on; empty ones go first.
    scene
        .apply(&[deployment("web", 1, ("100m", "64Mi"), json!({}))])
        .await?;
    let pods = scene.running("web", 1).await?;
    edit(&scene, json!({ "spec": { "replicas": 2 } })).await?;
    let two = scene.settled(2).await?;
    ensure!(
        two.iter()
            .any(|launched_node| launched_node.pods(&pods).len() == 1),
        "the node with the pod stays"
    );
    wait_until("the pool's counter", SOON, || async {
        let pool = scene.pool("fixed").await?;
        ensure!(pool.status.nodes == Some(2), "{:?}", pool.status.nodes);
        Ok(())
    })
    .await?;

    let said = scene
        .plane
        .kubectl(&["scale", "nodepool", "fixed", "--replicas=4"])
        .await?;
    ensure!(said.code == 0, "kubectl scale: {}", said.stderr);
    let four = scene.settled(4).await?;
    ensure!(names(&two).is_subset(&names(&four)), "the two stay");

    // A pod that fits nowhere is no reason for a fifth node.
    scene
        .apply(&[deployment("big", 1, ("3500m", "64Mi"), json!({}))])
        .await?;
    scene.event("FailedScheduling", "big-", "").await?;
    ensure!(scene.claims().await?.len() == 4, "four and no more");
    edit(&scene, json!({ "spec": { "replicas": 0 } })).await?;
    scene.empty().await?;
    scene.end().await;
    Ok(())
}

/// A deleted node and one whose instance fails are each replaced by exactly one.
#[tokio::test]
async fn lost_nodes_are_replaced() -> Result<()> {
    let scene = scene().await?;
    scene
        .apply(&[
            kwok_class(),
            fixed(3, json!({ "limits": { "nodes": "4" } })),
        ])
        .await?;
    let before = scene.settled(3).await?;
    let nodes: Api<Node> = Api::all(scene.plane.client());
    nodes
        .delete(before[0].node_name(), &DeleteParams::default())
        .await?;
    let after = wait_until("another third node", SOON, || async {
        let launched_nodes = scene.settled(3).await?;
        ensure!(
            !names(&launched_nodes).contains(&*before[0].claim.name()),
            "not yet"
        );
        Ok(launched_nodes)
    })
    .await?;
    ensure!(
        names(&after).contains(&*before[1].claim.name()),
        "the others stay"
    );
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    claims
        .delete(&before[1].claim.name(), &DeleteParams::default())
        .await?;
    wait_until("another second node", SOON, || async {
        let launched_nodes = scene.settled(3).await?;
        ensure!(
            !names(&launched_nodes).contains(&*before[1].claim.name()),
            "not yet"
        );
        Ok(())
    })
    .await?;
    scene.end().await;
    Ok(())
}

/// A change of the template replaces every node, one for one, and never leaves fewer nodes than the budget allows.
#[tokio::test]
async fn drifted_nodes_are_replaced_one_for_one() -> Result<()> {
    let scene = scene().await?;
    let over = json!({ "disruption": { "budgets": [{ "nodes": "1" }] } });
    scene.apply(&[kwok_class(), fixed(3, over)]).await?;
    let before = scene.settled(3).await?;
    edit(
        &scene,
        json!({ "spec": { "template": { "metadata": { "labels": { "generation": "two" } } } } }),
    )
    .await?;
    let most = AtomicUsize::new(0);
    wait_until("three other nodes", SOON, || async {
        let mut claims = scene.claims().await?;
        claims.retain(|_, claim| claim.metadata.deletion_timestamp.is_none());
        most.fetch_max(claims.len(), Ordering::Relaxed);
        let left = names(&before)
            .into_iter()
            .filter(|name| claims.contains_key(name))
            .count();
        ensure!(left == 0, "{left} are left");
        Ok(())
    })
    .await?;
    let after = scene.settled(3).await?;
    let most = most.into_inner();
    ensure!(most <= 4, "at most one more at a time, {most} were there");
    ensure!(
        after
            .iter()
            .all(|launched_node| launched_node.label("generation") == "two"),
        "made from the new template"
    );
    let replaces = after[0]
        .claim
        .annotation("mortise.sh/replaces")
        .context("whom it replaces")?;
    ensure!(names(&before).contains(replaces), "{replaces}");
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn a_limit_and_a_closed_gate_are_said() -> Result<()> {
    let scene = scene().await?;
    scene
        .apply(&[
            kwok_class(),
            fixed(3, json!({ "limits": { "nodes": "2" } })),
        ])
        .await?;
    scene.settled(2).await?;
    scene
        .event(
            "StaticCapacityShort",
            "fixed",
            "2 of 3 nodes: limit of nodes is 2",
        )
        .await?;
    scene.end().await;

    let scene = Scene::kwok().await?;
    scene.apply(&[kwok_class(), fixed(1, json!({}))]).await?;
    scene
        .event("StaticCapacityShort", "fixed", "StaticCapacity=true")
        .await?;
    ensure!(scene.claims().await?.is_empty(), "nothing is made");
    scene.end().await;
    Ok(())
}
