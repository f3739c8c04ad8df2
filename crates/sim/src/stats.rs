//! Totals of a simulation.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::values::since;
use serde::Serialize;

/// Sums since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Virtual seconds that have passed.
    pub virtual_seconds: i64,
    /// Pods bound to a node, DaemonSet pods not counted.
    pub pods_placed: u64,
    /// Longest time from the creation of one of these pods to its node, in seconds.
    pub longest_pending_s: i64,
    /// Instances launched.
    pub nodes_launched: u64,
    /// Instances terminated.
    pub nodes_removed: u64,
    /// Spot instances that the cloud reclaimed.
    pub interruptions: u64,
    /// Launches that found no capacity.
    pub shortages: u64,
    /// Pods evicted.
    pub evictions: u64,
    /// Evictions rejected because of a disruption budget.
    pub evictions_refused: u64,
    /// Total cost so far, in micro-dollars.
    pub spent_micro_usd: i64,
    /// Price of the running instances, in micro-dollars an hour.
    pub price_micro_usd: i64,
    /// Highest price so far, in micro-dollars an hour.
    pub peak_price_micro_usd: i64,
    /// Decisions by kind.
    pub decisions: BTreeMap<&'static str, u64>,
    /// Effects executed, by kind.
    pub effects: BTreeMap<&'static str, u64>,
    /// Events sent, by reason.
    pub events: BTreeMap<Cow<'static, str>, u64>,
    /// Violated invariants, with the time. Empty in a correct simulation.
    pub violations: Vec<String>,
}

/// Accumulates the cost of instances over time.
#[derive(Debug)]
pub(crate) struct CostMeter {
    /// The cost is counted up to this time.
    since: Timestamp,
    /// Remainder below a micro-dollar, in micro-dollars times milliseconds an hour.
    rest: i128,
}

impl CostMeter {
    pub(crate) const fn new(start: Timestamp) -> Self {
        Self {
            since: start,
            rest: 0,
        }
    }

    /// Instances of this price have run until `to`.
    pub(crate) fn charge(&mut self, price: MicroUsd, to: Timestamp, stats: &mut Stats) {
        let passed = since(to, self.since).max(0);
        stats.price_micro_usd = price.0;
        stats.peak_price_micro_usd = stats.peak_price_micro_usd.max(price.0);
        let cost = i128::from(price.0) * i128::from(passed) + self.rest;
        stats.spent_micro_usd += i64::try_from(cost / 3_600_000).unwrap_or(i64::MAX);
        self.rest = cost % 3_600_000;
        self.since = to;
    }
}
