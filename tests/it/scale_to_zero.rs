//! Unused nodes are deleted, and nothing of them stays.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams};
use mortise_apis::{NodeClaim, NodePool};
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::objects::{ON_DEMAND, deployment, kwok_class, pool, types};
use crate::scene::{SOON, Scene};

async fn three_nodes() -> Result<Scene> {
    let scene = Scene::kwok().await?;
    let requirements = [types(&["c-4x-amd64-linux"]), ON_DEMAND];
    scene
        .apply(&[kwok_class(), pool("default", &requirements, json!({}))])
        .await?;
    // Three pods of a CPU fit on a node.
    scene
        .apply(&[deployment("web", 9, ("1", "1Gi"), json!({}))])
        .await?;
    scene.running("web", 9).await?;
    scene.settled(3).await?;
    Ok(scene)
}

#[tokio::test]
async fn without_pods_nothing_is_left() -> Result<()> {
    let scene = three_nodes().await?;
    scene.scale("web", 0).await?;
    scene.empty().await?;
    // The provider's instances are Nodes; the list above has only those with an id, so check all of them.
    let nodes = scene.list::<Node>().await?;
    ensure!(nodes.is_empty(), "{} nodes", nodes.len());
    wait_until("counters at zero", SOON, || async {
        let status = scene.pool("default").await?.status;
        ensure!(status.nodes == Some(0), "nodes: {:?}", status.nodes);
        Ok(())
    })
    .await?;
    scene
        .event("DisruptionTerminating", "default-", "Empty")
        .await?;

    // And back: what went comes again.
    scene.scale("web", 1).await?;
    scene.running("web", 1).await?;
    scene.settled(1).await?;
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn what_a_person_deletes_is_drained_and_replaced() -> Result<()> {
    let scene = three_nodes().await?;
    let before = scene.settled(3).await?;
    let (by_node, by_claim) = (&before[0], &before[1]);
    let nodes: Api<Node> = Api::all(scene.plane.client());
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    nodes
        .delete(by_node.node_name(), &DeleteParams::default())
        .await?;
    claims
        .delete(&by_claim.claim.name(), &DeleteParams::default())
        .await?;
    wait_until("both to be gone with node and claim", SOON, || async {
        let (claims, nodes) = (scene.claims().await?, scene.nodes().await?);
        for gone in [by_node, by_claim] {
            ensure!(
                !claims.contains_key(&*gone.claim.name()),
                "claim {} is there",
                gone.claim.name()
            );
            ensure!(
                !nodes.contains_key(gone.node_name()),
                "node {} is there",
                gone.node_name()
            );
        }
        Ok(())
    })
    .await?;
    scene.running("web", 9).await?;
    let after = scene.settled(3).await?;
    ensure!(
        after
            .iter()
            .any(|launched_node| launched_node.node_name() == before[2].node_name()),
        "the third one stays"
    );

    // Deleting a NodePool deletes its nodes, and nothing new is launched for the pods.
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    pools.delete("default", &DeleteParams::default()).await?;
    scene.empty().await?;
    wait_until("the pool to be gone", SOON, || async {
        ensure!(pools.get_opt("default").await?.is_none(), "still there");
        Ok(())
    })
    .await?;
    scene.end().await;
    Ok(())
}
