//! `lifecycle`: many nodes are created and deleted, all at once, on a real control plane with kwok.
//!
//! Two rounds. In the first the pods need all nodes, then they are deleted, and the nodes are disrupted as empty: processor
//! time, memory and writes are counted over this round. In the second the nodes are created again and all claims are deleted
//! at once, with their pods on them: the time until the last node is tainted is measured.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use mortise_apis::NodeClaim;
use mortise_apis::labels::DISRUPTED_TAINT;
use mortise_tests::harness::{ControlPlane, Mortise, wait_until};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::end_to_end::cluster::stage;
use crate::end_to_end::process::{Memory, cpu_seconds};
use crate::output::Output;
use crate::report::{self, Benchmark, Results, progress};

const NODES: u32 = 1_000;
/// Pods per node with four CPUs, and the requests of each.
const PODS_PER_NODE: u32 = 10;
const CPU: &str = "380m";
const TYPE: &str = "c-4x-amd64-linux";
/// Objects that are created at the same time.
const WRITERS: usize = 16;
/// Claims that are deleted at the same time.
const DELETERS: usize = 64;
/// For everything that the whole cluster takes part in.
const LONG: Duration = Duration::from_mins(20);

/// What the project wants to hold (`docs/benchmarks/lifecycle.md`).
const WANTED_MIB: f64 = 100.0;
const WANTED_CORE_PERCENT: f64 = 15.0;
const WANTED_WRITES: f64 = 12.0;
const WANTED_TAINTED_S: f64 = 3.0;

/// Options of `lifecycle`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct LifecycleArgs {
    /// Nodes; ten pods are created for each.
    #[arg(long, default_value_t = NODES, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    nodes: u32,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// All figures of a run.
#[derive(Debug, Serialize)]
pub(crate) struct LifecycleResults {
    nodes: u32,
    pods: u32,
    /// Claims that were made for them.
    lives: f64,
    /// From the first pod's creation until all pods run.
    running_s: f64,
    /// From the first pod's creation until all nodes are Initialized.
    initialized_s: f64,
    /// From the deletion of the pods until no claim and no node is left.
    empty_s: f64,
    /// Processor seconds of mortise over both.
    cpu_s: f64,
    /// The same as per cent of one core over the wall time of both.
    core_percent: f64,
    memory: Vec<Memory>,
    /// Writes to the API server for one node's life, by what they write to; events and the Lease are not among them.
    writes: Vec<Writes>,
    /// Their sum.
    writes_per_node: f64,
    /// Events for one node's life.
    events_per_node: f64,
    /// All claims deleted at once.
    deletion: Deletion,
}

/// What became of the deletion of all claims.
#[derive(Debug, Serialize)]
struct Deletion {
    /// Nodes that were there.
    nodes: usize,
    /// From the first deletion until the API server had taken the last.
    accepted_s: f64,
    /// From then until the last node was tainted.
    tainted_s: f64,
    /// From the first deletion until no claim and no node was left.
    deleted_s: f64,
}

/// Requests of one kind, those included that were repeated.
#[derive(Debug, Serialize)]
struct Writes {
    verb: String,
    /// The resource, and the subresource where there is one.
    what: String,
    per_node: f64,
}

impl Benchmark for LifecycleArgs {
    const NAME: &'static str = "lifecycle";
    const SOURCES: &'static [&'static str] = report::PROGRAM;
    type Results = LifecycleResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        None
    }

    fn is_complete(&self) -> bool {
        self.nodes == NODES
    }

    fn measure(&self) -> Result<LifecycleResults> {
        report::block_on(measure(self.nodes))
    }
}

