//! Questions as kube-scheduler asks them, while something in the cluster changes ten times a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use mortise_tests::harness::{Http, Mortise};
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::end_to_end::cluster::Cluster;
use crate::end_to_end::process::{Memory, cpu_seconds};
use crate::report::progress;

/// Between two changes of the cluster.
const CHANGE: Duration = Duration::from_millis(100);
/// Questions that are not counted: handshake, first touch of the snapshot.
const WARM_UP: usize = 50;
/// A selector that no pool can satisfy.
const NOWHERE: (&str, &str) = ("bench.mortise.sh/nowhere", "true");
/// Connections while memory is watched.
const CONNECTIONS: u32 = 8;

/// Figures of one kind of question.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) call: &'static str,
    /// It was asked of a replica that does not lead, which forwards it.
    pub(crate) is_forwarded: bool,
    pub(crate) names: u32,
    /// Pods for which mortise holds room on these nodes.
    pub(crate) nominations: u64,
    /// Number of new snapshots.
    pub(crate) pictures_per_s: f64,
    pub(crate) calls: usize,
    pub(crate) mean_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    pub(crate) max_ms: f64,
    pub(crate) calls_per_s: f64,
    /// Processor time of mortise for a call, its other work in that time included; of both replicas for calls that are forwarded.
    pub(crate) cpu_us_per_call: f64,
}

/// Memory over many calls.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Flat {
    pub(crate) calls: u32,
    pub(crate) names: u32,
    pub(crate) early_mib: f64,
    pub(crate) late_mib: f64,
    pub(crate) growth_percent: f64,
    pub(crate) calls_per_s: f64,
    /// Calls for a second of mortise's processor time.
    pub(crate) calls_per_cpu_s: f64,
}

/// filter and prioritize about each of these numbers of nodes, for so long each. `pod` is the name of a pod that is made for
/// it.
pub(crate) async fn rows(
    cluster: &Cluster,
    pod: &str,
    sizes: &[u32],
    seconds: u32,
) -> Result<Vec<Row>> {
    cluster.create_pod(pod, "100m", Some(NOWHERE)).await?;
    rows_of(cluster, None, pod, sizes, seconds).await
}

/// The same questions, asked of a replica that forwards them to the leader.
pub(crate) async fn forwarded_rows(
    cluster: &Cluster,
    pod: &str,
    sizes: &[u32],
    seconds: u32,
) -> Result<Vec<Row>> {
    let mut follower = cluster.start_follower().await?;
    let rows = rows_of(cluster, Some(&follower), pod, sizes, seconds).await;
    follower.kill9().await;
    rows
}

async fn rows_of(
    cluster: &Cluster,
    follower: Option<&Mortise>,
    pod: &str,
    sizes: &[u32],
    seconds: u32,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for names in sizes.iter().copied() {
        let body = question(cluster, pod, names).await?;
        for call in ["filter", "prioritize"] {
            let through = follower.map_or("", |_| " through another replica");
            progress(&format!(
                "{call} calls about {names} names for {seconds} s{through}"
            ));
            let row = row(cluster, follower, (call, names, &body), seconds);
            rows.push(Box::pin(row).await?);
        }
    }
    Ok(rows)
}

async fn question(cluster: &Cluster, pod: &str, names: u32) -> Result<String> {
    let nodes = cluster.nodes().await?;
    ensure!(
        nodes.len() >= names as usize,
        "{} nodes of {names}",
        nodes.len()
    );
    let nodes: Vec<&String> = nodes.iter().take(names as usize).collect();
    let pod = cluster.pod(pod).await?;
    Ok(json!({ "Pod": pod, "Nodes": null, "NodeNames": nodes }).to_string())
}

/// Calls that this replica has forwarded to the leader and that were answered there.
async fn forwarded(follower: &Mortise) -> Result<f64> {
    let name = "mortise_extender_forwarded_total";
    follower.metric(name, &["outcome=\"answered\""]).await
}

