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
use prometheus_client::metrics::histogram::Histogram;

use super::bounded::Counters;
use super::families::Families;
use super::labels;
use super::numbers::seconds;
use super::summary::Summary;

/// The families, and the pods that were nominated here.
#[derive(Debug)]
pub(crate) struct PodMetrics {
    /// From creation to ready.
    pub(super) startup: Summary,
    bound: Histogram,
    decided: Histogram,
    drained: Counters<labels::ReasonOnly>,
    evictions: Counters<labels::Code>,
    initiated: Option<Counters<labels::Disrupted>>,
    provisioned: Option<Provisioned>,
    /// Nominated pods that are not ready yet.
    placed: Mutex<BTreeSet<Uid>>,
}

/// The same times, of pods that were nominated here.
#[derive(Debug)]
struct Provisioned {
    bound: Histogram,
    startup: Histogram,
}

impl PodMetrics {
    pub(super) fn register(families: &mut Families<'_>) -> Self {
        let durations = families.durations();
        Self {
            startup: Summary::new(
                "karpenter_pods_startup_duration_seconds",
                "Time from the creation of a pod until it is ready",
                None,
                1,
            ),
            bound: families.histogram(
                "karpenter_pods_bound_duration_seconds",
                "Time from the creation of a pod until it is bound",
                durations,
            ),
            decided: families.histogram(
                "karpenter_pods_scheduling_decision_duration_seconds",
                "Time from the creation of a pod until it is nominated",
                durations,
            ),
            drained: families.counters(
                "karpenter_pods_drained",
                "Pods evicted from terminating nodes, by reason",
                8,
            ),
            evictions: families.counters(
                "karpenter_pods_eviction_requests",
                "Eviction requests by HTTP status",
                16,
            ),
            initiated: families.is_full().then(|| {
                families.counters(
                    "karpenter_pods_disruption_initiated",
                    "Pods to reschedule on disrupted nodes",
                    0,
                )
            }),
            provisioned: families.is_full().then(|| Provisioned {
                bound: families.histogram(
                    "karpenter_pods_provisioning_bound_duration_seconds",
                    "Time from the creation of a nominated pod until it is bound",
                    durations,
                ),
                startup: families.histogram(
                    "karpenter_pods_provisioning_startup_duration_seconds",
                    "Time from the creation of a nominated pod until it is ready",
                    durations,
                ),
            }),
            placed: Mutex::default(),
        }
    }

    /// Nominated pods that are not ready yet.
    pub(crate) fn placed(&self) -> MutexGuard<'_, BTreeSet<Uid>> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the nomination of a pod.
    pub(crate) fn nominated(&self, pod: &Pod, now: Timestamp) {
        if pod.node.is_none() && self.placed().insert(pod.uid.clone()) {
            self.decided.observe(seconds(since(now, pod.created)));
        }
    }

    /// Counts an evicted pod.
    pub(super) fn drained(&self, reason: &'static str) {
        self.drained.count(&labels::ReasonOnly { reason });
    }

    /// Records the disruption of a node with this number of pods.
    pub(super) fn initiated(&self, labels: &labels::Disrupted, pods: usize) {
        if let Some(family) = &self.initiated {
            family.with(labels, |counter| {
                counter.inc_by(u64::try_from(pods).unwrap_or(u64::MAX));
            });
        }
    }

    /// Counts a response to an eviction with this HTTP status.
    pub(crate) fn eviction(&self, code: u16) {
        let code = status_label(code);
        self.evictions.count(&labels::Code { code });
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
            self.bound.observe(took);
            if let Some(own) = &self.provisioned
                && self.placed().contains(&after.uid)
            {
                own.bound.observe(took);
            }
        }
        if !before.ready && after.ready {
            self.startup.observe("", took);
            let placed = self.placed().remove(&after.uid);
            if let Some(own) = self.provisioned.as_ref().filter(|_| placed) {
                own.startup.observe(took);
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
