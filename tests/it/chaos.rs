//! Workloads that are scaled and restarted at random while nodes are deleted and the process is killed, and what it recorded of
//! that: every recording replays bit for bit, nothing is left behind.
//!
//! The story is short by default. `just chaos 30` plays half an hour.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::Resource;
use kube::api::{Api, DeleteParams};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::values::SplitMix64;
use serde_json::json;

use crate::crash_matrix::forget_lease;
use crate::objects::{LINUX, deployment, kwok_class, pool};
use crate::recording::{EQUAL, number, report, written};
use crate::scene::Scene;

/// What a pod of each of four workloads requests.
const WORKLOADS: [(&str, (&str, &str)); 4] = [
    ("small", ("400m", "300Mi")),
    ("middle", ("800m", "600Mi")),
    ("large", ("1200m", "900Mi")),
    ("huge", ("1600m", "1200Mi")),
];
/// Replicas of a workload are less than this.
const REPLICAS: u64 = 25;
/// The process is killed after this many actions.
const ACTIONS_PER_PROCESS: usize = 12;

/// How long: `MORTISE_CHAOS_MINUTES`. Longer than the default, and the actions are as far apart as those of people.
fn length() -> Result<(Duration, Duration)> {
    Ok(match std::env::var("MORTISE_CHAOS_MINUTES") {
        Ok(minutes) => (
            Duration::from_mins(minutes.parse()?),
            Duration::from_secs(5),
        ),
        Err(_) => (Duration::from_secs(20), Duration::from_secs(1)),
    })
}

/// Deletes one of the objects that mortise launched, if there is any.
async fn delete_any<K>(api: &Api<K>, names: Vec<&String>, random: &mut SplitMix64) -> Result<()>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let Some(last) = names.len().checked_sub(1) else {
        return Ok(());
    };
    let at = usize::try_from(random.below(u64::try_from(last)? + 1))?;
    match api.delete(names[at], &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()), // mortise was faster
        other => other.map(|_| ()).context("a deletion"),
    }
}

/// Does one thing of those that happen to a cluster; what, and to which object, is drawn.
async fn act(scene: &Scene, random: &mut SplitMix64) -> Result<()> {
    let client = scene.plane.client();
    let workload = usize::try_from(random.below(4))?;
    let (workload, _) = WORKLOADS[workload];
    match random.below(6) {
        0..=2 => {
            let replicas = usize::try_from(random.below(REPLICAS))?;
            scene.scale(workload, replicas).await?;
        }
        3 => {
            let claims = scene.claims().await?;
            let all: Api<NodeClaim> = Api::all(client);
            delete_any(&all, claims.keys().collect(), random).await?;
        }
        4 => {
            let nodes = scene.nodes().await?;
            let all: Api<Node> = Api::all(client);
            delete_any(&all, nodes.keys().collect(), random).await?;
        }
        _ => {
            let deployments: Api<Deployment> = Api::default_namespaced(client);
            deployments.restart(workload).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn chaos_replays_bit_for_bit_and_leaves_nothing_behind() -> Result<()> {
    let (length, pause) = length()?;
    let directory = std::env::temp_dir().join(format!("mortise-chaos-{}", std::process::id()));
    if directory.exists() {
        std::fs::remove_dir_all(&directory)?;
    }
    let flag = format!("--record={}", directory.display());
    let mut scene = Scene::with(&[&flag]).await?;
    let consolidates = json!({ "disruption": { "consolidateAfter": "2s" } });
    scene
        .apply(&[kwok_class(), pool("any", &[LINUX], consolidates)])
        .await?;
    for (name, size) in WORKLOADS {
        scene.apply(&[deployment(name, 3, size, json!({}))]).await?;
        scene.running(name, 3).await?;
    }
    let mut random = SplitMix64::new(1);
    let mut processes = 1;
    let begun = Instant::now();
    for action in 1.. {
        act(&scene, &mut random).await?;
        tokio::time::sleep(pause).await;
        if action % ACTIONS_PER_PROCESS == 0 {
            written(&directory).await?;
            scene.mortise.kill9().await;
            forget_lease(&scene).await?;
            scene.mortise.start_again(&[]).await?;
            scene.mortise.wait_ready().await?;
            processes += 1;
        }
        if begun.elapsed() > length {
            break;
        }
    }
    for (name, _) in WORKLOADS {
        scene.scale(name, 5).await?;
    }
    for (name, _) in WORKLOADS {
        scene.running(name, 5).await?;
        scene.scale(name, 0).await?;
    }
    scene.empty().await?;
    let code = scene.mortise.terminate().await;
    ensure!(code == 0, "ended with {code}");

    let recordings = report(&directory, &[], EQUAL).await?;
    ensure!(
        recordings.len() == processes,
        "one of each of {processes} processes: {recordings:?}"
    );
    for recording in &recordings {
        let replay = &recording["replay"];
        ensure!(replay["isEqual"] == true, "{}", replay["parting"]);
        ensure!(replay["recorded"] == replay["replayed"], "{replay}");
        ensure!(number(&replay["steps"]) > 10, "{replay}");
    }
    std::fs::remove_dir_all(&directory)?;
    scene.end().await;
    Ok(())
}
