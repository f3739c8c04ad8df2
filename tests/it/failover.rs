//! Two processes while many nodes are created and deleted, and the leader is killed repeatedly: nothing is lost and nothing is
//! created twice.
//!
//! The story is small by default. `just failover` plays it with 200 nodes and lets every Lease run out by itself.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::{Mortise, MortiseOptions, wait_until};
use serde_json::json;

use crate::census::Census;
use crate::crash_matrix::forget_lease;
use crate::objects::{deployment, kwok_class, small_pool};
use crate::scene::{SOON, Scene, Setting, account, leads};

/// Kills while nodes are launched, and again while they are deleted.
const KILLS: usize = 5;
/// For the large one.
const LONG: Duration = Duration::from_mins(15);

/// Number of nodes: `MORTISE_FAILOVER_NODES`. More than the default, and the dead leader's Lease is waited for.
fn size() -> Result<(usize, bool)> {
    match std::env::var("MORTISE_FAILOVER_NODES") {
        Ok(text) => Ok((text.parse()?, true)),
        Err(_) => Ok((20, false)),
    }
}

/// Both processes, of which one leads.
struct Pair {
    all: [Mortise; 2],
}

impl Pair {
    /// Waits until one leads, and says which.
    async fn leader(&self) -> Result<usize> {
        wait_until("one of both to lead", SOON, || async {
            let (first, second) = (leads(&self.all[0]).await?, leads(&self.all[1]).await?);
            ensure!(!(first && second), "both lead");
            ensure!(first || second, "none leads");
            Ok(usize::from(second))
        })
        .await
    }

    /// Kills the leader and starts it again: it waits behind the other then.
    async fn kill_leader(&mut self, scene: &Scene, lease_runs_out: bool) -> Result<()> {
        let leader = self.leader().await?;
        self.all[leader].kill9().await;
        if !lease_runs_out {
            forget_lease(scene).await?;
        }
        let other = &self.all[1 - leader];
        wait_until("the other to lead", SOON, || async {
            ensure!(leads(other).await?, "not yet");
            Ok(())
        })
        .await?;
        self.all[leader].start_again(&[]).await?;
        self.all[leader].wait_ready().await
    }
}

/// How many claims are there, and how many of them go.
async fn progress(scene: &Scene) -> Result<(usize, usize)> {
    let claims = scene.claims().await?;
    let going = claims
        .values()
        .filter(|claim| claim.metadata.deletion_timestamp.is_some());
    Ok((claims.len(), going.count()))
}

#[tokio::test]
async fn the_leader_is_killed_again_and_again_while_nodes_come_and_go() -> Result<()> {
    let (launched_nodes, lease_runs_out) = size()?;
    let flags = [
        "--batch-idle-duration=100ms",
        "--disruption-validation-delay=500ms",
    ];
    let mut scene = Scene::start(Setting {
        flags: flags.map(str::to_owned).to_vec(),
        ..Setting::default()
    })
    .await?;
    let census = Census::begin(&scene.plane.client());
    let kubeconfig = format!("--kubeconfig={}", account(&scene.plane).await?.display());
    let start = || async {
        let options = MortiseOptions::with_flags(&[flags[0], flags[1], &kubeconfig]);
        let mortise = Mortise::start(&scene.plane, options).await?;
        mortise.wait_ready().await?;
        anyhow::Ok(mortise)
    };
    let all = [start().await?, start().await?];
    // The scene's own process has done its part: two are enough.
    scene.mortise.kill9().await;
    forget_lease(&scene).await?;
    let mut pair = Pair { all };
    pair.leader().await?;

    scene
        .apply(&[
            kwok_class(),
            small_pool("default", json!({})),
            deployment("web", 0, ("1", "1Gi"), json!({})),
        ])
        .await?;
    for part in 1..=KILLS {
        // More pods while the last ones are being served, and a kill in the middle of it.
        scene.scale("web", launched_nodes * part / KILLS).await?;
        wait_until("some of the nodes", LONG, || async {
            let (claims, _) = progress(&scene).await?;
            ensure!(
                claims > launched_nodes * (part - 1) / KILLS,
                "{claims} claims"
            );
            Ok(())
        })
        .await?;
        pair.kill_leader(&scene, lease_runs_out).await?;
    }
    wait_until("every pod to run on a node of its own", LONG, || async {
        let pods = scene.pods("web").await?;
        let run = pods.iter().filter(|pod| crate::scene::runs(pod)).count();
        ensure!(
            run == launched_nodes && pods.len() == launched_nodes,
            "{run} of {launched_nodes} run"
        );
        let (claims, going) = progress(&scene).await?;
        ensure!(
            claims == launched_nodes && going == 0,
            "{claims} claims, {going} of them go"
        );
        Ok(())
    })
    .await?;
    ensure!(
        census.claims()? == launched_nodes,
        "{} claims were made for {launched_nodes} pods",
        census.claims()?
    );

    for part in (0..KILLS).rev() {
        let left = launched_nodes * part / KILLS;
        scene.scale("web", left).await?;
        wait_until("some of the nodes to go", LONG, || async {
            let (claims, going) = progress(&scene).await?;
            ensure!(
                claims - going < launched_nodes * (part + 1) / KILLS,
                "{claims} claims"
            );
            Ok(())
        })
        .await?;
        pair.kill_leader(&scene, lease_runs_out).await?;
    }
    wait_until("all nodes to be gone", LONG, || async {
        let (claims, nodes) = (scene.claims().await?.len(), scene.nodes().await?.len());
        ensure!(claims + nodes == 0, "{claims} claims, {nodes} nodes");
        Ok(())
    })
    .await?;
    let made = census.claims().context("while nodes went")?;
    ensure!(
        made == launched_nodes,
        "{made} claims were made for {launched_nodes} pods"
    );
    for mut each in pair.all {
        each.kill9().await;
    }
    scene.end().await;
    Ok(())
}
