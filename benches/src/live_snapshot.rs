//! `snapshot`: `mortise snapshot` of a large cluster, read from a real API server.
//!
//! Only etcd and kube-apiserver run: nothing changes the objects, which need no kubelet. Pods have environment variables, mounts and
//! a status as pods of users do, and managed fields as the API server adds them, so that they are of the size that it has to send.

use std::future::ready;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use mortise_state::resource_kinds::{ObjectKind, ResourceKind};
use mortise_tests::harness::{ControlPlane, Mortise, mortise_binary};
use serde::Serialize;
use serde_json::{Value, json};

use crate::output::Output;
use crate::plan::{Document, PlanBenchArgs, WANTED_MB, WANTED_WRITE_S, documents, megabytes};
use crate::report::{self, Benchmark, PROGRAM, Results, progress, verdict};

/// Objects that are created at the same time.
const WRITERS: usize = 32;
/// Snapshots that are taken; the first finds the API server cold.
const SNAPSHOTS: usize = 3;
const COMPLETE: (usize, usize) = (5_000, 20);

/// Options of `snapshot`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct LiveSnapshotArgs {
    /// Nodes.
    #[arg(long, default_value_t = COMPLETE.0)]
    nodes: usize,
    /// Pods of a node.
    #[arg(long, default_value_t = COMPLETE.1)]
    pods: usize,
    /// What is drawn.
    #[arg(long, default_value_t = 1)]
    #[serde(skip)]
    seed: u64,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// Figures of all snapshots.
#[derive(Debug, Serialize)]
pub(crate) struct LiveSnapshotResults {
    objects: usize,
    /// Bytes of a pod as the API server sends it.
    pod_bytes: usize,
    file_mb: f64,
    /// Seconds of each snapshot: the whole process.
    seconds: Vec<f64>,
    /// Seconds in which one client reads all pods, in pages, and throws them away.
    read_pods_s: f64,
}

impl Benchmark for LiveSnapshotArgs {
    const NAME: &'static str = "snapshot";
    const SOURCES: &'static [&'static str] = PROGRAM;
    type Results = LiveSnapshotResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn is_complete(&self) -> bool {
        (self.nodes, self.pods) == COMPLETE
    }

    fn measure(&self) -> Result<LiveSnapshotResults> {
        report::block_on(measure(self))
    }
}

async fn measure(args: &LiveSnapshotArgs) -> Result<LiveSnapshotResults> {
    progress("building mortise, if it is not up to date");
    let binary = mortise_binary().await?;
    let crds = Mortise::output(&["manifests", "crds", "--provider", "kwok"]).await?;
    let plane = ControlPlane::builder().manifests(&crds);
    let plane = Box::pin(plane.start()).await?;
    let client = plane.client();
    let all = documents(&PlanBenchArgs::quiet(args.nodes, args.pods, args.seed))?;
    let kinds = ResourceKind::all(&[]);
    let all: Vec<&Document> = all
        .iter()
        .filter(|(kind, _)| kinds.iter().any(|each| each.index == *kind))
        .collect();
    let objects = all.len();
    progress(&format!("creating {objects} objects"));
    stream::iter(all.iter().enumerate())
        .map(|(at, document)| {
            if at > 0 && at % 20_000 == 0 {
                progress(&format!("{at} objects"));
            }
            create(&client, &kinds, document)
        })
        .buffer_unordered(WRITERS)
        .try_for_each(|()| ready(Ok(())))
        .await?;
    let (read_pods_s, pod_bytes) = read_pods(&client).await?;
    let file = plane.dir().join("cluster.snapshot");
    let mut seconds = Vec::new();
    for _ in 0..SNAPSHOTS {
        seconds.push(snapshot(&binary, &plane.kubeconfig_path(), &file).await?);
    }
    let file_mb = megabytes(std::fs::read(&file)?.len());
    plane.stop().await;
    Ok(LiveSnapshotResults {
        objects,
        pod_bytes,
        file_mb,
        seconds,
        read_pods_s,
    })
}

