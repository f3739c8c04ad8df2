//! `day`: a day of a large simulated cluster: how long that takes, and how much memory.
//!
//! All workloads begin at once and are then changed every few minutes, as in a cluster that is used: some grow or shrink, one rolls, a spot instance is
//! interrupted. Nothing in the simulation depends on how long computing takes.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use mortise_apis::values::SplitMix64;
use mortise_sim::baseline::SimulatedPolicy;
use serde::Serialize;
use serde_json::{Value, json};

use crate::output::Output;
use crate::report::{Benchmark, Results, SOLVER, verdict};
use crate::simulated_cluster::{
    agent, deployment, disruption_budget, history, instance_types, timeline, write_scenario,
};
use crate::test_host::{cpu_seconds, peak_mib};

/// What the project wants to hold (`docs/tasks/simulate.md`).
const WANTED_S: f64 = 180.0;
const WANTED_MIB: f64 = 1_024.0;
/// Pods of a Deployment at the beginning.
const PODS: i64 = 200;
/// Pods of [`TENTHS`] that fit on a node of eight CPUs, next to what is reserved and to the DaemonSet's pod.
const PODS_OF_NODE: i64 = 10;
/// Tenths of a CPU that a pod requests.
const TENTHS: i64 = 7;
const COMPLETE: (i64, i64) = (1_000, 24);

/// Options of `day`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct DayArgs {
    /// Nodes.
    #[arg(long, default_value_t = COMPLETE.0)]
    nodes: i64,
    /// Virtual hours.
    #[arg(long, default_value_t = COMPLETE.1)]
    hours: i64,
    /// What is drawn.
    #[arg(long, default_value_t = 1)]
    #[serde(skip)]
    seed: u64,
    /// Write the scenario to this file, for `mortise simulate`.
    #[arg(long)]
    #[serde(skip)]
    write: Option<PathBuf>,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// What it took, and what happened.
#[derive(Debug, Serialize)]
pub(crate) struct DayResults {
    processor_s: f64,
    peak_mib: f64,
    pods_placed: u64,
    nodes_launched: u64,
    most_nodes: u64,
    evictions: u64,
    violations: u64,
    history: String,
}

impl DayArgs {
    fn deployments(&self) -> i64 {
        (self.nodes * PODS_OF_NODE / PODS).max(1)
    }

    /// Every hour a sixth of the workloads grows or shrinks by up to 15 %, one rolls, and two spot instances are interrupted.
    fn timeline(&self) -> Vec<Value> {
        let mut random = SplitMix64::new(self.seed);
        let workloads = self.deployments();
        let mut entries: Vec<(i64, Value)> = Vec::new();
        for hour in 1..self.hours {
            let mut put = |random: &mut SplitMix64, entry: Value| {
                entries.push((hour * 3_600 + random.between(0, 3_599), entry));
            };
            for _ in 0..(workloads / 6).max(1) {
                let name = name(random.between(0, workloads - 1));
                let replicas = PODS * random.between(85, 115) / 100;
                put(
                    &mut random,
                    json!({ "scale": { "deployment": name, "replicas": replicas } }),
                );
            }
            let name = name(random.between(0, workloads - 1));
            put(&mut random, json!({ "roll": { "deployment": name } }));
            for _ in 0..2 {
                put(&mut random, json!({ "interrupt": { "count": 1 } }));
            }
        }
        timeline(entries)
    }

    fn scenario(&self) -> Vec<Value> {
        let mut documents = vec![
            json!({
                "apiVersion": "mortise.sh/v1alpha1", "kind": "Scenario", "metadata": { "name": "day" },
                "spec": { "duration": format!("{}h", self.hours), "seed": self.seed, "timeline": self.timeline() },
            }),
            json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "general" },
                "spec": {
                    "disruption": { "consolidateAfter": "5m", "budgets": [{ "nodes": "5%" }] },
                    "template": { "spec": {
                        "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                        "requirements": [
                            { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"] },
                            { "key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"] },
                            { "key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["8"] },
                        ],
                    } },
                },
            }),
            agent(2),
        ];
        for nth in 0..self.deployments() {
            let name = name(nth);
            documents.push(disruption_budget(&name, PODS / 10));
            documents.push(deployment(&name, PODS, TENTHS, &json!({})));
        }
        documents
    }
}

fn name(nth: i64) -> String {
    format!("workload-{nth}")
}

impl Benchmark for DayArgs {
    const NAME: &'static str = "day";
    const SOURCES: &'static [&'static str] = SOLVER;
    type Results = DayResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn is_complete(&self) -> bool {
        (self.nodes, self.hours) == COMPLETE
    }

    fn measure(&self) -> Result<DayResults> {
        let documents = self.scenario();
        if let Some(path) = &self.write {
            write_scenario(path, "day", &documents)?;
        }
        let types = instance_types(&documents)?;
        let before = cpu_seconds().context("the time of this thread is not known")?;
        let report = history(&documents, SimulatedPolicy::Mortise, &types)?;
        let after = cpu_seconds().context("the time of this thread is not known")?;
        Ok(DayResults {
            processor_s: after - before,
            peak_mib: peak_mib().context("the memory of this process is not known")?,
            pods_placed: report.totals.pods_placed,
            nodes_launched: report.scores.nodes_launched,
            most_nodes: report.scores.most_nodes,
            evictions: report.scores.evictions,
            violations: report.scores.violations,
            history: report.history,
        })
    }
}

impl Results for DayResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(
            out,
            "time   {:>7.1} s of one processor, target {WANTED_S} s: {}",
            self.processor_s,
            verdict(self.processor_s, WANTED_S)
        )?;
        writeln!(
            out,
            "memory {:>7.1} MiB at most, target {WANTED_MIB} MiB: {}",
            self.peak_mib,
            verdict(self.peak_mib, WANTED_MIB)
        )?;
        let Self {
            pods_placed,
            nodes_launched,
            most_nodes,
            evictions,
            violations,
            history,
            ..
        } = self;
        writeln!(
            out,
            "{pods_placed} pods placed, {nodes_launched} nodes launched, {most_nodes} at a time, {evictions} evictions, {violations} violations; history {history}"
        )?;
        Ok(())
    }
}
