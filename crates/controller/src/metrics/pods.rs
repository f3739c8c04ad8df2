//! Pods: how long they wait for a node and for their start, and their evictions.
//!
//! Times are measured from a pod's creation to the time at which this process observed the change. Pods that were bound or
//! ready when first observed are not counted: their time is unknown.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use mortise_apis::names::Uid;
use mortise_apis::values::since;
use mortise_state::snapshot::Pod;

use super::families::{Buckets, Families};
use super::labels;
use super::numbers::seconds;
use super::series::{SeriesRow, series};
use super::summary::Summary;

series! {
    /// The families.
    PodSeries {
        startup: always summary[] "karpenter_pods_startup_duration_seconds" "Time from the creation of a pod until it is ready";
        bound: always histogram[Buckets::DURATIONS] "karpenter_pods_bound_duration_seconds" "Time from the creation of a pod until it is bound";
        decided: always histogram[Buckets::DURATIONS] "karpenter_pods_scheduling_decision_duration_seconds" "Time from the creation of a pod until it is nominated";
        drained: always counter[labels::ReasonOnly; 8] "karpenter_pods_drained" "Pods evicted from terminating nodes, by reason";
        handed_over: always counter[labels::ReasonOnly; 8] "mortise_pods_handed_over" "Pods whose Deployment was restarted instead of evicting them, by reason";
        evictions: always counter[labels::Code; 16] "karpenter_pods_eviction_requests" "Eviction requests by HTTP status";
        initiated: full counter[labels::Disrupted; 0] "karpenter_pods_disruption_initiated" "Pods to reschedule on disrupted nodes";
        provisioned_bound: full histogram[Buckets::DURATIONS] "karpenter_pods_provisioning_bound_duration_seconds" "Time from the creation of a nominated pod until it is bound";
        provisioned_startup: full histogram[Buckets::DURATIONS] "karpenter_pods_provisioning_startup_duration_seconds" "Time from the creation of a nominated pod until it is ready";
    }
}

/// The families, and the pods that were nominated here.
#[derive(Debug)]
pub(crate) struct PodMetrics {
    series: PodSeries,
    /// Nominated pods that are not ready yet.
    placed: Mutex<BTreeSet<Uid>>,
}

impl PodMetrics {
    pub(super) fn register(families: &mut Families<'_>) -> Self {
        Self {
            series: PodSeries::register(families),
            placed: Mutex::default(),
        }
    }

    /// The rows of the table.
    pub(super) fn rows() -> Vec<SeriesRow> {
        PodSeries::rows()
    }

    /// From creation to ready.
    pub(super) const fn startup(&self) -> &Summary {
        &self.series.startup
    }

    /// Nominated pods that are not ready yet.
    pub(crate) fn placed(&self) -> MutexGuard<'_, BTreeSet<Uid>> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the nomination of a pod.
    pub(crate) fn nominated(&self, pod: &Pod, now: Timestamp) {
        if pod.node.is_none() && self.placed().insert(pod.uid.clone()) {
            self.series
                .decided
                .observe(seconds(since(now, pod.created)));
        }
    }

    /// Counts an evicted pod.
    pub(super) fn drained(&self, reason: &'static str) {
        self.series.drained.count(&labels::ReasonOnly { reason });
    }

    /// Counts a pod that was handed over.
    pub(super) fn handed_over(&self, reason: &'static str) {
        let labels = labels::ReasonOnly { reason };
        self.series.handed_over.count(&labels);
    }

    /// Records the disruption of a node with this number of pods.
    pub(super) fn initiated(&self, labels: &labels::Disrupted, pods: usize) {
        self.series.initiated.with(labels, |counter| {
            counter.inc_by(u64::try_from(pods).unwrap_or(u64::MAX));
        });
    }

    /// Counts a response to an eviction with this HTTP status.
    pub(crate) fn eviction(&self, code: u16) {
        let code = status_label(code);
        self.series.evictions.count(&labels::Code { code });
    }

    /// Records the change or deletion of a pod.
    pub(crate) fn changed(&self, before: &Pod, after: Option<&Pod>, now: Timestamp) {
        let after = after.filter(|after| after.uid == before.uid);
        let Some(after) = after.filter(|after| !after.is_terminal()) else {
            self.placed().remove(&before.uid);
            return;
        };
        let took = seconds(since(now, after.created));
        if before.node.is_none() && after.node.is_some() {
            self.series.bound.observe(took);
            if self.placed().contains(&after.uid) {
                self.series.provisioned_bound.observe(took);
            }
        }
        if !before.ready && after.ready {
            self.series.startup.observe("", took);
            if self.placed().remove(&after.uid) {
                self.series.provisioned_startup.observe(took);
            }
        }
    }
}

/// A status as a label; statuses that the API server never sends for evictions are grouped by class.
const fn status_label(code: u16) -> &'static str {
    match code {
        200..=299 => "200",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        408 => "408",
        409 => "409",
        422 => "422",
        429 => "429",
        500 => "500",
        503 => "503",
        504 => "504",
        ..500 => "4xx",
        _ => "5xx",
    }
}
