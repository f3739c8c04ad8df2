//! Instances that never join as nodes: launches are paused, the NodePool reports it, and a fixed class ends the pause.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use mortise_apis::NodeClaim;
use mortise_apis::schema::conditions::{ConditionStatus, find};
use mortise_kwok_class::object::KwokNodeClass;
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::objects::{deployment, kwok_class, small_pool};
use crate::scene::{SOON, Scene, Setting};

#[tokio::test]
async fn a_class_whose_nodes_do_not_register_is_tried_slowly() -> Result<()> {
    let scene = Scene::start(Setting {
        flags: vec![
            "--registration-timeout=15s".to_owned(),
            "--max-unproven-launches=4".to_owned(),
            "--launch-backoff=1h".to_owned(),
        ],
        ..Setting::default()
    })
    .await?;
    let mut class = kwok_class();
    class["spec"] = json!({ "nodeRegistrationDelay": "24h" });
    // One pod per node: ten nodes are required.
    let web = deployment("web", 10, ("1500m", "64Mi"), json!({}));
    scene
        .apply(&[class, small_pool("default", json!({})), web])
        .await?;
    let warning = scene
        .event("LaunchesPaused", "default", "did not register")
        .await?;
    ensure!(warning.type_.as_deref() == Some("Warning"), "{warning:?}");
    wait_until("the pool's conditions", SOON, || async {
        let conditions = scene.pool("default").await?.status.conditions;
        let healthy = find(&conditions, "NodeRegistrationHealthy");
        ensure!(
            healthy
                .is_some_and(|each| each.status == ConditionStatus::False
                    && each.reason == "RegistrationFailed"),
            "{conditions:?}"
        );
        let held = find(&conditions, "LaunchesPaused");
        ensure!(
            held.is_some_and(|each| each.status == ConditionStatus::True),
            "{conditions:?}"
        );
        Ok(())
    })
    .await?;
    // Waiting claims are deleted, and no others are created.
    wait_until("no claims", SOON, || async {
        let claims = scene.claims().await?;
        ensure!(claims.is_empty(), "{:?}", claims.keys());
        Ok(())
    })
    .await?;
    scene
        .event("FailedScheduling", "web-", "launches are paused")
        .await?;
    let page = scene.mortise.metrics().await?;
    ensure!(
        page.contains("mortise_nodepool_launches_paused{nodepool=\"default\"} 1"),
        "{page}"
    );

    let classes: Api<KwokNodeClass> = Api::all(scene.plane.client());
    let fixed = json!({ "spec": { "nodeRegistrationDelay": "0s" } });
    classes
        .patch("default", &PatchParams::default(), &Patch::Merge(&fixed))
        .await?;
    scene.running("web", 10).await?;
    wait_until("the pool to be well", SOON, || async {
        let conditions = scene.pool("default").await?.status.conditions;
        ensure!(
            find(&conditions, "LaunchesPaused").is_none(),
            "{conditions:?}"
        );
        let healthy = find(&conditions, "NodeRegistrationHealthy");
        ensure!(
            healthy.is_some_and(|each| each.status == ConditionStatus::True),
            "{conditions:?}"
        );
        Ok(())
    })
    .await?;
    scene.end().await;
    Ok(())
}

/// Deleting a claim while its instance boots terminates the instance: no unused node becomes ready.
#[tokio::test]
async fn no_node_comes_for_a_claim_that_is_gone() -> Result<()> {
    let scene = Scene::kwok().await?;
    let mut class = kwok_class();
    class["spec"] = json!({ "nodeRegistrationDelay": "10s" });
    scene
        .apply(&[class, small_pool("small", json!({}))])
        .await?;
    scene
        .apply(&[deployment("web", 1, ("1", "1Gi"), json!({}))])
        .await?;
    let launched = wait_until("a launched claim", SOON, || async {
        let claims = scene.claims().await?;
        let claim = claims.values().find(|claim| claim.is_true("Launched"));
        Ok(claim.context("no claim is launched")?.name().to_string())
    })
    .await?;
    scene.scale("web", 0).await?;
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    claims.delete(&launched, &DeleteParams::default()).await?;
    wait_until("the claim to be gone", SOON, || async {
        let left = scene.claims().await?;
        ensure!(left.is_empty(), "{:?}", left.keys());
        Ok(())
    })
    .await?;
    // The next instance takes as long to boot and started later: when its node exists, the first one would too.
    scene.scale("web", 1).await?;
    scene.running("web", 1).await?;
    let (claims, nodes) = (scene.claims().await?, scene.nodes().await?);
    ensure!(
        claims.len() == 1 && nodes.len() == 1,
        "{:?}, {:?}",
        claims.keys(),
        nodes.keys()
    );
    scene.end().await;
    Ok(())
}