/// Creates an object, and gives a pod its status.
async fn create(client: &Client, kinds: &[ResourceKind], (kind, object): &Document) -> Result<()> {
    let api = kinds
        .iter()
        .find(|each| each.index == *kind)
        .with_context(|| format!("{kind:?} is not served"))?
        .api;
    let mut object = object.clone();
    object["apiVersion"] = json!(api.api_version());
    object["kind"] = json!(api.kind);
    let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
    let path = api.path(namespace.as_deref());
    if *kind == ObjectKind::Pod {
        enlarge(&mut object);
    }
    let request = http::Request::post(&path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&object)?)?;
    let created: Value = client
        .request(request)
        .await
        .with_context(|| format!("creating {}", object["metadata"]["name"]))?;
    if *kind == ObjectKind::Pod {
        let name = created["metadata"]["name"].as_str().unwrap_or_default();
        let body = json!({ "status": object["status"] });
        let request = http::Request::patch(format!("{path}/{name}/status"))
            .header("content-type", "application/merge-patch+json")
            .body(serde_json::to_vec(&body)?)?;
        client.request::<Value>(request).await?;
    }
    Ok(())
}

/// What a pod of a user has and plans do not read.
fn enlarge(pod: &mut Value) {
    let variables: Vec<Value> = (0..12)
        .map(|nth| json!({ "name": format!("SETTING_{nth}"), "value": format!("value-of-setting-{nth}") }))
        .collect();
    let container = &mut pod["spec"]["containers"][0];
    container["image"] = json!("registry.test/shop/main:v1.2.3");
    container["env"] = json!(variables);
    container["ports"] = json!([{ "name": "http", "containerPort": 8080 }]);
    container["readinessProbe"] = json!({ "httpGet": { "path": "/ready", "port": "http" } });
    container["volumeMounts"] = json!([{ "name": "settings", "mountPath": "/settings" }]);
    pod["spec"]["volumes"] =
        json!([{ "name": "settings", "configMap": { "name": "settings", "optional": true } }]);
    pod["spec"]["automountServiceAccountToken"] = json!(false);
    pod["status"]["containerStatuses"] = json!([{
        "name": "main", "image": "registry.test/shop/main:v1.2.3", "imageID": format!("registry.test/shop/main@sha256:{}", "0".repeat(64)),
        "containerID": format!("containerd://{}", "0".repeat(64)), "ready": true, "restartCount": 0, "started": true,
        "state": { "running": { "startedAt": "2026-01-01T00:01:00Z" } },
    }]);
    pod["status"]["podIP"] = json!("10.1.2.3");
    pod["status"]["hostIP"] = json!("10.1.2.4");
    pod["status"]["startTime"] = json!("2026-01-01T00:00:30Z");
}

/// Reads all pods in pages, and throws them away: the time below which no client comes. And the mean size of a pod.
async fn read_pods(client: &Client) -> Result<(f64, usize)> {
    let begun = Instant::now();
    let (mut bytes, mut count, mut token) = (0, 0_usize, String::new());
    loop {
        let request =
            http::Request::get(format!("/api/v1/pods?limit=5000&continue={token}")).body(vec![])?;
        let text = client.request_text(request).await?;
        bytes += text.len();
        let Value::Object(page) = serde_json::from_str(&text)? else {
            anyhow::bail!("a list of pods is no object");
        };
        count += page["items"].as_array().map_or(0, Vec::len);
        token = page["metadata"]["continue"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if token.is_empty() {
            break;
        }
    }
    ensure!(count > 0, "the cluster has no pods");
    Ok((begun.elapsed().as_secs_f64(), bytes / count))
}

/// Seconds of one `mortise snapshot`.
async fn snapshot(binary: &Path, kubeconfig: &Path, file: &Path) -> Result<f64> {
    let begun = Instant::now();
    let output = tokio::process::Command::new(binary)
        .arg("snapshot")
        .args(["--provider", "kwok"])
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--output")
        .arg(file)
        .output();
    let output = tokio::time::timeout(Duration::from_mins(5), output).await??;
    ensure!(
        output.status.success(),
        "mortise snapshot ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(begun.elapsed().as_secs_f64())
}

impl Results for LiveSnapshotResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        let Self {
            objects,
            pod_bytes,
            file_mb,
            seconds,
            read_pods_s,
        } = self;
        writeln!(out, "{objects} objects, a pod has {pod_bytes} bytes")?;
        for each in seconds {
            writeln!(
                out,
                "{each:>8.2} s  target {WANTED_WRITE_S} s: {}",
                verdict(*each, WANTED_WRITE_S)
            )?;
        }
        writeln!(
            out,
            "{file_mb:>8.2} MB target {WANTED_MB} MB: {}",
            verdict(*file_mb, WANTED_MB)
        )?;
        writeln!(
            out,
            "{read_pods_s:>8.2} s  to read the pods alone, as JSON, in pages of 5,000"
        )?;
        Ok(())
    }
}
