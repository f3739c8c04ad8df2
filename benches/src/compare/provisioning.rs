//! Services that need nodes of their own, and short-lived pods that compete for the same capacity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource};
use mortise_apis::NodeClaim;
use mortise_apis::labels::NOMINATED_PODS;
use mortise_tests::harness::{Component, ControlPlane, Mortise, MortiseOptions, wait_until};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

use super::Way;
use super::script::{Action, Script};
use super::seen::{self, SeenPod};
use crate::end_to_end::quantiles::Quantiles;
use crate::report::progress;

const LONG: Duration = Duration::from_mins(5);
/// A node with DaemonSet pods only at this time after it became ready counts as unused.
const FILLED_WITHIN: Duration = Duration::from_secs(10);
/// A DaemonSet pod that waits longer than this is counted.
const DAEMON_WAIT: Duration = Duration::from_secs(30);
/// Between two looks at the price.
const LOOK: Duration = Duration::from_secs(1);
/// Writes at the same time.
const WRITERS: usize = 32;

/// Figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) way: Way,
    pub(crate) round: u32,
    /// Launched nodes.
    pub(crate) launched: usize,
    /// Nodes without a pod of a workload within ten seconds after they became ready.
    pub(crate) empty_on_arrival: usize,
    /// Nodes that never had a pod of a workload.
    pub(crate) redundant: usize,
    /// Pods that the Eviction API took.
    pub(crate) evictions: usize,
    /// Pods that were bound to a node after its drain had begun, DaemonSet pods excluded.
    pub(crate) bound_in_drain: usize,
    /// Nodes that were drained.
    pub(crate) drained: usize,
    /// Average price of all nodes over the run.
    pub(crate) dollars_per_hour: f64,
    /// DaemonSet pods that waited longer than 30 s.
    pub(crate) daemon_pods_late: usize,
    /// The longest that a DaemonSet pod waited, in seconds.
    pub(crate) daemon_wait_s: f64,
    /// Pods for which a node was launched, and that were bound elsewhere before it was ready, or when kube-scheduler did
    /// not include it in its request.
    pub(crate) earlier: usize,
    /// The other pods for which a node was launched, and that were bound to any node.
    pub(crate) nominated: usize,
    /// Those of them that were bound to that node.
    pub(crate) landed: usize,
    /// Those of them that were not, and of which kube-scheduler asked.
    pub(crate) missed: Vec<Missed>,
    /// Workload pods that were bound.
    pub(crate) bound: usize,
    /// From their creation until then.
    pub(crate) wait: Quantiles,
    /// Outcomes of nominations: `bound`, `bound_elsewhere`, `expired`, `node_lost`.
    pub(crate) nominations: BTreeMap<String, u64>,
    /// Calls that denied a node, by message; and other counts of the extender.
    pub(crate) counts: BTreeMap<String, u64>,
    /// The longest that an action of the script came late, in seconds: the test host was too slow for the script.
    pub(crate) late_s: f64,
}

/// A pod that was not bound to the node that was launched for it, although that was ready.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Missed {
    pod: String,
    /// The node that was launched for it, and the one that it was bound to.
    machine: String,
    bound_to: String,
    /// From when the node was ready until the pod was bound, in milliseconds.
    after_ready_ms: u128,
    /// From its creation until then.
    waited_ms: u128,
}

/// Plays the script on a new control plane.
pub(crate) async fn play(way: Way, round: u32, script: &Script) -> Result<(String, Row)> {
    let crds = Mortise::output(&["manifests", "crds", "--provider", "kwok"]).await?;
    let builder = ControlPlane::builder()
        .full()
        .without(Component::Scheduler)
        .manifests(&crds)
        .manifests(&objects(
            &["c-8x-amd64-linux", "c-16x-amd64-linux", "c-32x-amd64-linux"],
            "5s",
            "20%",
        ));
    let mut plane = Box::pin(builder.start()).await?;
    let version = plane.client().apiserver_version().await?.git_version;
    let flags = ["--bind-grace-period=2s", "--disruption-cooldown=30s"];
    let mut mortise = Mortise::start(&plane, MortiseOptions::with_flags(&flags)).await?;
    mortise.wait_ready().await?;
    plane.start_scheduler(&way.options(&mortise, None)?).await?;
    let pods = seen::follow(plane.client());
    let claims = follow_claims(plane.client());
    let (price, asked) = (Price::default(), Asked::default());
    let late = {
        let looking = look(&mortise, &price, &asked);
        let acting = act(&plane, script);
        tokio::pin!(looking);
        tokio::select! {
            late = acting => late?,
            ended = &mut looking => {
                let error: Result<()> = ended;
                error?;
                anyhow::bail!("the task that samples the price has ended");
            }
        }
    };
    settle(&pods, &claims).await?;
    asked.look(&mortise).await?;
    let told = mortise.debug("extender?limit=1").await?;
    let row = row(way, round, &pods.pods.all(), &claims.all(), &asked.lists());
    let row = Row {
        dollars_per_hour: price.mean(),
        nominations: numbers(&told["nominations"]),
        counts: numbers(&told["counts"]),
        late_s: late.as_secs_f64(),
        ..row
    };
    drop((pods, claims));
    mortise.kill9().await;
    plane.stop().await;
    Ok((version, row))
}

