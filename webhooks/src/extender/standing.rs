//! How long a node will be there, as far as objects tell.

use jiff::Timestamp;
use mortise_core::apis::conditions;
use mortise_core::deciders::since;
use mortise_core::snapshot::StateNode;

use super::Asker;
use super::asker::is_job;

/// A node that should go is left to scores for this long: most are gone by then. One that is blocked longer gets no new
/// pods while there are others.
const BLOCKED_MS: i64 = 2 * 60_000;
/// A pod that must not be disturbed, and does not say how long it runs, is kept away from nodes with less left than this.
const UNDISTURBED_MS: i64 = 60 * 60_000;
/// A node with less left than this is near its end, for pods that may be moved.
const NEAR_END_MS: i64 = 60 * 60_000;

/// A node's life, and whom it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Since how many milliseconds it should go, but is there still: it has drifted.
    pub retires_ms: Option<i64>,
    /// Milliseconds until it expires; `None` for never.
    pub left_ms: Option<i64>,
}

impl Life {
    /// The life of a node. Of one that is not ours nothing is known.
    #[must_use]
    pub fn of(node: &StateNode, now: Timestamp) -> Self {
        let Some(claim) = &node.claim else {
            return Self::default();
        };
        let drifted = conditions::find(&claim.status.conditions, "Drifted")
            .filter(|_| claim.is_true("Drifted"));
        let retires_ms = drifted.map(|condition| {
            let from = condition.last_transition_time.as_ref();
            from.map_or(0, |time| since(now, time.0).max(0))
        });
        let left_ms = claim.expires_at().map(|at| since(at, now).max(0));
        Self {
            retires_ms,
            left_ms,
        }
    }

    /// It should have gone a while ago.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.retires_ms.is_some_and(|ms| ms >= BLOCKED_MS)
    }

    /// It should go, or will soon.
    #[must_use]
    pub fn is_near_end(&self) -> bool {
        self.retires_ms.is_some() || self.left_ms.is_some_and(|left| left < NEAR_END_MS)
    }

    /// It will certainly be gone before the pod is done, and the pod would have to begin again.
    #[must_use]
    pub fn ends_before(&self, asker: &Asker) -> bool {
        let undisturbed = asker.pod.do_not_disrupt.as_deref() == Some("true");
        let needed = match asker.run_ms {
            Some(run) => run,
            None if undisturbed => UNDISTURBED_MS,
            None => return false,
        };
        // A drifted node goes as soon as it may; what only runs to its end lets it wait.
        (undisturbed && self.retires_ms.is_some()) || self.left_ms.is_some_and(|left| left < needed)
    }
}

/// What kind of pods a node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Company {
    /// Pods that end by themselves.
    pub jobs: usize,
    /// Others, DaemonSet pods and the node's own not counted.
    pub others: usize,
    /// Some pod, or the node itself, must not be disturbed.
    pub undisturbed: bool,
}

impl Company {
    /// Who is on a node. Cost: its pods.
    #[must_use]
    pub fn of(node: &StateNode) -> Self {
        let mut company = Self {
            undisturbed: node.do_not_disrupt(),
            ..Self::default()
        };
        for pod in &node.pods {
            match &pod.owner {
                Some(owner) if matches!(&*owner.kind, "DaemonSet" | "Node") => continue,
                Some(owner) if is_job(&owner.kind) => company.jobs += 1,
                _ => company.others += 1,
            }
            company.undisturbed |= pod.do_not_disrupt.as_deref() == Some("true");
        }
        company
    }

    /// Most of its pods are such as this one: jobs with jobs, services with services or on an empty node.
    #[must_use]
    pub const fn suits(&self, ends_itself: bool) -> bool {
        if ends_itself {
            self.jobs > self.others
        } else {
            self.jobs <= self.others
        }
    }
}
