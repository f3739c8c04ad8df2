//! A control plane on which timetables are played, several at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use mortise_apis::schema::conditions::{ConditionStatus, find};
use mortise_apis::{NodeClaim, NodePool, labels};
use mortise_kwok_class::object::KwokNodeClass;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::played::{Played, Waiting};
use super::timetable::{READY_MS, Timetable};
use crate::agreement::Advice;
use crate::harness::{
    Component, ControlPlane, Mortise, MortiseOptions, SchedulerOptions, Stages, progress,
    wait_until,
};

/// Objects appear in a fraction of a second; this is for a test host that builds something at the same time.
const SOON: Duration = Duration::from_mins(2);
/// Maximum time that mortise batches pods before it launches nodes for them.
const BATCH: Duration = Duration::from_secs(10);
/// Without progress for this time after the last node could be ready, pods that do not run count as waiting.
const GRACE: Duration = Duration::from_mins(1);
/// However much goes on, all pods run so long after that.
const LONGEST: Duration = Duration::from_mins(10);

/// A control plane with kube-scheduler, kube-controller-manager, kwok, and mortise itself.
pub struct Field {
    plane: ControlPlane,
    mortise: Mortise,
    client: Client,
    advice: Advice,
}

/// What the watch says about a pod.
#[derive(Clone, Debug)]
struct Seen {
    app: String,
    node: Option<String>,
    runs: bool,
    /// kube-scheduler's message, when it found no node.
    message: Option<String>,
}

/// Progress of a run. If two of these are equal, there was no progress in between, and the test host is not the cause:
/// kube-scheduler has no pod left to try, and no node is starting.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Progress {
    pods: usize,
    bound: usize,
    running: usize,
    refused: usize,
    /// NodeClaims, and whether each is initialized.
    claims: BTreeMap<String, bool>,
}

