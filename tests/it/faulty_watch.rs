//! One watch alone is silent, late, or expires repeatedly, on a real control plane. Irreversible effects wait; no node with a
//! pod is terminated; and the cluster recovers when the fault ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use mortise_apis::NodePool;
use mortise_tests::harness::{WatchFault, wait_until};
use mortise_webhooks::extender::STALE_MS;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::census::Census;
use crate::objects::{deployment, kwok_class, pod, small_pool};
use crate::scene::{LaunchedNode, SOON, Scene, Setting, provider_id};

/// Delay of a late watch: longer than it takes to find a node empty, to taint it and to observe the end of its drain.
const LATE: Duration = Duration::from_secs(15);
/// Most lists of a watch that is too old again and again. Without pauses it would be thousands in this time.
const FEW: usize = 40;
/// A pod that fills a node.
const SIZE: (&str, &str) = ("1500m", "1Gi");

fn settings() -> Setting {
    Setting {
        proxied: true,
        flags: vec!["--batch-idle-duration=100ms".to_owned()],
        ..Setting::default()
    }
}

/// A watch of nodes that records terminated nodes, and the pods on them that were not evicted.
struct Ends {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    /// Nodes that were deleted, which may still exist.
    going: Vec<String>,
    /// Nodes that are gone, with what was found on them.
    gone: Vec<(String, Result<Vec<String>>)>,
}

