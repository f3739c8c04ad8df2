//! A requirement as the API writes it, and the check of what a user wrote.

use serde::{Deserialize, Serialize};

use super::{Operator, Requirement};

/// A requirement entry as in NodePool and NodeClaim specs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequirementSpec {
    /// Label key as written.
    pub key: String,
    /// How the values are meant.
    pub operator: Operator,
    /// Values; empty for `Exists` and `DoesNotExist`, one integer for the bounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// How many different values must stay possible until launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<u32>,
}

/// Why an entry cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// `In` without values.
    #[error("requirement on {key:?}: operator {operator} needs at least one value")]
    NoValues {
        /// Label key.
        key: String,
        /// Operator that needs values.
        operator: Operator,
    },
    /// `Exists` or `DoesNotExist` with values.
    #[error("requirement on {key:?}: operator {operator} takes no values, found {values:?}")]
    UnexpectedValues {
        /// Label key.
        key: String,
        /// Operator that takes none.
        operator: Operator,
        /// The values found.
        values: Vec<String>,
    },
    /// A bound that is not one non-negative integer.
    #[error(
        "requirement on {key:?}: operator {operator} needs exactly one non-negative integer, found {values:?}"
    )]
    BadBound {
        /// Label key.
        key: String,
        /// The bound's operator.
        operator: Operator,
        /// The values found.
        values: Vec<String>,
    },
    /// minValues larger than the list can give.
    #[error(
        "requirement on {key:?}: minValues {min_values} cannot be met by {count} distinct values"
    )]
    TooFewValues {
        /// Label key.
        key: String,
        /// Wanted number of values.
        min_values: u32,
        /// Distinct values listed.
        count: usize,
    },
}

impl RequirementSpec {
    /// Whether the entry means something.
    ///
    /// # Errors
    /// One [`SpecError`] per rule broken first: values missing or not allowed, bound not an integer, minValues out of reach.
    pub fn check(&self) -> Result<(), SpecError> {
        let Self {
            key,
            operator,
            values,
            min_values,
        } = self;
        let key = || key.clone();
        match operator {
            Operator::In if values.is_empty() => Err(SpecError::NoValues {
                key: key(),
                operator: *operator,
            }),
            Operator::In => {
                let count = Requirement::from(self).values().len();
                match min_values {
                    Some(min) if usize::try_from(*min).is_ok_and(|min| count < min) => {
                        Err(SpecError::TooFewValues {
                            key: key(),
                            min_values: *min,
                            count,
                        })
                    }
                    _ => Ok(()),
                }
            }
            Operator::NotIn if values.is_empty() => Err(SpecError::NoValues {
                key: key(),
                operator: *operator,
            }),
            Operator::NotIn => Ok(()),
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Err(SpecError::UnexpectedValues {
                    key: key(),
                    operator: *operator,
                    values: values.clone(),
                })
            }
            Operator::Exists | Operator::DoesNotExist => Ok(()),
            Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
                match values.as_slice() {
                    [one] if one.parse::<i64>().is_ok_and(|n| n >= 0) => Ok(()),
                    _ => Err(SpecError::BadBound {
                        key: key(),
                        operator: *operator,
                        values: values.clone(),
                    }),
                }
            }
        }
    }
}

impl From<&RequirementSpec> for Requirement {
    fn from(spec: &RequirementSpec) -> Self {
        Self::new(
            spec.key.as_str(),
            spec.operator,
            spec.values.iter().map(String::as_str),
        )
        .with_min_values(spec.min_values)
    }
}