/// A watch that ends with its owner.
struct Follower {
    pods: watch::Receiver<BTreeMap<String, Seen>>,
    task: JoinHandle<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Field {
    /// Starts everything; mortise has its default settings.
    ///
    /// # Errors
    /// A program does not start, or the advice is [`Advice::Plan`]: there is no plan before pods arrive.
    pub async fn start(advice: Advice) -> Result<Self> {
        ensure!(
            advice != Advice::Plan,
            "advice {:?} needs a plan before pods arrive: none or promises",
            advice.argument()
        );
        let crds = Mortise::output(&["manifests", "crds", "--provider", "kwok"]).await?;
        let (from, to) = (
            Duration::from_millis(READY_MS.0),
            Duration::from_millis(READY_MS.1),
        );
        let builder = ControlPlane::builder()
            .full()
            .stages(Stages::built_in()?.delayed("node-initialize", from, to)?)
            .without(Component::Scheduler)
            .manifests(&crds);
        let mut plane = Box::pin(builder.start()).await?;
        let mortise = Mortise::start(&plane, MortiseOptions::default()).await?;
        mortise.wait_ready().await?;
        let options = SchedulerOptions {
            extenders: match advice {
                Advice::Promises => vec![mortise.extender()?],
                Advice::None | Advice::Plan => Vec::new(),
            },
            // As in a cluster with the default configuration.
            pod_max_backoff: Duration::from_secs(10),
            ..SchedulerOptions::default()
        };
        plane.start_scheduler(&options).await?;
        let client = plane.client();
        Ok(Self {
            plane,
            mortise,
            client,
            advice,
        })
    }

    /// Ends everything; all went well.
    pub async fn end(self) {
        let Self {
            plane, mut mortise, ..
        } = self;
        mortise.kill9().await;
        plane.stop().await;
    }

    /// Plays a timetable: makes its pools, lets its pods arrive, waits until they run, and takes everything away. Timetables
    /// with different names can be played at the same time.
    ///
    /// # Errors
    /// The API server refuses an object, or nothing goes away. Pods that wait are no error.
    pub async fn play(&self, timetable: &Timetable) -> Result<Played> {
        let site = timetable.name.as_str();
        let begun = Instant::now();
        self.make(timetable, site).await?;
        let mut follower = self.follow(site);
        let arrived = self.arrivals(timetable, site).await?;
        let booted = arrived + Duration::from_millis(timetable.longest_boot_ms());
        let ready = booted + BATCH;
        let (mut deadline, mut before) = (ready, None);
        let mut late = 0;
        let settled = loop {
            if self.all_run(timetable, &mut follower, deadline).await? {
                break Some(Instant::now());
            }
            if deadline == ready + GRACE {
                let seen = follower.pods.borrow();
                late = timetable.pods() - seen.values().filter(|pod| pod.runs).count();
            }
            let now = self.progress(timetable, site, &follower).await?;
            if before.as_ref() == Some(&now) || deadline > ready + LONGEST {
                break None;
            }
            before = Some(now);
            deadline += GRACE;
        };
        let seen = follower.pods.borrow().clone();
        let claims = self.claims(timetable, site).await?.len();
        let waiting = match settled {
            Some(_) => Vec::new(),
            None => self.waiting(timetable, site, &seen).await?,
        };
        self.clear(timetable, site).await?;
        let kinds = timetable.apps.iter().enumerate();
        Ok(Played {
            name: timetable.name.clone(),
            replay: timetable.replay(self.advice),
            pods: kinds
                .map(|(at, app)| (app.kind, timetable.pods_of(at)))
                .collect(),
            waiting,
            late,
            nodes: claims,
            settled_ms: settled.map(|at| signed_ms(at, booted)),
            millis: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// The namespace, pools that are ready, and Deployments without pods.
    async fn make(&self, timetable: &Timetable, site: &str) -> Result<()> {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": site}});
        self.plane.apply_yaml(&namespace.to_string()).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), site);
        wait_until("a service account", SOON, || async {
            Ok(accounts.get("default").await?)
        })
        .await?;
        let objects = timetable.objects(site);
        let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
        self.plane.apply_yaml(&documents.join("\n---\n")).await?;
        let pools: Api<NodePool> = Api::all(self.client.clone());
        for name in &timetable.pools(site) {
            wait_until("a NodePool to be ready", SOON, || async {
                let conditions = pools.get(name).await?.status.conditions;
                let ready = find(&conditions, "Ready");
                ensure!(
                    ready.is_some_and(|ready| ready.status == ConditionStatus::True),
                    "{name}: {conditions:?}"
                );
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Lets one Deployment after the other grow by a pod; returns when the last one came.
    async fn arrivals(&self, timetable: &Timetable, site: &str) -> Result<Instant> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), site);
        let mut sizes = vec![0_usize; timetable.apps.len()];
        let start = Instant::now();
        for step in &timetable.steps {
            // The timetable itself: nothing is waited for.
            sleep_until(start + Duration::from_millis(step.at_ms)).await;
            let (Some(size), Some(app)) = (sizes.get_mut(step.app), timetable.apps.get(step.app))
            else {
                continue;
            };
            *size += 1;
            let grown = Patch::Merge(json!({"spec": {"replicas": *size}}));
            deployments
                .patch(&app.name, &PatchParams::default(), &grown)
                .await
                .with_context(|| format!("{site}/{} does not grow", app.name))?;
        }
        Ok(Instant::now())
    }

    /// Watches the pods of a play.
    fn follow(&self, site: &str) -> Follower {
        let (sender, pods) = watch::channel(BTreeMap::new());
        let api: Api<Pod> = Api::namespaced(self.client.clone(), site);
        let task = tokio::spawn(async move {
            let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(pod) | Event::InitApply(pod)) => sender.send_modify(|all| {
                        all.insert(pod.metadata.name.clone().unwrap_or_default(), seen(&pod));
                    }),
                    Ok(Event::Delete(pod)) => sender.send_modify(|all| {
                        all.remove(&pod.metadata.name.unwrap_or_default());
                    }),
                    Ok(Event::Init | Event::InitDone) => {}
                    Err(error) => progress(&format!("the watch of pods was interrupted: {error}")),
                }
            }
        });
        Follower { pods, task }
    }

    /// Everything that is said about pods that do not run.
    async fn waiting(
        &self,
        timetable: &Timetable,
        site: &str,
        seen: &BTreeMap<String, Seen>,
    ) -> Result<Vec<Waiting>> {
        let ledger = self.mortise.debug("nominations").await?;
        let nominations = ledger["nominations"].as_array();
        let nominations = nominations.context("/debug/nominations has no nominations")?;
        let http = self.mortise.http()?.with_header("Accept", "text/plain");
        let mut all = Vec::new();
        for (at, app) in timetable.apps.iter().enumerate() {
            let own = seen.iter().filter(|(_, pod)| pod.app == app.name);
            let missing = timetable.pods_of(at).saturating_sub(own.clone().count());
            all.extend((0..missing).map(|_| Waiting {
                pod: format!("{site}/{}", app.name),
                kind: app.kind,
                node: None,
                message: Some("the pod was not made".to_owned()),
                promises: Vec::new(),
                explained: String::new(),
            }));
            for (name, pod) in own.filter(|(_, pod)| !pod.runs) {
                let pod_name = format!("{site}/{name}");
                let of_pod = nominations.iter();
                let of_pod = of_pod.filter(|each| each["pod"] == pod_name.as_str());
                let url = self.mortise.url(&format!("debug/explain?pod={pod_name}"));
                let explained = match http.get(&url).await.and_then(|reply| reply.ok()) {
                    Ok(text) => text,
                    Err(error) => format!("no answer: {error:#}"),
                };
                all.push(Waiting {
                    kind: app.kind,
                    node: pod.node.clone(),
                    message: pod.message.clone(),
                    promises: of_pod.map(Value::to_string).collect(),
                    explained,
                    pod: pod_name,
                });
            }
        }
        Ok(all)
    }

