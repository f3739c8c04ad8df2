//! What goes on over a death of the process: a drain group by group, and the time that a node has rested.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams};
use kube::runtime::watcher::{self, Event, watcher};
use mortise_apis::NodeClaim;
use mortise_apis::schema::conditions::{ConditionStatus, find};
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::crash_matrix::forget_lease;
use crate::objects::{daemon_set, deployment, kwok_class, never, small_pool};
use crate::scene::{LaunchedNode, SOON, Scene, on_node};
use crate::shapes::{DELAY, OF};

/// How long a node must have rested.
const REST: SignedDuration = SignedDuration::from_secs(25);
/// How long the first pod takes to end, which is how long the process is dead at least.
const FIRST: &str = "12s";
/// Distinguishes a timer that continued from one that started again.
const CLEAR: SignedDuration = SignedDuration::from_secs(3);
/// Pods of a node in the order in which they leave it.
const ORDER: [&str; 4] = ["ordinary", "daemon", "critical", "critical-daemon"];

/// A watch of a node's pods that records evictions and deletions, in order.
struct Leaving {
    seen: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Leaving {
    fn begin(client: Client, node: &str) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (into, node) = (Arc::clone(&seen), node.to_owned());
        let pods = watcher(Api::<Pod>::all(client), watcher::Config::default());
        let note = pods.for_each(move |event| {
            let word = match event {
                Ok(Event::Apply(pod)) if pod.metadata.deletion_timestamp.is_some() => {
                    Some(("asked", pod))
                }
                Ok(Event::Delete(pod)) => Some(("gone", pod)),
                _ => None,
            };
            let of_node = word.filter(|(_, pod)| on_node(pod) == Some(&node));
            if let Some((what, pod)) = of_node {
                let labels = pod.metadata.labels.unwrap_or_default();
                let word = format!("{what} {}", labels.get("app").map_or("", String::as_str));
                let mut seen = into.lock().unwrap_or_else(PoisonError::into_inner);
                if !seen.contains(&word) {
                    seen.push(word);
                }
            }
            futures::future::ready(())
        });
        Self {
            seen,
            task: tokio::spawn(note),
        }
    }

    fn so_far(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// Waits until this was seen.
    async fn until(&self, word: &str) -> Result<()> {
        wait_until(word, SOON, || async {
            let seen = self.so_far();
            ensure!(seen.iter().any(|each| each == word), "{seen:?}");
            Ok(())
        })
        .await
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A workload whose pods go to nodes for the app, take so long to end, and are critical or not.
fn on(mut workload: Value, app: &str, takes: &str, critical: bool) -> Value {
    let template = &mut workload["spec"]["template"];
    template["metadata"]["annotations"] = json!({ DELAY: takes });
    template["spec"]["terminationGracePeriodSeconds"] = json!(60);
    template["spec"]["nodeSelector"] = json!({ OF: app });
    template["spec"]["tolerations"] = json!([]);
    if critical {
        template["spec"]["priorityClassName"] = json!("system-cluster-critical");
    }
    workload
}

fn claim_of<'a>(launched_nodes: &'a [LaunchedNode], app: &str) -> Result<&'a LaunchedNode> {
    let mut all = launched_nodes.iter();
    all.find(|launched_node| launched_node.label(OF) == app)
        .with_context(|| format!("no node of {app}"))
}

#[tokio::test]
async fn a_drain_and_a_timer_go_on_where_they_were() -> Result<()> {
    let mut scene = Scene::kwok().await?;
    let labelled = |name: &str, mut over: Value| {
        over["template"] = json!({ "metadata": { "labels": { OF: name } } });
        small_pool(name, over)
    };
    // It is in cooldown, without effect: the budget is zero.
    let rests =
        json!({ "disruption": { "consolidateAfter": "25s", "budgets": [{ "nodes": "0" }] } });
    let size = ("100m", "64Mi");
    scene
        .apply(&[
            kwok_class(),
            labelled("rests", rests),
            labelled("goes", never()),
            on(daemon_set("daemon", "100m"), "goes", "1s", false),
            on(daemon_set("critical-daemon", "100m"), "goes", "1s", true),
            on(
                deployment("ordinary", 1, size, json!({})),
                "goes",
                FIRST,
                false,
            ),
            on(
                deployment("critical", 1, size, json!({})),
                "goes",
                "1s",
                true,
            ),
            deployment("rests", 1, size, json!({ "nodeSelector": { OF: "rests" } })),
        ])
        .await?;
    for app in ORDER.iter().chain(&["rests"]) {
        scene.running(app, 1).await?;
    }
    let launched_nodes = scene.settled(2).await?;
    let (rests, goes) = (
        claim_of(&launched_nodes, "rests")?,
        claim_of(&launched_nodes, "goes")?,
    );
    let (rests, going) = (
        rests.claim.name().to_string(),
        goes.claim.name().to_string(),
    );
    let before = last_event(&scene, &rests).await?;

    let leaving = Leaving::begin(scene.plane.client(), goes.node_name());
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    claims.delete(&going, &DeleteParams::default()).await?;
    leaving.until("asked ordinary").await?;
    scene.mortise.kill9().await;
    // The pod is deleted while no watch observes it.
    leaving.until("gone ordinary").await?;
    let seen = leaving.so_far();
    ensure!(seen == ["asked ordinary", "gone ordinary"], "{seen:?}");
    let begun = Timestamp::now();
    forget_lease(&scene).await?;
    scene.mortise.start_again(&[]).await?;
    scene.mortise.wait_ready().await?;

    wait_until("the drained node to be gone", SOON, || async {
        ensure!(!scene.claims().await?.contains_key(&going), "not yet");
        Ok(())
    })
    .await?;
    let one_by_one = ORDER
        .iter()
        .flat_map(|app| [format!("asked {app}"), format!("gone {app}")]);
    let seen = leaving.so_far();
    ensure!(seen == one_by_one.collect::<Vec<_>>(), "{seen:?}");

    let since = wait_until("the other node to have rested", SOON, || async {
        let claims = scene.claims().await?;
        let claim = claims.get(&rests).context("its claim")?;
        let rested = find(&claim.status.conditions, "Consolidatable").context("no word of it")?;
        ensure!(rested.status == ConditionStatus::True, "{rested:?}");
        Ok(rested.last_transition_time.as_ref().context("a time")?.0)
    })
    .await?;
    ensure!(
        last_event(&scene, &rests).await? == before,
        "a start is no event of pods"
    );
    let (due, restarted) = (before + REST, begun + REST);
    ensure!(
        due <= since && since + CLEAR <= restarted,
        "rested since {since}, due at {due}, from a restarted count it would be {restarted}"
    );
    scene.end().await;
    Ok(())
}

/// When a pod last came to a claim's node or left it, as the claim says.
async fn last_event(scene: &Scene, claim: &str) -> Result<Timestamp> {
    wait_until("a pod's coming to be written down", SOON, || async {
        let claims = scene.claims().await?;
        let claim = claims.get(claim).context("the claim")?;
        let event = claim.status.last_pod_event_time.as_ref();
        Ok(event.context("not yet")?.0)
    })
    .await
}
