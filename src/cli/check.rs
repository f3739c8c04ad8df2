//! `mortise check`: configurations of others, as far as they decide how well this service works.

mod live;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use mortise_webhooks::lint::LintLevel;
use mortise_webhooks::scheduler_check::{deviations, own_entries};
use serde_json::Value;

use super::migrate::input::text_of;
use super::{WITH_DOUBTS, WRONG, line};

/// Check configurations of others, as far as they decide how well mortise works
#[derive(Args)]
pub(super) struct CheckArgs {
    #[command(subcommand)]
    what: CheckTarget,
}

#[derive(Subcommand)]
enum CheckTarget {
    /// A KubeSchedulerConfiguration, against the one that `mortise manifests scheduler` writes
    #[command(
        after_help = "Exit codes: 0 nothing differs, 7 something costs more than it must, 8 kube-scheduler or the extender does not work with it,\n1 the file cannot be read.\n\nExample: mortise check scheduler /etc/kubernetes/scheduler-config.yaml --live"
    )]
    Scheduler {
        /// The file that kube-scheduler's --config names, or - for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Also call the extender from here as kube-scheduler would: its URL, server name, certificates and time limit
        #[arg(long)]
        live: bool,
    },
}

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let CheckTarget::Scheduler { file, live } = &args.what;
    let text = text_of(file)?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .with_context(|| format!("{}: no YAML", file.display()))?;
    let documents: Vec<Value> = documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect();
    ensure!(
        !documents.is_empty(),
        "{}: there is nothing in it",
        file.display()
    );
    let mut found: Vec<_> = documents.iter().flat_map(deviations).collect();
    if *live {
        super::serve::runtime()?.block_on(async {
            for (at, entry) in documents.iter().flat_map(own_entries) {
                match live::call(entry, at).await {
                    Ok(live::Answered { url, took }) => {
                        line(&format!(
                            "extenders[{at}]: {url} answered in {} ms",
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
            line("nothing differs from what is recommended");
            ExitCode::SUCCESS
        }
        Some(LintLevel::Warning) => ExitCode::from(WITH_DOUBTS),
        Some(LintLevel::Error) => ExitCode::from(WRONG),
    })
}
