//! The operators of a requirement as the API spells them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a requirement's values are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label has any value.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is an integer greater than the value.
    Gt,
    /// The label is an integer less than the value.
    Lt,
    /// The label is an integer greater than or equal to the value.
    Gte,
    /// The label is an integer less than or equal to the value.
    Lte,
}

impl Operator {
    /// All operators, in the order in which messages list them.
    pub const ALL: [Self; 8] = [
        Self::In,
        Self::NotIn,
        Self::Exists,
        Self::DoesNotExist,
        Self::Gt,
        Self::Lt,
        Self::Gte,
        Self::Lte,
    ];

    /// The API's spelling.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }

    /// Whether the operator is met by a label that is absent.
    #[must_use]
    pub const fn allows_absence(self) -> bool {
        matches!(self, Self::NotIn | Self::DoesNotExist)
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is no operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown operator {given:?}: must be one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte{}", nearest.map_or_else(String::new, |o| format!("; did you mean {o}?")))]
pub struct UnknownOperator {
    /// The text as given.
    pub given: String,
    /// The operator that differs only in case or punctuation, if any.
    pub nearest: Option<Operator>,
}

impl FromStr for Operator {
    type Err = UnknownOperator;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(found) = Self::ALL
            .into_iter()
            .find(|operator| operator.as_str() == text)
        {
            return Ok(found);
        }
        let plain = |s: &str| {
            s.chars()
                .filter(char::is_ascii_alphanumeric)
                .collect::<String>()
                .to_ascii_lowercase()
        };
        let wanted = plain(text);
        let nearest = match wanted.as_str() {
            "notexists" | "notexist" | "doesntexist" | "doesnotexists" => Some(Self::DoesNotExist),
            "exist" => Some(Self::Exists),
            "greaterthan" => Some(Self::Gt),
            "lessthan" => Some(Self::Lt),
            "ge" | "greaterthanorequal" => Some(Self::Gte),
            "le" | "lessthanorequal" => Some(Self::Lte),
            _ => Self::ALL
                .into_iter()
                .find(|operator| plain(operator.as_str()) == wanted),
        };
        Err(UnknownOperator {
            given: text.to_owned(),
            nearest,
        })
    }
}
