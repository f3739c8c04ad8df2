//! Benchmarks of the pure core against recorded figures of the reference implementation, and of the whole program.
//!
//! Every command has one shape (`report.rs`): arguments, results, report. A report is text or JSON, and says the commit, the
//! seed, the inputs and the test host that its figures belong to.
//!
//! `mortise-bench schedule` places the recorded benchmark pods (`inputs/`) at several sizes, each in a process of its own so
//! that peak memory is that of the size, checks every plan with an independent verifier, and prints the reference's figures
//! (`baselines.json`) next to ours. Figures of different test hosts compare as orders of magnitude only; prices and numbers of
//! nodes compare exactly.
//!
//! `mortise-bench scale` does the same for large clusters made by arithmetic: many pools and types, affinity everywhere, one
//! pod among a hundred thousand. `mortise-bench traces` compares the price of plans for public workload traces with a lower
//! bound.
//!
//! `mortise-bench consolidation` lets the disruption decider consolidate recorded and generated clusters (`consolidation/`) until
//! it finds nothing more, and prints the reference's first command next to ours.
//!
//! `mortise-bench scoreboard` plays the example scenarios by mortise and in Karpenter's way.
//!
//! `mortise-bench convert` converts recorded objects between their versions, `mortise-bench admission` answers admission
//! reviews, `mortise-bench interruption` reads interruption messages and decides what follows from them, `mortise-bench offerings`
//! makes the catalog of a region and marks offerings as unavailable.
//!
//! `mortise-bench end-to-end` runs the program itself on a real control plane, `mortise-bench lifecycle` creates and removes
//! many nodes there, `mortise-bench compare` runs the same workloads with and without the extender, `mortise-bench drains`
//! disrupts nodes while pods are scheduled. `mortise-bench agreement` asks the real kube-scheduler whether it binds what the
//! solver has placed, and with `--arrivals` whether every pod runs in the end when pods arrive over time.

mod admission;
mod agreement;
mod bound;
mod case_process;
mod compare;
mod consolidation;
mod convert;
mod day;
mod end_to_end;
mod extender;
mod inputs;
mod interruption;
mod lifecycle;
mod live_snapshot;
mod offerings;
mod output;
mod plan;
mod races;
mod recorder;
mod report;
mod scale;
mod schedule;
mod scoreboard;
mod simulated_cluster;
mod test_host;
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
    /// Consolidates clusters until nothing is left to do: time, savings, moved pods, and a bound on what could be saved.
    Consolidation(consolidation::ConsolidationArgs),
    /// Plays the example scenarios by mortise and in Karpenter's way: $, waiting pods, moves.
    Scoreboard(scoreboard::ScoreboardArgs),
    /// Converts recorded objects between v1beta1 and v1.
    Convert(convert::ConvertArgs),
    /// Answers admission reviews about a cluster of 2,000 nodes and 20,000 pods, previews of edits included.
    Admission(admission::AdmissionArgs),
    /// Reads interruption messages and decides what follows from them.
    Interruption(interruption::InterruptionArgs),
    /// Makes the catalog of a region, and takes offerings out of it while a cloud has none left.
    Offerings(offerings::OfferingsArgs),
    /// Writes, reads and plans a snapshot of a cluster of 5,000 nodes and 100,000 pods.
    Plan(plan::PlanBenchArgs),
    /// Takes a snapshot of a cluster of 5,000 nodes and 100,000 pods from a real API server.
    Snapshot(live_snapshot::LiveSnapshotArgs),
    /// Plays a day of a simulated cluster of 1,000 nodes and 10,000 pods: time and memory.
    Day(day::DayArgs),
    /// Plays thousands of small random clusters in which pods, limits, budgets and crashes race with disruption; counts violated invariants.
    Races(races::RacesArgs),
    /// Records an hour of a cluster of 1,000 nodes and 10,000 pods: bytes, and time of the recorder.
    Recorder(recorder::RecorderArgs),
    /// Places pods in clusters far larger than the recorded inputs.
    Scale(scale::ScaleArgs),
    /// Compares what plans for recorded workload traces cost with what any plan costs at least.
    Traces(traces::TracesArgs),
    /// Plans random scenarios, makes the planned nodes on a real control plane and counts the pods that kube-scheduler binds;
    /// or lets pods arrive over time and counts those that stay pending.
    Agreement(agreement::AgreementArgs),
    /// Creates a thousand nodes on a real control plane and removes them: time, processor, memory, writes.
    Lifecycle(lifecycle::LifecycleArgs),
    /// The same workloads on real kube-schedulers that ask the extender, ask a part of it, or do not.
    Compare(compare::CompareArgs),
    /// Disrupts nodes by the hundred while pods are created and deleted, and counts pods that are bound to a draining node.
    Drains(compare::drains::DrainsArgs),
    /// Calls the extender while the cluster changes: response time, memory over a million requests, denied pods.
    Extender(extender::ExtenderArgs),
    /// Runs mortise on a real control plane: pod to NodeClaim, extender calls, memory, start.
    EndToEnd(end_to_end::EndToEndArgs),
}

/// Runs the command line.
///
/// # Errors
/// Inputs that cannot be read, a child process that failed, or a plan that breaks a rule.
pub fn run() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Schedule(args) => schedule::run(&args),
        Command::Consolidation(args) => consolidation::run(&args),
        Command::Scoreboard(args) => report::run(&args),
        Command::Convert(args) => report::run(&args),
        Command::Admission(args) => report::run(&args),
        Command::Interruption(args) => report::run(&args),
        Command::Offerings(args) => report::run(&args),
        Command::Plan(args) => report::run(&args),
        Command::Snapshot(args) => report::run(&args),
        Command::Day(args) => report::run(&args),
        Command::Races(args) => report::run(&args),
        Command::Recorder(args) => report::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Traces(args) => report::run(&args),
        Command::Agreement(args) => agreement::run(&args),
        Command::Lifecycle(args) => report::run(&args),
        Command::Compare(args) => report::run(&args),
        Command::Drains(args) => report::run(&args),
        Command::Extender(args) => report::run(&args),
        Command::EndToEnd(args) => report::run(&args),
    }
}
