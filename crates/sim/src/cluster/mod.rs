//! The virtual cluster around the service: API server, cloud, kubelets, scheduler and workload controllers.
//!
//! [`Cluster`] is their shared state; each component owns its private state.

mod api_server;
mod cloud;
mod deletion_order;
mod effects;
mod extender;
mod kube_scheduler;
mod kubelet;
mod ordinals;
mod pod_index;
mod pod_start;
mod rolling_update;
mod running_jobs;
mod scheduler;
mod timing;
pub(crate) mod workload_controllers;
mod zonal_volumes;

use jiff::Timestamp;
use mortise_state::resource_kinds::{Object, ObjectKey};
use serde_json::Value;

use crate::clock::Clock;
use crate::gang_history::GangHistory;
use crate::options::SimOptions;
use crate::scores::ScoreMeter;
use crate::stats::Stats;

pub use api_server::ApiServer;
pub(crate) use api_server::{is_deleting, object};
pub(crate) use cloud::{AccountLimits, FIRST_IMAGE, NodeClassTypes};
pub use cloud::{Cloud, NewPrice, RESERVATION_ID, SimInstance, TAGGED};
pub(crate) use effects::{Executed, delete_object, execute, latency};
pub use extender::Extender;
pub(crate) use kube_scheduler::KubeScheduler;
pub(crate) use kubelet::{
    Kubelets, complete_pod, mark_node_ready, node_name, remove_instance, remove_stopped_pod,
    remove_taint,
};
pub(crate) use pod_start::PulledImages;
pub(crate) use timing::{StartTime, Timing};
pub(crate) use workload_controllers::{WorkloadControllers, create_planned};

/// Time, objects, instances and totals.
pub(crate) struct Cluster {
    pub(crate) clock: Clock,
    pub(crate) api_server: ApiServer,
    pub(crate) cloud: Cloud,
    pub(crate) stats: Stats,
    pub(crate) scores: ScoreMeter,
    pub(crate) gangs: GangHistory,
    pub(crate) timing: Timing,
    pub(crate) images: PulledImages,
}

impl Cluster {
    /// A cluster without objects and instances.
    pub(crate) fn new(options: &SimOptions) -> Self {
        let cloud = Cloud::new(options.catalog.clone(), options.shortage_per_mille);
        Self::with_cloud(cloud, options.start, options.seed)
    }

    /// A cluster with this cloud and without objects.
    pub(crate) fn with_cloud(cloud: Cloud, start: Timestamp, seed: u64) -> Self {
        Self {
            clock: Clock::new(start, seed),
            api_server: ApiServer::default(),
            cloud,
            stats: Stats::default(),
            scores: ScoreMeter::default(),
            gangs: GangHistory::default(),
            timing: Timing::default(),
            images: PulledImages::default(),
        }
    }

    pub(crate) const fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Records a violation with the current time.
    pub(crate) fn violation(&mut self, text: &str) {
        let line = format!("{}: {text}", self.now());
        self.stats.violations.push(line);
    }

    /// A controller's write. It is skipped if the object was deleted in between, which controllers must tolerate.
    pub(crate) fn write(&mut self, key: &ObjectKey, merge: &Value) {
        if self.api_server.get(key).is_some()
            && let Err(error) = self.api_server.patch(key, merge, None)
        {
            self.violation(&format!("{key:?} was not written: {error}"));
        }
    }

    /// Parses an object as the service does; an object that cannot be parsed is recorded as a violation.
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
