//! Capacity that clouds refused lately: what is not asked for now, why, and until when.

use mortise_cloudprovider::UnavailableCapacity;
use serde_json::json;

use super::DebugView;
use super::table::{TextTable, ago};
use crate::service_state::ServiceState;
use mortise_apis::values::since;

/// All unavailable capacity of all providers, that which ends first before the rest.
pub(super) fn view(shared: &ServiceState) -> DebugView {
    let now = shared.now();
    let mut rows: Vec<(&'static str, UnavailableCapacity)> = shared
        .providers()
        .iter()
        .flat_map(|provider| {
            let name = provider.descriptor().name;
            let all = provider.unavailable().into_iter();
            all.map(move |each| (name, each))
        })
        .collect();
    rows.sort_by(|a, b| (a.1.until, &a.1).cmp(&(b.1.until, &b.1)));
    let mut table = TextTable::new(&[
        "PROVIDER",
        "INSTANCE TYPE",
        "ZONE",
        "CAPACITY TYPE",
        "SCOPE",
        "CAUSE",
        "ENDS IN",
    ]);
    let any = || "any".to_owned();
    for (provider, each) in &rows {
        table.row(vec![
            (*provider).to_owned(),
            each.instance_type
                .as_ref()
                .map_or_else(any, ToString::to_string),
            each.zone.as_ref().map_or_else(any, ToString::to_string),
            each.capacity_type.map_or_else(any, |kind| kind.to_string()),
            each.scope.clone().unwrap_or_default(),
            each.cause.clone(),
            ago(since(each.until, now)),
        ]);
    }
    let listed: Vec<_> = rows
        .iter()
        .map(|(provider, each)| json!({ "provider": provider, "capacity": each }))
        .collect();
    DebugView {
        text: table.render("no capacity is known to be unavailable"),
        json: json!({ "unavailable": listed }),
    }
}
