//! `mortise top`: nodes with what they cost and what keeps them, NodePools, and pending pods, on one screen.

mod cluster;
mod text;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::explain::OutputFormat;
use super::service::{Failure, Service, ServiceArgs, ask, read};
use super::{layout, line};

/// How often `--watch` draws.
const EVERY: Duration = Duration::from_secs(2);
/// Clears a terminal, and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Show nodes with fill, price and state, NodePools with their budgets, and pending pods
#[derive(Args)]
#[command(
    long_about = "Show nodes with fill, price per hour and state (what is planned for them, or what keeps them from being disrupted), totals and budgets of\n\
NodePools, and pending pods. The running service is asked (/api/v1/state and /debug/disruption); nothing is changed.\n\n\
The service is found by its Lease, and reached by `kubectl port-forward` to the replica that leads, or at --url.",
    after_long_help = "Exit codes: 0 done, 2 wrong usage, 3 service, API server or kubeconfig out of reach, 5 permission missing.\n\n\
Examples:\n  mortise top --sort fill\n  mortise top --watch --service-account kube-system/mortise-reader\n  mortise top -o json --url https://127.0.0.1:8443 --token-file token"
)]
pub(super) struct TopArgs {
    /// Order of nodes: the most expensive, the fullest or the oldest first, or by name
    #[arg(long, value_name = "BY", default_value = "cost")]
    sort: NodeOrder,
    /// Draw again every two seconds
    #[arg(long, conflicts_with = "output")]
    watch: bool,
    /// `json` prints the answers of the service
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
    #[command(flatten)]
    service: ServiceArgs,
}

/// Order of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NodeOrder {
    /// The most expensive first
    Cost,
    /// The fullest first
    Fill,
    /// The oldest first
    Age,
    /// By name
    Name,
}

/// Asks the service, and draws once or again and again.
///
/// # Errors
/// The process cannot be set up.
pub(super) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    ask(top(args))
}

async fn top(args: &TopArgs) -> Result<(), Failure> {
    let service = Service::connect(&args.service).await?;
    loop {
        let state = service.get("/api/v1/state").await?;
        let disruption = service.get("/debug/disruption").await?;
        if args.output == OutputFormat::Json {
            line(&format!(
                "{:#}",
                json!({ "state": state, "disruption": disruption })
            ));
            return Ok(());
        }
        let state = read(&state, "/api/v1/state")?;
        let disruption = read(&disruption, "/debug/disruption")?;
        let lines = text::lines(&state, &disruption, args.sort, layout::known_width());
        if !args.watch {
            lines.iter().for_each(|text| line(text));
            return Ok(());
        }
        // One write: a half-drawn screen flickers.
        let screen = format!("{CLEAR}{}\n", lines.join("\n"));
        let mut terminal = std::io::stdout();
        let drawn = terminal
            .write_all(screen.as_bytes())
            .and_then(|()| terminal.flush());
        if drawn.is_err() {
            return Ok(());
        }
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests;
