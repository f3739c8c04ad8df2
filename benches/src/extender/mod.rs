//! `extender`: how long its answers take while the cluster changes, whether its memory stays flat over a million calls, and
//! how often pods that it holds back are tried again.

mod held;
mod load;

use std::io::Write;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::end_to_end::cluster::Cluster;
use crate::output::Output;
use crate::report::{self, Benchmark, Results, progress};

// Default sizes, which are those of the recorded results.
const NODES: u32 = 500;
const MANY_NODES: u32 = 5_000;
const SECONDS: u32 = 60;
const CALLS: u32 = 1_000_000;
const HELD: u32 = 1_000;

/// Options of `extender`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct ExtenderArgs {
    /// Nodes in the cluster, and node names in each request.
    #[arg(long, default_value_t = NODES, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    nodes: u32,
    /// Node objects in the larger cluster; questions about it have this many names, or those of --nodes; 0 = without it.
    #[arg(long, default_value_t = MANY_NODES, value_parser = clap::value_parser!(u32).range(0..=20_000))]
    many_nodes: u32,
    /// How long each kind of question is asked.
    #[arg(long, default_value_t = SECONDS, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Questions over which memory is watched; 0 = without this part.
    #[arg(long, default_value_t = CALLS, value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    calls: u32,
    /// Denied pods; 0 = without this part.
    #[arg(long, default_value_t = HELD, value_parser = clap::value_parser!(u32).range(0..=5_000))]
    held: u32,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// All figures of a run.
#[derive(Debug, Serialize)]
pub(crate) struct ExtenderResults {
    kubernetes: String,
    load: Vec<load::Row>,
    flat: Option<load::Flat>,
    held: Option<held::Held>,
}

impl Benchmark for ExtenderArgs {
    const NAME: &'static str = "extender";
    const SOURCES: &'static [&'static str] = report::PROGRAM;
    type Results = ExtenderResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        None
    }

    fn is_complete(&self) -> bool {
        (
            self.nodes,
            self.many_nodes,
            self.seconds,
            self.calls,
            self.held,
        ) == (NODES, MANY_NODES, SECONDS, CALLS, HELD)
    }

    fn measure(&self) -> Result<ExtenderResults> {
        ensure!(
            self.many_nodes == 0 || self.many_nodes >= self.nodes,
            "--many-nodes={} is less than --nodes={}; give at least as many, or 0",
            self.many_nodes,
            self.nodes
        );
        report::block_on(measure(self))
    }
}

async fn measure(args: &ExtenderArgs) -> Result<ExtenderResults> {
    let mut cluster = Box::pin(Cluster::start()).await?;
    let kubernetes = cluster.version().await?;
    progress(&format!("{} nodes", args.nodes));
    let pods = cluster.launch_nodes(args.nodes as usize).await?;
    let mut load = load::rows(&cluster, "waits", &[args.nodes], args.seconds).await?;
    load.extend(load::forwarded_rows(&cluster, "waits", &[args.nodes], args.seconds).await?);
    let flat = match args.calls {
        0 => None,
        calls => Some(load::flat(&cluster, "waits", args.nodes, calls).await?),
    };
    if args.many_nodes > 0 {
        progress(&format!("{} nodes", args.many_nodes));
        cluster.let_run(&pods).await?;
        cluster.add_nodes(args.many_nodes as usize).await?;
        // As many as kube-scheduler asks about in so large a cluster, and all.
        let sizes = [args.nodes, args.many_nodes];
        load.extend(load::rows(&cluster, "waits-late", &sizes, args.seconds).await?);
    }
    cluster.end().await;
    let held = match args.held {
        0 => None,
        pods => Some(Box::pin(held::measure(pods)).await?),
    };
    Ok(ExtenderResults {
        kubernetes,
        load,
        flat,
        held,
    })
}

/// What is wanted of the 99th per cent, in milliseconds.
const WANTED_MS: [(u32, f64); 2] = [(500, 2.0), (5_000, 5.0)];

impl Results for ExtenderResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        let Self {
            kubernetes,
            load,
            flat,
            held,
        } = self;
        writeln!(
            out,
            "control plane, mortise and this client share the test host; one connection over mutual TLS, one question after the other; Kubernetes {kubernetes}"
        )?;
        writeln!(
            out,
            "\n{:<22}{:>7}{:>10}{:>11}{:>9}{:>8}{:>8}{:>8}{:>8}{:>8}{:>9}{:>8}",
            "",
            "names",
            "nominations",
            "pictures/s",
            "calls",
            "mean",
            "p50",
            "p99",
            "p99.9",
            "max ms",
            "calls/s",
            "cpu us"
        )?;
        for row in load {
            let wanted = WANTED_MS.iter().find(|(names, _)| row.names <= *names);
            let verdict = match wanted {
                Some((_, most)) if row.p99_ms <= *most => format!("  (wanted: p99 {most} ms)"),
                Some((_, most)) => format!("  MISSED (wanted: p99 {most} ms)"),
                None => String::new(),
            };
            writeln!(
                out,
                "{:<22}{:>7}{:>10}{:>11.1}{:>9}{:>8.3}{:>8.3}{:>8.3}{:>8.3}{:>8.2}{:>9.0}{:>8.0}{verdict}",
                if row.is_forwarded {
                    format!("{}, forwarded", row.call)
                } else {
                    row.call.to_owned()
                },
                row.names,
                row.nominations,
                row.pictures_per_s,
                row.calls,
                row.mean_ms,
                row.p50_ms,
                row.p99_ms,
                row.p999_ms,
                row.max_ms,
                row.calls_per_s,
                row.cpu_us_per_call
            )?;
        }
        if let Some(flat) = flat {
            writeln!(
                out,
                "\n{} calls: resident memory {:.1} MiB after a tenth of them, {:.1} MiB after all ({:+.1} %; wanted: within 5 %); {:.0} calls/s, {:.0} per second of mortise's processor time",
                flat.calls,
                flat.early_mib,
                flat.late_mib,
                flat.growth_percent,
                flat.calls_per_s,
                flat.calls_per_cpu_s
            )?;
        }
        if let Some(held) = held {
            writeln!(
                out,
                "{} pods denied for {} s on a quiet cluster: {:.1} filter calls/s in the first half, {:.1} in the second (wanted: at most 110, not growing)",
                held.pods, held.seconds, held.first_per_s, held.second_per_s
            )?;
        }
        Ok(())
    }
}
