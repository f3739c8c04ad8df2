//! Benchmarks of the pure core against recorded figures of the reference implementation, and of the whole program.
//!
//! `mortise-bench schedule` places the recorded benchmark pods (`inputs/`) at several sizes, each in a process of its own so
//! that peak memory is that of the size, checks every plan with an independent verifier, and prints the reference's figures
//! (`baselines.json`) beside ours. Figures of different machines compare as orders of magnitude only; prices and numbers of
//! nodes compare exactly.
//!
//! `mortise-bench scale` does the same for large clusters made by arithmetic: many pools and types, affinity everywhere, one
//! pod among a hundred thousand. `mortise-bench traces` compares the price of plans for public workload traces with a lower
//! bound.
//!
//! `mortise-bench convert` converts recorded objects between their versions, `mortise-bench admission` answers admission
//! reviews.
//!
//! `mortise-bench live` runs the program itself on a real control plane, `mortise-bench life` lets many nodes come and go
//! there, `mortise-bench compare` runs the same workloads with and without the extender, `mortise-bench drains` disrupts
//! machines while pods look for room. `mortise-bench agreement` asks the real kube-scheduler whether it binds what the solver has placed, and
//! with `--arrivals` whether every pod runs in the end when pods arrive over time.

mod admission;
mod agreement;
mod baseline;
mod bound;
mod compare;
mod convert;
mod extender;
mod inputs;
mod life;
mod live;
mod machine;
mod recorded;
mod report;
mod scale;
mod schedule;
mod traces;
mod verify;

use clap::{Parser, Subcommand};

/// Benchmarks of mortise.
#[derive(Debug, Parser)]
#[command(name = "mortise-bench", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Places pending pods on new nodes.
    Schedule(schedule::ScheduleArgs),
    /// Converts recorded objects between v1beta1 and v1.
    Convert(convert::ConvertArgs),
    /// Answers admission reviews about a cluster of 2,000 nodes and 20,000 pods, previews of edits included.
    Admission(admission::AdmissionArgs),
    /// Places pods in clusters far larger than the recorded inputs.
    Scale(scale::ScaleArgs),
    /// Compares what plans for recorded workload traces cost with what any plan costs at least.
    Traces(traces::TracesArgs),
    /// Plans random scenarios, makes the planned nodes on a real control plane and counts the pods that kube-scheduler binds;
    /// or lets pods arrive over time and counts those that wait for ever.
    Agreement(agreement::AgreementArgs),
    /// Lets a thousand nodes come and go on a real control plane: time, processor, memory, writes.
    Life(life::LifeArgs),
    /// The same workloads on real kube-schedulers that ask the extender, ask a part of it, or do not.
    Compare(compare::CompareArgs),
    /// Disrupts machines by the hundred while pods come and go, and looks who is bound to one that is being drained.
    Drains(compare::drains::DrainsArgs),
    /// Asks the extender while the cluster changes: time of answers, memory over a million of them, pods that are held back.
    Extender(extender::ExtenderArgs),
    /// Runs mortise on a real control plane: pod to NodeClaim, extender calls, memory, start.
    Live(live::LiveArgs),
}

/// Runs the command line.
///
/// # Errors
/// Inputs that cannot be read, a child process that failed, or a plan that breaks a rule.
pub fn run() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Schedule(args) => schedule::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Admission(args) => admission::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Traces(args) => traces::run(&args),
        Command::Agreement(args) => agreement::run(&args),
        Command::Life(args) => life::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Drains(args) => compare::drains::run(&args),
        Command::Extender(args) => extender::run(&args),
        Command::Live(args) => live::run(&args),
    }
}