async fn measure(nodes: u32) -> Result<LifecycleResults> {
    let world = World::start().await?;
    let pods = nodes * PODS_PER_NODE;
    let cpu_before = cpu_seconds(world.mortise.pid())?;
    let before = world.writes().await?;

    progress(&format!("{nodes} nodes for {pods} pods"));
    let begun = Instant::now();
    let (running, initialized) = world.start_pods(pods, "first", begun).await?;
    let mut memory = vec![world.memory(format!("{nodes} nodes, {pods} pods"))?];
    progress("the pods go");
    let emptied = Instant::now();
    world.delete_pods().await?;
    world.empty().await?;
    let empty_s = emptied.elapsed().as_secs_f64();
    let wall = initialized + empty_s;
    let cpu_s = cpu_seconds(world.mortise.pid())? - cpu_before;
    memory.push(world.memory("all of them gone".to_owned())?);
    let after = world.writes().await?;
    let made = |(verb, what): (&str, &str)| {
        let key = (what.to_owned(), verb.to_owned());
        let count = |all: &Counts| all.get(&key).copied().unwrap_or_default();
        count(&after) - count(&before)
    };
    // One life for each claim that was made: a few more than nodes are needed at the end.
    let lives = made(("POST", "nodeclaims"));
    ensure!(lives >= 1.0, "no claim was made");
    let mut writes = Vec::new();
    let mut events_per_node = 0.0;
    for (what, verb) in after.keys() {
        let per_node = made((verb, what)) / lives;
        match what.as_str() {
            // Once in a while, whatever happens to nodes.
            "leases" => {}
            "events" => events_per_node += per_node,
            _ if per_node == 0.0 => {}
            _ => writes.push(Writes {
                verb: verb.clone(),
                what: what.clone(),
                per_node,
            }),
        }
    }
    let writes_per_node = writes.iter().map(|each| each.per_node).sum();

    progress("once more, and then all claims are deleted");
    let begun = Instant::now();
    world.start_pods(pods, "second", begun).await?;
    let deletion = world.delete_all().await?;
    memory.push(world.memory("after the mass deletion".to_owned())?);
    world.end().await;
    Ok(LifecycleResults {
        nodes,
        pods,
        lives,
        running_s: running,
        initialized_s: initialized,
        empty_s,
        cpu_s,
        core_percent: 100.0 * cpu_s / wall,
        memory,
        writes,
        writes_per_node,
        events_per_node,
        deletion,
    })
}

/// Requests that write, by what they write to and verb.
type Counts = BTreeMap<(String, String), f64>;

/// What is seen of Nodes: names of those that are there, Initialized, tainted.
#[derive(Debug, Default)]
struct Nodes {
    there: BTreeSet<String>,
    initialized: BTreeSet<String>,
    tainted: BTreeSet<String>,
    /// When the last one was seen tainted for the first time.
    last_tainted: Option<Instant>,
}

impl Nodes {
    fn see(&mut self, node: &Node) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let labels = node.metadata.labels.as_ref();
        let is_initialized = labels
            .and_then(|labels| labels.get("karpenter.sh/initialized"))
            .is_some_and(|value| value == "true");
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        if is_initialized {
            self.initialized.insert(name.clone());
        }
        if taints.is_some_and(|all| all.iter().any(|taint| taint.key == DISRUPTED_TAINT))
            && self.tainted.insert(name.clone())
        {
            self.last_tainted = Some(Instant::now());
        }
        self.there.insert(name);
    }

    fn gone(&mut self, node: &Node) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.there.remove(name);
        self.initialized.remove(name);
    }
}

/// The control plane, mortise on it, and an independent client.
struct World {
    mortise: Mortise,
    plane: ControlPlane,
    nodes: Arc<Mutex<Nodes>>,
    watch: JoinHandle<()>,
}

impl World {
    async fn start() -> Result<Self> {
        let (plane, mortise, _) = stage(&pool()).await?;
        let nodes = Arc::default();
        let watch = tokio::spawn(follow(plane.client(), Arc::clone(&nodes)));
        Ok(Self {
            mortise,
            plane,
            nodes,
            watch,
        })
    }

    async fn end(self) {
        let Self {
            mut mortise,
            plane,
            watch,
            nodes: _,
        } = self;
        watch.abort();
        mortise.kill9().await;
        plane.stop().await;
    }

