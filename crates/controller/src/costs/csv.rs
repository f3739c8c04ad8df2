//! The hours as CSV.

use std::sync::Arc;

use mortise_state::costs::HourlyCosts;

/// A line for each account of each hour. Amounts have six decimals, rounded up.
pub(crate) fn csv(hours: &[Arc<HourlyCosts>]) -> String {
    let mut text = String::from("hour,account,name,cost,on_demand_cost\n");
    for hour in hours {
        for (account, amounts) in &hour.amounts {
            let cells = [
                hour.start.to_string(),
                account.kind().to_owned(),
                cell(account.name()),
                amounts.spent.to_dollars(),
                amounts.on_demand.to_dollars(),
            ];
            text.push_str(&cells.join(","));
            text.push('\n');
        }
    }
    text
}

/// A cell. Names that an API server accepts need no quotes; those of a simulated cluster may.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
