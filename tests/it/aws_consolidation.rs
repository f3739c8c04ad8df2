//! Consolidation on EC2 of what only EC2 has: a spot node moves to cheaper spot capacity once, and has enough other types to stay.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, Patch, PatchParams};
use mortise_apis::NodePool;
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::aws_account::{Account, class, ec2_pool};
use crate::objects::{deployment, merged};
use crate::scene::{SOON, Scene};

/// Types that a spot node needs besides the cheapest, so that the next price does not move it again.
const FLEXIBILITY: usize = 15;
/// Rounds of consolidation that the new node must outlive.
const ROUNDS: u32 = 3;

fn workload(name: &str, cpu: &str) -> serde_json::Value {
    deployment(name, 1, (cpu, "1Gi"), json!({}))
}

/// The name of the only node, its type, and how many types its NodeClaim names.
async fn only_node(account: &Account, scene: &Scene) -> Result<(String, String, usize)> {
    let nodes = scene.settled(1).await?;
    let node = nodes.first().context("one")?;
    let instance = account.instance_of(node).await?;
    ensure!(instance.capacity_type == "spot", "{instance:?}");
    let requirements = &node.claim.spec.requirements;
    let types = requirements
        .iter()
        .find(|each| each.key == "node.kubernetes.io/instance-type")
        .map_or(0, |each| each.values.iter().flatten().count());
    Ok((
        node.node_name().to_owned(),
        node.instance_type().to_owned(),
        types,
    ))
}

/// Edits the pool, and waits until consolidation has decided with it.
async fn decides_again(scene: &Scene, round: u32) -> Result<()> {
    let name = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count";
    let before = scene.mortise.metric(name, &[]).await?;
    let edit = json!({ "spec": { "disruption": { "consolidateAfter": format!("{round}s") } } });
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    pools
        .patch("default", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    wait_until("a round of consolidation", SOON, || async {
        let now = scene.mortise.metric(name, &[]).await?;
        ensure!(now > before, "{now}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_spot_node_moves_to_cheaper_spot_capacity_and_stays() -> Result<()> {
    let account = Account::open().await?;
    let flags = ["--feature-gates=SpotToSpotConsolidation=true"];
    let (scene, factory) = account.bare_scene(&[], &flags).await?;
    let requirements: [(&str, &str, &[&str]); 3] = [
        ("karpenter.sh/capacity-type", "In", &["spot"]),
        ("kubernetes.io/arch", "In", &["amd64"]),
        (
            "karpenter.k8s.aws/instance-category",
            "In",
            &["c", "m", "r"],
        ),
    ];
    let eager = json!({ "spec": { "disruption": { "consolidateAfter": "0s" } } });
    scene
        .apply(&[
            class(&account.fixtures),
            merged(ec2_pool("default", "default", &requirements), eager),
            workload("large", "12"),
            workload("small", "500m"),
        ])
        .await?;
    scene.running("large", 1).await?;
    scene.running("small", 1).await?;
    let (large, large_type, _) = only_node(&account, &scene).await?;

    scene.scale("large", 0).await?;
    wait_until("another node", SOON * 2, || async {
        let nodes = scene.nodes().await?;
        ensure!(
            !nodes.contains_key(&large),
            "{large} ({large_type}) is there"
        );
        Ok(())
    })
    .await?;
    scene.running("small", 1).await?;
    let (small, small_type, types) = only_node(&account, &scene).await?;
    ensure!(
        types >= FLEXIBILITY,
        "{small_type} is one of {types} types: the next price would move it again"
    );
    let launched = account.moto.launched_instances().await?.len();
    ensure!(
        launched == 2,
        "{launched} instances, {large_type} to {small_type}"
    );

    // It stays: each edit of the pool is a round of consolidation, and none of them moves the pod again.
    for round in 1..=ROUNDS {
        decides_again(&scene, round).await?;
    }
    ensure!(only_node(&account, &scene).await?.0 == small);
    ensure!(account.moto.launched_instances().await?.len() == launched);
    drop(factory);
    scene.end().await;
    account.end().await
}
