//! What the nodes of a NodePoolPolicy may cost in a month, and what they have cost.
//!
//! Months are those of the calendar, in UTC.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NodePoolPolicy;
use crate::schema::fields;
use crate::values::money::{MicroUsd, Spent};

/// An amount in dollars, exact to a millionth.
pub const DOLLARS: &str = r"^[0-9]{1,9}([.][0-9]{1,6})?$";

/// What the nodes of a policy may cost over a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["perMonth"]))]
pub struct PolicySpending {
    /// Dollars that all nodes of the NodePools may cost together in a calendar month (UTC), such as "2000.00". Nodes are launched only if all of them could run until the month ends, and for a week at least. No node is removed because of it.
    #[schemars(extend("pattern" = DOLLARS))]
    pub per_month: String,
}

/// What the nodes of a policy have cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SpendingStatus {
    /// The month, such as 2026-11.
    pub month: String,
    /// Dollars that the nodes have cost in it, as far as the policy was there.
    pub dollars: String,
    /// Dollars per hour that they cost at that time.
    pub hourly_price: String,
    /// Until when it is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::date_time")]
    pub at: Option<Time>,
}

/// A calendar month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Month {
    first: Date,
}

impl Month {
    /// The month of a time.
    #[must_use]
    pub fn of(time: Timestamp) -> Self {
        let date = time.to_zoned(TimeZone::UTC).date();
        Self {
            first: date.first_of_month(),
        }
    }

    /// When it begins.
    #[must_use]
    pub fn start(self) -> Timestamp {
        midnight(self.first)
    }

    /// When the next one begins.
    #[must_use]
    pub fn end(self) -> Timestamp {
        let next = self.first.last_of_month().tomorrow();
        next.map_or(Timestamp::MAX, midnight)
    }
}

fn midnight(date: Date) -> Timestamp {
    let zoned = date.to_zoned(TimeZone::UTC);
    zoned.map_or(Timestamp::MAX, |zoned| zoned.timestamp())
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.first.year(), self.first.month())
    }
}

/// What was spent in a month until a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonthlySpending {
    /// The amount.
    pub spent: Spent,
    /// Until when.
    pub at: Timestamp,
    /// Dollars per hour then.
    pub price: MicroUsd,
}

impl MonthlySpending {
    /// Nothing, from this time on.
    #[must_use]
    pub fn none(at: Timestamp) -> Self {
        Self {
            spent: Spent::default(),
            at,
            price: MicroUsd(0),
        }
    }

    /// What a status shows. `None` if a value in it cannot be read: then the month counts from now on.
    #[must_use]
    pub fn read(status: &SpendingStatus) -> Option<Self> {
        Some(Self {
            spent: Spent::parse_dollars(&status.dollars)?,
            at: status.at.as_ref()?.0,
            price: MicroUsd::parse_dollars(&status.hourly_price)?,
        })
    }

    /// The status that shows it.
    #[must_use]
    pub fn status(&self) -> SpendingStatus {
        SpendingStatus {
            month: Month::of(self.at).to_string(),
            dollars: self.spent.to_dollars(),
            hourly_price: Spent::at_price(self.price, 3_600_000).to_dollars(),
            at: Some(Time(self.at)),
        }
    }

    /// The same at a later time, if the nodes cost this much per hour since then. A new month begins with nothing.
    #[must_use]
    pub fn after(self, now: Timestamp, price: MicroUsd) -> Self {
        let now = now.max(self.at);
        let start = Month::of(now).start();
        let (spent, from) = if self.at < start {
            (Spent::default(), start)
        } else {
            (self.spent, self.at)
        };
        let ms = crate::values::since(now, from);
        Self {
            spent: spent + Spent::at_price(price, ms),
            at: now,
            price: self.price,
        }
    }
}

impl NodePoolPolicy {
    /// The limit on what is spent in a month. A text that cannot be read allows nothing: a limit must not end with a typo.
    #[must_use]
    pub fn monthly_limit(&self) -> Option<Spent> {
        let text = &self.spec.spending.as_ref()?.per_month;
        Some(Spent::parse_dollars(text).unwrap_or_default())
    }

    /// What the status says was spent.
    #[must_use]
    pub fn monthly_spending(&self) -> Option<MonthlySpending> {
        MonthlySpending::read(self.status.spending.as_ref()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn months_are_those_of_utc() {
        for (time, name, start, end) in [
            (
                "2026-11-29T10:00:00Z",
                "2026-11",
                "2026-11-01",
                "2026-12-01",
            ),
            (
                "2026-12-01T00:00:00Z",
                "2026-12",
                "2026-12-01",
                "2027-01-01",
            ),
            (
                "2028-02-29T23:59:59.999Z",
                "2028-02",
                "2028-02-01",
                "2028-03-01",
            ),
        ] {
            let month = Month::of(at(time));
            let midnight = |day: &str| at(&format!("{day}T00:00:00Z"));
            let found = (month.to_string(), month.start(), month.end());
            assert_eq!(found, (name.to_owned(), midnight(start), midnight(end)));
        }
    }

    #[test]
    fn spending_goes_on_in_the_same_month_and_begins_again_with_the_next() {
        let spending = MonthlySpending {
            spent: Spent::parse_dollars("100").unwrap(),
            at: at("2026-11-30T22:00:00Z"),
            price: MicroUsd(2_000_000),
        };
        let status = spending.status();
        assert_eq!(
            (&*status.month, &*status.dollars, &*status.hourly_price),
            ("2026-11", "100.000000", "2.000000")
        );
        assert_eq!(MonthlySpending::read(&status), Some(spending));
        let spent = |time: &str| {
            let after = spending.after(at(time), MicroUsd(4_000_000));
            (after.status().month, after.spent.to_dollars())
        };
        let found = |month: &str, dollars: &str| (month.to_owned(), dollars.to_owned());
        assert_eq!(
            spent("2026-11-30T23:30:00Z"),
            found("2026-11", "106.000000")
        );
        assert_eq!(spent("2026-12-01T00:15:00Z"), found("2026-12", "1.000000"));
        // A clock that goes back spends nothing.
        assert_eq!(
            spent("2026-11-30T21:00:00Z"),
            found("2026-11", "100.000000")
        );
    }
}
