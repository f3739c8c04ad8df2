//! Capacity types: how an instance is paid for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How an instance is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// Prepaid capacity.
    Reserved,
    /// Spare capacity that the cloud can reclaim.
    Spot,
    /// At the list price, until terminated.
    OnDemand,
}

impl CapacityType {
    /// The label value, such as `on-demand`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// Parses a label value; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Reserved, Self::Spot, Self::OnDemand]
            .into_iter()
            .find(|each| each.as_str() == text)
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
