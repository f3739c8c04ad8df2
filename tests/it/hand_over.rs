//! Hand-over on the real control plane: a service with one replica moves from node to node while clients send requests to it.
//!
//! Each pod is a process that answers HTTP; this file does for it what a kubelet does: it starts the process when the pod is bound, says
//! that it is ready when it answers, and ends it after the pod is deleted. Clients choose an address as kube-proxy does, among the ready
//! ones of the EndpointSlices.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use mortise_apis::NodeClaim;
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::objects::{deployment, kwok_class, merged, never, small_pool};
use crate::scene::{HAND_OVER, SOON, Scene, on_node, runs};

/// Moves if `MORTISE_MOVES` does not say: what continuous integration has time for.
const MOVES: usize = 5;
const CLIENTS: usize = 4;
/// Between two requests of a client.
const PACE: Duration = Duration::from_millis(25);
/// How long a process goes on after its pod was deleted, as its `preStop` would say: addresses are seen late.
const LINGERS: Duration = Duration::from_secs(4);
/// How long a process prepares before it is ready.
const PREPARES: Duration = Duration::from_secs(1);

const SERVER: &str = "
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header('Content-Length', '2')
        self.end_headers()
        self.wfile.write(b'ok')
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
";

/// A running pod.
struct Process {
    port: u16,
    child: Child,
    started: Instant,
    is_ready: bool,
    deleted: Option<Instant>,
}

/// Kubelets, kube-proxy and clients of the service `web`.
struct Traffic {
    client: Client,
    /// Processes by UID of their pod.
    processes: Mutex<BTreeMap<String, Process>>,
    /// Ports by address of a pod.
    ports: Mutex<BTreeMap<String, u16>>,
    /// Addresses that are ready.
    ready: Mutex<Vec<String>>,
    requests: AtomicUsize,
    failed: AtomicUsize,
    /// What failed, in words.
    failures: Mutex<Vec<String>>,
}

