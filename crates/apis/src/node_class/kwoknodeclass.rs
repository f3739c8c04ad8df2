//! KWOKNodeClass: settings of the simulated provider.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::conditions::Condition;
use crate::schema::duration_text::DurationText;
use crate::schema::fields;
use crate::schema::groups::{KWOK_GROUP, V1ALPHA1};
use crate::schema::object::{is_default, object};

object! {
    /// Launch settings of simulated nodes, which exist only as objects.
    pub struct KwokNodeClass(KWOK_GROUP, V1ALPHA1, "KWOKNodeClass", "kwoknodeclasses", ClusterResourceScope) {
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
