//! Why a disruption is rejected, as typed facts.

use std::fmt;

use crate::reason::Reason;
use mortise_apis::names::{PodKey, PoolName};

/// Why nodes are not disrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptionRejection {
    /// For the event.
    pub text: RejectionText,
    /// For the record.
    pub reasons: Vec<Reason>,
    /// The NodePool whose policy `Balanced` rejects the disruption, and the score in hundredths.
    pub scored: Option<(PoolName, i64)>,
    /// Time ran out before the result was known.
    pub stopped: bool,
}

/// The text of the event; Karpenter's where Karpenter has one, because alerts may match it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RejectionText {
    /// The text of the reason.
    Reason(Box<Reason>),
    /// No replacement is cheaper.
    NoCheaperNode,
    /// The price of a node is unknown.
    UnknownPrice,
    /// This many new nodes are needed.
    TooManyNodes(usize),
    /// Pods that cannot be scheduled elsewhere, and why.
    Unschedulable(Vec<(PodKey, UnschedulableText)>),
    /// A limit of the NodePool; the message states which.
    PoolLimit(PoolName, String),
    /// The score of the policy `Balanced`, in hundredths.
    BelowThreshold(PoolName, i64),
    /// Time ran out.
    Stopped,
}

/// Why one pod cannot be scheduled elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnschedulableText {
    /// The message of the scheduler.
    Message(String),
    /// The scheduler reports nothing.
    Unknown,
    /// Only on this node, which is not initialized.
    Uninitialized(String),
}

impl DisruptionRejection {
    /// A rejection with an event text that differs from its reasons.
    pub const fn new(text: RejectionText, reasons: Vec<Reason>) -> Self {
        Self {
            text,
            reasons,
            scored: None,
            stopped: false,
        }
    }

    /// A rejection whose event shows its reason.
    pub fn from_reason(reason: impl Into<Reason>) -> Self {
        let reason = reason.into();
        let text = RejectionText::Reason(Box::new(reason.clone()));
        Self::new(text, vec![reason])
    }

    /// A simulation that was stopped before its end.
    pub(super) fn stopped() -> Self {
        Self {
            stopped: true,
            ..Self::new(RejectionText::Stopped, Vec::new())
        }
    }
}

impl fmt::Display for RejectionText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reason(reason) => reason.fmt(f),
            Self::NoCheaperNode => f.write_str("Can't replace with a cheaper node"),
            Self::UnknownPrice => f.write_str("Price of the node is not known"),
            Self::TooManyNodes(count) => {
                write!(f, "Can't remove without creating {count} candidates")
            }
            Self::Unschedulable(pods) => {
                f.write_str("Not all pods would schedule,")?;
                pods.iter()
                    .try_for_each(|(pod, why)| write!(f, " {pod} => {why}"))
            }
            Self::PoolLimit(pool, message) => write!(f, "NodePool \"{pool}\": {message}"),
            Self::BelowThreshold(pool, percent) => write!(
                f,
                "NodePool \"{pool}\": savings are not worth the disruption (score {}.{:02} < threshold 0.50)",
                percent / 100,
                percent % 100
            ),
            Self::Stopped => Ok(()),
        }
    }
}

impl fmt::Display for UnschedulableText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(message) => f.write_str(message),
            Self::Unknown => f.write_str("no place"),
            Self::Uninitialized(node) => write!(f, "would schedule against uninitialized {node}"),
        }
    }
}
