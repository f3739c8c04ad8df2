//! The first start of another version: nodes that drift with it wait, say so, and are replaced once a person agrees.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, Patch, PatchParams};
use mortise_apis::NodePool;
use mortise_apis::labels::{UPGRADED_AT, VERSION};
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::command;
use crate::crash_matrix::forget_lease;
use crate::objects::{deployment, kwok_class, never, small_pool};
use crate::scene::{SOON, Scene};

async fn edit(scene: &Scene, merge: serde_json::Value) -> Result<NodePool> {
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    let (params, patch) = (PatchParams::default(), Patch::Merge(&merge));
    Ok(pools.patch("general", &params, &patch).await?)
}

async fn names(scene: &Scene) -> Result<BTreeSet<String>> {
    Ok(scene.claims().await?.into_keys().collect())
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
    let before = names(&scene).await?;
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
    let (kind, name) = (event.involved_object.kind, event.involved_object.name);
    let kind = kind.context("a kind")?.to_lowercase();
    let url = scene.mortise.url("");
    let asked = [&*kind, &*name.context("a name")?, "--url", &url];
    let said = command::run("explain", &asked, None).await?;
    ensure!(
        said.code == 0
            && said.stdout.contains(waits)
            && said
                .stdout
                .contains("kubectl annotate nodepool general mortise.sh/upgraded-at-"),
        "{said:?}"
    );
    tokio::time::sleep(Duration::from_secs(20)).await;
    let claims = scene.claims().await?;
    let drifted = claims.values().filter(|claim| claim.is_true("Drifted"));
    ensure!(drifted.count() == 5, "not all drifted: {claims:?}");
    ensure!(names(&scene).await? == before, "{claims:?}");

    // What `explain` says is what ends it.
    let key = format!("{UPGRADED_AT}-");
    let annotate = ["annotate", "nodepool", "general", key.as_str()];
    scene.plane.kubectl(&annotate).await?.ok()?;
    wait_until("all nodes to be new", SOON, || async {
        let now = names(&scene).await?;
        ensure!(now.len() == 5 && now.is_disjoint(&before), "{now:?}");
        Ok(())
    })
    .await?;
    scene.running("web", 5).await?;
    scene.end().await;
    Ok(())
}
