//! A requirement as it is written in objects; its algebra is in [`crate::requirements`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::fields;

/// Requirement on one node label, with an optional minimum number of distinct values.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["key", "operator"]))]
pub struct RequirementSpec {
    /// Label key.
    #[schemars(extend("maxLength" = 316, "pattern" = fields::QUALIFIED_NAME))]
    pub key: String,
    /// One of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte and Lte.
    #[schemars(extend("enum" = fields::OPERATORS))]
    pub operator: String,
    /// Values of In and NotIn. Exists and DoesNotExist have none; Gt, Lt, Gte and Lte have one integer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "maxLength" = 63,
        "pattern" = fields::LABEL_VALUE,
        "x-kubernetes-list-type" = "atomic"
    ))]
    pub values: Option<Vec<String>>,
    /// Minimum number of distinct values of the label among the instance types (alpha).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = null, "minimum" = 1, "maximum" = 50))]
    pub min_values: Option<i64>,
}

impl RequirementSpec {
    /// A requirement without minValues.
    #[must_use]
    pub fn new(
        key: &str,
        operator: &str,
        values: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let values: Vec<String> = values.into_iter().map(Into::into).collect();
        Self {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: (!values.is_empty()).then_some(values),
            min_values: None,
        }
    }

    /// The values, empty when the list is absent.
    #[must_use]
    pub fn values(&self) -> &[String] {
        self.values.as_deref().unwrap_or_default()
    }
}
