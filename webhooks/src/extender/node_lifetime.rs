//! How long a node will be there, as far as objects tell.

use jiff::Timestamp;
use mortise_apis::values::since;
use mortise_state::snapshot::{NodeDisruptionState, StateNode};

use super::IncomingPod;

/// A node that should go is left to scores for this long: most are gone by then. One that is blocked longer gets no new
/// pods while there are others.
const BLOCKED_MS: i64 = 2 * 60_000;
/// A pod that must not be disturbed, and does not say how long it runs, is kept away from nodes with less left than this.
const UNDISTURBED_MS: i64 = 60 * 60_000;
/// A node with less left than this is near its end, for pods that may be moved.
const NEAR_END_MS: i64 = 60 * 60_000;

/// What is left of a node's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeLifetime {
    /// Since how many milliseconds it should go, but is there still: it has drifted.
    pub drifted_ms: Option<i64>,
    /// Milliseconds until it expires; `None` for never.
    pub remaining_ms: Option<i64>,
}

impl NodeLifetime {
    /// The life of a node. Of one that is not ours nothing is known.
    #[must_use]
    pub fn from_node(node: &StateNode, now: Timestamp) -> Self {
        let NodeDisruptionState {
            drifted, expires, ..
        } = node.disruption_state;
        Self {
            drifted_ms: drifted.map(|from| since(now, from).max(0)),
            remaining_ms: expires.map(|at| since(at, now).max(0)),
        }
    }

    /// It should have gone a while ago.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.drifted_ms.is_some_and(|ms| ms >= BLOCKED_MS)
    }

    /// It should go, or will soon.
    #[must_use]
    pub fn is_near_end(&self) -> bool {
        self.drifted_ms.is_some() || self.remaining_ms.is_some_and(|left| left < NEAR_END_MS)
    }

    /// It will certainly be gone before the pod is done, and the pod would have to begin again.
    #[must_use]
    pub fn ends_before(&self, incoming: &IncomingPod) -> bool {
        let undisturbed = incoming.pod.do_not_disrupt.as_deref() == Some("true");
        let needed = match incoming.run_ms {
            Some(run) => run,
            None if undisturbed => UNDISTURBED_MS,
            None => return false,
        };
        // A drifted node goes as soon as it may; what only runs to its end lets it wait.
        (undisturbed && self.drifted_ms.is_some())
            || self.remaining_ms.is_some_and(|left| left < needed)
    }
}
