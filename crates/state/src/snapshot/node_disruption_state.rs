//! What a machine's objects say of how long it will be there, and whom it holds.

use jiff::Timestamp;

use super::{Pod, StateNode};
use mortise_apis::schema::conditions;

/// Computed when a machine changes: scores of thousands of nodes a second are made of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeDisruptionState {
    /// Since when it should go but is there still: its condition `Drifted` is True. The end of time when it does not say.
    pub drifted: Option<Timestamp>,
    /// When it expires; `None` for never, and for a machine that is not ours.
    pub expires: Option<Timestamp>,
    /// Its claim is `Consolidatable`.
    pub consolidatable: bool,
    /// Something on it, or it itself, must not be disturbed.
    pub do_not_disrupt: bool,
    /// Pods of Jobs.
    pub job_pods: usize,
    /// Other pods; those of DaemonSets and the node's own not counted.
    pub service_pods: usize,
}

impl NodeDisruptionState {
    /// The standing of a machine. Cost: its pods.
    #[must_use]
    pub fn of(machine: &StateNode) -> Self {
        let mut standing = Self {
            do_not_disrupt: machine.do_not_disrupt(),
            ..Self::default()
        };
        if let Some(claim) = &machine.claim {
            let drifted = conditions::find(&claim.status.conditions, "Drifted");
            standing.drifted = drifted
                .filter(|_| claim.is_true("Drifted"))
                .map(|condition| {
                    let from = condition.last_transition_time.as_ref();
                    from.map_or(Timestamp::MAX, |time| time.0)
                });
            standing.expires = claim.expires_at();
            standing.consolidatable = claim.is_true("Consolidatable");
        }
        for pod in &machine.pods {
            if pod.is_daemon() || pod.is_node_owned() {
                continue;
            }
            standing.count(pod);
        }
        standing
    }

    fn count(&mut self, pod: &Pod) {
        if pod.is_of_job() {
            self.job_pods += 1;
        } else {
            self.service_pods += 1;
        }
        self.do_not_disrupt |= pod.do_not_disrupt.as_deref() == Some("true");
    }

    /// Most of its pods are such as this one: jobs with jobs, services with services or on an empty node.
    #[must_use]
    pub const fn suits(&self, ends_itself: bool) -> bool {
        if ends_itself {
            self.job_pods > self.service_pods
        } else {
            self.job_pods <= self.service_pods
        }
    }
}