    fn seen<T>(&self, look: impl FnOnce(&Nodes) -> T) -> T {
        look(&self.nodes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn memory(&self, when: String) -> Result<Memory> {
        Memory::of(self.mortise.pid(), when)
    }

    /// Requests of mortise so far that write.
    async fn writes(&self) -> Result<Counts> {
        let page = self.mortise.metrics().await?;
        let mut all = Counts::new();
        for line in page.lines() {
            let Some(rest) = line.strip_prefix("mortise_api_writes_total{") else {
                continue;
            };
            let (labels, value) = rest.split_once("} ").context("a series without a value")?;
            let label = |name: &str| {
                let begin = format!("{name}=\"");
                let mut parts = labels.split(',');
                let found = parts.find_map(|part| part.strip_prefix(&begin)?.strip_suffix('"'));
                found.with_context(|| format!("no {name} in {line}"))
            };
            let what = match label("subresource")? {
                "" => label("resource")?.to_owned(),
                sub => format!("{}/{sub}", label("resource")?),
            };
            let value: f64 = value.parse().with_context(|| line.to_owned())?;
            *all.entry((what, label("verb")?.to_owned())).or_default() += value;
        }
        Ok(all)
    }

    /// Creates the pods. Returns seconds since `begun` until all pods ran, and until all nodes were Initialized then.
    async fn start_pods(&self, pods: u32, name: &str, begun: Instant) -> Result<(f64, f64)> {
        let api: Api<Pod> = Api::default_namespaced(self.plane.client());
        stream::iter(0..pods)
            .map(Ok)
            .try_for_each_concurrent(WRITERS, |number| {
                let api = &api;
                async move {
                    let pod = serde_json::from_value(pod(&format!("{name}-{number}")))?;
                    api.create(&PostParams::default(), &pod).await?;
                    anyhow::Ok(())
                }
            })
            .await?;
        let created = begun.elapsed().as_secs_f64();
        progress(&format!("the pods were created within {created:.1} s"));
        let waiting = ListParams::default()
            .fields("status.phase=Pending")
            .limit(1);
        wait_until("all pods to run", LONG, || async {
            let left = api.list_metadata(&waiting).await?.items.len();
            ensure!(left == 0, "some are pending");
            Ok(())
        })
        .await?;
        let running = begun.elapsed().as_secs_f64();
        wait_until("all nodes to be Initialized", LONG, || async {
            let (there, initialized) =
                self.seen(|nodes| (nodes.there.len(), nodes.initialized.len()));
            ensure!(
                there > 0 && there == initialized,
                "{initialized} of {there}"
            );
            Ok(())
        })
        .await?;
        Ok((running, begun.elapsed().as_secs_f64()))
    }

    /// Deletes all pods one by one: an API server gives a call for a whole collection a minute, and ten thousand take longer.
    async fn delete_pods(&self) -> Result<()> {
        let api: Api<Pod> = Api::default_namespaced(self.plane.client());
        let pods = api.list_metadata(&ListParams::default()).await?.items;
        let at_once = DeleteParams::default().grace_period(0);
        stream::iter(pods.iter().filter_map(|pod| pod.metadata.name.as_deref()))
            .map(Ok)
            .try_for_each_concurrent(WRITERS, |name| {
                let (api, at_once) = (&api, &at_once);
                async move { api.delete(name, at_once).await.map(drop) }
            })
            .await?;
        Ok(())
    }

    /// Waits until no node and no claim is left.
    async fn empty(&self) -> Result<()> {
        let claims: Api<NodeClaim> = Api::all(self.plane.client());
        let one = ListParams::default().limit(1);
        wait_until("all nodes to be gone", LONG, || async {
            let there = self.seen(|nodes| nodes.there.len());
            ensure!(there == 0, "{there} nodes");
            ensure!(
                claims.list_metadata(&one).await?.items.is_empty(),
                "claims are left"
            );
            Ok(())
        })
        .await
    }

    /// Deletes all claims, as fast as the API server takes it.
    async fn delete_all(&self) -> Result<Deletion> {
        let claims: Api<NodeClaim> = Api::all(self.plane.client());
        self.nodes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .tainted
            .clear();
        let wanted = self.seen(|nodes| nodes.there.len());
        let begun = Instant::now();
        let names = claims.list_metadata(&ListParams::default()).await?.items;
        let now = DeleteParams::default();
        stream::iter(
            names
                .iter()
                .filter_map(|claim| claim.metadata.name.as_deref()),
        )
        .map(Ok)
        .try_for_each_concurrent(DELETERS, |name| {
            let (claims, now) = (&claims, &now);
            async move { claims.delete(name, now).await.map(drop) }
        })
        .await?;
        let accepted = Instant::now();
        wait_until("all nodes to be tainted", LONG, || async {
            let there = self.seen(|nodes| nodes.tainted.len());
            ensure!(there >= wanted, "{there} of {wanted}");
            Ok(())
        })
        .await?;
        let last = self
            .seen(|nodes| nodes.last_tainted)
            .context("no node was tainted")?;
        self.empty().await?;
        Ok(Deletion {
            nodes: wanted,
            accepted_s: accepted.duration_since(begun).as_secs_f64(),
            tainted_s: last.saturating_duration_since(accepted).as_secs_f64(),
            deleted_s: begun.elapsed().as_secs_f64(),
        })
    }
}

async fn follow(client: Client, nodes: Arc<Mutex<Nodes>>) {
    let events = watcher(Api::<Node>::all(client), watcher::Config::default());
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let mut nodes = nodes.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Ok(Event::Apply(node) | Event::InitApply(node)) => nodes.see(&node),
            Ok(Event::Delete(node)) => nodes.gone(&node),
            Ok(Event::Init | Event::InitDone) => {}
            // The stream goes on by itself; what it missed comes with the next list.
            Err(error) => progress(&format!("a watch was interrupted: {error}")),
        }
    }
}

