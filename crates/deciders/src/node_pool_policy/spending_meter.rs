//! What the nodes of policies with a limit per month have cost in this month.
//!
//! # Invariant
//! Never less than what they cost, as prices are known: between two readings the price of the first one holds; a process that begins takes
//! the higher one of the price in the status and of the one it finds for the time since the status was written.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::node_pool_policy::{Month, MonthlySpending, NodePoolPolicy, SpendingStatus};
use mortise_apis::values::money::MicroUsd;
use mortise_apis::values::{after, since};
use mortise_state::snapshot::Snapshot;

/// The status is written this often ...
const OFTEN_MS: i64 = 10 * 60_000;
/// ... and this often while the nodes cost more per hour than it shows.
const RISING_MS: i64 = 60_000;

/// The meters, by policy.
#[derive(Debug, Default)]
pub(super) struct SpendingMeter(BTreeMap<Arc<str>, MonthlySpending>);

/// What the NodeClaims that a policy holds for cost per hour, without those whose price is unknown.
fn price_of(policy: &NodePoolPolicy, snapshot: &Snapshot) -> MicroUsd {
    let name = policy.name();
    let uses = policy.spec.node_pools.iter();
    let mut uses = uses.filter_map(|pool| snapshot.policy_of(pool));
    let own = uses.find(|of| of.name == name);
    let price = own.and_then(|of| of.price.as_ref());
    price.map(|price| price.known).unwrap_or_default()
}

impl SpendingMeter {
    /// Whether anything is metered, so that each change of NodeClaims matters.
    pub(super) fn is_running(&self) -> bool {
        !self.0.is_empty()
    }

    /// The metered policies.
    pub(super) fn policies(&self) -> impl Iterator<Item = Arc<str>> {
        self.0.keys().cloned()
    }

    /// Takes the present prices in.
    pub(super) fn read(&mut self, snapshot: &Snapshot, now: Timestamp) {
        let before = std::mem::take(&mut self.0);
        let all = snapshot.policies.values();
        let metered = all.filter(|policy| policy.monthly_limit().is_some());
        self.0 = metered
            .map(|policy| {
                let price = price_of(policy, snapshot);
                let so_far = match before.get(&policy.name()) {
                    Some(before) => before.after(now, before.price),
                    None => match policy.monthly_spending() {
                        Some(shown) => shown.after(now, shown.price.max(price)),
                        None => MonthlySpending::none(now),
                    },
                };
                (policy.name(), MonthlySpending { price, ..so_far })
            })
            .collect();
    }

    /// The status to write, if it is time, or when it is. `None` for a policy without a limit per month.
    pub(super) fn status(
        &self,
        policy: &NodePoolPolicy,
    ) -> Option<Result<SpendingStatus, Timestamp>> {
        let own = self.0.get(&policy.name())?;
        let Some(shown) = policy.monthly_spending() else {
            return Some(Ok(own.status()));
        };
        let often = if own.price > shown.price {
            RISING_MS
        } else {
            OFTEN_MS
        };
        let is_due = since(own.at, shown.at) >= often || Month::of(own.at) != Month::of(shown.at);
        Some(if is_due {
            Ok(own.status())
        } else {
            Err(after(shown.at, often).min(Month::of(own.at).end()))
        })
    }
}
