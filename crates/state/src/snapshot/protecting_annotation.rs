//! The annotation that keeps a pod or node from being disrupted.

use mortise_apis::labels;
use serde::Serialize;

/// Which one it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtectingAnnotation {
    /// Karpenter's, on pods and nodes.
    #[default]
    DoNotDisrupt,
    /// Cluster Autoscaler's on pods.
    SafeToEvict,
    /// Cluster Autoscaler's on nodes.
    ScaleDownDisabled,
}

impl ProtectingAnnotation {
    /// Its key.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::DoNotDisrupt => labels::DO_NOT_DISRUPT,
            Self::SafeToEvict => labels::SAFE_TO_EVICT,
            Self::ScaleDownDisabled => labels::SCALE_DOWN_DISABLED,
        }
    }
}
