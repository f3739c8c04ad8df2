//! What users and the cloud change while a simulation runs.

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::names::ProviderId;
use mortise_cloudprovider::UnavailableOffering;
use mortise_engine::effect::EffectError;
use mortise_state::resource_kinds::ObjectKey;
use serde_json::{Value, json};

use super::Simulation;
use crate::clock::Action;
use crate::cluster::{Cluster, NewPrice, StartTime, is_deleting};
use crate::workloads::Job;

impl Simulation {
    /// Something changes that is not consolidation: it may move pods back. Controllers note by themselves when workloads do.
    fn change(&mut self) {
        self.cluster.scores.moved.change(self.cluster.clock.now());
    }

    /// Of the instances that start from an image from now on, this share in percent never joins as a node.
    pub fn fail_boots(&mut self, image: &str, percent: u64) {
        self.change();
        self.kubelets.fail_boots(image, percent);
    }

    /// Of the pods that start on instances of an image from now on, this share in percent never becomes ready.
    pub fn fail_pods(&mut self, image: &str, percent: u64) {
        self.change();
        self.kubelets.fail_pods(image, percent);
    }

    /// Nodes that join from now on have this taint, which a component of the node removes after a time.
    pub(crate) fn add_boot_taint(&mut self, taint: Value, stays: StartTime) {
        self.change();
        self.kubelets.add_boot_taint(taint, stays);
    }

    /// Sets whether instances start without ever joining as nodes.
    pub fn break_images(&mut self, are_bad: bool) {
        self.change();
        self.kubelets.break_images(are_bad);
    }

    /// Nodes that join from now on have less CPU and memory than their instance types, by this percentage.
    pub fn withhold_capacity(&mut self, percent: i64) {
        self.change();
        self.kubelets.withhold_capacity(percent);
    }

    /// Applies a user's merge patch to the specification of an object.
    ///
    /// # Errors
    /// The object does not exist.
    pub fn edit(&mut self, key: &ObjectKey, mut merge: Value) -> Result<(), EffectError> {
        self.change();
        let api_server = &mut self.cluster.api_server;
        let generation = api_server
            .get(key)
            .and_then(|object| object.pointer("/metadata/generation")?.as_i64());
        merge["metadata"]["generation"] = json!(generation.unwrap_or(0) + 1);
        api_server.patch(key, &merge, None).map(drop)
    }

    /// Scales every workload to a percentage of its normal size; 0 = no pod runs.
    pub fn apply_scale(&mut self, percent: u32) {
        self.workloads.scale_percent = percent;
        if percent == 0 {
            let clock = &mut self.cluster.clock;
            let now = clock.now();
            for pod in self.kubelets.unstarted_jobs() {
                clock.at(now, Action::CompletePod(pod.clone()));
            }
        }
    }

    /// Sets the replicas of a workload, as `kubectl scale` does.
    pub fn scale(&mut self, deployment: &str, replicas: u32) {
        let scaled = &mut self.workloads.scaled;
        scaled.insert(deployment.to_owned(), replicas);
    }

    /// Replaces the template of a workload by an equal one, as `kubectl rollout restart` does.
    pub fn roll(&mut self, deployment: &str) {
        self.workloads.replace_template(deployment);
    }

    /// Creates a job, as `kubectl create` does.
    pub fn create_job(&mut self, job: Job) {
        self.workloads.create_job(job);
    }

    /// Deletes Nodes of a NodePool, the oldest first, as `kubectl delete node` does. Those that are being deleted do not count.
    pub fn delete_nodes(&mut self, pool: &str, count: usize) {
        self.change();
        let store = &mut self.cluster.api_server;
        let nodes = store.iter().filter(|(key, node)| {
            let labels = node.pointer("/metadata/labels");
            matches!(key, ObjectKey::Node(_))
                && !is_deleting(node)
                && labels.is_some_and(|all| all[labels::NODEPOOL] == pool)
        });
        let age = |node: &Value| {
            node["metadata"]["creationTimestamp"]
                .as_str()
                .map(str::to_owned)
        };
        let mut nodes: Vec<_> = nodes.map(|(key, node)| (age(node), key.clone())).collect();
        nodes.sort();
        for (_, key) in nodes.into_iter().take(count) {
            // They were found just now.
            if let Err(error) = store.delete(&key, None, self.cluster.clock.now()) {
                self.cluster
                    .violation(&format!("{key:?} was not deleted: {error}"));
                return;
            }
        }
    }

    /// Interrupts a spot instance: the notice arrives now, the instance is reclaimed two minutes later. `false`: there is none.
    pub fn interrupt_one(&mut self) -> bool {
        let Cluster { cloud, clock, .. } = &mut self.cluster;
        let id = cloud.any_spot_instance(&mut clock.random);
        id.is_some_and(|id| self.interrupt(&id))
    }

    pub(super) fn interrupt(&mut self, id: &ProviderId) -> bool {
        self.change();
        let Cluster {
            cloud,
            clock,
            stats,
            ..
        } = &mut self.cluster;
        let Some(notice) = cloud.interrupt(id, clock) else {
            return false;
        };
        stats.interruptions += 1;
        self.replicas.deliver(notice, clock.now());
        true
    }

    /// The cloud recommends to leave a spot instance. Returns it; `None`: there is none.
    pub fn recommend_rebalance(&mut self) -> Option<ProviderId> {
        self.change();
        let Cluster { cloud, clock, .. } = &mut self.cluster;
        let id = cloud.any_spot_instance(&mut clock.random)?;
        let notice = cloud.recommend_rebalance(&id, clock.now())?;
        self.replicas.deliver(notice, clock.now());
        Some(id)
    }

    /// An interruption of the random process: at once, or some time after it was recommended to leave the instance.
    pub(super) fn interrupt_any(&mut self) {
        let Some(ahead) = self.cluster.timing.rebalance_ahead else {
            self.interrupt_one();
            return;
        };
        if let Some(id) = self.recommend_rebalance() {
            let clock = &mut self.cluster.clock;
            let ms = ahead.draw(&mut clock.random);
            clock.in_ms(ms, Action::InterruptInstance(id));
        }
    }

    /// The capacity pools that match have no capacity until a time.
    pub fn empty_capacity(
        &mut self,
        until: Timestamp,
        is_empty: impl Fn(&UnavailableOffering) -> bool,
    ) {
        // The cloud is another now, and again when it ends.
        self.cluster.scores.moved.change(until);
        self.cluster.cloud.empty(until, is_empty);
    }

    /// The offerings that match have another price until [`Self::end_price_change`] is called with the same id, running
    /// instances too. Where changes overlap, each applies to the result of those with smaller ids.
    pub fn change_prices(
        &mut self,
        id: usize,
        to: NewPrice,
        is_meant: impl Fn(&UnavailableOffering) -> bool,
    ) {
        self.change();
        self.cluster.cloud.change_prices(id, to, is_meant);
        self.invariants.prices_changed(self.cluster.clock.now());
    }

    /// Ends a change of prices. Nothing happens if there is none with this id.
    pub fn end_price_change(&mut self, id: usize) {
        self.change();
        self.cluster.cloud.end_price_change(id);
        self.invariants.prices_changed(self.cluster.clock.now());
    }
}