fn row(
    way: Way,
    round: u32,
    pods: &BTreeMap<String, SeenPod>,
    claims: &BTreeMap<String, SeenClaim>,
    lists: &BTreeMap<String, bool>,
) -> Row {
    let workload = || pods.values().filter(|pod| !pod.is_daemon());
    let first_on = |node: &str| {
        let on_it = workload().filter(|pod| pod.node.as_deref() == Some(node));
        on_it.filter_map(|pod| pod.bound).min()
    };
    let (mut empty_on_arrival, mut redundant) = (0, 0);
    let (mut earlier, mut nominated, mut landed) = (0, 0, 0);
    let mut missed = Vec::new();
    for claim in claims.values() {
        if let (Some(ready), Some(node)) = (claim.initialized, &claim.node) {
            let first = first_on(node);
            redundant += usize::from(first.is_none());
            empty_on_arrival += usize::from(first.is_none_or(|at| at > ready + FILLED_WITHIN));
        }
        for uid in &claim.nominated {
            let Some((pod, node, bound)) = pods
                .get(uid)
                .and_then(|pod| Some((pod, pod.node.as_ref()?, pod.bound?)))
            else {
                continue; // gone before it was bound
            };
            if claim.node.as_ref() == Some(node) {
                nominated += 1;
                landed += 1;
            } else if let Some(ready) = claim.initialized.filter(|ready| *ready <= bound)
                && lists.get(&pod.name) != Some(&false)
            {
                nominated += 1;
                missed.extend(lists.contains_key(&pod.name).then(|| Missed {
                    pod: pod.name.clone(),
                    machine: claim.node.clone().unwrap_or_default(),
                    bound_to: node.clone(),
                    after_ready_ms: bound.saturating_duration_since(ready).as_millis(),
                    waited_ms: pod.waited().unwrap_or_default().as_millis(),
                }));
            } else {
                earlier += 1;
            }
        }
    }
    let (drained, bound_in_drain) = drained(pods, claims);
    let daemon_waits: Vec<Duration> = pods
        .values()
        .filter(|pod| pod.is_daemon())
        .filter_map(|pod| {
            pod.waited()
                .or_else(|| Some(pod.gone?.saturating_duration_since(pod.since)))
        })
        .collect();
    let longest = daemon_waits.iter().max().copied().unwrap_or_default();
    Row {
        way,
        round,
        launched: claims.len(),
        empty_on_arrival,
        redundant,
        evictions: pods.values().filter(|pod| pod.evicted).count(),
        bound_in_drain,
        drained,
        dollars_per_hour: f64::NAN,
        daemon_pods_late: daemon_waits
            .iter()
            .filter(|wait| **wait > DAEMON_WAIT)
            .count(),
        daemon_wait_s: longest.as_secs_f64(),
        earlier,
        nominated,
        landed,
        missed,
        bound: workload().filter(|pod| pod.bound.is_some()).count(),
        wait: Quantiles::of(workload().filter_map(SeenPod::waited).collect()),
        nominations: BTreeMap::new(),
        counts: BTreeMap::new(),
        late_s: 0.0,
    }
}

/// How many nodes were drained, and how many pods were bound to one after its drain had begun, DaemonSet pods
/// excluded.
pub(super) fn drained(
    pods: &BTreeMap<String, SeenPod>,
    claims: &BTreeMap<String, SeenClaim>,
) -> (usize, usize) {
    let begun = claims.values();
    let begun = begun.filter_map(|claim| Some((claim.node.as_deref()?, claim.drains_version?)));
    let drains: BTreeMap<&str, u64> = begun.collect();
    let workload = pods.values().filter(|pod| !pod.is_daemon());
    let too_late = workload.filter(|pod| {
        let drain = pod.node.as_deref().and_then(|node| drains.get(node));
        drain.is_some_and(|drain| pod.bound_version.is_some_and(|bound| bound > *drain))
    });
    (drains.len(), too_late.count())
}

