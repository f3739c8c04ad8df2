//! The first start of another version: nodes that drift with it wait, say so, and are replaced once a person agrees.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, Patch, PatchParams};
use mortise_apis::NodePool;
use mortise_apis::labels::{UPGRADED_AT, VERSION};
use serde_json::json;

use crate::crash_matrix::forget_lease;
use crate::objects::{deployment, kwok_class, never, small_pool};
use crate::scene::Scene;

async fn edit(scene: &Scene, merge: serde_json::Value) -> Result<NodePool> {
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    let (params, patch) = (PatchParams::default(), Patch::Merge(&merge));
    Ok(pools.patch("general", &params, &patch).await?)
}

#[tokio::test]
async fn what_drifts_with_an_upgrade_waits_for_a_person() -> Result<()> {
    let mut scene = Scene::kwok().await?;
    scene
        .apply(&[
            kwok_class(),
            small_pool("general", never()),
            deployment("web", 5, ("1500m", "256Mi"), json!({})),
        ])
        .await?;
    scene.settled(5).await?;
    scene.running("web", 5).await?;
    let before = scene.claim_names().await?;
    let shown = edit(&scene, json!({})).await?.metadata.annotations;
    let shown = shown.context("annotations")?;
    ensure!(
        shown.get(VERSION).map(String::as_str) == Some(env!("CARGO_PKG_VERSION")),
        "{shown:?}"
    );
    ensure!(!shown.contains_key(UPGRADED_AT), "{shown:?}");

    // As if another version had written it, which compares in another way.
    scene.mortise.kill9().await;
    let template = json!({ "metadata": { "labels": { "image": "new" } } });
    let older = json!({ "metadata": { "annotations": { VERSION: "0.0.1" } }, "spec": { "template": template } });
    edit(&scene, older).await?;
    forget_lease(&scene).await?;
    scene.mortise.start_again(&[]).await?;

    let waits = "that drift right after the upgrade to mortise";
    let event = scene.event("DisruptionBlocked", "", waits).await?;
    let said = scene.explained_object(event).await?;
    let frees = "kubectl annotate nodepool general mortise.sh/upgraded-at-";
    for part in [waits, frees] {
        ensure!(said.contains(part), "no {part:?} in {said}");
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    let claims = scene.claims().await?;
    let drifted = claims.values().filter(|claim| claim.is_true("Drifted"));
    ensure!(drifted.count() == 5, "not all drifted: {claims:?}");
    ensure!(scene.claim_names().await? == before, "{claims:?}");

    // What `explain` says is what ends it.
    let key = format!("{UPGRADED_AT}-");
    let annotate = ["annotate", "nodepool", "general", key.as_str()];
    scene.plane.kubectl(&annotate).await?.ok()?;
    scene.all_replaced(&before).await?;
    scene.running("web", 5).await?;
    scene.end().await;
    Ok(())
}