    /// Waits until every pod runs; `false` at the deadline.
    async fn all_run(
        &self,
        timetable: &Timetable,
        follower: &mut Follower,
        deadline: Instant,
    ) -> Result<bool> {
        let all = timetable.pods();
        let everybody = follower
            .pods
            .wait_for(|pods| pods.len() == all && pods.values().all(|pod| pod.runs));
        match timeout_at(deadline, everybody).await {
            Ok(seen) => {
                drop(seen.context("the watch of pods has ended")?);
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    async fn progress(
        &self,
        timetable: &Timetable,
        site: &str,
        follower: &Follower,
    ) -> Result<Progress> {
        let claims = self.claims(timetable, site).await?;
        let seen = follower.pods.borrow();
        let count = |is: fn(&Seen) -> bool| seen.values().filter(|pod| is(pod)).count();
        Ok(Progress {
            pods: seen.len(),
            bound: count(|pod| pod.node.is_some()),
            running: count(|pod| pod.runs),
            refused: count(|pod| pod.message.is_some()),
            claims: claims
                .iter()
                .map(|claim| (claim.name().to_string(), claim.is_true("Initialized")))
                .collect(),
        })
    }

    /// NodeClaims of a play.
    async fn claims(&self, timetable: &Timetable, site: &str) -> Result<Vec<NodeClaim>> {
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        Ok(claims.list(&of_pools(timetable, site)).await?.items)
    }

    /// Deletes all objects of a run, and waits until its nodes are deleted.
    async fn clear(&self, timetable: &Timetable, site: &str) -> Result<()> {
        let (now, all) = (
            DeleteParams::background().grace_period(0),
            ListParams::default(),
        );
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), site);
        deployments
            .delete_collection(&DeleteParams::background(), &all)
            .await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), site);
        pods.delete_collection(&now, &all).await?;
        let pools: Api<NodePool> = Api::all(self.client.clone());
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        let nodes: Api<Node> = Api::all(self.client.clone());
        let own = of_pools(timetable, site);
        for name in &timetable.pools(site) {
            pools.delete(name, &DeleteParams::background()).await?;
        }
        claims
            .delete_collection(&DeleteParams::background(), &own)
            .await?;
        wait_until("nodes to be gone", SOON, || async {
            let (claims, nodes) = (claims.list(&own).await?, nodes.list(&own).await?);
            let (claims, nodes) = (claims.items.len(), nodes.items.len());
            ensure!(claims + nodes == 0, "{claims} claims, {nodes} nodes");
            Ok(())
        })
        .await?;
        let classes: Api<KwokNodeClass> = Api::all(self.client.clone());
        for name in &timetable.pools(site) {
            classes.delete(name, &DeleteParams::background()).await?;
        }
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(site, &DeleteParams::background()).await?;
        Ok(())
    }
}

/// Claims and nodes of a play's pools.
fn of_pools(timetable: &Timetable, site: &str) -> ListParams {
    let pools = timetable.pools(site).join(",");
    ListParams::default().labels(&format!("{} in ({pools})", labels::NODEPOOL))
}

/// From `since` to `at`, in milliseconds.
fn signed_ms(at: Instant, since: Instant) -> i64 {
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match at.checked_duration_since(since) {
        Some(after) => ms(after),
        None => -ms(since - at),
    }
}

fn seen(pod: &Pod) -> Seen {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let refused = conditions
        .unwrap_or_default()
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let own = pod.metadata.labels.as_ref();
    Seen {
        app: own
            .and_then(|all| all.get("app"))
            .cloned()
            .unwrap_or_default(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        runs: status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
            && pod.metadata.deletion_timestamp.is_none(),
        message: refused.map(|condition| condition.message.clone().unwrap_or_default()),
    }
}
