//! Why there is no room for a buffer to ask for.

use std::fmt;

use super::size::MOST_PODS;
use super::template::TemplateKind;
use mortise_apis::karpenter::capacitybuffer::{
    ACTIVE_CAPACITY, BufferLearningError, BufferScheduleError,
};
use mortise_apis::nearest::nearest;

/// Why a buffer could not be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BufferFailure {
    /// Neither reference is set.
    NoReference,
    /// `podTemplateRef` and `scalableRef` are both set.
    BothReferences,
    /// `provisioningStrategy` is unknown.
    UnknownStrategy(String),
    /// `scalableRef` names a kind that is not served.
    UnknownKind {
        /// API group.
        group: String,
        /// Kind.
        kind: String,
    },
    /// The object that the buffer refers to does not exist.
    NotFound {
        /// Its kind.
        kind: TemplateKind,
        /// Its name.
        name: String,
        /// Namespace of the buffer.
        namespace: String,
        /// The nearest name of an object of this kind in the namespace.
        nearest: Option<String>,
    },
    /// The pods of the template are invalid.
    InvalidTemplate(String),
    /// A quantity of `limits` cannot be read.
    InvalidLimits(String),
    /// `limits` are the only size, and the pods request none of the limited resources.
    UnlimitedPods(String),
    /// More pods than one buffer may have.
    TooManyPods(i64),
    /// Its schedule cannot be used.
    Schedule(BufferScheduleError),
    /// It cannot learn as its annotations demand.
    Learning(BufferLearningError),
}

impl BufferFailure {
    /// Reason of the condition `ReadyForProvisioning`.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotFound {
                kind: TemplateKind::PodTemplate,
                ..
            } => "PodTemplateNotFound",
            Self::NotFound { .. } => "ScalableRefNotFound",
            _ => "ResolutionFailed",
        }
    }
}

impl fmt::Display for BufferFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReference => f.write_str("Neither podTemplateRef nor scalableRef is set"),
            Self::BothReferences => {
                f.write_str("Both podTemplateRef and scalableRef are set; remove one of them")
            }
            Self::UnknownStrategy(strategy) => {
                write!(
                    f,
                    "spec.provisioningStrategy {strategy:?} is not served; {ACTIVE_CAPACITY} is, and is the default"
                )?;
                match nearest(strategy, [ACTIVE_CAPACITY]) {
                    Some(meant) => write!(f, "; did you mean {meant}?"),
                    None => Ok(()),
                }
            }
            Self::UnknownKind { group, kind } => {
                let kinds = TemplateKind::SCALABLE.map(TemplateKind::as_str);
                write!(
                    f,
                    "spec.scalableRef: {kind:?} of API group {group:?} is not served; {} of apps are",
                    kinds.join(", ")
                )?;
                match nearest(kind, kinds) {
                    Some(meant) if meant == *kind => write!(f, "; write apiGroup: apps"),
                    Some(meant) => write!(f, "; did you mean {meant}?"),
                    None => write!(f, "; use podTemplateRef for pods of other workloads"),
                }
            }
            Self::NotFound {
                kind,
                name,
                namespace,
                nearest,
            } => {
                write!(f, "{kind} {name:?} not found in namespace {namespace:?}")?;
                match nearest {
                    Some(meant) => write!(f, "; did you mean {meant:?}?"),
                    None => Ok(()),
                }
            }
            Self::InvalidTemplate(why) => write!(f, "the pod template is invalid: {why}"),
            Self::InvalidLimits(why) => write!(f, "spec.limits: {why}"),
            Self::UnlimitedPods(names) => write!(
                f,
                "spec.limits is the only size, and the pods request no {names}; set replicas, or limit a resource that they request"
            ),
            Self::Schedule(error) => error.fmt(f),
            Self::Learning(error) => error.fmt(f),
            Self::TooManyPods(pods) => write!(
                f,
                "the buffer is for {pods} pods; at most {MOST_PODS} are allowed, lower replicas, percentage or limits"
            ),
        }
    }
}
