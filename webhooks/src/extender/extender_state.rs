//! What the extender keeps from one call to the next. None of it is needed for a right answer: it makes answers better.

use super::AssumedPods;
use super::call_log::CallLog;
use super::daemonset_reservations::DaemonSetReservations;
use super::denied_pods::DeniedPods;
use super::feasibility_signals::FeasibilitySignals;
use super::schedulers::Schedulers;
use super::spot_counts::SpotCounts;

/// Everything that calls leave behind. All of it is bounded.
#[derive(Debug, Default)]
pub struct ExtenderState {
    /// Room that passed pods may be about to take.
    pub assumed_pods: AssumedPods,
    /// What DaemonSet pods will take of young nodes.
    pub daemonset_reservations: DaemonSetReservations,
    /// Pods that were denied everything.
    pub denied_pods: DeniedPods,
    /// How workloads are divided between spot and other capacity.
    pub spot_counts: SpotCounts,
    /// Pods for which a node was left, for the workers.
    pub feasibility_signals: FeasibilitySignals,
    /// The newest calls.
    pub call_log: CallLog,
    /// Which schedulers ask, and whether pods are bound without a call.
    pub schedulers: Schedulers,
    own_namespace: Option<Box<str>>,
}

impl ExtenderState {
    /// Of a service that runs in this namespace: its pods there are never denied.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        Self {
            own_namespace: Some(namespace.into()),
            ..Self::default()
        }
    }

    /// Where the service's own pods are; `None` when it runs outside a cluster.
    #[must_use]
    pub fn own_namespace(&self) -> Option<&str> {
        self.own_namespace.as_deref()
    }
}
