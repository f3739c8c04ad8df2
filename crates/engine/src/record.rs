//! Decisions and refusals, with their reasons. Events, metrics, logs, `explain` and the page are functions of these.

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
    /// An instance was launched.
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
    /// A command was abandoned when it was validated again.
    Abandoned,
    /// A pod was evicted.
    Evicted,
    /// A node or claim is gone.
    Removed,
    /// The cloud announced something about an instance.
    Notified,
    /// A condition changed.
    Condition,
    /// A disruption was found, and is validated before it is done.
    Considered,
    /// A disruption is worth it by the policy of its NodePool.
    Approved,
    /// Something must happen elsewhere before the next step.
    Waiting,
    /// A node or claim is being deleted, or its deadline was set.
    Terminating,
    /// A fact to look into; nothing is done about it.
    Observed,
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
            Self::Considered => "considered",
            Self::Approved => "approved",
            Self::Waiting => "waiting",
            Self::Terminating => "terminating",
            Self::Observed => "observed",
        }
    }
}

/// Who sees a record. Each value includes those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// Users, by events on the objects ([`crate::events::events_of`]).
    Event,
    /// Readers of the decision log and of explanations.
    DecisionLog,
    /// Metrics alone.
    MetricsOnly,
}

impl Visibility {
    /// Whether the decision log contains it.
    #[must_use]
    pub const fn is_logged(self) -> bool {
        matches!(self, Self::Event | Self::DecisionLog)
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
    /// Who sees it.
    pub visibility: Visibility,
    /// Objects on which its events appear besides the subject: the NodeClaim of a Node, the Node of a NodeClaim.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<ObjectRef>,
    /// Generation of the snapshot it was decided on.
    pub generation: u64,
}
