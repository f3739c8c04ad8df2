//! The virtual cluster around the service: API server, cloud, kubelets, scheduler and workload controllers.
//!
//! [`Cluster`] is what all of them act on; each owns what it alone remembers.

mod api_server;
mod cloud;
mod effects;
mod extender;
mod kube_scheduler;
mod kubelet;
mod scheduler;
mod workload_controllers;

use jiff::Timestamp;
use mortise_state::resource_kinds::{Object, ObjectKey};
use serde_json::Value;

use crate::clock::Clock;
use crate::options::Options;
use crate::stats::Stats;

pub use api_server::ApiServer;
pub(crate) use api_server::{is_deleting, object};
pub use cloud::{Cloud, SimInstance};
pub(crate) use effects::{execute, latency};
pub use extender::Extender;
pub(crate) use kube_scheduler::KubeScheduler;
pub(crate) use kubelet::{Kubelets, instance_gone, node_ready, pod_done, pod_stopped};
pub(crate) use workload_controllers::WorkloadControllers;

/// Time, objects, instances, and what has happened so far.
pub(crate) struct Cluster {
    pub(crate) clock: Clock,
    pub(crate) api_server: ApiServer,
    pub(crate) cloud: Cloud,
    pub(crate) stats: Stats,
}

impl Cluster {
    /// No object and no instance.
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            clock: Clock::new(options.start, options.seed),
            api_server: ApiServer::default(),
            cloud: Cloud::new(options.catalog.clone(), options.shortage_per_mille),
            stats: Stats::default(),
        }
    }

    pub(crate) const fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Notes what must not happen, with the time.
    pub(crate) fn violation(&mut self, text: &str) {
        let line = format!("{}: {text}", self.now());
        self.stats.violations.push(line);
    }

    /// A controller's own write. The object may have gone in between, which is what writers must live with.
    pub(crate) fn write(&mut self, key: &ObjectKey, merge: &Value) {
        if self.api_server.get(key).is_some()
            && let Err(error) = self.api_server.patch(key, merge, None)
        {
            self.violation(&format!("{key:?} was not written: {error}"));
        }
    }

    /// An object as the service reads it; one that it cannot read is a fault of this cluster.
    pub(crate) fn readable(&mut self, key: &ObjectKey, value: Value) -> Option<Object> {
        match object(key, value) {
            Ok(object) => Some(object),
            Err(error) => {
                self.violation(&format!("{key:?} cannot be read: {error}"));
                None
            }
        }
    }
}
