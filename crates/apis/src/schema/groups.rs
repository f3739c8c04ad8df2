//! Groups, versions and the reference to a node class.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::NodeClassKey;
use crate::schema::fields;

/// API group of NodePool, NodeClaim and NodeOverlay.
pub const GROUP: &str = "karpenter.sh";
/// Version of NodePool and NodeClaim.
pub const V1: &str = "v1";
/// Version of NodeOverlay and NodePoolPolicy.
pub const V1ALPHA1: &str = "v1alpha1";
/// API group of CapacityBuffer.
pub const AUTOSCALING_GROUP: &str = "autoscaling.x-k8s.io";
/// API group of NodePoolPolicy.
pub const OWN_GROUP: &str = "mortise.sh";
/// Version of CapacityBuffer.
pub const V1BETA1: &str = "v1beta1";

/// Names the object that holds a provider's settings for a pool.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(default)]
#[schemars(extend("required" = ["group", "kind", "name"]))]
pub struct NodeClassRef {
    /// API group of the node class.
    #[schemars(extend(
        "pattern" = "^[^/]*$",
        "x-kubernetes-validations" = [fields::rule("self != ''", "group may not be empty")]
    ))]
    pub group: String,
    /// Kind of the node class.
    #[schemars(extend("x-kubernetes-validations" = [fields::rule("self != ''", "kind may not be empty")]))]
    pub kind: String,
    /// Name of the node class.
    #[schemars(extend("x-kubernetes-validations" = [fields::rule("self != ''", "name may not be empty")]))]
    pub name: String,
}

impl NodeClassRef {
    /// The reference as a key.
    #[must_use]
    pub fn key(&self) -> NodeClassKey {
        NodeClassKey::new(self.group.as_str(), self.kind.as_str(), self.name.as_str())
    }
}
