//! `mortise plan`: what the service would do now with a cluster, and what it would do if something were different.

mod table;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use mortise_controller::RunError;
use mortise_manifests::file::manifests;
use mortise_sim::ManifestError;
use mortise_sim::plan::plan;
use mortise_sim::plan::what_if::{self, PriceChange};
use mortise_sim::recorded_cluster::RecordedCluster;

use crate::args::ServeArgs;
use crate::providers::node_classes;

use super::lint::read;
use super::snapshot::{Recorded, record};
use super::{WITH_WARNINGS, WRONG, line, warning};

/// Show what the service would do now, and what it would do if something were different; nothing is changed
#[derive(Args)]
#[command(
    long_about = "Show what the service would do now: NodeClaims for pending pods, disruption commands with replacements and moved pods, nodes that\n\
may not be disrupted and why, and prices before and after. The deciders are those of `mortise serve`; what they decide is shown and not\n\
executed. Without FILE the cluster is read first, as `mortise snapshot` does it with the same flags.\n\n\
What if: each option below changes the recorded cluster, in the order of this list, before it is planned.",
    after_long_help = "Exit codes: 0 done, 1 a file cannot be read, 2 wrong usage, 7 done, but the cluster was not read completely, 8 a change cannot be made;\n\
for a live cluster also 3, 4, 5 and 6, as for snapshot.\n\n\
Examples:\n  mortise plan\n  mortise plan cluster.snapshot --remove-node ip-10-0-1-7.ec2.internal\n  \
mortise plan cluster.snapshot --apply nodepool.yaml --budgets-open -o json\n  mortise plan cluster.snapshot --lose-zone us-east-1a --price '*/*/spot=1.5'"
)]
pub(super) struct PlanArgs {
    /// Snapshot file; default: the cluster itself
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: PlanFormat,
    /// Apply manifests: NodePools, NodeOverlays, workloads, pods, disruption budgets and so on; files, directories, or -
    #[arg(long, value_name = "PATH", help_heading = "What if")]
    apply: Vec<PathBuf>,
    /// Delete a node, by the name of its Node or NodeClaim
    #[arg(long, value_name = "NAME", help_heading = "What if")]
    remove_node: Vec<String>,
    /// Delete all nodes of a zone, which has no capacity any more
    #[arg(long, value_name = "ZONE", help_heading = "What if")]
    lose_zone: Vec<String>,
    /// Multiply prices: TYPE[/ZONE[/CAPACITY-TYPE]]=FACTOR, with * for every type or zone
    #[arg(long, value_name = "CHANGE", help_heading = "What if")]
    price: Vec<String>,
    /// Let disruption budgets of NodePools allow everything
    #[arg(long, help_heading = "What if")]
    budgets_open: bool,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlanFormat {
    /// Tables
    Table,
    /// One JSON object, whose fields stay
    Json,
}

/// Reads, changes, plans and shows.
pub(super) fn run(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let Recorded {
        mut cluster,
        is_complete,
    } = match &args.file {
        Some(path) => Recorded {
            cluster: open(path)?,
            is_complete: true,
        },
        None => record(args.serve.clone())?,
    };
    if let Err(error) = change(&args, &mut cluster) {
        warning(&format!("mortise: {error:#}"));
        return Ok(ExitCode::from(WRONG));
    }
    let report = plan(cluster, mortise_deciders::all(), &|| false);
    match args.output {
        PlanFormat::Json => line(&serde_json::to_string_pretty(&report)?),
        PlanFormat::Table => table::lines(&report).iter().for_each(|text| line(text)),
    }
    Ok(if is_complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(WITH_WARNINGS)
    })
}

/// Reads a snapshot file.
pub(super) fn open(path: &Path) -> anyhow::Result<RecordedCluster> {
    let place = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(place)?;
    let classes = node_classes();
    let known: Vec<_> = classes.iter().map(|class| class.kind()).collect();
    RecordedCluster::read(file, &known).with_context(place)
}

/// Makes the changes of the options.
fn change(args: &PlanArgs, cluster: &mut RecordedCluster) -> anyhow::Result<()> {
    let of = |option: &str, error: ManifestError| anyhow::anyhow!("--{option}: {error}");
    for source in read(&args.apply)? {
        for manifest in manifests(&source.text) {
            let file = &source.name;
            let manifest = manifest
                .map_err(|fault| anyhow::anyhow!("{file}:{}: {}", fault.line, fault.problem))?;
            if let Err(error) = what_if::apply(cluster, &manifest.value()) {
                bail!("{file}:{}: {error}", manifest.line_of(&error.field));
            }
        }
    }
    if args.budgets_open {
        what_if::open_budgets(cluster).map_err(|error| of("budgets-open", error))?;
    }
    for change in &args.price {
        let change = change.parse::<PriceChange>();
        let changed = change.and_then(|change| change.apply(cluster));
        changed.map_err(|error| of("price", error))?;
    }
    for zone in &args.lose_zone {
        what_if::lose_zone(cluster, zone).map_err(|error| of("lose-zone", error))?;
    }
    for node in &args.remove_node {
        what_if::remove_node(cluster, node).map_err(|error| of("remove-node", error))?;
    }
    if cluster.catalogs.is_empty() {
        bail!(RunError::Usage(
            "the snapshot has no instance types: no node class was resolved".to_owned()
        ));
    }
    Ok(())
}
