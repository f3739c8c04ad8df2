//! The demo as a program of its own. It links no SDK of a cloud, therefore it is built in a fraction of the time of `mortise`.

use std::process::ExitCode;

use clap::Parser;

/// Run the service on a simulated cluster and cloud, with the UI
#[derive(Parser)]
#[command(name = "mortise-demo", version)]
struct Cli {
    #[command(flatten)]
    demo: mortise_demo::DemoArgs,
}

fn main() -> ExitCode {
    match mortise_demo::run(&Cli::parse().demo) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            mortise_process::warning(&format!("mortise-demo: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
