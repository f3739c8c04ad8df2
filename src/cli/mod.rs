//! The command line, one file per subcommand.
//!
//! Exit codes: 0 done · 1 failed · 2 wrong usage · 3 API server or kubeconfig out of reach · 4 CRDs are
//! not installed · 5 permission missing · 6 cloud or queue out of reach · 7 done, with warnings · 8 something could
//! not be converted, or is invalid · 9 a replay decides otherwise.

#[cfg(test)]
mod chart;
mod check;
mod completions;
mod drain_blocker;
mod explain;
mod layout;
mod lint;
mod man;
mod manifests;
mod migrate;
mod pause;
mod plan;
mod replay;
mod score_table;
mod serve;
mod service;
mod simulate;
mod snapshot;
mod top;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use mortise_process::{line, warning};

/// Exit code: done, with warnings.
const WITH_WARNINGS: u8 = 7;
/// Exit code: something could not be converted, or is invalid.
const WRONG: u8 = 8;
/// Exit code: a replayed history is another one.
const PARTED: u8 = 9;

/// A node autoscaler for Kubernetes: admission, scheduler extender and node workers in one service
#[derive(Parser)]
#[command(
    name = "mortise",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 API server or kubeconfig out of reach,\n4 CRDs not installed, 5 permission missing, 6 cloud or queue out of reach,\n7 done with warnings, 8 something could not be converted or is invalid, 9 a replay decides otherwise."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service on a cluster
    Serve(Box<crate::args::ServeArgs>),
    /// Run the service on a simulated cluster and cloud, with the UI
    Demo(mortise_demo::DemoArgs),
    /// Write manifests for a cluster
    Manifests(Box<manifests::ManifestsArgs>),
    Migrate(Box<migrate::MigrateArgs>),
    Lint(Box<lint::LintArgs>),
    Check(check::CheckArgs),
    Simulate(simulate::SimulateArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    Snapshot(Box<snapshot::SnapshotArgs>),
    Plan(Box<plan::PlanArgs>),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Replay(replay::ReplayArgs),
    Explain(Box<explain::ExplainArgs>),
    Top(Box<top::TopArgs>),
}

/// Go's flags may have one dash or two: converts `-metrics-port=1` to `--metrics-port=1`. Negative numbers are kept.
pub(crate) fn two_dashes(arg: OsString) -> OsString {
    let is_long = |text: &str| {
        let name = text.strip_prefix('-').unwrap_or_default();
        name.len() > 1 && name.starts_with(|letter: char| letter.is_ascii_alphabetic())
    };
    match arg.to_str() {
        Some(text) if is_long(text) => format!("-{text}").into(),
        _ => arg,
    }
}

/// The name that kubectl finds a plugin by.
const PLUGIN: &str = "kubectl-mortise";

/// Parses the arguments. A program of the name of kubectl's plugin calls itself what its user types.
fn parsed(args: Vec<OsString>) -> Cli {
    let is_plugin = args
        .first()
        .and_then(|program| Path::new(program).file_stem())
        .is_some_and(|name| name == PLUGIN);
    if !is_plugin {
        return Cli::parse_from(args);
    }
    let command = Cli::command().name(PLUGIN).bin_name("kubectl mortise");
    let matches = command.get_matches_from(args);
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Parses the command line and runs the command.
#[must_use]
pub fn run() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|first| first == "serve") {
        args = args.into_iter().map(two_dashes).collect();
    }
    let cli = parsed(args);
    let result = match cli.command {
        Command::Serve(args) => serve::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Demo(args) => mortise_demo::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Manifests(args) => manifests::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Migrate(args) => migrate::run(&args),
        Command::Lint(args) => lint::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Completions(args) => completions::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Man(args) => man::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Snapshot(args) => snapshot::run(*args),
        Command::Plan(args) => plan::run(*args),
        Command::Pause(args) => pause::run(args),
        Command::Resume(args) => pause::resume(args),
        Command::Replay(args) => replay::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Top(args) => top::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            warning(&format!("mortise: {error:#}"));
            ExitCode::from(serve::exit_code(&error))
        }
    }
}