impl Traffic {
    fn new(client: Client) -> Arc<Self> {
        Arc::new(Self {
            client,
            processes: Mutex::default(),
            ports: Mutex::default(),
            ready: Mutex::default(),
            requests: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            failures: Mutex::default(),
        })
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// What the kubelets do once.
    async fn run_pods(&self) -> Result<()> {
        let of_web = ListParams::default().labels("app=web");
        let all = self.pods().list(&of_web).await?;
        let mut processes = self.processes.lock().await;
        let known: BTreeSet<String> = all.iter().filter_map(|pod| pod.uid()).collect();
        // A process ends by its own time, also where its pod is gone before.
        processes.retain(|uid, process| {
            known.contains(uid)
                || process.deleted.get_or_insert_with(Instant::now).elapsed() < LINGERS
        });
        for pod in all.items {
            let uid = pod.uid().context("a UID")?;
            if on_node(&pod).is_none() {
                continue;
            }
            match processes.get_mut(&uid) {
                Some(process) if pod.metadata.deletion_timestamp.is_some() => {
                    self.end(&pod, process).await?;
                }
                Some(process) if !process.is_ready => {
                    let answers =
                        process.started.elapsed() >= PREPARES && ask(process.port).await.is_ok();
                    if answers {
                        self.make_ready(&pod, process.port).await?;
                        process.is_ready = true;
                    }
                }
                Some(_) => {}
                None => {
                    let process = start()?;
                    processes.insert(uid, process);
                }
            }
        }
        Ok(())
    }

    /// A pod that was deleted ends a while later.
    async fn end(&self, pod: &Pod, process: &mut Process) -> Result<()> {
        let since = *process.deleted.get_or_insert_with(Instant::now);
        if since.elapsed() < LINGERS {
            return Ok(());
        }
        process.child.start_kill()?;
        let now = DeleteParams::default().grace_period(0);
        self.pods().delete(&pod.name_any(), &now).await?;
        Ok(())
    }

    async fn make_ready(&self, pod: &Pod, port: u16) -> Result<()> {
        // No address of this host may be that of an endpoint: what a pod network does is done by a table.
        let address = format!("10.200.{}.{}", port / 256, port % 256);
        self.ports.lock().await.insert(address.clone(), port);
        let since = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let since = since.to_string();
        let condition =
            |type_: &str| json!({ "type": type_, "status": "True", "lastTransitionTime": since });
        let conditions = ["Initialized", "ContainersReady", "Ready"].map(condition);
        let status = json!({ "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }], "startTime": since, "conditions": conditions });
        let edit = Patch::Strategic(json!({ "status": status }));
        self.pods()
            .patch_status(&pod.name_any(), &PatchParams::default(), &edit)
            .await?;
        Ok(())
    }

    /// Reads which addresses are ready.
    async fn read_addresses(&self) -> Result<()> {
        let slices: Api<EndpointSlice> = Api::default_namespaced(self.client.clone());
        // What the API server has in memory, as a watch has it: etcd may wait for its disk for seconds.
        let of_web = ListParams::default()
            .labels("kubernetes.io/service-name=web")
            .match_any();
        let slices = slices.list(&of_web).await?;
        let endpoints = slices
            .items
            .into_iter()
            .flat_map(|slice| slice.endpoints.unwrap_or_default());
        let is_ready = |conditions: Option<bool>| conditions.unwrap_or(true);
        let ready = endpoints.filter(|each| {
            is_ready(
                each.conditions
                    .as_ref()
                    .and_then(|conditions| conditions.ready),
            )
        });
        *self.ready.lock().await = ready.flat_map(|each| each.addresses).collect();
        Ok(())
    }

    /// One request to a ready address.
    async fn request(&self) {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let ready = self.ready.lock().await.clone();
        let address = ready.get(number % ready.len().max(1));
        let failure = match address {
            None => "no address is ready".to_owned(),
            Some(address) => match self.ports.lock().await.get(address).copied() {
                None => format!("{address} is no process"),
                Some(port) => match ask(port).await {
                    Ok(()) => return,
                    Err(error) => format!("{address} of {ready:?}: {error:#}"),
                },
            },
        };
        self.failed.fetch_add(1, Ordering::Relaxed);
        let at = jiff::Timestamp::now();
        self.failures.lock().await.push(format!("{at}: {failure}"));
    }

    fn counts(&self) -> (usize, usize) {
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        (count(&self.requests), count(&self.failed))
    }

    /// Plays the kubelets and kube-proxy until the set is dropped.
    fn run(self: &Arc<Self>) -> JoinSet<Result<()>> {
        let mut all = JoinSet::new();
        let kubelets = Arc::clone(self);
        all.spawn(async move {
            loop {
                kubelets.run_pods().await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let proxy = Arc::clone(self);
        all.spawn(async move {
            loop {
                proxy.read_addresses().await?;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        all
    }

    /// Sends requests as well.
    fn send_requests(self: &Arc<Self>, all: &mut JoinSet<Result<()>>) {
        for _ in 0..CLIENTS {
            let client = Arc::clone(self);
            all.spawn(async move {
                loop {
                    client.request().await;
                    tokio::time::sleep(PACE).await;
                }
            });
        }
    }
}

fn start() -> Result<Process> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let child = Command::new("python3")
        .args(["-c", SERVER, &port.to_string()])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("python3")?;
    Ok(Process {
        port,
        child,
        started: Instant::now(),
        is_ready: false,
        deleted: None,
    })
}

/// A request to the process.
async fn ask(port: u16) -> Result<()> {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        ensure!(
            answer.contains(" 200 ") && answer.ends_with("ok"),
            "{answer:?}"
        );
        Ok(())
    };
    tokio::time::timeout(Duration::from_secs(5), exchange).await?
}

/// The service, its Deployment and a budget that never allows an eviction if the pod is handed over.
fn web(is_handed_over: bool) -> Vec<Value> {
    let mut annotations = json!({ "kwok.x-k8s.io/status": "custom" });
    if is_handed_over {
        annotations = merged(annotations, json!({ "mortise.sh/hand-over": "true" }));
    }
    let template =
        json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
    let web = deployment("web", 1, ("500m", "256Mi"), json!({}));
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } });
    let budget = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } } });
    let mut all = vec![service, merged(web, template)];
    if is_handed_over {
        all.push(budget);
    }
    all
}

