//! Capacity that clouds refused lately: what is not asked for now, why, and until when.

use jiff::Timestamp;
use mortise_apis::values::since;
use mortise_cloudprovider::UnavailableCapacity;
use serde_json::json;

use super::DebugView;
use super::table::{TextTable, ago};
use crate::service_state::ServiceState;

/// All unavailable capacity of all providers.
pub(super) fn view(shared: &ServiceState) -> DebugView {
    let providers = shared.providers().iter();
    let rows = providers.flat_map(|provider| {
        let name = provider.descriptor().name;
        let all = provider.unavailable().into_iter();
        all.map(move |each| (name, each))
    });
    rendered(rows.collect(), shared.now())
}

/// The capacity by provider, that which ends first before the rest.
fn rendered(mut rows: Vec<(&'static str, UnavailableCapacity)>, now: Timestamp) -> DebugView {
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
            each.scope.clone().unwrap_or_else(any),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mortise_cloudprovider::CapacityType;

    use super::*;

    #[test]
    fn what_ends_first_comes_first() {
        let now = Timestamp::from_second(1_000).unwrap();
        let at = |seconds: i64| Timestamp::from_second(1_000 + seconds).unwrap();
        let spot = UnavailableCapacity {
            instance_type: Some(Arc::from("m5.large")),
            zone: Some(Arc::from("z-1")),
            capacity_type: Some(CapacityType::Spot),
            scope: None,
            cause: "InsufficientInstanceCapacity".to_owned(),
            until: at(120),
        };
        let subnet = UnavailableCapacity {
            instance_type: None,
            zone: None,
            capacity_type: None,
            scope: Some("subnet/subnet-1".to_owned()),
            cause: "InsufficientFreeAddressesInSubnet".to_owned(),
            until: at(60),
        };
        let view = rendered(vec![("aws", spot), ("aws", subnet)], now);
        let lines: Vec<&str> = view.text.lines().collect();
        assert_eq!(
            lines[1..],
            [
                "aws       any            any   any            subnet/subnet-1  InsufficientFreeAddressesInSubnet  60s",
                "aws       m5.large       z-1   spot           any              InsufficientInstanceCapacity       2m0s",
            ]
        );
        let first = &view.json["unavailable"][0]["capacity"];
        assert_eq!(first["scope"], "subnet/subnet-1");
        assert_eq!(first["until"], "1970-01-01T00:17:40Z");
        assert_eq!(first.get("zone"), None, "any");
        assert_eq!(
            rendered(Vec::new(), now).text,
            "no capacity is known to be unavailable\n"
        );
    }
}