impl Ends {
    fn watch(client: &Client) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (into, client) = (Arc::clone(&seen), client.clone());
        let nodes = watcher(Api::<Node>::all(client.clone()), watcher::Config::default());
        let note = nodes.for_each(move |event| {
            let (into, client) = (Arc::clone(&into), client.clone());
            async move {
                match event {
                    Ok(Event::Apply(node)) if node.metadata.deletion_timestamp.is_some() => {
                        let mut seen = into.lock().unwrap_or_else(PoisonError::into_inner);
                        if !seen.going.contains(&node.name_any()) {
                            seen.going.push(node.name_any());
                        }
                    }
                    Ok(Event::Delete(node)) if provider_id(&node).is_some() => {
                        let name = node.name_any();
                        let left = left_on(&client, &name).await;
                        let mut seen = into.lock().unwrap_or_else(PoisonError::into_inner);
                        seen.gone.push((name, left));
                    }
                    // The watch restarts automatically.
                    _ => {}
                }
            }
        });
        Self {
            seen,
            task: tokio::spawn(note),
        }
    }

    /// Nodes that were deleted so far.
    fn going(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.going.clone()
    }

    /// Waits until this number of nodes has been terminated. Fails if one had a pod that was not evicted.
    async fn ended(&self, count: usize) -> Result<()> {
        wait_until("the node terminations to be seen", SOON, || async {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            ensure!(seen.gone.len() == count, "{} ended", seen.gone.len());
            Ok(())
        })
        .await?;
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for (node, left) in &seen.gone {
            match left {
                Ok(left) => ensure!(left.is_empty(), "{node} ended under {left:?}"),
                Err(error) => anyhow::bail!("the pods of {node} could not be listed: {error:#}"),
            }
        }
        Ok(())
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Bound pods that were not evicted. Those of a deleted node stay for 40 s.
async fn left_on(client: &Client, node: &str) -> Result<Vec<String>> {
    let pods: Api<Pod> = Api::all(client.clone());
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let there = pods.list(&of_node).await?.items;
    let stays = there
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(stays.map(kube::ResourceExt::name_any).collect())
}

/// Nodes with a pod each, in a NodePool whose budget allows no disruption yet.
async fn launched_nodes(scene: &Scene, count: usize) -> Result<Vec<LaunchedNode>> {
    let held = json!({ "disruption": { "budgets": [{ "nodes": "0" }] } });
    scene
        .apply(&[
            kwok_class(),
            small_pool("default", held),
            deployment("web", count, SIZE, json!({})),
        ])
        .await?;
    scene.running("web", count).await?;
    scene.settled(count).await
}

/// Unused nodes, which mortise has observed.
async fn unneeded(scene: &Scene, count: usize) -> Result<Vec<LaunchedNode>> {
    let launched_nodes = launched_nodes(scene, count).await?;
    scene.scale("web", 0).await?;
    knows_pods(scene, 0).await?;
    Ok(launched_nodes)
}

/// Merges a change into the pool.
async fn change_pool(scene: &Scene, change: Value) -> Result<()> {
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    pools
        .patch("default", &PatchParams::default(), &Patch::Merge(&change))
        .await?;
    Ok(())
}

/// Sets the budget of the NodePool to this number of nodes.
async fn allow(scene: &Scene, nodes: &str) -> Result<()> {
    let budgets = json!({ "spec": { "disruption": { "budgets": [{ "nodes": nodes }] } } });
    change_pool(scene, budgets).await
}

/// A pod with `do-not-disrupt` that a user binds to a node without a scheduler.
fn bound(name: &str, launched_node: &LaunchedNode) -> Value {
    let mut bound = pod(
        name,
        name,
        SIZE,
        json!({ "nodeName": launched_node.node_name() }),
    );
    bound["metadata"]["annotations"] = json!({ "karpenter.sh/do-not-disrupt": "true" });
    bound
}

async fn delete_pod(scene: &Scene, name: &str) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(scene.plane.client());
    pods.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until mortise has observed exactly this number of pods.
async fn knows_pods(scene: &Scene, count: usize) -> Result<()> {
    wait_until(&format!("mortise to know {count} pods"), SOON, || async {
        let known = pods_known(scene).await?;
        ensure!(known == json!(count), "it knows {known}");
        Ok(())
    })
    .await
}

async fn pods_known(scene: &Scene) -> Result<Value> {
    Ok(scene.mortise.debug("snapshot").await?["counts"]["pods"].clone())
}

/// How many watches of a kind are old in this way, and how many of any kind in any way.
async fn old(scene: &Scene, kind: &str, how: &str) -> Result<(f64, f64)> {
    let labels = [&*format!("kind=\"{kind}\""), &*format!("how=\"{how}\"")];
    let one = scene.mortise.metric("mortise_old_watches", &labels).await?;
    let all = scene.mortise.metric("mortise_old_watches", &[]).await?;
    Ok((one, all))
}

/// Waits until the watch of a kind is old in this way, and no other watch is.
async fn is_old(scene: &Scene, kind: &str, how: &str) -> Result<()> {
    let what = format!("the watch of {kind} to be {how}");
    let all = wait_until(&what, SOON, || async {
        let (one, all) = old(scene, kind, how).await?;
        ensure!(one > 0.5, "{all} are old");
        Ok(all)
    })
    .await?;
    ensure!(all < 1.5, "{all} watches are old");
    Ok(())
}

/// Waits until no watch is old.
async fn all_current(scene: &Scene) -> Result<()> {
    wait_until("all watches to be current", SOON, || async {
        let (_, all) = old(scene, "", "").await?;
        ensure!(all < 0.5, "{all} are old");
        Ok(())
    })
    .await
}

/// Whether a decider has said that it does nothing about a subject because a watch is old, in these words.
async fn told(scene: &Scene, by: &str, subject: &str, words: &str) -> Result<()> {
    let decisions = scene.mortise.debug("decisions?limit=500").await?;
    let all = decisions.as_array().context("decisions")?;
    let is_meant = |each: &&Value| {
        each["decider"] == by && each["subject"] == subject && each["verdict"] == "blocked"
    };
    let texts: Vec<&str> = all
        .iter()
        .filter(is_meant)
        .filter_map(|each| each["text"].as_str())
        .collect();
    ensure!(texts.iter().any(|text| text.contains(words)), "{texts:?}");
    Ok(())
}

/// Waits until it has.
async fn blocked(scene: &Scene, by: &str, subject: &str, words: &str) -> Result<()> {
    let what = format!("{by} to be blocked for {subject}: {words}");
    wait_until(&what, SOON, || told(scene, by, subject, words)).await
}

/// Lists of a resource so far with which its watch begins: providers and last looks take pages of another size, or a part.
fn relists(scene: &Scene, resource: &str) -> Result<usize> {
    let lists = scene.proxy()?.reads(resource).lists;
    let of_watch = lists.iter().filter(|path| path.contains("limit=500"));
    Ok(of_watch.count())
}

/// Changes the pool in nothing that matters: whoever depends on pools looks at once.
async fn touch(scene: &Scene, number: usize) -> Result<()> {
    let touched =
        json!({ "metadata": { "annotations": { "example.com/touched": number.to_string() } } });
    change_pool(scene, touched).await
}

/// Waits for a list request for the pods of a node.
async fn pods_listed(scene: &Scene, launched_node: &LaunchedNode) -> Result<()> {
    let name = launched_node.node_name();
    wait_until("the last look at its pods", SOON, || async {
        let lists = scene.proxy()?.reads("pods").lists;
        let of_node =
            |path: &&String| path.contains("fieldSelector=spec.nodeName") && path.contains(name);
        ensure!(lists.iter().any(|path| of_node(&path)), "{lists:?}");
        Ok(())
    })
    .await
}

/// Requests to the cloud to terminate an instance so far.
async fn terminations(scene: &Scene) -> Result<f64> {
    let labels = ["effect=\"terminate\""];
    scene.mortise.metric("mortise_effects_total", &labels).await
}

/// A pod is bound to a node that is empty in mortise's snapshot, while its watch of pods is known to be stale.
#[tokio::test]
async fn nothing_goes_on_the_word_of_a_silent_watch() -> Result<()> {
    let scene = Scene::start(settings()).await?;
    let ends = Ends::watch(&scene.plane.client());
    let launched_nodes = unneeded(&scene, 2).await?;
    let listed = relists(&scene, "pods")?;

    // Nothing comes for long, and then a list shows the first pod.
    scene.proxy()?.disturb("pods", Some(WatchFault::Silent));
    scene.apply(&[bound("first", &launched_nodes[0])]).await?;
    scene.running("first", 1).await?;
    is_old(&scene, "Pod", "broken").await?;
    knows_pods(&scene, 1).await?;
    let again = relists(&scene, "pods")?;
    ensure!(again == listed + 1, "{listed} lists, and then {again}");

    scene.apply(&[bound("second", &launched_nodes[1])]).await?;
    scene.running("second", 1).await?;
    allow(&scene, "100%").await?;
    let words = "the watch of Pod has been broken since";
    blocked(&scene, "disruption", "nodepool/default", words).await?;
    let known = pods_known(&scene).await?;
    ensure!(known == json!(1), "it knows {known} pods");

    scene.proxy()?.disturb("pods", None);
    knows_pods(&scene, 2).await?;
    all_current(&scene).await?;
    for (name, node) in scene.nodes().await? {
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        ensure!(taints.is_empty(), "{name}: {taints:?}");
    }
    ensure!(ends.going().is_empty(), "{:?} go", ends.going());
    delete_pod(&scene, "first").await?;
    delete_pod(&scene, "second").await?;
    scene.empty().await?;
    ends.ended(2).await?;
    scene.end().await;
    Ok(())
}

/// The same, before anybody can know that the watch is silent: the last look finds the pod, and shows what the watch hides.
#[tokio::test]
async fn the_last_look_sees_what_a_silent_watch_hides() -> Result<()> {
    let scene = Scene::start(settings()).await?;
    let ends = Ends::watch(&scene.plane.client());
    let launched_node = unneeded(&scene, 1).await?.remove(0);

    scene.proxy()?.disturb("pods", Some(WatchFault::Silent));
    scene.apply(&[bound("unseen", &launched_node)]).await?;
    let before = scene.running("unseen", 1).await?;
    allow(&scene, "100%").await?;
    pods_listed(&scene, &launched_node).await?;
    is_old(&scene, "Pod", "behind").await?;
    let node = format!("node/{}", launched_node.node_name());
    let words = "the watch of Pod does not show a write of";
    blocked(&scene, "termination", &node, words).await?;
    let terminations = terminations(&scene).await?;
    ensure!(terminations < 0.5, "{terminations} nodes were terminated");
    let after = scene.running("unseen", 1).await?;
    ensure!(before[0].metadata.uid == after[0].metadata.uid, "another");

    scene.proxy()?.disturb("pods", None);
    all_current(&scene).await?;
    ensure!(
        scene.nodes().await?.contains_key(launched_node.node_name()),
        "the node was terminated under its pod"
    );
    delete_pod(&scene, "unseen").await?;
    scene.empty().await?;
    ends.ended(1).await?;
    scene.end().await;
    Ok(())
}

/// The watch of claims expires whenever it starts. It is listed less and less often, nodes are launched nevertheless, and
/// disruption waits between two lists.
#[tokio::test]
async fn a_watch_that_is_always_too_old_is_listed_seldom() -> Result<()> {
    let scene = Scene::start(settings()).await?;
    let census = Census::begin(&scene.plane.client());
    let ends = Ends::watch(&scene.plane.client());
    launched_nodes(&scene, 1).await?;
    let proxy = scene.proxy()?;
    let others = ["pods", "nodes", "nodepools"];
    let of_others = || -> Result<Vec<usize>> {
        let each = others.iter();
        each.map(|resource| relists(&scene, resource)).collect()
    };
    let (listed, others_listed) = (relists(&scene, "nodeclaims")?, of_others()?);
    let watched = proxy.reads("nodeclaims").watches.len();

    proxy.disturb("nodeclaims", Some(WatchFault::Expired));
    let begun = Instant::now();
    scene.scale("web", 2).await?;
    scene.running("web", 2).await?;
    is_old(&scene, "NodeClaim", "broken").await?;
    wait_until("the snapshot to be too old as proof", SOON, || async {
        let age = &scene.mortise.debug("snapshot").await?["age_ms"];
        ensure!(age.as_i64() > Some(STALE_MS), "{age} ms old");
        Ok(())
    })
    .await?;
    let words = "the watch of NodeClaim has been broken since";
    // Each list makes it current for a while.
    let touches = AtomicUsize::new(0);
    wait_until("disruption to be blocked", SOON, || async {
        touch(&scene, touches.fetch_add(1, Ordering::Relaxed)).await?;
        told(&scene, "disruption", "nodepool/default", words).await
    })
    .await?;
    let lists = relists(&scene, "nodeclaims")? - listed;
    let watches = proxy.reads("nodeclaims").watches.len() - watched;
    ensure!(
        (3..FEW).contains(&lists) && (3..FEW).contains(&watches),
        "{lists} lists and {watches} watches in {:?}",
        begun.elapsed()
    );
    let others_again = of_others()?;
    ensure!(
        others_again == others_listed,
        "other kinds were listed again: {others_listed:?}, and then {others_again:?}"
    );

    proxy.disturb("nodeclaims", None);
    all_current(&scene).await?;
    scene.scale("web", 1).await?;
    allow(&scene, "100%").await?;
    scene.settled(1).await?;
    scene.scale("web", 2).await?;
    scene.running("web", 2).await?;
    scene.settled(2).await?;
    let made = census.claims()?;
    ensure!(made == 3, "{made} claims, not 3");
    ends.ended(1).await?;
    scene.end().await;
    Ok(())
}

/// The watch of nodes is late, and then that of pods: nodes are created and deleted later than usual, and nothing is lost.
#[tokio::test]
async fn late_watches_lose_nothing() -> Result<()> {
    let scene = Scene::start(settings()).await?;
    let census = Census::begin(&scene.plane.client());
    let ends = Ends::watch(&scene.plane.client());
    launched_nodes(&scene, 1).await?;
    allow(&scene, "100%").await?;
    let proxy = scene.proxy()?;

    proxy.disturb("nodes", Some(WatchFault::Late(LATE)));
    scene.scale("web", 2).await?;
    // What mortise writes on the new node is not shown for longer than a write may take.
    is_old(&scene, "Node", "behind").await?;
    scene.running("web", 2).await?;
    scene.settled(2).await?;
    proxy.disturb("nodes", None);
    all_current(&scene).await?;
    scene.scale("web", 1).await?;
    let kept = scene.settled(1).await?;
    ends.ended(1).await?;

    // A pod that is bound to a node after mortise found it empty and tainted it is observed in time, regardless of the delay.
    proxy.disturb("pods", Some(WatchFault::Late(LATE)));
    scene.scale("web", 0).await?;
    let launched_node = kept.into_iter().next().context("a node")?;
    wait_until("the node to go", SOON, || async {
        ensure!(
            ends.going()
                .iter()
                .any(|name| name == launched_node.node_name()),
            "not yet"
        );
        Ok(())
    })
    .await?;
    scene.apply(&[bound("unseen", &launched_node)]).await?;
    pods_listed(&scene, &launched_node).await?;
    scene.scale("web", 1).await?;
    scene.running("web", 1).await?;
    knows_pods(&scene, 2).await?;
    scene.running("unseen", 1).await?;
    proxy.disturb("pods", None);
    delete_pod(&scene, "unseen").await?;
    scene.settled(1).await?;
    scene.running("web", 1).await?;
    ends.ended(2).await?;
    let made = census.claims()?;
    ensure!(made == 3, "{made} claims, not 3");
    scene.end().await;
    Ok(())
}
