//! `races`: small random clusters in which pods, limits, budgets, drift, interruptions and crashes race with disruption.
//!
//! What is counted are histories that violate an invariant of the simulator: limits of NodePools, disruption budgets, pods that must not
//! be disrupted, one instance for each claim, leaks, pods that wait although they need not. Only mortise says of each pod that waits
//! why it does, so that histories in Karpenter's way may lack such an event without any harm.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use mortise_apis::values::SplitMix64;
use mortise_cloudprovider::InstanceType;
use mortise_sim::baseline::SimulatedPolicy;
use mortise_sim::on_all_processors;
use serde::Serialize;
use serde_json::{Value, json};

use crate::output::Output;
use crate::report::{Benchmark, Results, SOLVER};
use crate::scoreboard::page::replace_block;
use crate::simulated_cluster::{
    agent, deployment, disruption_budget, history, index, instance_types, timeline, write_scenario,
};

/// Seeds of the complete run.
const SEEDS: u64 = 10_000;
/// Virtual time of a history, in minutes; nothing happens in its last five.
const MINUTES: i64 = 40;
/// Few types, so that most of the time is spent on races.
const TYPES: [&str; 6] = [
    "c5.large",
    "c5.xlarge",
    "c5.2xlarge",
    "m5.large",
    "m5.xlarge",
    "m5.2xlarge",
];
/// Violations that are shown for each policy.
const SHOWN: usize = 5;

/// Options of `races`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct RacesArgs {
    /// Histories of each policy.
    #[arg(long, default_value_t = SEEDS)]
    seeds: u64,
    /// Seed of the first history.
    #[arg(long, default_value_t = 1)]
    #[serde(skip)]
    seed: u64,
    /// Only this policy: `mortise` or `karpenter`.
    #[arg(long, value_parser = ["mortise", "karpenter"])]
    only: Option<String>,
    /// Write the section of docs/scoreboard.md.
    #[arg(long)]
    #[serde(skip)]
    page: bool,
    /// Write the first cluster and what happens to it to this file, for `mortise simulate`.
    #[arg(long)]
    #[serde(skip)]
    write: Option<PathBuf>,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// All histories of one policy.
#[derive(Debug, Serialize)]
struct PolicyRaces {
    policy: SimulatedPolicy,
    histories: u64,
    /// Histories with a violation.
    violated: u64,
    /// The first violations, with their seeds.
    violations: Vec<(u64, String)>,
    nodes_launched: u64,
    evictions: u64,
    seconds: f64,
}

/// Every policy.
#[derive(Debug, Serialize)]
pub(crate) struct RacesResults {
    policies: Vec<PolicyRaces>,
}

/// The cluster of a seed and what happens to it.
fn scenario(seed: u64) -> Vec<Value> {
    let mut random = SplitMix64::new(seed);
    let mut entries: Vec<(i64, Value)> = Vec::new();
    for nth in 0..random.between(6, 14) {
        let at = random.between(60, (MINUTES - 5) * 60);
        entries.push((at, entry(&mut random, nth)));
    }
    let timeline = timeline(entries);
    let budget = ["1", "2", "30%", "100%"][index(&mut random, 4)];
    let quiet = ["0s", "30s", "1m"][index(&mut random, 3)];
    let limits = json!({ "cpu": random.between(8, 40).to_string(), "nodes": random.between(2, 12).to_string() });
    vec![
        json!({
            "apiVersion": "mortise.sh/v1alpha1", "kind": "Scenario", "metadata": { "name": "race" },
            "spec": {
                "duration": format!("{MINUTES}m"), "seed": seed, "replicas": random.between(1, 2), "timeline": timeline,
                "spotShortagePercent": random.between(0, 10),
            },
        }),
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" },
            "spec": {
                "limits": limits,
                "disruption": { "consolidateAfter": quiet, "budgets": [{ "nodes": budget }] },
                "template": { "spec": {
                    "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                    "requirements": [{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"] }],
                } },
            },
        }),
        deployment(
            "web",
            random.between(3, 15),
            random.between(3, 12),
            &json!({}),
        ),
        deployment(
            "guarded",
            random.between(1, 3),
            random.between(3, 12),
            &json!({ "karpenter.sh/do-not-disrupt": "true" }),
        ),
        deployment(
            "quorum",
            random.between(2, 4),
            random.between(3, 12),
            &json!({}),
        ),
        disruption_budget("quorum", 1),
        agent(1),
    ]
}