/// The one pod, once it runs on another node than this one.
async fn moved(scene: &Scene, from: &str) -> Result<Pod> {
    wait_until("the pod on another node", SOON, || async {
        let pods = scene.pods("web").await?;
        let [pod] = pods.as_slice() else {
            anyhow::bail!("{} pods", pods.len())
        };
        ensure!(
            runs(pod) && on_node(pod) != Some(from),
            "{:?}",
            on_node(pod)
        );
        Ok(pod.clone())
    })
    .await
}

/// Deletes the NodeClaim of a node.
async fn delete_claim_of(scene: &Scene, node: &str) -> Result<()> {
    let all = scene.claims().await?;
    let of_node = |claim: &&NodeClaim| claim.status.node_name.as_deref() == Some(node);
    let claim = all.values().find(of_node).context("a NodeClaim")?;
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    claims
        .delete(&claim.name(), &DeleteParams::default())
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_service_with_one_replica_moves_without_a_failed_request() -> Result<()> {
    let moves = std::env::var("MORTISE_MOVES");
    let moves: usize = moves.map_or(Ok(MOVES), |text| text.parse())?;
    let scene = Scene::with(&[HAND_OVER]).await?;
    let traffic = Traffic::new(scene.plane.client());
    let mut tasks = traffic.run();
    scene
        .apply(&[kwok_class(), small_pool("general", never())])
        .await?;
    scene.apply(&web(true)).await?;
    let mut pod = moved(&scene, "").await?;
    wait_until("a ready address", SOON, || async {
        ensure!(!traffic.ready.lock().await.is_empty());
        Ok(())
    })
    .await?;
    traffic.send_requests(&mut tasks);

    // By drift, which a budget without any allowance prevents otherwise.
    let drifted = json!({ "template": { "metadata": { "labels": { "generation": "two" } } } });
    scene
        .apply(&[small_pool("general", merged(never(), drifted))])
        .await?;
    for number in 0..moves {
        let node = on_node(&pod).context("a node")?.to_owned();
        if number > 0 {
            delete_claim_of(&scene, &node).await?;
        }
        let name = pod.name_any();
        pod = moved(&scene, &node).await?;
        let told = scene
            .event("HandedOver", &name, "deployment default/web")
            .await?;
        ensure!(told.type_.as_deref() == Some("Normal"));
        scene.settled(1).await?;
    }
    let explained = scene.explained(&pod.name_any()).await?;
    let expected = "a drain restarts deployment default/web and waits 300 s";
    ensure!(explained.contains(expected), "{explained}");
    let evicted = scene.events("Evicted").await?;
    ensure!(evicted.is_empty(), "{evicted:?}");
    if let Some(ended) = tasks.try_join_next() {
        ended??;
    }
    let (requests, failed) = traffic.counts();
    println!("{moves} moves: {requests} requests, {failed} failed");
    ensure!(requests > moves * 100, "only {requests}");
    let failures = traffic.failures.lock().await;
    ensure!(
        failed == 0,
        "{failed} of {requests} requests failed: {failures:#?}"
    );
    drop(failures);
    tasks.shutdown().await;
    scene.end().await;
    Ok(())
}

/// What the story above would show if pods were evicted.
#[tokio::test]
async fn an_evicted_service_with_one_replica_fails_requests() -> Result<()> {
    let scene = Scene::with(&[HAND_OVER]).await?;
    let traffic = Traffic::new(scene.plane.client());
    let mut tasks = traffic.run();
    scene
        .apply(&[kwok_class(), small_pool("general", never())])
        .await?;
    scene.apply(&web(false)).await?;
    let pod = moved(&scene, "").await?;
    wait_until("a ready address", SOON, || async {
        ensure!(!traffic.ready.lock().await.is_empty());
        Ok(())
    })
    .await?;
    traffic.send_requests(&mut tasks);
    let node = on_node(&pod).context("a node")?.to_owned();
    delete_claim_of(&scene, &node).await?;
    moved(&scene, &node).await?;
    let (requests, failed) = traffic.counts();
    println!("one eviction: {requests} requests, {failed} failed");
    ensure!(failed > 0, "none of {requests} requests failed");
    tasks.shutdown().await;
    scene.end().await;
    Ok(())
}
