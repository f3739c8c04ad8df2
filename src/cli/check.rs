//! `mortise check`: checks configurations of other components that mortise depends on.

mod live;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use mortise_manifests::check::{deviations, own_entries};
use mortise_manifests::lint::LintLevel;
use serde_json::Value;

use super::migrate::input::text_of;
use super::{WITH_WARNINGS, WRONG, line};

/// Check configurations of other components that mortise depends on
#[derive(Args)]
pub(super) struct CheckArgs {
    #[command(subcommand)]
    what: CheckTarget,
}

#[derive(Subcommand)]
enum CheckTarget {
    /// Compare a KubeSchedulerConfiguration with the output of `mortise manifests scheduler`
    #[command(
        after_help = "Exit codes: 0 no differences, 7 avoidable cost, 8 kube-scheduler or the extender does not work with this file,\n1 the file cannot be read.\n\nExample: mortise check scheduler /etc/kubernetes/scheduler-config.yaml --live"
    )]
    Scheduler {
        /// File of kube-scheduler's --config, or - for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Also call the extender like kube-scheduler: with its URL, server name, certificates and timeout
        #[arg(long)]
        live: bool,
    },
}

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let CheckTarget::Scheduler { file, live } = &args.what;
    let text = text_of(file)?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .with_context(|| format!("{}: not valid YAML", file.display()))?;
    let documents: Vec<Value> = documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect();
    ensure!(
        !documents.is_empty(),
        "{}: the file is empty",
        file.display()
    );
    let mut found: Vec<_> = documents.iter().flat_map(deviations).collect();
    if *live {
        mortise_process::runtime()?.block_on(async {
            for (at, entry) in documents.iter().flat_map(own_entries) {
                match live::call(entry, at).await {
                    Ok(live::Answered { url, took }) => {
                        line(&format!(
                            "extenders[{at}]: {url} responded in {} ms",
                            took.as_millis()
                        ));
                    }
                    Err(fault) => found.push(fault),
                }
            }
        });
    }
    for each in &found {
        line(&each.to_string());
    }
    Ok(match found.iter().map(|each| each.level).max() {
        None => {
            line("no differences from the recommended configuration");
            ExitCode::SUCCESS
        }
        Some(LintLevel::Warning) => ExitCode::from(WITH_WARNINGS),
        Some(LintLevel::Error) => ExitCode::from(WRONG),
    })
}