fn pool() -> String {
    let class = json!({ "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": { "name": "default" } });
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" },
        "spec": {
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
                "requirements": [
                    { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": [TYPE] },
                    { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
                ],
            } },
            "disruption": { "consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s", "budgets": [{ "nodes": "100%" }] },
        },
    });
    format!("{class}\n---\n{pool}")
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": "bench" } },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": "registry.test/main:1.0",
                "resources": { "requests": { "cpu": CPU, "memory": "512Mi" } },
            }],
        },
    })
}

impl Results for LifecycleResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        let Self {
            nodes,
            pods,
            lives,
            initialized_s,
            running_s,
            empty_s,
            cpu_s,
            core_percent,
            memory,
            writes,
            writes_per_node,
            events_per_node,
            deletion,
        } = self;
        let Deletion {
            nodes: deleted_nodes,
            accepted_s,
            tainted_s,
            deleted_s,
        } = deletion;
        writeln!(
            out,
            "{pods} pods for {nodes} kwok nodes, {lives} claims made; {deleted_nodes} nodes deleted at once"
        )?;
        let mut row = |name: &str, value: String, wanted: Option<(f64, f64)>| -> Result<()> {
            let verdict = match wanted {
                Some((value, most)) if value > most => format!("  wanted: <= {most}: MISSED"),
                Some((_, most)) => format!("  wanted: <= {most}"),
                None => String::new(),
            };
            writeln!(out, "{name:<52}{value:>12}{verdict}")?;
            Ok(())
        };
        row(
            "all nodes Initialized (s)",
            format!("{initialized_s:.1}"),
            None,
        )?;
        row("all pods running (s)", format!("{running_s:.1}"), None)?;
        row("pods gone -> no node (s)", format!("{empty_s:.1}"), None)?;
        row("processor time of mortise (s)", format!("{cpu_s:.1}"), None)?;
        let percent = (*core_percent, WANTED_CORE_PERCENT);
        row(
            "of one core (%)",
            format!("{core_percent:.1}"),
            Some(percent),
        )?;
        for each in memory {
            let name = format!("resident / peak memory (MiB): {}", each.when);
            let value = format!("{:.0} / {:.0}", each.resident_mib, each.peak_mib);
            row(&name, value, Some((each.peak_mib, WANTED_MIB)))?;
        }
        for each in writes {
            row(
                &format!("a node: {} {}", each.verb, each.what),
                format!("{:.2}", each.per_node),
                None,
            )?;
        }
        let count = (*writes_per_node, WANTED_WRITES);
        row(
            "a node: all writes but events",
            format!("{writes_per_node:.2}"),
            Some(count),
        )?;
        row("a node: events", format!("{events_per_node:.2}"), None)?;
        row("all claims deleted (s)", format!("{accepted_s:.1}"), None)?;
        let tainted = (*tainted_s, WANTED_TAINTED_S);
        row(
            "then until all nodes are tainted (s)",
            format!("{tainted_s:.1}"),
            Some(tainted),
        )?;
        row(
            "all claims deleted -> no node (s)",
            format!("{deleted_s:.1}"),
            None,
        )?;
        Ok(())
    }
}
