//! How much of the limits on what a policy's NodePools cost is used: of the price per hour, and of the amount per month.
//!
//! # A limit per month
//! No node is removed because of it, so it has to hold before a node is launched: what all NodeClaims cost per hour must not exceed
//! what is left, divided by the time that is left of the month. The last week counts as a whole one: with an hour left, a month's rest
//! would otherwise launch nodes that cost as much in every hour of the next month.
//!
//! What was spent until now is what the status of the policy shows, and what is spent since then at the higher of two prices: that
//! of the status, and that of the NodeClaims that are there. So a process that stops forgets no spending.

use std::fmt;

use jiff::Timestamp;

use crate::catalog::UNKNOWN_PRICE;
use mortise_apis::names::ClaimName;
use mortise_apis::node_pool_policy::{
    LimitInForce, LimitsInForce, Month, MonthlySpending, NodePoolPolicy,
};
use mortise_apis::values::money::{MicroUsd, Spent};
use mortise_apis::values::{after, since};

/// The least time in milliseconds for which the rest of a month must last.
const WEEK_MS: i64 = 7 * 24 * 3_600_000;

/// What a month leaves per hour is computed again after this time in milliseconds: it grows while less is spent.
const AGAIN_MS: i64 = 10 * 60_000;

/// Use of the limits on the price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceUse {
    /// The limit on the price per hour.
    pub hourly: Option<LimitInForce<MicroUsd>>,
    /// The limit on the amount per month.
    pub month: Option<MonthUse>,
    /// What the NodeClaims cost together per hour; [`UNKNOWN_PRICE`] if the price of one is unknown.
    pub used: MicroUsd,
    /// The same without those whose price is unknown.
    pub known: MicroUsd,
    /// The first NodeClaim with an unknown price, by name.
    pub unknown: Option<ClaimName>,
}

/// Use of a limit on the amount per month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonthUse {
    /// The limit.
    pub limit: Spent,
    /// What was spent of it.
    pub spent: Spent,
    /// What may be spent per hour from now on.
    pub leaves: MicroUsd,
    /// Until when that holds.
    pub until: Timestamp,
}

/// A limit on what NodeClaims cost per hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PriceLimit {
    /// The price per hour, where it is written.
    Hourly(LimitInForce<MicroUsd>),
    /// What the month leaves.
    Month(MonthUse),
}

impl PriceLimit {
    /// Dollars per hour.
    #[must_use]
    pub const fn most(&self) -> MicroUsd {
        match self {
            Self::Hourly(limit) => limit.most,
            Self::Month(month) => month.leaves,
        }
    }

    /// The limit of a policy in words.
    #[must_use]
    pub fn of_policy(&self, policy: &str) -> String {
        let most = self.most();
        match self {
            Self::Hourly(_) => format!("{self} of NodePoolPolicy {policy} is {most}"),
            Self::Month(MonthUse { limit, spent, .. }) => format!(
                "{self} of NodePoolPolicy {policy} is {limit} and {spent} are spent, which leaves {most}"
            ),
        }
    }
}

impl fmt::Display for PriceLimit {
    /// The field.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hourly(limit) => write!(f, "{}.hourlyPrice", limit.source),
            Self::Month(_) => f.write_str("spending.perMonth"),
        }
    }
}

impl PriceUse {
    /// The use of a policy's limits before any NodeClaim is counted; `None` without a limit on the price.
    pub(super) fn new(policy: &NodePoolPolicy, limits: &LimitsInForce) -> Option<Self> {
        let hourly = limits.hourly_price.clone();
        let month = policy.monthly_limit().map(|limit| MonthUse {
            limit,
            spent: Spent::default(),
            leaves: MicroUsd(0),
            until: Timestamp::MAX,
        });
        (hourly.is_some() || month.is_some()).then_some(Self {
            hourly,
            month,
            used: MicroUsd(0),
            known: MicroUsd(0),
            unknown: None,
        })
    }

    /// The lower one of its limits.
    #[must_use]
    pub fn limit(&self) -> PriceLimit {
        let hourly = self.hourly.clone().map(PriceLimit::Hourly);
        let month = self.month.map(PriceLimit::Month);
        let limits = hourly.into_iter().chain(month);
        let lower = limits.min_by_key(PriceLimit::most);
        lower.unwrap_or_else(|| unreachable!("there is no use without a limit"))
    }

    /// Counts a NodeClaim that exists.
    pub(super) fn count_existing(&mut self, name: &ClaimName, price: MicroUsd) {
        if price == UNKNOWN_PRICE {
            if self.unknown.as_ref().is_none_or(|first| name < first) {
                self.unknown = Some(name.clone());
            }
        } else {
            self.known += price;
        }
        self.used += price;
    }

    /// Counts nodes whose prices are known.
    pub(super) fn count_launched(&mut self, price: MicroUsd) {
        self.known += price;
        self.used += price;
    }

    /// Once all NodeClaims are counted: what was spent, and what that leaves.
    pub(super) fn close(&mut self, so_far: Option<MonthlySpending>, now: Timestamp) {
        let Some(month) = &mut self.month else { return };
        let spent = so_far.map(|so_far| so_far.after(now, so_far.price.max(self.known)));
        month.spent = spent.map(|now| now.spent).unwrap_or_default();
        let end = Month::of(now).end();
        let left_ms = since(end, now).max(WEEK_MS);
        month.leaves = (month.limit - month.spent).over(left_ms);
        month.until = after(now, AGAIN_MS).min(end);
    }
}
