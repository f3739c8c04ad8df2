//! filter and prioritize over mutual TLS, as kube-scheduler asks: names only, connections kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use mortise_tests::harness::Http;
use serde::Serialize;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::process::cpu_seconds;
use super::quantiles::Quantiles;
use crate::report::progress;

/// Connections, each with one question at a time. kube-scheduler has one: it places one pod after the other.
const CONNECTIONS: [usize; 2] = [1, 16];
/// Questions on each connection that are not counted: handshake, first touch of the snapshot.
const WARM_UP: u32 = 20;
/// A selector that no pool can satisfy.
const NOWHERE: (&str, &str) = ("bench.mortise.sh/nowhere", "true");

/// Figures of one kind of question.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) call: &'static str,
    /// Node names in a question.
    pub(crate) names: usize,
    /// Pods for which mortise holds room on these nodes while it is asked.
    pub(crate) nominations: u64,
    pub(crate) connections: usize,
    pub(crate) request_bytes: usize,
    /// From the first byte of the question to the last of the answer, as the client sees it.
    pub(crate) time: Quantiles,
    pub(crate) calls_per_second: f64,
    /// Processor time of mortise for a call, its other work in that time included.
    pub(crate) cpu_us_per_call: f64,
}

/// A row for each kind of question about `names` nodes. `pod` is the name of the pod that is asked about; it must be new.
pub(crate) async fn rows(
    cluster: &Cluster,
    pod: &str,
    names: usize,
    calls: u32,
) -> Result<Vec<Row>> {
    let nodes = cluster.nodes().await?;
    ensure!(nodes.len() >= names, "{} nodes of {names}", nodes.len());
    let names: Vec<&str> = nodes.iter().take(names).map(String::as_str).collect();
    // A pod that waits: the scheduler asks about such ones.
    let nominations = cluster.nominations().await?;
    cluster.create_pod(pod, "100m", Some(NOWHERE)).await?;
    let pod = cluster.pod(pod).await?;
    let body = json!({ "Pod": pod, "Nodes": null, "NodeNames": names }).to_string();
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        for call in ["filter", "prioritize"] {
            progress(&format!(
                "{calls} {call} calls about {} names ({nominations} nominations) on {connections} connections",
                names.len()
            ));
            let question = Question {
                call,
                names: names.len(),
                nominations,
                url: cluster.url(&format!("extender/v1/{call}")),
                body: body.clone(),
            };
            rows.push(Box::pin(row(cluster, Arc::new(question), connections, calls)).await?);
        }
    }
    Ok(rows)
}

struct Question {
    call: &'static str,
    names: usize,
    nominations: u64,
    url: String,
    body: String,
}

impl Question {
    /// Asks and looks whether the answer is about all nodes.
    async fn check(&self, http: &Http) -> Result<()> {
        let answer = http.post_text(&self.url, &self.body).await?.json()?;
        let list = match self.call {
            "filter" => &answer["NodeNames"],
            _ => &answer,
        };
        let count = list.as_array().map_or(0, Vec::len);
        ensure!(
            count == self.names,
            "{} answers about {count} of {} nodes: {}",
            self.call,
            self.names,
            brief(&answer)
        );
        Ok(())
    }
}

fn brief(answer: &Value) -> String {
    answer.to_string().chars().take(300).collect()
}

async fn row(
    cluster: &Cluster,
    question: Arc<Question>,
    connections: usize,
    calls: u32,
) -> Result<Row> {
    let mut clients = Vec::new();
    for _ in 0..connections {
        let http = cluster.scheduler()?;
        for _ in 0..WARM_UP {
            question.check(&http).await?;
        }
        clients.push(http);
    }
    let each = (calls as usize).div_ceil(connections);
    let cpu = cpu_seconds(cluster.pid())?;
    let start = Instant::now();
    let tasks: Vec<_> = clients
        .into_iter()
        .map(|http| tokio::spawn(ask(http, Arc::clone(&question), each)))
        .collect();
    let mut times = Vec::with_capacity(each * connections);
    for task in tasks {
        times.extend(task.await??);
    }
    let (wall, cpu) = (
        start.elapsed().as_secs_f64(),
        cpu_seconds(cluster.pid())? - cpu,
    );
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    let count = times.len() as f64;
    Ok(Row {
        call: question.call,
        names: question.names,
        nominations: question.nominations,
        connections,
        request_bytes: question.body.len(),
        time: Quantiles::of(times),
        calls_per_second: count / wall,
        cpu_us_per_call: cpu / count * 1e6,
    })
}

/// Asks one question after the other.
async fn ask(http: Http, question: Arc<Question>, times: usize) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        let reply = http.post_text(&question.url, &question.body).await?;
        took.push(start.elapsed());
        ensure!(
            reply.status == 200,
            "status {}: {}",
            reply.status,
            reply.body
        );
    }
    Ok(took)
}