/// The counts of an object of counts.
pub(super) fn numbers(value: &Value) -> BTreeMap<String, u64> {
    let all = value.as_object().into_iter().flatten();
    all.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?)))
        .collect()
}

/// Carries the script out; returns by how much its latest action was late.
pub(super) async fn act(plane: &ControlPlane, script: &Script) -> Result<Duration> {
    let begun = Instant::now();
    let mut late = Duration::ZERO;
    let mut writing: JoinSet<Result<()>> = JoinSet::new();
    for (at, action) in &script.actions {
        let due = begun + Duration::from_millis(*at);
        tokio::time::sleep_until(due.into()).await;
        while writing.len() >= WRITERS {
            finished(&mut writing).await?;
        }
        late = late.max(due.elapsed());
        let (client, action) = (plane.client(), action.clone());
        writing.spawn(async move { execute(client, &action).await });
    }
    while !writing.is_empty() {
        finished(&mut writing).await?;
    }
    Ok(late)
}

async fn finished(writing: &mut JoinSet<Result<()>>) -> Result<()> {
    match writing.join_next().await {
        Some(written) => written?,
        None => Ok(()),
    }
}

async fn execute(client: Client, action: &Action) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let deployments: Api<Deployment> = Api::default_namespaced(client);
    match action {
        Action::Up {
            service,
            replicas,
            cpu,
        } => {
            let made = serde_json::from_value(deployment(*service, *replicas, *cpu))?;
            deployments.create(&PostParams::default(), &made).await?;
        }
        Action::Down { service } => {
            let name = format!("service-{service}");
            deployments
                .delete(&name, &DeleteParams::background())
                .await?;
        }
        Action::Job { job, cpu } => {
            let made = serde_json::from_value(job_pod(*job, *cpu))?;
            pods.create(&PostParams::default(), &made).await?;
        }
        Action::Over { job } => {
            let now = DeleteParams::default().grace_period(0);
            // A pod without an owner that was evicted is gone already; one whose creation waits behind others stays a bit.
            let name = format!("job-{job}");
            wait_until(&name, LONG, || async {
                match pods.delete(&name, &now).await {
                    Ok(_) => Ok(()),
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                    Err(error) => Err(anyhow::Error::from(error)),
                }
            })
            .await?;
        }
    }
    Ok(())
}

/// Waits until every existing pod is bound and every node had its time to be filled.
async fn settle(pods: &seen::Watching, claims: &Claims) -> Result<()> {
    let waits = |pod: &SeenPod| pod.gone.is_none() && pod.bound.is_none();
    wait_until("every pod to be bound", LONG, || async {
        let waiting = pods.pods.all().values().filter(|pod| waits(pod)).count();
        let coming = claims
            .all()
            .values()
            .filter(|claim| claim.is_coming())
            .count();
        ensure!(
            waiting == 0 && coming == 0,
            "{waiting} pods and {coming} nodes are on their way"
        );
        Ok(())
    })
    .await?;
    tokio::time::sleep(FILLED_WITHIN).await;
    Ok(())
}

/// Looks at what mortise says, every second.
async fn look(mortise: &Mortise, price: &Price, asked: &Asked) -> Result<()> {
    let mut looks = tokio::time::interval(LOOK);
    loop {
        looks.tick().await;
        price.look(mortise).await?;
        asked.look(mortise).await?;
    }
}

/// Whether the node that was launched for a pod was among the nodes of the last request about it, by name of the pod. A
/// bind is observed some time after kube-scheduler has decided, so that times do not show what it knew.
#[derive(Debug, Default)]
struct Asked {
    seen: Mutex<BTreeMap<String, bool>>,
}

impl Asked {
    /// mortise keeps the newest thousand calls: those of some seconds.
    async fn look(&self, mortise: &Mortise) -> Result<()> {
        let told = mortise.debug("extender?limit=1000").await?;
        let calls = told["calls"].as_array().into_iter().flatten();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for call in calls.rev() {
            let pod = call["pod"]
                .as_str()
                .and_then(|pod| pod.strip_prefix("default/"));
            if let (Some(pod), Some(listed)) = (pod, call["nominated_node"].as_bool()) {
                seen.insert(pod.to_owned(), listed);
            }
        }
        Ok(())
    }

    fn lists(&self) -> BTreeMap<String, bool> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }
}

/// The price of all nodes.
#[derive(Debug, Default)]
struct Price {
    seen: Mutex<Vec<f64>>,
}

