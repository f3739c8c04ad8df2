//! KWOKNodeClass: settings of the simulated provider.

use mortise_apis::node_class::NodeClassKind;
use mortise_apis::object;
use mortise_apis::schema::conditions::{Condition, KnownConditions, READY};
use mortise_apis::schema::duration_text::DurationText;
use mortise_apis::schema::fields;
use mortise_apis::schema::object::is_default;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::labels::GROUP;

/// Group, version, kind and plural.
pub const KIND: NodeClassKind = NodeClassKind {
    group: GROUP,
    version: "v1alpha1",
    kind: "KWOKNodeClass",
    plural: "kwoknodeclasses",
};

/// Conditions of a KWOKNodeClass.
pub const CONDITIONS: KnownConditions = KnownConditions {
    root: Some(READY),
    dependents: &[],
};
object! {
    /// Launch settings of simulated nodes, which exist only as objects.
    pub struct KwokNodeClass(KIND.group, KIND.version, KIND.kind, KIND.plural, ClusterResourceScope) {
        /// What is wanted.
        pub spec as "spec": KwokNodeClassSpec,
        /// What is.
        pub status as "status": KwokNodeClassStatus,
    }
}

/// Behavior of the simulated nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KwokNodeClassSpec {
    /// Delay between the launch and the creation of the Node object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = fields::DURATION))]
    pub node_registration_delay: Option<DurationText>,
}

/// Observed state of the node class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KwokNodeClassStatus {
    /// Conditions of the node class.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}
