//! `live`: the program as users run it, on a real control plane.
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

use std::io::Write as _;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::machine::{Machine, runtime};
use crate::recorded::Output;
use cluster::Cluster;

// Default sizes, which are those of the recorded results.
const PODS: u32 = 100;
const NODES: u32 = 500;
const MANY_NODES: u32 = 5_000;
const CALLS: u32 = 5_000;

/// Options of `live`.
#[derive(Debug, clap::Args)]
pub(crate) struct LiveArgs {
    /// Pods that are created one at a time, each of which fits on no node.
    #[arg(long, default_value_t = PODS, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pods: u32,
    /// Machines in the cluster while the extender is asked, and node names in each question.
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
    seed: u64,
    #[command(flatten)]
    output: Output,
}

impl LiveArgs {
    fn has_default_sizes(&self) -> bool {
        (self.pods, self.nodes, self.many_nodes, self.calls) == (PODS, NODES, MANY_NODES, CALLS)
    }
}

/// All figures of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    pub(crate) seed: u64,
    /// What was run and with which settings.
    pub(crate) inputs: Inputs,
    pub(crate) starts: process::Starts,
    pub(crate) memory: Vec<process::Memory>,
    pub(crate) claims: Vec<claims::Row>,
    pub(crate) extender: Vec<extender::Row>,
}

/// What was run and with which settings.
#[derive(Debug, Serialize)]
pub(crate) struct Inputs {
    /// Size of the mortise binary in bytes.
    pub(crate) binary_bytes: u64,
    /// Version of the control plane.
    pub(crate) kubernetes: String,
    pub(crate) pods: u32,
    pub(crate) nodes: u32,
    pub(crate) many_nodes: u32,
    pub(crate) calls: u32,
    /// mortise's settings and the pool, in words.
    pub(crate) settings: &'static str,
}

/// Everything that goes into the binary.
const SOURCES: [&str; 6] = [
    "../Cargo.toml",
    "../Cargo.lock",
    "../src",
    "../crates",
    "../webhooks",
    "src",
];

const SETTINGS: &str = "mortise with default flags (batch idle 1s, max 10s; 200 calls/s to the API server), kwok provider with its 144 types, \
     one pool (amd64, linux, on-demand; consolidateAfter Never, so that only pods make claims), kube-scheduler asks the extender";

/// Runs the benchmark.
pub(crate) fn run(args: &LiveArgs) -> Result<()> {
    let machine = Machine::here(&SOURCES);
    let runtime = runtime()?;
    let results = runtime.block_on(Box::pin(measure(args, machine)))?;
    args.output.keep("live", &results, args.has_default_sizes())
}

async fn measure(args: &LiveArgs, machine: Machine) -> Result<Results> {
    ensure!(
        args.many_nodes == 0 || args.many_nodes >= args.nodes,
        "--many-nodes={} is less than --nodes={}; give at least as many, or 0",
        args.many_nodes,
        args.nodes
    );
    // Sections are shown as they come: the whole takes minutes.
    let shown = !args.output.json;
    let out = &mut std::io::stdout();
    let mut cluster = Box::pin(Cluster::start()).await?;
    let inputs = Inputs {
        binary_bytes: cluster.binary_bytes()?,
        kubernetes: cluster.version().await?,
        pods: args.pods,
        nodes: args.nodes,
        many_nodes: args.many_nodes,
        calls: args.calls,
        settings: SETTINGS,
    };
    if shown {
        table::heading(out, &machine, args.seed, &inputs)?;
    }
    let mut memory = vec![cluster.memory_of_empty().await?];
    let starts = cluster.starts().await?;
    if shown {
        table::starts(out, &starts)?;
    }

    progress(&format!("{} pods, one at a time", args.pods));
    let mut claims = vec![claims::singles(&cluster, args.pods, args.seed).await?];
    for burst in claims::BURSTS {
        progress(&format!("{} bursts of {} pods", burst.rounds, burst.pods));
        claims.push(claims::bursts(&cluster, burst).await?);
    }
    if shown {
        table::claims(out, &claims)?;
    }

    progress(&format!("{} machines", args.nodes));
    let nodes = args.nodes as usize;
    let pods = cluster.launch_machines(nodes).await?;
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
    if shown {
        table::extender(out, &extender)?;
    }
    cluster.end().await;
    memory.insert(1, Box::pin(aws::memory_of_empty()).await?);
    if shown {
        table::memory(out, &memory)?;
    }
    Ok(Results {
        machine,
        seed: args.seed,
        inputs,
        starts,
        memory,
        claims,
        extender,
    })
}

/// One line about what goes on, on standard error.
fn progress(line: &str) {
    // A closed standard error must not stop a measurement.
    writeln!(std::io::stderr(), "mortise-bench: {line}").ok();
}
