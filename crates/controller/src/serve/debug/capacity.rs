//! Capacity that clouds refused lately: what is not asked for now, why, and until when; and reserved capacity that no node uses.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::values::{since, span_text};
use mortise_cloudprovider::UnavailableCapacity;
use serde_json::json;

use super::DebugView;
use super::table::TextTable;
use crate::service_state::ServiceState;
use crate::service_state::unused_reservations::UnusedReservation;

/// All unavailable capacity of all providers, and all unused reserved capacity.
pub(super) fn view(shared: &ServiceState) -> DebugView {
    let providers = shared.providers().iter();
    let rows = providers.flat_map(|provider| {
        let name = provider.descriptor().name;
        let all = provider.unavailable().into_iter();
        all.map(move |each| (name, each))
    });
    let now = shared.now();
    let unavailable = unavailable(rows.collect(), now);
    let reservations = unused_reservations(&shared.unused_reservations.now(), now);
    DebugView {
        text: format!("{}\n{}", unavailable.text, reservations.text),
        json: json!({
            "unavailable": unavailable.json,
            "unusedReservations": reservations.json,
        }),
    }
}

/// The capacity by provider, that which ends first before the rest.
fn unavailable(mut rows: Vec<(&'static str, UnavailableCapacity)>, now: Timestamp) -> DebugView {
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
            span_text(since(each.until, now)),
        ]);
    }
    let listed: Vec<_> = rows
        .iter()
        .map(|(provider, each)| json!({ "provider": provider, "capacity": each }))
        .collect();
    DebugView {
        text: table.render("no capacity is known to be unavailable"),
        json: json!(listed),
    }
}

/// The reservations with unused instances, the most expensive first.
fn unused_reservations(rows: &[UnusedReservation], now: Timestamp) -> DebugView {
    let mut rows: Vec<&UnusedReservation> = rows.iter().collect();
    rows.sort_by_key(|each| (Reverse(each.hourly_price()), Arc::clone(&each.id)));
    let mut table = TextTable::new(&[
        "UNUSED RESERVATION",
        "INSTANCE TYPE",
        "ZONE",
        "INSTANCES",
        "PRICE",
        "FOR",
    ]);
    let mut listed = Vec::new();
    for each in rows {
        let price = each.hourly_price();
        table.row(vec![
            each.id.to_string(),
            each.instance_type.to_string(),
            each.zone.to_string(),
            each.instances.to_string(),
            price.map_or_else(|| "unknown".to_owned(), |price| price.to_string()),
            span_text(since(now, each.since)),
        ]);
        let hourly_price = price.map(|price| price.to_string());
        listed.push(json!({ "reservation": each, "hourlyPrice": hourly_price }));
    }
    DebugView {
        text: table.render("no capacity reservation has unused instances"),
        json: json!(listed),
    }
}

#[cfg(test)]
mod tests {
    use mortise_apis::values::money::MicroUsd;
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
        let view = unavailable(vec![("aws", spot), ("aws", subnet)], now);
        let lines: Vec<&str> = view.text.lines().collect();
        assert_eq!(
            lines[1..],
            [
                "aws       any            any   any            subnet/subnet-1  InsufficientFreeAddressesInSubnet  60s",
                "aws       m5.large       z-1   spot           any              InsufficientInstanceCapacity       2m0s",
            ]
        );
        let first = &view.json[0]["capacity"];
        assert_eq!(first["scope"], "subnet/subnet-1");
        assert_eq!(first["until"], "1970-01-01T00:17:40Z");
        assert_eq!(first.get("zone"), None, "any");
        assert_eq!(
            unavailable(Vec::new(), now).text,
            "no capacity is known to be unavailable\n"
        );
    }

    #[test]
    fn unused_reservations_are_listed_with_what_they_cost() {
        let now = Timestamp::from_second(1_000).unwrap();
        let reservation = |id: &str, price: Option<i64>| UnusedReservation {
            id: Arc::from(id),
            instance_type: Arc::from("m5.large"),
            zone: Arc::from("z-1"),
            instances: 3,
            price: price.map(MicroUsd),
            since: Timestamp::from_second(880).unwrap(),
        };
        let rows = [
            reservation("cr-unpriced", None),
            reservation("cr-cheap", Some(10_000)),
            reservation("cr-costly", Some(96_000)),
        ];
        let view = unused_reservations(&rows, now);
        let lines: Vec<&str> = view.text.lines().collect();
        assert_eq!(
            lines[1..],
            [
                "cr-costly           m5.large       z-1   3          $0.2880/h  2m0s",
                "cr-cheap            m5.large       z-1   3          $0.0300/h  2m0s",
                "cr-unpriced         m5.large       z-1   3          unknown    2m0s",
            ]
        );
        let first = &view.json[0];
        assert_eq!(first["reservation"]["id"], "cr-costly");
        assert_eq!(first["reservation"]["since"], "1970-01-01T00:14:40Z");
        assert_eq!(first["hourlyPrice"], "$0.2880/h");
        assert_eq!(
            unused_reservations(&[], now).text,
            "no capacity reservation has unused instances\n"
        );
    }
}
