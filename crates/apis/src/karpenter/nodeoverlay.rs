//! NodeOverlay: other prices and added resources for instance types.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::requirements::Requirements;
use crate::requirements::requirements_of;
use crate::schema::conditions::Condition;
use crate::schema::fields;
use crate::schema::groups::{GROUP, V1ALPHA1};
use crate::schema::object::{is_default, null_as_default, object};
use crate::schema::requirement::RequirementSpec;
use crate::values::PriceChange;

object! {
    /// Changes what the scheduling decisions believe about the price and the resources of matching instance types.
    pub struct NodeOverlay(GROUP, V1ALPHA1, "NodeOverlay", "nodeoverlays", ClusterResourceScope) {
        /// What is wanted.
        pub spec as "spec": NodeOverlaySpec,
        /// What is.
        pub status as "status": NodeOverlayStatus,
    }
}

/// Instance types that the NodeOverlay applies to, and its changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["requirements"],
    "x-kubernetes-validations" = [fields::rule(
        "!has(self.price) || !has(self.priceAdjustment)",
        "cannot set both 'price' and 'priceAdjustment'",
    )]
))]
pub struct NodeOverlaySpec {
    /// Requirements on the labels of instance type, offering and NodePool. The NodeOverlay applies if all are met.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend(
        "maxItems" = 100,
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = fields::overlay_requirement_rules()
    ))]
    pub requirements: Vec<RequirementSpec>,
    /// Signed change of the price, as an amount or a percentage, such as -0.5 or +10%.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$"))]
    pub price_adjustment: Option<String>,
    /// Price per hour that replaces the price of the cloud provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = r"^\d+(\.\d+)?$"))]
    pub price: Option<String>,
    /// Extended resources of the nodes. Standard resources cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::resource_list", extend("x-kubernetes-validations" = [fields::rule(
        "self.all(x, !(x in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
        "invalid resource restricted",
    )]))]
    pub capacity: Option<BTreeMap<String, Quantity>>,
    /// NodeOverlays with a higher weight take precedence; default is 0. Equal weights are ordered by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 1, "maximum" = 10000))]
    pub weight: Option<i32>,
}

/// Observed state of the NodeOverlay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeOverlayStatus {
    /// Conditions of the NodeOverlay.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

impl NodeOverlay {
    /// Name of the object.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    /// Which instance types and offerings it is about.
    #[must_use]
    pub fn requirements(&self) -> Requirements {
        requirements_of(&self.spec.requirements)
    }

    /// Its weight: the heavier overlay wins.
    #[must_use]
    pub fn weight(&self) -> i32 {
        self.spec.weight.unwrap_or(0)
    }

    /// It changes prices.
    #[must_use]
    pub const fn sets_price(&self) -> bool {
        self.spec.price.is_some() || self.spec.price_adjustment.is_some()
    }

    /// What it does to prices; `None` when the text cannot be read.
    #[must_use]
    pub fn price_change(&self) -> Option<PriceChange> {
        let text = self
            .spec
            .price
            .as_ref()
            .or(self.spec.price_adjustment.as_ref());
        match text {
            None => Some(PriceChange::Keep),
            Some(text) => PriceChange::parse(text).ok(),
        }
    }

    /// Names of the resources that it sets, sorted.
    #[must_use]
    pub fn resources(&self) -> BTreeSet<&str> {
        let capacity = self.spec.capacity.iter().flatten();
        capacity.map(|(name, _)| name.as_str()).collect()
    }
}
