//! What the demo plays: its own workloads, or a scenario of the gallery.

use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;
use mortise_aws_class::labels::well_known;
use mortise_cloudprovider::InstanceType;
use mortise_manifests::migrate::SourceFile;
use mortise_planning::settings::Settings;
use mortise_sim::scenario::{ScenarioRun, SimulatedService};
use mortise_sim::{SimOptions, Simulation};
use mortise_webhooks::Counters;

use crate::demo_cluster;
use crate::gallery::GALLERY;
use crate::in_process_extender::InProcessExtender;
use crate::play::Played;
use crate::scenario_file::{ScenarioFile, about};

/// What will be played.
pub(crate) struct Stage {
    pub(crate) seed: u64,
    pub(crate) region: String,
    pub(crate) settings: Settings,
    pub(crate) start: Timestamp,
    /// Name of the scenario, and what it shows.
    pub(crate) scenario: Option<(&'static str, String)>,
    cluster: StageCluster,
}

enum StageCluster {
    Workloads(Box<SimOptions>),
    Scenario(Box<ScenarioFile>, Vec<InstanceType>),
}

impl Stage {
    /// Workloads that grow and shrink.
    ///
    /// # Errors
    /// The region is not known.
    pub(crate) fn workloads(seed: u64, region: &str) -> anyhow::Result<Self> {
        let settings = demo_cluster::settings();
        let options = demo_cluster::options(seed, region, settings.clone())?;
        Ok(Self {
            seed,
            region: region.to_owned(),
            settings,
            start: options.start,
            scenario: None,
            cluster: StageCluster::Workloads(Box::new(options)),
        })
    }

    /// A scenario of the gallery.
    ///
    /// # Errors
    /// There is none with this name.
    pub(crate) fn scenario(name: &str, seed: Option<u64>) -> anyhow::Result<Self> {
        let found = GALLERY.into_iter().find(|each| each.name == name);
        let found = found.with_context(|| format!("there is no scenario {name:?}"))?;
        let source = SourceFile {
            name: format!("{name}.yaml"),
            text: found.text.to_owned(),
        };
        let mut file = ScenarioFile::read(&[&[source]])?;
        file.spec.seed = seed.unwrap_or(file.spec.seed);
        let catalog = mortise_aws_catalog::embedded_catalog()?;
        let types = catalog.simulated_instance_types(&file.spec.region)?;
        Ok(Self {
            seed: file.spec.seed,
            region: file.spec.region.clone(),
            settings: Settings::default(),
            start: file.spec.start,
            scenario: Some((found.name, about(found.text))),
            cluster: StageCluster::Scenario(Box::new(file), types),
        })
    }

    /// Instance types of the region.
    pub(crate) fn instance_types(&self) -> usize {
        match &self.cluster {
            StageCluster::Workloads(options) => options.catalog.len(),
            StageCluster::Scenario(_, types) => types.len(),
        }
    }

    /// At its start. Calls of the extender are counted in `counters`.
    ///
    /// # Errors
    /// The scenario is not consistent.
    pub(crate) fn begin(self, counters: &Arc<Counters>) -> anyhow::Result<Played> {
        let extender = Box::new(InProcessExtender::new(Arc::clone(counters)));
        match self.cluster {
            StageCluster::Workloads(options) => {
                let mut simulation = Simulation::new(*options, mortise_deciders::all());
                simulation.set_extender(extender);
                Ok(Played::Workloads(Box::new(simulation)))
            }
            StageCluster::Scenario(file, types) => {
                let ScenarioFile { spec, objects, .. } = *file;
                let service = SimulatedService {
                    settings: self.settings,
                    deciders: Box::new(mortise_deciders::all),
                    extender: Some(extender),
                };
                let run = ScenarioRun::new(spec, objects, (types, well_known()), service)?;
                Ok(Played::Scenario(Box::new(run), 0))
            }
        }
    }
}
