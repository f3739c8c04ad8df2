//! KWOKNodeClass: settings of the simulated provider.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::conditions::Condition;
use crate::schema::duration_text::DurationText;
use crate::schema::fields;
use crate::schema::groups::{KWOK_GROUP, V1ALPHA1};
use crate::schema::object::{is_default, object};

object! {
    /// Settings of nodes that exist as objects only.
    pub struct KwokNodeClass(KWOK_GROUP, V1ALPHA1, "KWOKNodeClass", "kwoknodeclasses", ClusterResourceScope) {
        /// What is wanted.
        pub spec as "spec": KwokNodeClassSpec,
        /// What is.
        pub status as "status": KwokNodeClassStatus,
    }
}

/// How the simulated machines behave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KwokNodeClassSpec {
    /// How long a machine takes from its launch until its Node object appears.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = fields::DURATION))]
    pub node_registration_delay: Option<DurationText>,
}

/// Whether the class can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KwokNodeClassStatus {
    /// How the class is doing.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}
