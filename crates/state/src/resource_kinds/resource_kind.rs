//! Watched kinds as the API server serves them.

use mortise_apis::node_class::NodeClassKind;
use mortise_apis::schema::api_kind::ApiKind;

use super::object::ObjectKind;

/// When a kind is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchCondition {
    /// Always.
    Always,
    /// With the feature gate NodeOverlay.
    NodeOverlays,
    /// If its definition is installed.
    Policies,
    /// Unless devices are ignored, or the API server does not serve them.
    Devices,
    /// If the API server serves it.
    PodGroups,
    /// With default spread constraints, which take their selectors from these objects.
    SpreadDefaults,
    /// With the feature gate CapacityBuffer.
    Buffers,
    /// In either of the two cases.
    SpreadDefaultsOrBuffers,
    /// If ProvisioningRequests are served.
    Requests,
    /// With the feature gate CapacityBuffer, or if ProvisioningRequests are served.
    BuffersOrRequests,
    /// With the feature gate CapacityBuffer, or if drains hand pods over.
    BuffersOrHandOver,
}

/// A kind of object that is read, with its place in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceKind {
    /// Its kind in the index.
    pub index: ObjectKind,
    /// Its kind in the API.
    pub api: ApiKind,
    /// When it is watched.
    pub condition: WatchCondition,
}

impl ResourceKind {
    /// A node class kind of a provider.
    #[must_use]
    pub fn node_class(kind: NodeClassKind) -> Self {
        Self {
            index: ObjectKind::NodeClass {
                group: kind.group.into(),
                kind: kind.kind.into(),
            },
            api: kind.into(),
            condition: WatchCondition::Always,
        }
    }

    /// Every kind, with these node classes, in the order in which lists start: pods last, because they are the most.
    #[must_use]
    pub fn all(node_classes: &[NodeClassKind]) -> Vec<Self> {
        let classes = node_classes.iter().map(|kind| Self::node_class(*kind));
        let rows = Self::table().into_iter().rev();
        classes.chain(rows).collect()
    }

    /// Without it the cluster state is incomplete, and responses to the scheduler would be guesses.
    #[must_use]
    pub const fn is_vital(&self) -> bool {
        matches!(
            self.index,
            ObjectKind::Pod | ObjectKind::Node | ObjectKind::Claim | ObjectKind::Pool
        )
    }

    /// Whether it is written to as a whole, in addition to being read. What is written to Nodes and Pods is less.
    #[must_use]
    pub const fn is_written(&self) -> bool {
        matches!(
            self.index,
            ObjectKind::Claim
                | ObjectKind::Pool
                | ObjectKind::NodeClass { .. }
                | ObjectKind::Buffer
        )
    }
}