async fn row(
    cluster: &Cluster,
    follower: Option<&Mortise>,
    (call, names, body): (&'static str, u32, &str),
    seconds: u32,
) -> Result<Row> {
    let asked_of = follower.unwrap_or_else(|| cluster.leader());
    let http = asked_of.scheduler_http()?;
    let url = asked_of.url(&format!("extender/v1/{call}"));
    for _ in 0..WARM_UP {
        asked(&http, &url, body).await?;
    }
    let changing = Changing::start(cluster).await?;
    let nominations = cluster.nominations().await?;
    let generation = cluster.generation().await?;
    let processes = || std::iter::once(cluster.leader()).chain(follower);
    let cpu_of_all = || -> Result<f64> { processes().map(|each| cpu_seconds(each.pid())).sum() };
    let before = match follower {
        Some(follower) => forwarded(follower).await?,
        None => 0.0,
    };
    let cpu = cpu_of_all()?;
    let begun = Instant::now();
    let length = Duration::from_secs(seconds.into());
    let mut times = Vec::new();
    while begun.elapsed() < length {
        let start = Instant::now();
        asked(&http, &url, body).await?;
        times.push(start.elapsed());
    }
    let wall = begun.elapsed().as_secs_f64();
    let cpu = cpu_of_all()? - cpu;
    let pictures = cluster.generation().await?.saturating_sub(generation);
    drop(changing);
    times.sort_unstable();
    let at = |thousandths: usize| {
        let rank = (times.len() * thousandths).div_ceil(1_000).max(1);
        times
            .get(rank - 1)
            .map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    };
    let sum: Duration = times.iter().sum();
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    let (count, pictures) = (times.len() as f64, pictures as f64);
    if let Some(follower) = follower {
        let answered = forwarded(follower).await? - before;
        ensure!(
            answered >= count * 0.99,
            "the leader answered {answered} of {count} {call} calls"
        );
    }
    Ok(Row {
        call,
        is_forwarded: follower.is_some(),
        names,
        nominations,
        pictures_per_s: pictures / wall,
        calls: times.len(),
        mean_ms: sum.as_secs_f64() * 1e3 / count,
        p50_ms: at(500),
        p99_ms: at(990),
        p999_ms: at(999),
        max_ms: at(1_000),
        calls_per_s: count / wall,
        cpu_us_per_call: cpu / count * 1e6,
    })
}

async fn asked(http: &Http, url: &str, body: &str) -> Result<()> {
    let reply = http.post_text(url, body).await?;
    ensure!(
        reply.status == 200,
        "status {}: {}",
        reply.status,
        reply.body
    );
    Ok(())
}

/// filter and prioritize in turn, as often as asked; memory after a tenth and after all.
pub(crate) async fn flat(cluster: &Cluster, pod: &str, names: u32, calls: u32) -> Result<Flat> {
    let body: Arc<str> = question(cluster, pod, names).await?.into();
    let resident = || Memory::of(cluster.pid(), String::new()).map(|memory| memory.resident_mib);
    progress(&format!("{calls} calls about {names} names"));
    many(cluster, &body, calls / 10).await?;
    let early_mib = resident()?;
    let (begun, cpu) = (Instant::now(), cpu_seconds(cluster.pid())?);
    let rest = calls - calls / 10;
    many(cluster, &body, rest).await?;
    let wall = begun.elapsed().as_secs_f64();
    let cpu = cpu_seconds(cluster.pid())? - cpu;
    let late_mib = resident()?;
    Ok(Flat {
        calls,
        names,
        early_mib,
        late_mib,
        growth_percent: (late_mib / early_mib - 1.0) * 100.0,
        calls_per_s: f64::from(rest) / wall,
        calls_per_cpu_s: f64::from(rest) / cpu,
    })
}

async fn many(cluster: &Cluster, body: &Arc<str>, calls: u32) -> Result<()> {
    let mut tasks = Vec::new();
    for connection in 0..CONNECTIONS {
        let http = cluster.scheduler()?;
        let urls = ["filter", "prioritize"].map(|call| cluster.url(&format!("extender/v1/{call}")));
        let body = Arc::clone(body);
        let own = calls / CONNECTIONS + u32::from(connection < calls % CONNECTIONS);
        tasks.push(tokio::spawn(async move {
            for url in urls.iter().cycle().take(own as usize) {
                asked(&http, url, &body).await?;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Something in the cluster changes, until this is dropped.
struct Changing {
    task: JoinHandle<()>,
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Changing {
    async fn start(cluster: &Cluster) -> Result<Self> {
        let nodes: Api<Node> = Api::all(cluster.client());
        let names = cluster.nodes().await?;
        let task = tokio::spawn(async move {
            let mut turns = tokio::time::interval(CHANGE);
            for name in names.iter().cycle() {
                turns.tick().await;
                let change = json!({ "metadata": { "annotations": { "bench.mortise.sh/turn": jiff::Timestamp::now().to_string() } } });
                let patched = nodes
                    .patch_metadata(name, &PatchParams::default(), &Patch::Merge(change))
                    .await;
                if let Err(error) = patched {
                    progress(&format!("a change was not made: {error}"));
                }
            }
        });
        Ok(Self { task })
    }
}
