//! `mortise pause` and `mortise resume`: a drain stops, nothing is consolidated, a restart changes nothing, and then all goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use mortise_apis::NodeClaim;
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::command::{self, Said};
use crate::objects::{deployment, kwok_class, small_pool};
use crate::scene::{SOON, Scene};

/// As long as all of what a pause must stop takes when nothing stops it.
const WHILE_PAUSED: Duration = Duration::from_secs(15);

/// The administrator runs a command.
async fn admin(scene: &Scene, subcommand: &str, args: &[&str]) -> Result<Said> {
    let kubeconfig = scene.plane.kubeconfig_path().display().to_string();
    let args = [args, &["--kubeconfig", &kubeconfig]].concat();
    command::run(subcommand, &args, None).await
}

async fn done(scene: &Scene, subcommand: &str, args: &[&str], says: &str) -> Result<()> {
    let said = admin(scene, subcommand, args).await?;
    ensure!(said.code == 0 && said.stdout.contains(says), "{said:?}");
    Ok(())
}

fn uids(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter()
        .filter_map(|pod| pod.metadata.uid.clone())
        .collect()
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn a_pause_stops_a_drain_and_consolidation_and_survives_a_restart() -> Result<()> {
    let mut scene = Scene::kwok().await?;
    let apart = json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "labelSelector": { "matchLabels": { "app": "web" } }, "topologyKey": "kubernetes.io/hostname" },
    ] } } });
    scene
        .apply(&[
            kwok_class(),
            small_pool("general", json!({})),
            deployment("web", 2, ("500m", "256Mi"), apart),
        ])
        .await?;
    let before = uids(&scene.running("web", 2).await?);
    let nodes = scene.settled(2).await?;
    let going = nodes.first().context("a node")?.claim.name().to_string();

    let wrong = admin(&scene, "pause", &["nodepool", "genral"]).await?;
    ensure!(
        wrong.code == 2
            && wrong
                .stderr
                .contains("NodePool genral does not exist; did you mean general?"),
        "{wrong:?}"
    );
    let wrong = admin(
        &scene,
        "pause",
        &["cluster", "--until", "2020-01-01T00:00:00Z"],
    )
    .await?;
    ensure!(
        wrong.code == 2 && wrong.stderr.contains("has passed"),
        "{wrong:?}"
    );
    let idle = admin(&scene, "resume", &["nodepool", "general"]).await?;
    ensure!(
        idle.code == 7 && idle.stderr.contains("was not paused"),
        "{idle:?}"
    );

    let pause = ["cluster", "--reason", "incident 4711", "--for", "2h"];
    done(
        &scene,
        "pause",
        &pause,
        "disruption of the cluster (namespace",
    )
    .await?;
    done(&scene, "pause", &["list"], "incident 4711").await?;
    let shown = wait_until("the pause in the service", SOON, || async {
        let shown = scene.mortise.debug("pauses").await?;
        ensure!(shown[0]["scope"] == "cluster", "{shown}");
        Ok(shown)
    })
    .await?;
    ensure!(shown[0]["reason"] == "incident 4711", "{shown}");
    ensure!(
        scene
            .mortise
            .metric("mortise_disruption_pauses", &["scope=\"cluster\""])
            .await?
            == 1.0
    );

    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    claims.delete(&going, &DeleteParams::default()).await?;
    tokio::time::sleep(WHILE_PAUSED).await;
    ensure!(
        uids(&scene.pods("web").await?) == before,
        "a pod was evicted"
    );
    scene.mortise.kill9().await;
    scene.mortise.start_again(&[]).await?;
    scene.mortise.wait_ready().await?;
    tokio::time::sleep(WHILE_PAUSED).await;
    ensure!(
        uids(&scene.pods("web").await?) == before,
        "a pod was evicted after the restart"
    );
    scene
        .event("FailedDraining", "", "disruption of the cluster is paused")
        .await?;

    done(&scene, "resume", &["cluster"], "goes on").await?;
    wait_until("the drained node to be gone", SOON, || async {
        ensure!(!scene.claims().await?.contains_key(&going), "not yet");
        Ok(())
    })
    .await?;
    scene.running("web", 2).await?;
    scene.settled(2).await?;

    done(
        &scene,
        "pause",
        &["nodepool", "general"],
        "NodePool general is paused until `mortise resume`",
    )
    .await?;
    wait_until("the pause in the service", SOON, || async {
        let shown = scene.mortise.debug("pauses").await?;
        ensure!(shown[0]["object"] == "general", "{shown}");
        Ok(())
    })
    .await?;
    scene.scale("web", 0).await?;
    tokio::time::sleep(WHILE_PAUSED).await;
    ensure!(
        scene.claims().await?.len() == 2,
        "an empty node was removed"
    );
    scene
        .event(
            "DisruptionBlocked",
            "",
            "disruption of NodePool general is paused",
        )
        .await?;
    done(
        &scene,
        "resume",
        &["nodepool", "general"],
        "NodePool general goes on",
    )
    .await?;
    scene.empty().await?;
    scene.end().await;
    Ok(())
}
