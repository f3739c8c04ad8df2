//! The control plane, mortise on it, and what an independent client sees.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use mortise_apis::NodeClaim;
use mortise_tests::harness::{
    Component, ControlPlane, Http, Mortise, MortiseOptions, SchedulerOptions, mortise_binary,
    wait_until,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::process::{Memory, Starts};
use super::quantiles::Quantiles;
use crate::report::progress;

/// For anything that takes seconds; a test host that builds something at the same time takes longer.
const SOON: Duration = Duration::from_mins(5);
/// Memory is measured this long after the start.
const SETTLED: Duration = Duration::from_secs(30);
/// Starts that are timed.
const STARTS: usize = 10;
/// Between two looks at a port that is about to open.
const LOOK: Duration = Duration::from_millis(1);
/// Objects that are created or deleted at the same time.
const WRITERS: usize = 16;
/// The instance type of [`Cluster::launch_nodes`]: capacity for one pod with a CPU, and for a small one next to it.
const SMALL: &str = "c-2x-amd64-linux";

/// A control plane with these objects and mortise on it, ready, and kube-scheduler that asks it; and when mortise was started.
pub(crate) async fn stage(objects: &str) -> Result<(ControlPlane, Mortise, Instant)> {
    progress("building mortise, if it is not up to date");
    mortise_binary().await?;
    let crds = Mortise::output(&["manifests", "crds", "--provider", "kwok"]).await?;
    progress("starting a control plane");
    let builder = ControlPlane::builder()
        .full()
        .without(Component::Scheduler)
        .manifests(&crds)
        .manifests(objects);
    let mut plane = Box::pin(builder.start()).await?;
    let started = Instant::now();
    let mortise = Mortise::start(&plane, MortiseOptions::default()).await?;
    mortise.wait_ready().await?;
    let extender = SchedulerOptions::with_extender(mortise.extender()?);
    plane.start_scheduler(&extender).await?;
    Ok((plane, mortise, started))
}

/// Running programs, and what was seen of their objects.
pub(crate) struct Cluster {
    mortise: Mortise,
    started: Instant,
    plane: ControlPlane,
    claims: Claims,
    running: watch::Receiver<BTreeSet<String>>,
    watches: [JoinHandle<()>; 2],
}

/// What is seen of NodeClaims.
#[derive(Clone)]
struct Claims {
    /// Those that are there.
    there: watch::Receiver<BTreeSet<String>>,
    /// Who wants to know of new ones.
    followers: watch::Sender<Option<mpsc::UnboundedSender<Instant>>>,
}

impl Cluster {
    /// Starts everything; mortise is ready.
    pub(crate) async fn start() -> Result<Self> {
        let (plane, mortise, started) = stage(&pool()).await?;
        let (claims, of_claims) = follow_claims(plane.client());
        let (running, of_pods) = follow_pods(plane.client());
        Ok(Self {
            mortise,
            started,
            plane,
            claims,
            running,
            watches: [of_claims, of_pods],
        })
    }

    /// Ends everything and removes its state.
    pub(crate) async fn end(self) {
        let Self {
            mut mortise,
            plane,
            watches,
            ..
        } = self;
        for each in watches {
            each.abort();
        }
        mortise.kill9().await;
        plane.stop().await;
    }

    /// The process that leads.
    pub(crate) const fn leader(&self) -> &Mortise {
        &self.mortise
    }

    /// Starts a second replica, which does not lead.
    pub(crate) async fn start_follower(&self) -> Result<Mortise> {
        let follower = Mortise::start(&self.plane, MortiseOptions::default()).await?;
        follower.wait_ready().await?;
        Ok(follower)
    }

    /// A client as kube-scheduler is one, with a connection of its own.
    pub(crate) fn scheduler(&self) -> Result<Http> {
        self.mortise.scheduler_http()
    }

    /// URL of a path of mortise.
    pub(crate) fn url(&self, path: &str) -> String {
        self.mortise.url(path)
    }

    /// A client of the API server, with all rights.
    pub(crate) fn client(&self) -> Client {
        self.plane.client()
    }

    /// Number of snapshots that mortise has made.
    pub(crate) async fn generation(&self) -> Result<u64> {
        let snapshot = self.mortise.debug("snapshot").await?;
        let generation = snapshot["generation"].as_u64();
        generation.with_context(|| format!("no generation in {snapshot}"))
    }

    /// mortise's process.
    pub(crate) const fn pid(&self) -> u32 {
        self.mortise.pid()
    }

    /// Size of the binary.
    pub(crate) fn binary_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/exe", self.pid());
        Ok(std::fs::metadata(&path)
            .with_context(|| format!("cannot look at {path}"))?
            .len())
    }

    /// Version of the API server.
    pub(crate) async fn version(&self) -> Result<String> {
        Ok(self.plane.client().apiserver_version().await?.git_version)
    }

    /// Memory of mortise when the cluster has no nodes, half a minute after its start.
    pub(crate) async fn memory_of_empty(&self) -> Result<Memory> {
        progress("waiting until half a minute has passed since the start");
        tokio::time::sleep_until((self.started + SETTLED).into()).await;
        ensure!(
            self.nodes().await?.is_empty(),
            "the cluster should be empty"
        );
        Memory::of(self.pid(), "empty cluster".to_owned())
    }

    /// Memory of mortise now.
    pub(crate) async fn memory(&self) -> Result<Memory> {
        let nodes = self.nodes().await?.len();
        let pods = self
            .api::<Pod>()
            .list_metadata(&ListParams::default())
            .await?;
        let when = format!("{nodes} nodes, {} pods", pods.items.len());
        Memory::of(self.pid(), when)
    }

    /// Times further processes of mortise on the same control plane. They follow, and each makes certificates of its own.
    pub(crate) async fn starts(&self) -> Result<Starts> {
        progress(&format!("{STARTS} starts"));
        let binary = mortise_binary().await?;
        let (mut help, mut listening, mut ready) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..STARTS {
            let start = Instant::now();
            let status = Command::new(&binary)
                .arg("--help")
                .stdout(Stdio::null())
                .status()?;
            help.push(start.elapsed());
            ensure!(status.success(), "mortise --help ended with {status}");

            let options = MortiseOptions {
                cert_dir: Some(self.plane.dir().join(format!("start-{number}"))),
                ..MortiseOptions::default()
            };
            let start = Instant::now();
            let mut other = Mortise::start(&self.plane, options).await?;
            let port = ("127.0.0.1", other.https_port());
            look_until("the HTTPS port", || async {
                tokio::net::TcpStream::connect(port).await.is_ok()
            })
            .await?;
            listening.push(start.elapsed());
            let (http, url) = (Http::new("", None)?, other.health_url("readyz"));
            look_until("/readyz", || async {
                http.get(&url).await.is_ok_and(|reply| reply.status == 200)
            })
            .await?;
            ready.push(start.elapsed());
            other.kill9().await;
        }
        Ok(Starts {
            help: Quantiles::of(help),
            listening: Quantiles::of(listening),
            ready: Quantiles::of(ready),
        })
    }

    fn api<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.plane.client())
    }

    /// Node names, sorted.
    pub(crate) async fn nodes(&self) -> Result<Vec<String>> {
        let nodes = self
            .api::<Node>()
            .list_metadata(&ListParams::default())
            .await?;
        Ok(nodes
            .items
            .into_iter()
            .filter_map(|node| node.metadata.name)
            .collect())
    }

    /// Tells of every claim that comes from now on, when it is seen. The follower before it is told nothing more.
    pub(crate) fn follow_claims(&self) -> mpsc::UnboundedReceiver<Instant> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.claims.followers.send_replace(Some(sender));
        receiver
    }

    /// Claims that are there.
    pub(crate) async fn claim_names(&self) -> Result<BTreeSet<String>> {
        let claims = self
            .api::<NodeClaim>()
            .list_metadata(&ListParams::default())
            .await?;
        Ok(claims
            .items
            .into_iter()
            .filter_map(|claim| claim.metadata.name)
            .collect())
    }

    /// Creates a pod. Returns when the API server's answer came.
    pub(crate) async fn create_pod(
        &self,
        name: &str,
        cpu: &str,
        selector: Option<(&str, &str)>,
    ) -> Result<Instant> {
        let pods: Api<Pod> = Api::default_namespaced(self.plane.client());
        let pod = serde_json::from_value(pod(name, cpu, selector))?;
        pods.create(&PostParams::default(), &pod)
            .await
            .with_context(|| format!("cannot create pod {name}"))?;
        Ok(Instant::now())
    }

    /// A pod as the API server has it, without what kube-scheduler's cache leaves out.
    pub(crate) async fn pod(&self, name: &str) -> Result<Value> {
        let pods: Api<Pod> = Api::default_namespaced(self.plane.client());
        let mut pod = pods.get(name).await?;
        pod.metadata.managed_fields = None;
        Ok(serde_json::to_value(pod)?)
    }

    /// Waits until these pods run.
    pub(crate) async fn running(&self, names: &[String]) -> Result<()> {
        let mut running = self.running.clone();
        let all = running.wait_for(|running| names.iter().all(|name| running.contains(name)));
        match tokio::time::timeout(SOON, all).await {
            Ok(all) => {
                all.context("the watch of pods has ended")?;
                Ok(())
            }
            Err(_) => bail!(
                "of {} pods not all run after {SOON:?}; mortise's log is {}",
                names.len(),
                self.mortise.log_path().display()
            ),
        }
    }

    /// Deletes pods and every claim but `kept`, and waits until they are gone.
    pub(crate) async fn remove(&self, pods: &[String], kept: &BTreeSet<String>) -> Result<()> {
        let api: Api<Pod> = Api::default_namespaced(self.plane.client());
        let now = DeleteParams::default().grace_period(0);
        stream::iter(pods)
            .map(Ok)
            .try_for_each_concurrent(WRITERS, |name| {
                let (api, now) = (&api, &now);
                async move { gone(api.delete(name, now).await.map(drop)) }
            })
            .await?;
        let api = self.api::<NodeClaim>();
        let deleted: Vec<String> = self
            .claim_names()
            .await?
            .difference(kept)
            .cloned()
            .collect();
        stream::iter(&deleted)
            .map(Ok)
            .try_for_each_concurrent(WRITERS, |name| {
                let api = &api;
                async move { gone(api.delete(name, &DeleteParams::default()).await.map(drop)) }
            })
            .await?;
        let mut there = self.claims.there.clone();
        let end = there.wait_for(|there| deleted.iter().all(|name| !there.contains(name)));
        tokio::time::timeout(SOON, end)
            .await
            .with_context(|| {
                format!(
                    "of {} claims not all are gone after {SOON:?}",
                    deleted.len()
                )
            })?
            .context("the watch of claims has ended")?;
        Ok(())
    }

    /// Lets mortise launch nodes, each for one pod, until there are `count`. kube-scheduler is stopped, so that the pods
    /// are not bound yet: mortise keeps their nominations. Returns the pods.
    pub(crate) async fn launch_nodes(&mut self, count: usize) -> Result<Vec<String>> {
        self.plane.stop_component(Component::Scheduler).await?;
        let there = self.claim_names().await?.len();
        let names: Vec<String> = (there..count)
            .map(|number| format!("fill-{number}"))
            .collect();
        let selector = ("node.kubernetes.io/instance-type", SMALL);
        let cluster = &*self;
        stream::iter(&names)
            .map(Ok)
            .try_for_each_concurrent(WRITERS, |name| async move {
                cluster.create_pod(name, "1", Some(selector)).await?;
                anyhow::Ok(())
            })
            .await?;
        let initialized = ListParams::default().labels("karpenter.sh/initialized=true");
        wait_until("all nodes to be initialized", SOON, || async {
            let nodes = self.api::<Node>().list_metadata(&initialized).await?;
            let ready = nodes.items.len();
            ensure!(ready >= count.max(there), "{ready} of {count}");
            Ok(())
        })
        .await?;
        self.knows(count.max(there)).await?;
        Ok(names)
    }

    /// Starts kube-scheduler again and waits until these pods run.
    pub(crate) async fn let_run(&mut self, pods: &[String]) -> Result<()> {
        let extender = SchedulerOptions::with_extender(self.mortise.extender()?);
        self.plane.start_scheduler(&extender).await?;
        self.running(pods).await
    }

    /// Pods for which mortise holds room.
    pub(crate) async fn nominations(&self) -> Result<u64> {
        let snapshot = self.mortise.debug("snapshot").await?;
        snapshot["counts"]["nominations"]
            .as_u64()
            .with_context(|| format!("no nominations in {snapshot}"))
    }

    /// Adds unmanaged Node objects until there are `count`. No kubelet keeps them alive, so every component that would react
    /// is stopped first: only etcd, the API server and mortise keep running.
    pub(crate) async fn add_nodes(&mut self, count: usize) -> Result<()> {
        for component in [
            Component::Scheduler,
            Component::ControllerManager,
            Component::Kwok,
        ] {
            self.plane.stop_component(component).await?;
        }
        let there = self.nodes().await?.len();
        let nodes = self.api::<Node>();
        stream::iter(there..count)
            .map(Ok)
            .try_for_each_concurrent(WRITERS, |number| {
                let nodes = &nodes;
                async move {
                    let node = serde_json::from_value(node(number))?;
                    nodes.create(&PostParams::default(), &node).await?;
                    anyhow::Ok(())
                }
            })
            .await?;
        self.knows(count).await
    }

    /// Waits until mortise knows this number of nodes.
    async fn knows(&self, count: usize) -> Result<()> {
        wait_until("mortise to know all nodes", SOON, || async {
            let snapshot = self.mortise.debug("snapshot").await?;
            let known = &snapshot["counts"]["nodes"];
            ensure!(*known == json!(count), "it knows {known} of {count}");
            Ok(())
        })
        .await
    }
}

