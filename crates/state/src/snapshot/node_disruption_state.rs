//! What the objects and pods of a node mean for disruption and packing.

use jiff::Timestamp;

use super::{Pod, StateNode};
use mortise_apis::schema::conditions;

/// Computed when a node changes, because scores of thousands of nodes per second depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeDisruptionState {
    /// When its condition `Drifted` became True; the maximum time if the condition has no time.
    pub drifted: Option<Timestamp>,
    /// When it expires; `None` for never, and for an unmanaged node.
    pub expires: Option<Timestamp>,
    /// Its NodeClaim is `Consolidatable`.
    pub consolidatable: bool,
    /// The condition `Ready` of its Node is `True`.
    pub ready: bool,
    /// The node or one of its pods has the do-not-disrupt annotation.
    pub do_not_disrupt: bool,
    /// Pods of Jobs.
    pub job_pods: usize,
    /// Other pods; DaemonSet pods and static pods are not counted.
    pub service_pods: usize,
}

impl NodeDisruptionState {
    /// The state of a node. Cost: the number of its pods.
    #[must_use]
    pub fn new(node: &StateNode) -> Self {
        let mut state = Self {
            do_not_disrupt: node.do_not_disrupt(),
            ready: node.node.as_ref().is_some_and(|node| {
                let condition = node.condition("Ready");
                condition.is_some_and(|condition| condition.status == "True")
            }),
            ..Self::default()
        };
        if let Some(claim) = &node.claim {
            let drifted = conditions::find(&claim.status.conditions, "Drifted");
            state.drifted = drifted
                .filter(|_| claim.is_true("Drifted"))
                .map(|condition| {
                    let from = condition.last_transition_time.as_ref();
                    from.map_or(Timestamp::MAX, |time| time.0)
                });
            state.expires = claim.expires_at();
            state.consolidatable = claim.is_true("Consolidatable");
        }
        for pod in &node.pods {
            if pod.is_daemon() || pod.is_node_owned() {
                continue;
            }
            state.count(pod);
        }
        state
    }

    fn count(&mut self, pod: &Pod) {
        if pod.is_of_job() {
            self.job_pods += 1;
        } else {
            self.service_pods += 1;
        }
        self.do_not_disrupt |= pod.is_protected_for_good();
    }

    /// Whether most of its pods have the same lifetime class as this one: Job pods, or other pods (also on an empty node).
    #[must_use]
    pub const fn suits(&self, ends_itself: bool) -> bool {
        if ends_itself {
            self.job_pods > self.service_pods
        } else {
            self.job_pods <= self.service_pods
        }
    }
}
