//! Drains that do not finish say what is in the way, whose it is and what would clear it.

use anyhow::{Result, ensure};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use mortise_core::apis::NodeClaim;
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::objects::{ON_DEMAND, budget, deployment, kwok_class, pool, types};
use crate::scene::{SOON, Scene};

/// A budget that wants all its pods, and a pod that must not be disrupted; then both are mended.
#[tokio::test]
async fn what_is_in_the_way_is_told_and_a_metric_grows() -> Result<()> {
    let scene = Scene::kwok().await?;
    let requirements = [types(&["c-2x-amd64-linux"]), ON_DEMAND];
    let mut guarded = deployment("guarded", 1, ("1500m", "64Mi"), json!({}));
    guarded["spec"]["template"]["metadata"]["annotations"] =
        json!({ "karpenter.sh/do-not-disrupt": "true" });
    let never = json!({ "disruption": { "consolidateAfter": "Never" } });
    scene
        .apply(&[
            kwok_class(),
            pool("default", &requirements, never),
            budget("web", 1),
            deployment("web", 1, ("1500m", "64Mi"), json!({})),
            guarded,
        ])
        .await?;
    scene.running("web", 1).await?;
    scene.running("guarded", 1).await?;
    let machines = scene.settled(2).await?;
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    for machine in &machines {
        claims
            .delete(&machine.claim.name(), &DeleteParams::default())
            .await?;
    }
    let name = |app: &str| {
        let app = app.to_owned();
        let scene = &scene;
        let machines = &machines;
        async move {
            let pods = scene.pods(&app).await?;
            let found = machines
                .iter()
                .find(|machine| !machine.pods(&pods).is_empty());
            anyhow::Ok(
                found
                    .map(|machine| machine.node_name().to_owned())
                    .unwrap_or_default(),
            )
        }
    };
    let (web, protected) = (name("web").await?, name("guarded").await?);
    let event = scene
        .event("FailedDraining", &web, "never allows an eviction")
        .await?;
    let text = event.message.unwrap_or_default();
    ensure!(
        text.contains("of ReplicaSet web-")
            && text.contains("minAvailable 1")
            && text.contains("let the budget allow one to be missing"),
        "{text}"
    );
    scene
        .event(
            "FailedDraining",
            &protected,
            "remove the annotation karpenter.sh/do-not-disrupt",
        )
        .await?;
    let oldest = scene
        .mortise
        .metric("mortise_drain_oldest_seconds", &[])
        .await?;
    ensure!(oldest >= 30.0, "{oldest}");
    wait_until("both in the metric", SOON, || async {
        for shape in ["pdb_never_allows", "do_not_disrupt"] {
            let label = format!("shape=\"{shape}\"");
            let count = scene
                .mortise
                .metric("mortise_drains_blocked", &[&label])
                .await?;
            ensure!((0.5..1.5).contains(&count), "{shape}: {count}");
        }
        Ok(())
    })
    .await?;
    let explained = scene.mortise.debug(&format!("explain?node={web}")).await?;
    ensure!(
        explained["in_the_way"][0]["shape"] == "pdb_never_allows",
        "{explained:#}"
    );

    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::default_namespaced(scene.plane.client());
    let less = json!({ "spec": { "minAvailable": 0 } });
    budgets
        .patch("web", &PatchParams::default(), &Patch::Merge(&less))
        .await?;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(scene.plane.client());
    for pod in scene.pods("guarded").await? {
        let name = pod.metadata.name.unwrap_or_default();
        let free =
            json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": null } } });
        pods.patch(&name, &PatchParams::default(), &Patch::Merge(&free))
            .await?;
    }
    wait_until("both machines to be gone", SOON, || async {
        let claims = scene.claims().await?;
        ensure!(
            machines
                .iter()
                .all(|machine| !claims.contains_key(&*machine.claim.name())),
            "{:?}",
            claims.keys()
        );
        Ok(())
    })
    .await?;
    scene.running("web", 1).await?;
    scene.end().await;
    Ok(())
}
