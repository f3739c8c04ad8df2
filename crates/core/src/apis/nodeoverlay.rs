//! NodeOverlay: other prices and added resources for instance types.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::apis::conditions::Condition;
use crate::apis::names::{GROUP, V1ALPHA1};
use crate::apis::object::{is_default, null_as_default, object};
use crate::apis::requirement::RequirementSpec;
use crate::apis::schema;

object! {
    /// Changes what the scheduling decisions believe about the price and the resources of matching instance types.
    pub struct NodeOverlay(GROUP, V1ALPHA1, "NodeOverlay", "nodeoverlays", ClusterResourceScope) {
        /// What is wanted.
        pub spec as "spec": NodeOverlaySpec,
        /// What is.
        pub status as "status": NodeOverlayStatus,
    }
}

/// Which instance types an overlay is about, and what it changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["requirements"],
    "x-kubernetes-validations" = [schema::rule(
        "!has(self.price) || !has(self.priceAdjustment)",
        "cannot set both 'price' and 'priceAdjustment'",
    )]
))]
pub struct NodeOverlaySpec {
    /// The overlay applies where all of these hold, for the labels of the instance type, the offering and the pool.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend(
        "maxItems" = 100,
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = schema::overlay_requirement_rules()
    ))]
    pub requirements: Vec<RequirementSpec>,
    /// A change of the price: an amount or a percentage, with a sign, such as -0.5 or +10%.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$"))]
    pub price_adjustment: Option<String>,
    /// The price per hour, instead of the provider's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = r"^\d+(\.\d+)?$"))]
    pub price: Option<String>,
    /// Extended resources that the nodes have in addition. The standard resources cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resource_list", extend("x-kubernetes-validations" = [schema::rule(
        "self.all(x, !(x in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
        "invalid resource restricted",
    )]))]
    pub capacity: Option<BTreeMap<String, Quantity>>,
    /// Overlays with a higher weight come first; none counts as 0. Equal weights go by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 1, "maximum" = 10000))]
    pub weight: Option<i32>,
}

/// Whether the overlay is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeOverlayStatus {
    /// How the overlay is doing.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
