//! Drains that do not finish report the blocker, its owner and what would clear it; then they finish.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use mortise_apis::{NodeClaim, NodePool};
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::aws_account::Account;
use crate::faults::befall;
use crate::scene::{LaunchedNode, SOON, Scene, label};
use crate::shapes::{
    FOR_APPS, OF_CLOUDS, SHAPES, Shape, app, by_app, counted, slow_app, workloads,
};

type LaunchedNodes = BTreeMap<String, LaunchedNode>;

fn of<'a>(launched_nodes: &'a LaunchedNodes, shape: &Shape) -> Result<&'a LaunchedNode> {
    let found = launched_nodes.get(shape.app);
    found.with_context(|| format!("no node of {}", shape.app))
}

async fn delete<'a>(
    scene: &Scene,
    launched_nodes: impl Iterator<Item = &'a LaunchedNode>,
) -> Result<()> {
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    for launched_node in launched_nodes {
        let name = launched_node.claim.name();
        claims.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Waits until the nodes without a blocker are deleted.
async fn gone(scene: &Scene, shapes: &[Shape], launched_nodes: &LaunchedNodes) -> Result<()> {
    wait_until("what was cleared to be gone", SOON, || async {
        let claims = scene.claims().await?;
        let ended = shapes.iter().filter(|shape| shape.ends());
        let mut left = ended.filter(|shape| {
            let launched_node = launched_nodes.get(shape.app);
            launched_node
                .is_some_and(|launched_node| claims.contains_key(&*launched_node.claim.name()))
        });
        let left = left.next().map(|shape| shape.app);
        ensure!(left.is_none(), "{left:?} is there");
        Ok(())
    })
    .await
}

/// The blockers that a real control plane can have, each on a node of its own, all at once. All kinds are covered in
/// `crates/deciders/src/termination/drain_blocker_tests.rs` too.
#[tokio::test]
async fn each_shape_is_told_and_when_it_is_cleared_the_node_is_deleted() -> Result<()> {
    let scene = Scene::kwok().await?;
    scene.apply(&workloads(&scene).await?).await?;
    let apps: BTreeSet<&str> = SHAPES.iter().map(|shape| shape.app).collect();
    let launched_nodes = by_app(scene.settled(apps.len()).await?);
    // One pod causes the launch of the node, and two more use it.
    for (app, count) in [("unready", 3), ("used-up", 3)] {
        scene.scale(app, count).await?;
        let pods = scene.running(app, count).await?;
        let launched_node = launched_nodes
            .get(app)
            .with_context(|| format!("no node of {app}"))?;
        ensure!(
            launched_node.pods(&pods).len() == count,
            "{app} is on several nodes"
        );
    }
    for app in apps
        .iter()
        .filter(|app| !["unready", "used-up", "waits"].contains(*app))
    {
        scene.running(app, 1).await?;
    }
    befall(&scene, &launched_nodes).await?;

    let start = Timestamp::now();
    delete(&scene, launched_nodes.values()).await?;
    for shape in &SHAPES {
        shape
            .told(&scene, of(&launched_nodes, shape)?, start)
            .await?;
        counted(&scene, &SHAPES, shape.app).await?;
    }
    let oldest = scene
        .mortise
        .metric("mortise_oldest_drain_age_seconds", &[]);
    let oldest = oldest.await?;
    ensure!(oldest >= 45.0, "{oldest}");
    // A node that goes takes no traffic, whatever keeps it.
    let going = scene.nodes().await?;
    for app in ["never", "until", "waits", "denied", "attached", "node"] {
        let name = launched_nodes.get(app).map(LaunchedNode::node_name);
        let node = name.and_then(|name| going.get(name));
        let node = node.with_context(|| format!("{app} has gone"))?;
        let excluded = label(
            node,
            "node.kubernetes.io/exclude-from-external-load-balancers",
        );
        ensure!(excluded == "karpenter", "{app}: {excluded:?}");
    }

    for shape in &SHAPES {
        shape.cure(&scene, of(&launched_nodes, shape)?).await?;
    }
    gone(&scene, &SHAPES, &launched_nodes).await?;
    scene.end().await;
    Ok(())
}

/// On EC2: a node that falls silent is replaced with grace, which its pod does not take; an instance is protected against
/// termination; another takes its time to end.
#[tokio::test]
async fn what_the_cloud_and_kubelets_hold_up_is_told() -> Result<()> {
    let account = Account::open().await?;
    let flags = ["--feature-gates=NodeRepair=true"];
    let (scene, factory) = account.scene_with(&[], &flags).await?;
    let (key, operator, _) = FOR_APPS;
    let requirements = json!([
        { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"] },
        { "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] },
        { "key": key, "operator": operator },
    ]);
    let pool = json!({
        "metadata": { "annotations": {
            "mortise.sh/repair-mode": "graceful", "mortise.sh/repair-toleration-duration": "1s", "mortise.sh/repair-max-unhealthy": "100%",
        } },
        "spec": { "disruption": { "consolidateAfter": "Never" }, "template": { "spec": { "requirements": requirements } } },
    });
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    pools
        .patch("default", &PatchParams::default(), &Patch::Merge(&pool))
        .await?;
    let apps = [
        slow_app("silent", "1h", 90),
        app("protected", 1, json!({})),
        app("ending", 1, json!({})),
    ];
    scene.apply(&apps).await?;
    for app in ["silent", "protected", "ending"] {
        scene.running(app, 1).await?;
    }
    let launched_nodes = by_app(scene.settled(3).await?);
    let [silent, protected, ending] =
        ["silent", "protected", "ending"].map(|app| launched_nodes.get(app));
    let (silent, protected) = (silent.context("silent")?, protected.context("protected")?);
    let instance = account.instance_of(protected).await?;
    account.moto.protect(&instance.id, true).await?;
    account.moto.linger(true).await?;

    let start = Timestamp::now();
    let nodes: Api<Node> = Api::all(scene.plane.client());
    let unready = json!({ "metadata": { "labels": { "kwok.x-k8s.io/stage": "unhealthy" } } });
    nodes
        .patch(
            silent.node_name(),
            &PatchParams::default(),
            &Patch::Merge(&unready),
        )
        .await?;
    delete(&scene, [protected, ending.context("ending")?].into_iter()).await?;
    graceful(&scene, silent).await?;
    for shape in &OF_CLOUDS {
        shape
            .told(&scene, of(&launched_nodes, shape)?, start)
            .await?;
        counted(&scene, &OF_CLOUDS, shape.app).await?;
    }

    for shape in &OF_CLOUDS {
        shape.cure(&scene, of(&launched_nodes, shape)?).await?;
    }
    account.moto.linger(false).await?;
    gone(&scene, &OF_CLOUDS, &launched_nodes).await?;
    drop(factory);
    scene.end().await;
    account.end().await
}

/// Repair with grace: the claim has no deadline, and the pod is evicted with its own grace period.
async fn graceful(scene: &Scene, launched_node: &LaunchedNode) -> Result<()> {
    let claim = launched_node.claim.name().to_string();
    scene
        .event("DisruptionTerminating", &claim, "Unhealthy")
        .await?;
    scene.event("Evicted", "silent-", "repair: ").await?;
    let claims = scene.claims().await?;
    let going = claims.get(&claim).context("the claim")?;
    let deadline = going.annotation("karpenter.sh/nodeclaim-termination-timestamp");
    ensure!(deadline.is_none(), "{deadline:?}");
    let pods = scene.pods("silent").await?;
    let own = launched_node.pods(&pods);
    let grace = own
        .first()
        .and_then(|pod| pod.metadata.deletion_grace_period_seconds);
    ensure!(grace == Some(90), "{grace:?}");
    Ok(())
}
