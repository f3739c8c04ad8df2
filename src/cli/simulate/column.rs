//! A scenario under one policy with one set of settings and manifests.

use std::sync::Arc;

use mortise_demo::scenario_file::ScenarioFile;
use mortise_demo::service_of;
use mortise_planning::settings::Settings;
use mortise_sim::baseline::SimulatedPolicy;
use mortise_sim::replay::SettingChange;
use mortise_sim::scenario::{ScenarioReport, ScenarioRun, SimulatedCloud};
use mortise_sim::{Scores, on_all_processors};
use serde::Serialize;

use super::progress::Progress;
use crate::args::ProviderName;
use crate::providers::Provider;

/// What will be played.
pub(super) struct Column {
    pub(super) policy: SimulatedPolicy,
    pub(super) settings: Vec<SettingChange>,
    /// What is different from the first column, the policy aside.
    pub(super) changes: Vec<String>,
    pub(super) file: ScenarioFile,
    /// Settings and cloud of a recorded cluster.
    pub(super) recorded: Option<Arc<RecordedBase>>,
}

/// What a recorded cluster has besides manifests.
pub(super) struct RecordedBase {
    pub(super) settings: Settings,
    pub(super) cloud: SimulatedCloud,
}

/// What came of it.
#[derive(Serialize)]
pub(super) struct PlayedColumn {
    pub(super) policy: SimulatedPolicy,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) changes: Vec<String>,
    /// Of all seeds together.
    pub(super) scores: Scores,
    /// By seed; at least one.
    pub(super) reports: Vec<ScenarioReport>,
}

impl PlayedColumn {
    fn of(column: &Column) -> Self {
        Self {
            policy: column.policy,
            changes: column.changes.clone(),
            scores: Scores::default(),
            reports: Vec::new(),
        }
    }

    /// Its name in tables and plots.
    pub(super) fn name(&self) -> &'static str {
        if self.changes.is_empty() {
            self.policy.name()
        } else {
            "changed"
        }
    }

    /// The first seed.
    pub(super) fn first(&self) -> Option<&ScenarioReport> {
        self.reports.first()
    }
}

/// Plays all columns with each seed, as many at a time as there are processors.
///
/// # Errors
/// The region is not known, or a timeline is not that of its cluster.
pub(super) fn play_all(
    columns: &[Column],
    seeds: u64,
    provider: ProviderName,
) -> anyhow::Result<Vec<PlayedColumn>> {
    let jobs: Vec<(usize, u64)> = (0..columns.len())
        .flat_map(|column| (0..seeds).map(move |seed| (column, seed)))
        .collect();
    let progress = Progress::new(columns, seeds);
    let played = on_all_processors(&jobs, |(column, seed)| {
        columns[*column].play(*seed, provider, &progress)
    });
    progress.end();
    let mut all: Vec<PlayedColumn> = columns.iter().map(PlayedColumn::of).collect();
    for ((column, _), report) in jobs.into_iter().zip(played) {
        let report = report?;
        all[column].scores.add_seed(&report.scores);
        all[column].reports.push(report);
    }
    Ok(all)
}

impl Column {
    /// Plays it with the seed of the scenario plus `seed`.
    fn play(
        &self,
        seed: u64,
        provider: ProviderName,
        progress: &Progress,
    ) -> anyhow::Result<ScenarioReport> {
        let mut run = self.begin(seed, provider)?;
        while let Some(until) = progress.next(&mut run) {
            let played = run.run_until(until, &mut |_| {});
            played.map_err(|error| self.file.error(&error))?;
        }
        Ok(run.report())
    }

    /// Its cluster at the start, with the seed of the scenario plus `seed`.
    pub(super) fn begin(&self, seed: u64, provider: ProviderName) -> anyhow::Result<ScenarioRun> {
        let recorded = self.recorded.as_ref();
        let mut settings = recorded.map_or_else(Settings::default, |of| of.settings.clone());
        for change in &self.settings {
            settings = change.apply(settings)?;
        }
        let service = service_of(self.policy, settings);
        let mut spec = self.file.spec.clone();
        spec.seed = spec.seed.wrapping_add(seed);
        let cloud = self.cloud(provider)?;
        let run = ScenarioRun::new(spec, self.file.objects.clone(), cloud, service);
        run.map_err(|error| self.file.error(&error))
    }

    fn cloud(&self, provider: ProviderName) -> anyhow::Result<SimulatedCloud> {
        if let Some(recorded) = &self.recorded {
            return Ok(recorded.cloud.clone());
        }
        let well_known = Provider::of(provider).crds().served().well_known().clone();
        let types = match provider {
            ProviderName::Aws => {
                let catalog = mortise_aws_catalog::embedded_catalog()?;
                let types = catalog.simulated_instance_types(&self.file.spec.region);
                types.map_err(|error| self.file.error_at("spec.region", &error.to_string()))?
            }
            ProviderName::Kwok => mortise_kwok::instance_types(),
        };
        Ok((types, well_known).into())
    }
}