/// Looks every millisecond.
async fn look_until<F: Future<Output = bool>>(what: &str, probe: impl Fn() -> F) -> Result<()> {
    let end = Instant::now() + SOON;
    while !probe().await {
        ensure!(Instant::now() < end, "{what} is not there after {SOON:?}");
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// An object that is gone already is as good as deleted.
fn gone(result: kube::Result<()>) -> Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => Ok(other?),
    }
}

fn follow_claims(client: Client) -> (Claims, JoinHandle<()>) {
    let (there, receiver) = watch::channel(BTreeSet::new());
    let followers = watch::Sender::new(None);
    let tell = followers.clone();
    let task = follow::<NodeClaim>(
        client,
        move |known| {
            there.send_replace(known.keys().cloned().collect());
        },
        move |at| {
            if let Some(follower) = &*tell.borrow() {
                let follower: &mpsc::UnboundedSender<Instant> = follower;
                // There is no receiver between two rounds.
                follower.send(at).ok();
            }
        },
    );
    let claims = Claims {
        there: receiver,
        followers,
    };
    (claims, task)
}

fn follow_pods(client: Client) -> (watch::Receiver<BTreeSet<String>>, JoinHandle<()>) {
    let (running, receiver) = watch::channel(BTreeSet::new());
    let runs = |pod: &Pod| {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        phase == Some("Running")
    };
    let task = follow::<Pod>(
        client,
        move |known| {
            let names = known.iter().filter(|(_, pod)| runs(pod));
            running.send_replace(names.map(|(name, _)| name.clone()).collect());
        },
        |_| {},
    );
    (receiver, task)
}

