//! Room that ProvisioningRequests ask for.
//!
//! A request is resolved to pods that exist in memory only and wait as any other pod does: they are placed, nominated and kept by the
//! extender, and nodes are launched for them. Until there is room for all of them they are a gang; from then on the room is booked,
//! and each pod that uses the request takes the place of one of them.
//!
//! Invariant: the pods of a request are a function of the request, of its PodTemplates and of the pods that use it. Every replica derives
//! the same.

use std::fmt;
use std::sync::Arc;

use super::MOST_PODS;
use mortise_apis::k8s::ProvisioningRequest;
use mortise_apis::names::{PodKey, Uid};

/// The room that a pod stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestedRoom {
    /// It is searched on nodes that exist.
    OnExisting,
    /// It is searched on new ones as well.
    OnAny,
    /// It was found, and is kept as long as its node exists.
    Booked,
}

/// The pods that stand for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedPods {
    /// UID of the request.
    pub uid: Uid,
    /// Those whose room is searched or booked, without those whose place a pod has taken.
    ///
    /// # Errors
    /// Why the request cannot be resolved.
    pub pods: Result<Arc<[PodKey]>, RequestFailure>,
}

/// Why a request cannot be resolved to pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// It asks for no pod.
    NoPods,
    /// It asks for more than is served.
    TooManyPods {
        /// How many.
        pods: i64,
    },
    /// A PodTemplate does not exist.
    NoTemplate {
        /// Its name.
        name: String,
        /// One of a similar name.
        nearest: Option<String>,
    },
    /// A PodTemplate describes no valid pod.
    InvalidTemplate {
        /// Its name.
        name: String,
        /// What is wrong.
        fault: String,
    },
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPods => f.write_str("spec.podSets asks for no pod: each count is 0"),
            Self::TooManyPods { pods } => write!(
                f,
                "spec.podSets asks for {pods} pods; at most {MOST_PODS} are served"
            ),
            Self::NoTemplate { name, nearest } => {
                write!(f, "PodTemplate {name:?} does not exist in the namespace")?;
                nearest
                    .as_ref()
                    .map_or(Ok(()), |near| write!(f, "; did you mean {near:?}?"))
            }
            Self::InvalidTemplate { name, fault } => {
                write!(f, "PodTemplate {name:?} is invalid: {fault}")
            }
        }
    }
}

impl RequestedRoom {
    /// Whether nodes may be launched for it.
    #[must_use]
    pub const fn may_launch(self) -> bool {
        matches!(self, Self::OnAny)
    }
}

/// Whether a request asks for pods, and for no more than are served.
///
/// # Errors
/// None, or too many.
pub(crate) fn check_counts(request: &ProvisioningRequest) -> Result<(), RequestFailure> {
    let counts = request.spec.pod_sets.iter().map(|set| set.count.max(0));
    match counts.fold(0, i64::saturating_add) {
        0 => Err(RequestFailure::NoPods),
        pods if pods > MOST_PODS => Err(RequestFailure::TooManyPods { pods }),
        _ => Ok(()),
    }
}