impl Price {
    async fn look(&self, mortise: &Mortise) -> Result<()> {
        let price = mortise
            .metric("karpenter_nodepools_cost_total", &[])
            .await?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(price);
        Ok(())
    }

    fn mean(&self) -> f64 {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        #[expect(clippy::cast_precision_loss, reason = "a count of seconds")]
        let count = seen.len() as f64;
        seen.iter().sum::<f64>() / count
    }
}

/// One claim, as long as it was there and after.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenClaim {
    node: Option<String>,
    /// Version of the claim that its deletion made: from then on it drains.
    drains_version: Option<u64>,
    nominated: BTreeSet<String>,
    initialized: Option<Instant>,
    pub(super) gone: bool,
}

impl SeenClaim {
    pub(super) const fn is_coming(&self) -> bool {
        self.initialized.is_none() && !self.gone
    }

    pub(super) const fn is_going(&self) -> bool {
        self.drains_version.is_some() && !self.gone
    }
}

pub(super) struct Claims {
    seen: Arc<Mutex<BTreeMap<String, SeenClaim>>>,
    task: JoinHandle<()>,
}

impl Drop for Claims {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Claims {
    pub(super) fn all(&self) -> BTreeMap<String, SeenClaim> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

pub(super) fn follow_claims(client: Client) -> Claims {
    let seen = Arc::<Mutex<BTreeMap<String, SeenClaim>>>::default();
    let known = Arc::clone(&seen);
    let task = tokio::spawn(async move {
        let events =
            watcher(Api::<NodeClaim>::all(client), watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let at = Instant::now();
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Ok(ref event @ (Event::Apply(ref claim) | Event::InitApply(ref claim))) => {
                    let listed = matches!(event, Event::InitApply(_));
                    let name = claim.meta().name.clone().unwrap_or_default();
                    let one = known.entry(name).or_default();
                    if let Some(node) = &claim.status.node_name {
                        one.node = Some(node.clone());
                    }
                    let uids = claim.annotation(NOMINATED_PODS).unwrap_or_default();
                    let uids = uids.split(',').filter(|uid| !uid.is_empty());
                    one.nominated.extend(uids.map(str::to_owned));
                    if one.drains_version.is_none() && claim.metadata.deletion_timestamp.is_some() {
                        let version = claim.metadata.resource_version.as_ref();
                        one.drains_version = seen::version(version, listed);
                    }
                    if one.initialized.is_none() && claim.is_true("Initialized") {
                        one.initialized = Some(at);
                    }
                }
                Ok(Event::Delete(claim)) => {
                    let name = claim.meta().name.clone().unwrap_or_default();
                    known.entry(name).or_default().gone = true;
                }
                Ok(Event::Init | Event::InitDone) => {}
                Err(error) => progress(&format!("a watch was interrupted: {error}")),
            }
        }
    });
    Claims { seen, task }
}

/// A pool of these types, which is consolidated after so long with such a budget, and two DaemonSets that run everywhere.
pub(super) fn objects(types: &[&str], consolidate_after: &str, budget: &str) -> String {
    let class = json!({ "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": { "name": "default" } });
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" },
        "spec": {
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
                "requirements": [
                    { "key": "node.kubernetes.io/instance-type", "operator": "In",
                      "values": types },
                    { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
                ],
                "expireAfter": "Never",
            } },
            "disruption": { "consolidateAfter": consolidate_after, "budgets": [{ "nodes": budget }] },
        },
    });
    let [first, second] =
        [("logs", "200m"), ("network", "100m")].map(|(name, cpu)| daemon_set(name, cpu));
    [class, pool, first, second]
        .map(|object| object.to_string())
        .join("\n---\n")
}

fn daemon_set(name: &str, cpu: &str) -> Value {
    let mut spec = pod_spec(cpu, "64Mi");
    spec["tolerations"] = json!([{ "operator": "Exists" }]);
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name, "namespace": "default" },
        "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": spec } },
    })
}

pub(super) fn deployment(service: u64, replicas: u64, cpu: u64) -> Value {
    let name = format!("service-{service}");
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": pod_spec(&format!("{cpu}m"), "1Gi") },
        },
    })
}

fn job_pod(job: u64, cpu: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("job-{job}"), "labels": { "app": "job" } },
        "spec": pod_spec(&format!("{cpu}m"), "128Mi"),
    })
}

fn pod_spec(cpu: &str, memory: &str) -> Value {
    json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "main", "image": "registry.test/main:1.0", "resources": { "requests": { "cpu": cpu, "memory": memory } } }],
    })
}
