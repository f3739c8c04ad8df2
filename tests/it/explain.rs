//! `mortise explain` and `mortise top` on a real control plane: what they say about a pending pod, a node that may not go, a
//! NodePool and the whole cluster, and what they say when they may not ask.

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::command::{self, Said};
use crate::objects::{deployment, kwok_class, reader_and_stranger, small_pool};
use crate::scene::{SOON, Scene, Setting};

/// Wrong usage, or no such object.
const WRONG_USAGE: i32 = 2;
/// The service is out of reach.
const UNREACHABLE: i32 = 3;
/// A permission is missing.
const FORBIDDEN: i32 = 5;

/// A command asks the service at its address, with a token of this account.
async fn asks(scene: &Scene, account: &str, subcommand: &str, args: &[&str]) -> Result<Said> {
    let url = scene.mortise.url("");
    let kubeconfig = scene.plane.kubeconfig_path().display().to_string();
    let connection = [
        "--url",
        &url,
        "--service-account",
        account,
        "--kubeconfig",
        &kubeconfig,
    ];
    command::run(subcommand, &[args, &connection].concat(), None).await
}

/// What it prints, which has all these parts.
async fn says(scene: &Scene, subcommand: &str, args: &[&str], parts: &[&str]) -> Result<String> {
    wait_until(&format!("{subcommand} {args:?}"), SOON, || async {
        let said = asks(scene, "default/reader", subcommand, args).await?;
        ensure!(said.code == 0, "{said:?}");
        for part in parts {
            ensure!(
                said.stdout.contains(part),
                "no {part:?} in\n{}",
                said.stdout
            );
        }
        Ok(said.stdout)
    })
    .await
}

async fn fails(said: Said, code: i32, parts: &[&str]) -> Result<()> {
    ensure!(said.code == code && said.stdout.is_empty(), "{said:?}");
    for part in parts {
        ensure!(
            said.stderr.contains(part),
            "no {part:?} in\n{}",
            said.stderr
        );
    }
    Ok(())
}

#[tokio::test]
async fn explain_and_top_say_why_and_what_is_missing() -> Result<()> {
    let rule = json!({ "nonResourceURLs": ["/debug/*"], "verbs": ["get"] });
    let scene = Scene::start(Setting {
        insecure_debug: false,
        manifests: vec![reader_and_stranger(rule)],
        ..Setting::default()
    })
    .await?;
    scene
        .apply(&[
            kwok_class(),
            small_pool("general", json!({})),
            deployment("web", 1, ("500m", "256Mi"), json!({})),
            deployment("big", 1, ("64", "256Mi"), json!({})),
        ])
        .await?;
    let web = scene.running("web", 1).await?;
    let web = web[0].metadata.name.clone().context("a name")?;
    let node = scene.settled(1).await?;
    let node = node[0].node.metadata.name.clone().context("a name")?;

    // Why a pod is pending, and what would free it.
    let big = scene.pods("big").await?;
    let big = big[0].metadata.name.clone().context("a name")?;
    let pending = [
        "pending",
        "Why it gets no node",
        "NodePool general: ",
        "nearest instance type: ",
        "to free it: lower the request, or allow larger instance types",
    ];
    let text = says(&scene, "explain", &["pod", &big, "-n", "default"], &pending).await?;
    ensure!(!text.contains("does not lead"), "{text}");
    let answer = says(
        &scene,
        "explain",
        &["pod", &format!("default/{big}"), "-o", "json"],
        &[],
    )
    .await?;
    let answer: Value = serde_json::from_str(&answer)?;
    ensure!(answer["blockers"][0]["blocker"] == "resources", "{answer}");

    // Why a node is still here.
    let annotation = "karpenter.sh/do-not-disrupt=true";
    scene
        .plane
        .kubectl(&["annotate", "pod", &web, annotation])
        .await?
        .ok()?;
    let annotation_of = "Pod has \"karpenter.sh/do-not-disrupt\" annotation";
    let protected = format!("{annotation_of} (Pod=default/{web})");
    let blocked = [
        protected.as_str(),
        "to free it: remove the annotation",
        "Budgets of NodePool general",
        "expiry             never",
    ];
    says(&scene, "explain", &["node", &node], &blocked).await?;
    let pool = [
        "NodePool general: ready",
        "Underutilized",
        "100% nodes for every reason: always",
    ];
    says(&scene, "explain", &["nodepool", "general"], &pool).await?;

    // Everything on a screen.
    let screen = [
        "1 nodes, $",
        "general",
        "c-2x-amd64-linux",
        &format!("held: {protected}"),
        &format!("default/{big}"),
        "said by the leader",
    ];
    says(&scene, "top", &["--sort", "fill"], &screen).await?;
    let all = says(&scene, "top", &["-o", "json"], &[]).await?;
    let all: Value = serde_json::from_str(&all)?;
    let price = all["state"]["nodes"][0]["price"].as_f64();
    ensure!(price.is_some_and(|price| price > 0.0), "{all}");

    // What is wrong is said with what is right.
    let reader = "default/reader";
    let wrong = asks(&scene, reader, "explain", &["nodepool", "genral"]).await?;
    fails(
        wrong,
        WRONG_USAGE,
        &["there is no nodepool \"genral\"; did you mean \"general\"?"],
    )
    .await?;
    let stranger = asks(&scene, "default/stranger", "top", &[]).await?;
    fails(
        stranger,
        FORBIDDEN,
        &["no permission to get /debug/state", "nonResourceURLs"],
    )
    .await?;
    let missing = asks(&scene, "default/absent", "top", &[]).await?;
    fails(
        missing,
        WRONG_USAGE,
        &["service account default/absent does not exist"],
    )
    .await?;
    let url = scene.mortise.url("");
    let without = command::run("explain", &["node", &node, "--url", &url], None).await?;
    fails(
        without,
        WRONG_USAGE,
        &["wants a token", "--service-account"],
    )
    .await?;
    let elsewhere = command::run("top", &["--url", "https://127.0.0.1:1"], None).await?;
    fails(
        elsewhere,
        UNREACHABLE,
        &["does not respond at https://127.0.0.1:1"],
    )
    .await?;

    // Without an address, the Lease says which pod leads. This one runs outside of the cluster.
    let kubeconfig = scene.plane.kubeconfig_path().display().to_string();
    let kubectl = scene.plane.kubectl_path();
    let directory = kubectl
        .parent()
        .context("its directory")?
        .display()
        .to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let env = [("PATH".to_owned(), format!("{directory}:{path}"))];
    let args = ["--kubeconfig", &kubeconfig, "--service-account", reader];
    let outside = command::run_with("top", &args, None, &env).await?;
    fails(outside, WRONG_USAGE, &["the replica that leads", "--url"]).await?;
    scene.end().await;
    Ok(())
}
