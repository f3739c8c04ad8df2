//! `mortise pause` and `mortise resume`: a drain stops, nothing is consolidated, a restart changes nothing, and then all goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use mortise_apis::NodeClaim;
use mortise_apis::values::after;
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

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

fn paused_policy(pause: Value) -> Value {
    let mut spec = json!({ "nodePools": ["general"] });
    spec["disruption"] = json!({ "pause": pause });
    json!({ "apiVersion": "mortise.sh/v1alpha1", "kind": "NodePoolPolicy", "metadata": { "name": "team" }, "spec": spec })
}

/// A policy in the manifests of a team pauses its NodePools, no command ends that, and its end does.
#[tokio::test]
async fn a_policy_pauses_its_node_pools_until_the_time_that_it_states() -> Result<()> {
    let scene = Scene::kwok().await?;
    scene
        .apply(&[
            kwok_class(),
            small_pool("general", json!({})),
            paused_policy(json!({ "reason": "release of the shop" })),
            deployment("web", 2, ("1500m", "256Mi"), json!({})),
        ])
        .await?;
    scene.settled(2).await?;
    scene.running("web", 2).await?;
    scene.scale("web", 0).await?;
    let words = "disruption of the NodePools of NodePoolPolicy team is paused: release of the shop";
    scene.event("DisruptionBlocked", "", words).await?;
    tokio::time::sleep(WHILE_PAUSED).await;
    ensure!(
        scene.claims().await?.len() == 2,
        "an empty node was removed"
    );

    let shown = scene.mortise.debug("pauses").await?;
    let (scope, object) = (&shown[0]["scope"], &shown[0]["object"]);
    ensure!(scope == "nodepoolpolicy" && object == "team", "{shown}");
    let label = ["scope=\"nodepoolpolicy\""];
    let counted = scene.mortise.metric("mortise_disruption_pauses", &label);
    ensure!(counted.await? == 1.0);
    let url = scene.mortise.url("");
    let said = command::run("explain", &["nodepool", "general", "--url", &url], None).await?;
    let words = "paused (release of the shop), until it is removed from NodePoolPolicy team";
    ensure!(said.code == 0 && said.stdout.contains(words), "{said:?}");
    let said = command::run("top", &["--url", &url], None).await?;
    ensure!(
        said.code == 0 && said.stdout.contains("NodePoolPolicy team is paused"),
        "{said:?}"
    );
    done(
        &scene,
        "pause",
        &["list"],
        "NodePoolPolicy team\t-\trelease",
    )
    .await?;
    let said = admin(&scene, "resume", &["nodepool", "general"]).await?;
    let remedy = "remove spec.disruption.pause from NodePoolPolicy team";
    ensure!(said.code == 7 && said.stderr.contains(remedy), "{said:?}");
    for subcommand in ["pause", "resume"] {
        let said = admin(&scene, subcommand, &["nodepoolpolicy", "team"]).await?;
        let remedy = "add or remove spec.disruption.pause there";
        ensure!(said.code == 2 && said.stderr.contains(remedy), "{said:?}");
    }

    let until = after(Timestamp::now(), 20_000);
    let ends = json!({ "reason": "release of the shop", "until": until });
    scene.apply(&[paused_policy(ends)]).await?;
    wait_until("the end of the pause in the service", SOON, || async {
        let shown = scene.mortise.debug("pauses").await?;
        ensure!(!shown[0]["until"].is_null(), "{shown}");
        Ok(())
    })
    .await?;
    ensure!(scene.claims().await?.len() == 2, "the pause ended early");
    scene.empty().await?;
    ensure!(Timestamp::now() >= until, "the pause ended early");
    scene.end().await;
    Ok(())
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
