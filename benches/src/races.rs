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

/// Who plays the histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Player {
    /// mortise.
    Mortise,
    /// mortise, with a random NodePoolPolicy.
    MortiseWithPolicies,
    /// Karpenter's way.
    Karpenter,
}

impl Player {
    const ALL: [Self; 3] = [Self::Mortise, Self::MortiseWithPolicies, Self::Karpenter];

    const fn name(self) -> &'static str {
        match self {
            Self::MortiseWithPolicies => "mortise with policies",
            Self::Mortise | Self::Karpenter => self.policy().name(),
        }
    }

    const fn policy(self) -> SimulatedPolicy {
        match self {
            Self::Mortise | Self::MortiseWithPolicies => SimulatedPolicy::Mortise,
            Self::Karpenter => SimulatedPolicy::Karpenter,
        }
    }

    /// The cluster of a seed and what happens to it.
    fn scenario(self, seed: u64) -> Vec<Value> {
        let mut documents = scenario(seed);
        if self == Self::MortiseWithPolicies {
            documents.push(node_pool_policy(seed));
        }
        documents
    }
}

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
    /// Only histories of this player. May be repeated.
    #[arg(long, value_enum)]
    only: Vec<Player>,
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

/// All histories of one player.
#[derive(Debug, Serialize)]
struct PlayedRaces {
    player: Player,
    histories: u64,
    /// Histories with a violation.
    violated: u64,
    /// The first violations, with their seeds.
    violations: Vec<(u64, String)>,
    nodes_launched: u64,
    evictions: u64,
    seconds: f64,
}

/// Every player.
#[derive(Debug, Serialize)]
pub(crate) struct RacesResults {
    players: Vec<PlayedRaces>,
}

/// A part of a policy: where it is in the spec, and what it asks.
type PolicyPart = fn(&mut SplitMix64) -> (&'static str, Value);

/// Dollars, from these cents to those.
fn dollars(random: &mut SplitMix64, least: i64, most: i64) -> String {
    let cents = random.between(least, most);
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// What a policy asks of the NodePool of a seed: each part in half of the histories. Drawn apart from the cluster, which is the same
/// without it.
fn node_pool_policy(seed: u64) -> Value {
    let mut random = SplitMix64::new(seed ^ 0x9e37_79b9);
    let mut spec =
        json!({ "nodePools": ["default"], "limits": { "nodes": random.between(2, 12) } });
    let parts: [PolicyPart; 8] = [
        |random| ("/limits/hourlyPrice", json!(dollars(random, 10, 120))),
        // A month is paid for in advance, until its end.
        |random| ("/spending/perMonth", json!(dollars(random, 10_000, 60_000))),
        |random| {
            let nodes = random.between(1, 5);
            let window = format!("{}m", random.between(1, 10));
            (
                "/scaling/maxNewNodesPerWindow",
                json!({ "nodes": nodes, "window": window }),
            )
        },
        |random| {
            let (base, percent) = (random.between(0, 6), random.between(0, 100));
            (
                "/scaling/onDemand",
                json!({ "baseCPU": base, "percentageAboveBase": percent }),
            )
        },
        |random| {
            let increase = format!("{}%", random.between(0, 30));
            (
                "/scaling/zoneBalance",
                json!({ "maxPriceIncrease": increase }),
            )
        },
        |random| {
            let paid = json!({ "name": "plan", "hourlyCommitment": dollars(random, 5, 60), "discount": "28%" });
            let reserved = json!({ "name": "reserved", "instances": random.between(0, 4) });
            ("/commitments", json!([paid, reserved]))
        },
        |random| {
            (
                "/disruption/minimumUtilization",
                json!(format!("{}%", random.between(20, 90))),
            )
        },
        |random| ("/disruption/maxMovesPerDay", json!(random.between(0, 6))),
    ];
    for part in parts {
        if random.chance(500) {
            let (pointer, value) = part(&mut random);
            let mut at = &mut spec;
            for name in pointer.split('/').skip(1) {
                at = &mut at[name];
            }
            *at = value;
        }
    }
    json!({
        "apiVersion": "mortise.sh/v1alpha1", "kind": "NodePoolPolicy", "metadata": { "name": "race", "generation": 1 }, "spec": spec,
    })
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
    fn races(&self, player: Player, types: &[InstanceType]) -> Result<PlayedRaces> {
        let begun = Instant::now();
        let seeds: Vec<u64> = (self.seed..self.seed + self.seeds).collect();
        let played = on_all_processors(&seeds, |seed| {
            let report = history(&player.scenario(*seed), player.policy(), types)?;
            anyhow::Ok((*seed, report.totals, report.scores))
        });
        let mut races = PlayedRaces {
            player,
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
        self.seeds == SEEDS && self.only.is_empty()
    }

    fn measure(&self) -> Result<RacesResults> {
        if let Some(path) = &self.write {
            let player = self.only.first().copied().unwrap_or(Player::Mortise);
            write_scenario(path, "race", &player.scenario(self.seed))?;
        }
        let mut types = instance_types(&scenario(self.seed))?;
        types.retain(|each| TYPES.contains(&&*each.name));
        let meant = Player::ALL.into_iter();
        let meant = meant.filter(|player| self.only.is_empty() || self.only.contains(player));
        let players: Result<Vec<PlayedRaces>> =
            meant.map(|player| self.races(player, &types)).collect();
        let results = RacesResults { players: players? };
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
            "| played by | histories | with a violation | nodes launched | evictions |".to_owned(),
            "|---|---|---|---|---|".to_owned(),
        ];
        lines.extend(self.players.iter().map(|of| {
            format!(
                "| {} | {} | {} | {} | {} |",
                of.player.name(),
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
        for of in &self.players {
            writeln!(
                out,
                "{:<22} {} histories of {MINUTES} minutes, {} with a violation; {} nodes launched, {} evictions; {:.0} s",
                of.player.name(),
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
