//! How capacity is paid for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a machine is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// Paid for already.
    Reserved,
    /// Spare capacity that can be taken back.
    Spot,
    /// At the list price, kept until given back.
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

    /// Reads a label value; `None` for any other text.
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