/// Something that happens, without its time.
fn entry(random: &mut SplitMix64, nth: i64) -> Value {
    match random.below(20) {
        0..8 => json!({ "scale": { "deployment": "web", "replicas": random.between(0, 30) } }),
        8..11 => json!({ "scale": { "deployment": "guarded", "replicas": random.between(0, 4) } }),
        11..13 => json!({ "edit": {
            "nodePool": "default", "patch": { "spec": { "template": { "metadata": { "labels": { "edition": format!("e{nth}") } } } } },
        } }),
        13..15 => json!({ "interrupt": { "count": random.between(1, 2) } }),
        15..17 => json!({ "crash": {} }),
        17 => json!({ "delete": { "nodePool": "default", "nodes": 1 } }),
        18 => {
            json!({ "shortage": { "capacityType": "spot", "for": format!("{}m", random.between(1, 8)) } })
        }
        _ => json!({ "roll": { "deployment": "web" } }),
    }
}

impl RacesArgs {
    fn races(&self, policy: SimulatedPolicy, types: &[InstanceType]) -> Result<PolicyRaces> {
        let begun = Instant::now();
        let seeds: Vec<u64> = (self.seed..self.seed + self.seeds).collect();
        let played = on_all_processors(&seeds, |seed| {
            let report = history(&scenario(*seed), policy, types)?;
            anyhow::Ok((*seed, report.totals, report.scores))
        });
        let mut races = PolicyRaces {
            policy,
            histories: self.seeds,
            violated: 0,
            violations: Vec::new(),
            nodes_launched: 0,
            evictions: 0,
            seconds: 0.0,
        };
        for history in played {
            let (seed, totals, scores) = history?;
            races.violated += u64::from(!totals.violations.is_empty());
            races.nodes_launched += scores.nodes_launched;
            races.evictions += scores.evictions;
            let violations = totals.violations.into_iter().map(|text| (seed, text));
            races.violations.extend(violations);
            races.violations.truncate(SHOWN);
        }
        races.seconds = begun.elapsed().as_secs_f64();
        Ok(races)
    }
}

impl Benchmark for RacesArgs {
    const NAME: &'static str = "races";
    const SOURCES: &'static [&'static str] = SOLVER;
    type Results = RacesResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn is_complete(&self) -> bool {
        self.seeds == SEEDS && self.only.is_none()
    }

    fn measure(&self) -> Result<RacesResults> {
        if let Some(path) = &self.write {
            write_scenario(path, "race", &scenario(self.seed))?;
        }
        let mut types = instance_types(&scenario(self.seed))?;
        types.retain(|each| TYPES.contains(&&*each.name));
        let policies = [SimulatedPolicy::Mortise, SimulatedPolicy::Karpenter];
        let is_meant = |policy: &SimulatedPolicy| {
            let only = self.only.as_deref();
            only.is_none_or(|only| only == policy.name())
        };
        let policies: Result<Vec<PolicyRaces>> = policies
            .into_iter()
            .filter(is_meant)
            .map(|policy| self.races(policy, &types))
            .collect();
        let results = RacesResults {
            policies: policies?,
        };
        if self.page {
            replace_block("races", &results.page())?;
        }
        Ok(results)
    }
}

impl RacesResults {
    /// The table of the page.
    fn page(&self) -> Vec<String> {
        let mut lines = vec![
            "| policy | histories | with a violation | nodes launched | evictions |".to_owned(),
            "|---|---|---|---|---|".to_owned(),
        ];
        lines.extend(self.policies.iter().map(|of| {
            format!(
                "| {} | {} | {} | {} | {} |",
                of.policy.name(),
                of.histories,
                of.violated,
                of.nodes_launched,
                of.evictions
            )
        }));
        lines
    }
}

impl Results for RacesResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        for of in &self.policies {
            writeln!(
                out,
                "{:<10} {} histories of {MINUTES} minutes, {} with a violation; {} nodes launched, {} evictions; {:.0} s",
                of.policy.name(),
                of.histories,
                of.violated,
                of.nodes_launched,
                of.evictions,
                of.seconds
            )?;
            for (seed, violation) in &of.violations {
                writeln!(out, "  seed {seed}: {violation}")?;
            }
        }
        Ok(())
    }
}
