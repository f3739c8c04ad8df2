//! `scoreboard`: the scenarios in `examples/scenarios`, played by mortise and in Karpenter's way with the same seeds.
//!
//! Scores are sums over the seeds, waiting times are those of all pods together at their worst seed. The page
//! `docs/scoreboard.md` is written with `--page`.

pub(crate) mod page;
mod recorded;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use mortise_aws_catalog::embedded_catalog;
use mortise_demo::scenario_file::{ScenarioFile, about};
use mortise_demo::service_of;
use mortise_manifests::migrate::SourceFile;
use mortise_planning::settings::Settings;
use mortise_sim::baseline::SimulatedPolicy;
use mortise_sim::scenario::{ClusterObjects, ScenarioSpec, play};
use mortise_sim::{Scores, on_all_processors};
use serde::Serialize;

use crate::output::Output;
use crate::report::{Benchmark, Results, SOLVER};

/// Options of `scoreboard`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct ScoreboardArgs {
    /// Seeds per scenario and policy.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Only scenarios with this in their names.
    #[arg(long)]
    only: Option<String>,
    /// Recorded workloads instead: the last five days of openb_pod_list_*.csv in this folder.
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    traces: Option<PathBuf>,
    /// Write docs/scoreboard.md.
    #[arg(long)]
    #[serde(skip)]
    page: bool,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// A scenario under one policy, over all seeds.
#[derive(Debug, Serialize)]
struct Row {
    scenario: String,
    policy: SimulatedPolicy,
    seeds: u64,
    scores: Scores,
    /// Pods without a node at the end, over all seeds.
    waiting_at_end: u64,
}

/// Every scenario under both policies.
#[derive(Debug, Serialize)]
pub(crate) struct ScoreboardResults {
    rows: Vec<Row>,
}

/// A scenario as read from its file.
struct Scenario {
    name: String,
    about: String,
    spec: ScenarioSpec,
    objects: ClusterObjects,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scenarios")
}

fn scenarios(only: Option<&str>) -> Result<Vec<Scenario>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        paths.push(entry?.path());
    }
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if only.is_none_or(|only| stem.contains(only)) {
            let text = std::fs::read_to_string(&path)?;
            let read = scenario(&stem, text);
            all.push(read.with_context(|| path.display().to_string())?);
        }
    }
    ensure!(!all.is_empty(), "no scenario has such a name");
    Ok(all)
}

fn scenario(name: &str, text: String) -> Result<Scenario> {
    let source = SourceFile {
        name: format!("{name}.yaml"),
        text,
    };
    let about = about(&source.text);
    let ScenarioFile { spec, objects, .. } = ScenarioFile::read(&[&[source]])?;
    Ok(Scenario {
        name: name.to_owned(),
        about,
        spec,
        objects,
    })
}

impl Benchmark for ScoreboardArgs {
    const NAME: &'static str = "scoreboard";
    const SOURCES: &'static [&'static str] = SOLVER;
    type Results = ScoreboardResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        Some(1)
    }

    fn is_complete(&self) -> bool {
        self.seeds == 5 && self.only.is_none() && self.traces.is_none()
    }

    fn measure(&self) -> Result<ScoreboardResults> {
        let only = self.only.as_deref();
        let scenarios = match &self.traces {
            Some(folder) => recorded::scenarios(folder, only)?,
            None => scenarios(only)?,
        };
        let mut rows = Vec::new();
        for scenario in &scenarios {
            for policy in SimulatedPolicy::ALL {
                say(&scenario.name, policy);
                rows.push(self.row(scenario, policy)?);
            }
        }
        let results = ScoreboardResults { rows };
        if self.page {
            let block = if self.traces.is_some() {
                "recorded"
            } else {
                "scoreboard"
            };
            page::write(block, &scenarios, &results, self.seeds)?;
        }
        Ok(results)
    }
}

/// Says what is played now.
fn say(scenario: &str, policy: SimulatedPolicy) {
    let mut out = std::io::stderr().lock();
    // Progress that cannot be shown is no reason to stop.
    drop(writeln!(out, "playing {scenario}: {policy:?}"));
}

impl ScoreboardArgs {
    /// Plays a scenario with every seed, as many at a time as there are processors.
    fn row(&self, scenario: &Scenario, policy: SimulatedPolicy) -> Result<Row> {
        let types = embedded_catalog()?.simulated_instance_types(&scenario.spec.region)?;
        let seeds: Vec<u64> = (1..=self.seeds).collect();
        let played = on_all_processors(&seeds, |seed| {
            let spec = ScenarioSpec {
                seed: *seed,
                ..scenario.spec.clone()
            };
            let cloud = (types.clone(), mortise_aws_class::labels::well_known());
            let service = service_of(policy, Settings::default());
            play(&spec, scenario.objects.clone(), cloud, service)
        });
        let mut scores = Scores::default();
        let mut waiting_at_end = 0;
        for report in played {
            let report = report?;
            scores.add_seed(&report.scores);
            waiting_at_end += report.samples.last().map_or(0, |last| last.pods_pending);
        }
        Ok(Row {
            scenario: scenario.name.clone(),
            policy,
            seeds: self.seeds,
            scores,
            waiting_at_end,
        })
    }
}

impl Results for ScoreboardResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        for line in page::table(self).iter().chain(&page::sums(self)) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}
