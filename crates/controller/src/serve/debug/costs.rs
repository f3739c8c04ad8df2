//! What nodes cost, by account.

use std::cmp::Reverse;

use jiff::Timestamp;
use mortise_apis::values::money::Spent;
use mortise_apis::values::since;
use serde_json::json;

use super::DebugView;
use super::table::TextTable;
use mortise_state::costs::{Amounts, CostAccount, CostOfAccount, HourlyCosts};

use crate::costs::csv;
use crate::service_state::ServiceState;

/// The accounts of each kind, the most expensive first.
pub(super) fn view(shared: &ServiceState) -> DebugView {
    let (accounts, hours) = (shared.costs_now(), shared.costs.hours());
    let label = shared.costs.label().map(|key| &**key);
    table(accounts, &hours, (label, shared.now()))
}

/// The hours that are over.
pub(super) fn csv_of_hours(shared: &ServiceState) -> String {
    shared.follow_costs();
    csv(&shared.costs.hours())
}

fn table<H: AsRef<HourlyCosts>>(
    mut accounts: Vec<CostOfAccount>,
    hours: &[H],
    (label, now): (Option<&str>, Timestamp),
) -> DebugView {
    let spent = |each: &CostOfAccount, hours_back: i64| {
        let recent = hours.iter().map(AsRef::as_ref);
        let recent = recent.filter(|hour| since(now, hour.start) <= hours_back * 3_600_000);
        let before = recent.filter_map(|hour| hour.amounts.get(&each.account));
        before.fold(each.hour, |sum, hour| Amounts {
            spent: sum.spent + hour.spent,
            on_demand: sum.on_demand + hour.on_demand,
        })
    };
    accounts.sort_by_cached_key(|each| {
        let spent = spent(each, 7 * 24).spent;
        (
            each.account.kind(),
            Reverse((each.price, spent)),
            each.account.clone(),
        )
    });
    let mut table = TextTable::new(&[
        "ACCOUNT",
        "NAME",
        "NOW",
        "THIS HOUR",
        "24 HOURS",
        "7 DAYS",
        "ON-DEMAND",
        "SAVED",
    ]);
    let mut listed = Vec::new();
    for each in &accounts {
        let (day, week) = (spent(each, 24), spent(each, 7 * 24));
        let saved = week.on_demand - week.spent;
        let kind = match (&each.account, label) {
            (CostAccount::Label(_), Some(key)) => key,
            (account, _) => account.kind(),
        };
        let name = match &each.account {
            CostAccount::Label(None) => "(without it)",
            account => account.name(),
        };
        let mut cells = vec![kind.to_owned(), name.to_owned(), each.price.to_string()];
        let amounts = [
            each.hour.spent,
            day.spent,
            week.spent,
            week.on_demand,
            saved,
        ];
        cells.extend(amounts.iter().map(Spent::to_string));
        table.row(cells);
        let [hour, day, week, on_demand] =
            [each.hour.spent, day.spent, week.spent, week.on_demand].map(Spent::to_dollars);
        listed.push(json!({
            "account": each.account.kind(),
            "name": each.account.name(),
            "hourlyPrice": each.price.to_string(),
            "cost": { "thisHour": hour, "24h": day, "7d": week },
            "onDemandCost": { "7d": on_demand },
        }));
    }
    DebugView {
        text: table.render("no node with a known price has been seen"),
        json: json!({ "label": label, "accounts": listed }),
    }
}
