//! Deletion costs on the real control plane: the ReplicaSet controller deletes the pods that the costs say, and nodes become empty.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::objects::{deployment, kwok_class, small_pool};
use crate::scene::{DELETION_COSTS, SOON, Scene, on_node};

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const OWN: &str = "mortise.sh/pod-deletion-cost";
/// Two such pods fit on a node of the NodePool.
const SIZE: (&str, &str) = ("700m", "256Mi");

/// Pods by node.
fn by_node(pods: &[Pod]) -> BTreeMap<&str, Vec<&Pod>> {
    let mut all: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods {
        all.entry(on_node(pod).unwrap_or_default())
            .or_default()
            .push(pod);
    }
    all
}

/// The costs of all pods that have one of mortise, once this many do.
async fn costs(scene: &Scene, count: usize) -> Result<BTreeMap<String, i64>> {
    wait_until("the deletion costs", SOON, || async {
        let mut all = BTreeMap::new();
        for pod in scene.pods("web").await? {
            let own = pod.annotations().get(OWN);
            let cost = pod
                .annotations()
                .get(COST)
                .filter(|cost| own == Some(*cost));
            if let Some(cost) = cost {
                all.insert(pod.name_any(), cost.parse()?);
            }
        }
        ensure!(all.len() == count, "{all:?}");
        Ok(all)
    })
    .await
}

/// The pods, once there are no more of them than this.
async fn fewer(scene: &Scene, count: usize) -> Result<Vec<Pod>> {
    wait_until("pods to go", SOON, || async {
        let left = scene.pods("web").await?;
        ensure!(left.len() == count, "{}", left.len());
        Ok(left)
    })
    .await
}

/// Nodes that are empty go, and others stay.
fn small_nodes() -> Value {
    small_pool(
        "general",
        json!({ "disruption": { "consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s" } }),
    )
}

#[tokio::test]
async fn a_workload_that_shrinks_leaves_whole_nodes() -> Result<()> {
    let scene = Scene::with(&[DELETION_COSTS]).await?;
    let web = deployment("web", 8, SIZE, json!({}));
    scene.apply(&[kwok_class(), small_nodes(), web]).await?;
    let before = scene.running("web", 8).await?;
    let shared: Vec<usize> = by_node(&before).values().map(Vec::len).collect();
    ensure!(
        shared == [2, 2, 2, 2],
        "two pods on each of four nodes: {shared:?}"
    );
    let before = costs(&scene, 8).await?;

    // Two nodes in 64 have the same number; then the ReplicaSet controller may take a pod of each.
    let mut sorted: Vec<i64> = before.values().copied().collect();
    sorted.sort_unstable();
    let is_cut = |gone: &usize| sorted.get(*gone) != sorted.get(*gone - 1);
    let gone = [4, 2, 6].into_iter().find(is_cut);
    let gone = gone.context("nodes that differ")?;
    let count = 8 - gone;
    // The most expensive pod is the last one.
    let last = before.iter().max_by_key(|(_, cost)| **cost);
    let (last, cost) = last.context("a pod")?;
    let expected = format!("{cost} of mortise: ");
    wait_until("the place of the pod", SOON, || async {
        let told = scene.explained(last).await?;
        ensure!(told.contains(&expected), "{told}");
        Ok(())
    })
    .await?;

    scene.scale("web", count).await?;
    let left = fewer(&scene, count).await?;
    // The pods with the least costs went, and with them their nodes.
    let cost_of = |pod: &Pod| before.get(&pod.name_any()).copied();
    let least_kept = left.iter().filter_map(cost_of).min();
    let is_left = |name: &String| left.iter().any(|pod| pod.name_any() == *name);
    let gone = before.iter().filter(|(name, _)| !is_left(name));
    let most_gone = gone.map(|(_, cost)| *cost).max();
    ensure!(
        most_gone <= least_kept,
        "{before:?}: {most_gone:?}, {least_kept:?}"
    );
    let kept: Vec<usize> = by_node(&left).values().map(Vec::len).collect();
    ensure!(kept.iter().all(|pods| *pods == 2), "{kept:?}");
    scene.settled(count / 2).await?;
    let evicted = scene.events("Evicted").await?;
    ensure!(evicted.is_empty(), "{evicted:?}");
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn a_cost_of_a_user_stays_as_it_is() -> Result<()> {
    let scene = Scene::with(&[DELETION_COSTS]).await?;
    let web = deployment("web", 4, SIZE, json!({}));
    scene.apply(&[kwok_class(), small_nodes(), web]).await?;
    scene.running("web", 4).await?;
    let before = costs(&scene, 4).await?;
    // The pod that would be the first to go.
    let first = before.iter().min_by_key(|(_, cost)| **cost);
    let (name, _) = first.context("a pod")?;
    let pods: Api<Pod> = Api::default_namespaced(scene.plane.client());
    let user = json!({ "metadata": { "annotations": { COST: "1000" } } });
    pods.patch(name, &PatchParams::default(), &Patch::Merge(&user))
        .await?;
    costs(&scene, 3).await?;
    scene.scale("web", 1).await?;
    let left = fewer(&scene, 1).await?;
    let left = left.first().context("a pod")?;
    ensure!(left.name_any() == *name, "{}", left.name_any());
    let cost = left.annotations().get(COST).map(String::as_str);
    ensure!(cost == Some("1000"), "{cost:?}");
    scene.end().await;
    Ok(())
}
