//! New nodes go to the zone with the least capacity, as a policy states it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DISCOUNT;
use super::commitments::hundredths_of_percent;
use crate::values::money::MicroUsd;

/// New nodes go to the zone in which the NodePools have the fewest CPUs, among those that their pods allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneBalance {
    /// How much more a node may cost there than in the cheapest zone, such as 10%. Without it only zones that cost the same are balanced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = DISCOUNT))]
    pub max_price_increase: Option<String>,
}

/// How much more a node may cost in the zone with the least capacity than in the cheapest one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PriceIncrease {
    hundredths_of_percent: i64,
}

impl PriceIncrease {
    /// The most that a node may cost, if it costs this much in the cheapest zone.
    #[must_use]
    pub fn limit(self, cheapest: MicroUsd) -> MicroUsd {
        let most = i128::from(cheapest.0) * i128::from(10_000 + self.hundredths_of_percent);
        MicroUsd(i64::try_from(most / 10_000).unwrap_or(i64::MAX))
    }
}

impl std::fmt::Display for PriceIncrease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, part) = (
            self.hundredths_of_percent / 100,
            self.hundredths_of_percent % 100,
        );
        match part {
            0 => write!(f, "{whole} %"),
            part if part % 10 == 0 => write!(f, "{whole}.{} %", part / 10),
            part => write!(f, "{whole}.{part:02} %"),
        }
    }
}

impl ZoneBalance {
    /// As it is read. What cannot be read allows no increase: a typo must not cost anything.
    pub(super) fn price_increase(&self) -> PriceIncrease {
        let text = self.max_price_increase.as_deref();
        PriceIncrease {
            hundredths_of_percent: text.and_then(hundredths_of_percent).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_may_cost_as_much_more_as_is_stated() {
        let limit = |text: Option<&str>| {
            let balance = ZoneBalance {
                max_price_increase: text.map(str::to_owned),
            };
            let increase = balance.price_increase();
            (increase.limit(MicroUsd(1_000_000)).0, increase.to_string())
        };
        let table = [
            (None, 1_000_000, "0 %"),
            (Some("0%"), 1_000_000, "0 %"),
            (Some("10%"), 1_100_000, "10 %"),
            (Some("12.5%"), 1_125_000, "12.5 %"),
            (Some("0.05%"), 1_000_500, "0.05 %"),
            // What cannot be read.
            (Some("10"), 1_000_000, "0 %"),
            (Some("100%"), 1_000_000, "0 %"),
        ];
        for (text, price, shown) in table {
            assert_eq!(limit(text), (price, shown.to_owned()), "{text:?}");
        }
    }
}
