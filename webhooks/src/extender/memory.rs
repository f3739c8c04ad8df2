//! What the extender keeps from one call to the next. None of it is needed for a right answer: it makes answers better.

use super::Charges;
use super::calls::Calls;
use super::held::HeldPods;
use super::rooms::Rooms;
use super::schedulers::Schedulers;
use super::shares::Shares;
use super::signals::Signals;

/// Everything that calls leave behind. All of it is bounded.
#[derive(Debug, Default)]
pub struct Memory {
    /// Room that passed pods may be about to take.
    pub charges: Charges,
    /// What DaemonSet pods will take of young nodes.
    pub rooms: Rooms,
    /// Pods that were denied everything.
    pub held: HeldPods,
    /// How workloads are divided between spot and other capacity.
    pub shares: Shares,
    /// Pods for which a node was left, for the workers.
    pub signals: Signals,
    /// The newest calls.
    pub calls: Calls,
    /// Which schedulers ask, and whether pods are bound without a call.
    pub schedulers: Schedulers,
    own_namespace: Option<Box<str>>,
}

impl Memory {
    /// Of a service that runs in this namespace: its pods there are never denied.
    #[must_use]
    pub fn of(namespace: &str) -> Self {
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
