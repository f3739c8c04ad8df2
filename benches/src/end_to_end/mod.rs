//! `end-to-end`: the program as users run it, on a real control plane.
//!
//! etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok are those of the tests; mortise is the binary of
//! this build's profile with the flags that it has by default (only addresses, certificates and the namespace of the Lease
//! are given). Every time is what a client sees that is neither mortise nor the control plane.

mod aws;
mod claims;
pub(crate) mod cluster;
mod extender;
pub(crate) mod process;
pub(crate) mod quantiles;
mod table;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::output::Output;
use crate::report::{self, Benchmark, progress};
use cluster::Cluster;

// Default sizes, which are those of the recorded results.
const PODS: u32 = 100;
const NODES: u32 = 500;
const MANY_NODES: u32 = 5_000;
const CALLS: u32 = 5_000;

/// Options of `end-to-end`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct EndToEndArgs {
    /// Pods that are created one at a time, each of which fits on no node.
    #[arg(long, default_value_t = PODS, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pods: u32,
    /// Nodes in the cluster while the extender is called, and node names in each request.
    #[arg(long, default_value_t = NODES, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    nodes: u32,
    /// Node objects in the larger cluster, and node names in each question about it; 0 = without it.
    #[arg(long, default_value_t = MANY_NODES, value_parser = clap::value_parser!(u32).range(0..=20_000))]
    many_nodes: u32,
    /// Questions to the extender for each row (a tenth of it in the larger cluster).
    #[arg(long, default_value_t = CALLS, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    calls: u32,
    /// Fixes the pauses between pods.
    #[arg(long, default_value_t = 42)]
    #[serde(skip)]
    seed: u64,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// All figures of a run, and what was run with which settings.
#[derive(Debug, Serialize)]
pub(crate) struct EndToEndResults {
    /// Size of the mortise binary in bytes.
    binary_bytes: u64,
    /// Version of the control plane.
    kubernetes: String,
    /// mortise's settings and the pool, in words.
    settings: &'static str,
    starts: process::Starts,
    memory: Vec<process::Memory>,
    claims: Vec<claims::Row>,
    extender: Vec<extender::Row>,
}

const SETTINGS: &str = "mortise with default flags (batch idle 1s, max 10s; 200 calls/s to the API server), kwok provider with its 144 types, \
     one pool (amd64, linux, on-demand; consolidateAfter Never, so that only pods make claims), kube-scheduler asks the extender";

impl Benchmark for EndToEndArgs {
    const NAME: &'static str = "end-to-end";
    const SOURCES: &'static [&'static str] = report::PROGRAM;
    type Results = EndToEndResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn is_complete(&self) -> bool {
        (self.pods, self.nodes, self.many_nodes, self.calls) == (PODS, NODES, MANY_NODES, CALLS)
    }

    fn measure(&self) -> Result<EndToEndResults> {
        ensure!(
            self.many_nodes == 0 || self.many_nodes >= self.nodes,
            "--many-nodes={} is less than --nodes={}; give at least as many, or 0",
            self.many_nodes,
            self.nodes
        );
        report::block_on(measure(self))
    }
}

async fn measure(args: &EndToEndArgs) -> Result<EndToEndResults> {
    let mut cluster = Box::pin(Cluster::start()).await?;
    let binary_bytes = cluster.binary_bytes()?;
    let kubernetes = cluster.version().await?;
    let mut memory = vec![cluster.memory_of_empty().await?];
    let starts = cluster.starts().await?;

    progress(&format!("{} pods, one at a time", args.pods));
    let mut claims = vec![claims::singles(&cluster, args.pods, args.seed).await?];
    for burst in claims::BURSTS {
        progress(&format!("{} bursts of {} pods", burst.rounds, burst.pods));
        claims.push(claims::bursts(&cluster, burst).await?);
    }

    progress(&format!("{} nodes", args.nodes));
    let nodes = args.nodes as usize;
    let pods = cluster.launch_nodes(nodes).await?;
    let mut extender = extender::rows(&cluster, "waits-early", nodes, args.calls / 10).await?;
    cluster.let_run(&pods).await?;
    memory.push(cluster.memory().await?);
    extender.extend(extender::rows(&cluster, "waits", nodes, args.calls).await?);
    if args.many_nodes > 0 {
        progress(&format!("{} nodes", args.many_nodes));
        let nodes = args.many_nodes as usize;
        cluster.add_nodes(nodes).await?;
        memory.push(cluster.memory().await?);
        let calls = (args.calls / 10).max(10);
        extender.extend(extender::rows(&cluster, "waits-late", nodes, calls).await?);
    }
    cluster.end().await;
    memory.insert(1, Box::pin(aws::memory_of_empty()).await?);
    Ok(EndToEndResults {
        binary_bytes,
        kubernetes,
        settings: SETTINGS,
        starts,
        memory,
        claims,
        extender,
    })
}
