//! Nodes that terminate without consolidation: expired, lost, or without a claim or an instance.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use mortise_apis::NodeClaim;
use mortise_apis::values::GoDuration;
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::objects::{deployment, kwok_class, never, small_pool};
use crate::scene::{SOON, Scene};

/// Claims made by one pool end at different times, each at its own, and pods are told who decided and why.
#[tokio::test]
async fn what_is_too_old_goes_and_its_pods_are_told_why() -> Result<()> {
    let scene = Scene::with(&[
        "--batch-idle-duration=100ms",
        "--expiration-jitter-percent=50",
    ])
    .await?;
    let old = json!({ "template": { "spec": { "expireAfter": "60s" } } });
    scene
        .apply(&[
            kwok_class(),
            small_pool("default", old),
            deployment("web", 3, ("1500m", "1Gi"), json!({})),
        ])
        .await?;
    let first = wait_until("three claims", SOON, || async {
        let claims = scene.claims().await?;
        ensure!(claims.len() >= 3, "{} claims", claims.len());
        Ok(claims)
    })
    .await?;
    for claim in first.values() {
        let own = claim.spec.expire_after.as_ref().context("expireAfter")?;
        let own = GoDuration::parse(own.as_str())?;
        let (least, most) = (GoDuration::parse("30s")?, GoDuration::parse("60s")?);
        ensure!(least <= own && own <= most, "{own}");
    }
    scene
        .event(
            "Evicted",
            "web-",
            "Forceful Termination; expiration: older than expireAfter",
        )
        .await?;
    wait_until("none of the first to be left", SOON, || async {
        let claims = scene.claims().await?;
        let left: Vec<&String> = first
            .keys()
            .filter(|name| claims.contains_key(*name))
            .collect();
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    scene.end().await;
    Ok(())
}

/// A claim without an instance is deleted, and an instance without a claim; the pods run elsewhere.
#[tokio::test]
async fn what_is_lost_on_one_side_is_cleaned_up_on_the_other() -> Result<()> {
    let scene = Scene::with(&[
        "--batch-idle-duration=100ms",
        "--garbage-collection-interval=2s",
    ])
    .await?;
    scene
        .apply(&[
            kwok_class(),
            small_pool("default", never()),
            deployment("web", 2, ("1500m", "1Gi"), json!({})),
        ])
        .await?;
    scene.running("web", 2).await?;
    let launched_nodes = scene.settled(2).await?;
    let nodes: Api<Node> = Api::all(scene.plane.client());
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let now = DeleteParams::default();

    // kwok's instances are their Nodes: without the finalizer one is removed as if the cloud had lost it.
    let lost = launched_nodes[0].claim.name();
    let node = launched_nodes[0].node_name();
    nodes.patch(node, &PatchParams::default(), &free).await?;
    nodes.delete(node, &now).await?;
    // And a claim without one leaves its instance behind, with a node that is silent: one that is ready proves that it is used. The
    // node forgets its claim as well, otherwise the cluster's own garbage collection may be the first to delete it.
    let silent = Patch::Merge(json!({ "metadata": {
        "labels": { "kwok.x-k8s.io/stage": "unhealthy" },
        "ownerReferences": null,
    } }));
    let node = launched_nodes[1].node_name();
    nodes.patch(node, &PatchParams::default(), &silent).await?;
    let forgotten = launched_nodes[1].claim.name();
    claims
        .patch(&forgotten, &PatchParams::default(), &free)
        .await?;
    claims.delete(&forgotten, &now).await?;

    wait_until("both to be gone on both sides", SOON, || async {
        let (claims, nodes) = (scene.claims().await?, scene.nodes().await?);
        ensure!(!claims.contains_key(&*lost), "claim {lost} is there");
        let left = launched_nodes[1].node_name();
        ensure!(!nodes.contains_key(left), "node {left} is there");
        Ok(())
    })
    .await?;
    let told = scene.mortise.debug("decisions?limit=1000").await?;
    let told = told.to_string();
    ensure!(
        told.contains("garbage_collection")
            && told.contains("does not exist")
            && told.contains("has no NodeClaim"),
        "{told}"
    );
    scene.running("web", 2).await?;
    scene.settled(2).await?;
    scene.end().await;
    Ok(())
}