/// Watches a kind: `changed` gets all that is there after each change, `added` the time at which a new one was seen.
fn follow<K>(
    client: Client,
    changed: impl Fn(&BTreeMap<String, K>) + Send + 'static,
    added: impl Fn(Instant) + Send + 'static,
) -> JoinHandle<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    tokio::spawn(async move {
        let events =
            watcher::watcher(Api::<K>::all(client), watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut known: BTreeMap<String, K> = BTreeMap::new();
        while let Some(event) = events.next().await {
            let at = Instant::now();
            match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => {
                    let name = object.meta().name.clone().unwrap_or_default();
                    if known.insert(name, object).is_none() {
                        added(at);
                    }
                }
                Ok(Event::Delete(object)) => {
                    known.remove(object.meta().name.as_deref().unwrap_or_default());
                }
                Ok(Event::Init | Event::InitDone) => {}
                // The stream goes on by itself; what it missed comes with the next list.
                Err(error) => progress(&format!("a watch was interrupted: {error}")),
            }
            changed(&known);
        }
    })
}

fn pool() -> String {
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" },
        "spec": {
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
                "requirements": [
                    { "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] },
                    { "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] },
                    { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
                ],
            } },
            "disruption": { "consolidateAfter": "Never" },
        },
    });
    let class = json!({ "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": { "name": "default" } });
    format!("{class}\n---\n{pool}")
}

fn pod(name: &str, cpu: &str, selector: Option<(&str, &str)>) -> Value {
    let selector: BTreeMap<&str, &str> = selector.into_iter().collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "app.kubernetes.io/name": "bench", "app.kubernetes.io/instance": name } },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": selector,
            "containers": [{
                "name": "main", "image": "registry.test/main:1.0",
                "env": [{ "name": "LOG_LEVEL", "value": "info" }],
                "ports": [{ "containerPort": 8080 }],
                "resources": { "requests": { "cpu": cpu, "memory": "512Mi" } },
            }],
        },
    })
}

/// A node as another owner's kubelet would have registered it.
fn node(number: usize) -> Value {
    let (name, zone) = (
        format!("plain-{number}"),
        format!("test-zone-{}", ["a", "b", "c"][number % 3]),
    );
    let resources =
        json!({ "cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi" });
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "reason": "KubeletReady", "message": "" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "other-8x", "topology.kubernetes.io/zone": zone,
                "topology.kubernetes.io/region": "test-region",
            },
        },
        "spec": { "providerID": format!("other://{zone}/{number}") },
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [
                condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False"), condition("Ready", "True"),
            ],
        },
    })
}
