//! Decisions and refusals, with their reasons. Events, metrics, logs, `explain` and the page are views of these.

use jiff::Timestamp;
use serde::Serialize;

use crate::decider_id::DeciderId;
use mortise_apis::names::ObjectRef;
use mortise_planning::reason::Reason;

/// What was decided about a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A pod is expected on an existing or coming node.
    Nominated,
    /// A new node was decided.
    NodePlanned,
    /// A pod fits nowhere.
    Unschedulable,
    /// A pod is not ours to place.
    Ignored,
    /// A pod needs nothing of us: kube-scheduler has a node for it.
    LeftToScheduler,
    /// A pod is no longer expected where it was.
    Withdrawn,
    /// A pod is unschedulable, and no node is on its way for it.
    Stalled,
    /// A machine was launched.
    Launched,
    /// A launch failed.
    LaunchFailed,
    /// The node registered.
    Registered,
    /// The node is initialized.
    Initialized,
    /// Nodes will be removed, replaced by fewer or cheaper ones or by none.
    Disrupted,
    /// A disruption was considered and not done.
    Refused,
    /// A node that should go cannot.
    Blocked,
    /// A command was abandoned when it was looked at again.
    Abandoned,
    /// A pod was asked to leave.
    Evicted,
    /// A node or claim is gone.
    Removed,
    /// The cloud announced something about a machine.
    Notified,
    /// A condition changed.
    Condition,
}

impl Verdict {
    /// Word for metrics and summaries.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Nominated => "nominated",
            Self::NodePlanned => "node_planned",
            Self::Unschedulable => "unschedulable",
            Self::Ignored => "ignored",
            Self::LeftToScheduler => "left_to_scheduler",
            Self::Withdrawn => "withdrawn",
            Self::Stalled => "stalled",
            Self::Launched => "launched",
            Self::LaunchFailed => "launch_failed",
            Self::Registered => "registered",
            Self::Initialized => "initialized",
            Self::Disrupted => "disrupted",
            Self::Refused => "refused",
            Self::Blocked => "blocked",
            Self::Abandoned => "abandoned",
            Self::Evicted => "evicted",
            Self::Removed => "removed",
            Self::Notified => "notified",
            Self::Condition => "condition",
        }
    }
}

/// One decision or refusal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// When.
    pub at: Timestamp,
    /// Who decided.
    pub decider: DeciderId,
    /// About what.
    pub subject: ObjectRef,
    /// What.
    pub verdict: Verdict,
    /// Why.
    pub reasons: Vec<Reason>,
    /// Generation of the snapshot it was decided on.
    pub generation: u64,
}
