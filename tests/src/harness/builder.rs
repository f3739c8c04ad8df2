//! What a control plane should consist of.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::Result;
use tokio::sync::Semaphore;

use super::component::Component;
use super::control_plane::ControlPlane;
use super::progress;
use super::scheduler::SchedulerOptions;
use super::stages::Stages;

/// How often a start is tried when another program takes a port first.
const ATTEMPTS: usize = 3;

/// Control planes that start at a time, in one process: a start keeps a processor busy for seconds, and whatever runs already must
/// not stand still meanwhile.
static STARTS: LazyLock<Semaphore> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Semaphore::new(cores.max(2))
});

/// Collects options; [`Builder::start`] does the work. etcd and kube-apiserver are always there.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) components: BTreeSet<Component>,
    pub(crate) scheduler: SchedulerOptions,
    pub(crate) stages: Option<Stages>,
    pub(crate) manifests: Vec<String>,
    pub(crate) flags: BTreeMap<Component, Vec<String>>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) port_base: Option<u16>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            components: BTreeSet::from([Component::Etcd, Component::ApiServer]),
            scheduler: SchedulerOptions::default(),
            stages: None,
            manifests: Vec::new(),
            flags: BTreeMap::new(),
            dir: None,
            port_base: None,
        }
    }

    /// Everything: kube-controller-manager, kube-scheduler and kwok too.
    #[must_use]
    pub fn full(mut self) -> Self {
        self.components.extend(Component::ALL);
        self
    }

    /// With this component.
    #[must_use]
    pub fn with(mut self, component: Component) -> Self {
        self.components.insert(component);
        self
    }

    /// Without this component (etcd and kube-apiserver stay).
    #[must_use]
    pub fn without(mut self, component: Component) -> Self {
        if component > Component::ApiServer {
            self.components.remove(&component);
        }
        self
    }

    /// kube-scheduler with this configuration.
    #[must_use]
    pub fn scheduler(mut self, options: SchedulerOptions) -> Self {
        self.scheduler = options;
        self.with(Component::Scheduler)
    }

    /// kwok with these stages instead of the built-in ones.
    #[must_use]
    pub fn stages(mut self, stages: Stages) -> Self {
        self.stages = Some(stages);
        self.with(Component::Kwok)
    }

    /// YAML applied when all components are ready. Repeatable.
    #[must_use]
    pub fn manifests(mut self, yaml: &str) -> Self {
        self.manifests.push(yaml.to_owned());
        self
    }

    /// A further flag of a component, for example `--v=4`. Repeatable.
    #[must_use]
    pub fn flag(mut self, component: Component, flag: &str) -> Self {
        self.flags
            .entry(component)
            .or_default()
            .push(flag.to_owned());
        self
    }

    /// State and kubeconfig in this directory, which is kept (except etcd's data, which is always new).
    #[must_use]
    pub fn dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_owned());
        self
    }

    /// Six ports from this one on: etcd, its peer port, API server, controller manager, scheduler, kwok.
    #[must_use]
    pub const fn port_base(mut self, base: u16) -> Self {
        self.port_base = Some(base);
        self
    }

    /// Builds what is missing, starts everything, and returns when all of it is ready.
    ///
    /// # Errors
    /// A peer cannot be built, does not become ready (with the end of its log), or a manifest is refused.
    pub async fn start(self) -> Result<ControlPlane> {
        let _turn = STARTS.acquire().await?;
        for _ in 1..ATTEMPTS {
            match Box::pin(ControlPlane::launch(&self)).await {
                Ok(plane) => return Ok(plane),
                Err(failure) if failure.port_taken && self.port_base.is_none() => {
                    progress("a port was taken by another program; starting again on other ports");
                }
                Err(failure) => return Err(failure.error),
            }
        }
        Box::pin(ControlPlane::launch(&self))
            .await
            .map_err(|failure| failure.error)
    }
}
