//! Recorded resolved instance types as the port has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use mortise_apis::labels;
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_aws_class::labels::CAPACITY_RESERVATION_ID;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use serde_json::Value;

use super::replay::table;

/// The type behind a key such as `it:0123`.
pub(crate) fn resolved_type(key: &str) -> InstanceType {
    instance_type(table(key))
}

/// A recorded type. Labels that an offering must not have are left out of it: the port lists those that it has.
pub(crate) fn instance_type(recorded: &Value) -> InstanceType {
    let mut offerings: Vec<Offering> = recorded["offerings"]
        .as_array()
        .into_iter()
        .flatten()
        .map(offering)
        .collect();
    offerings.sort_by(|a, b| (&a.zone, a.capacity_type).cmp(&(&b.zone, b.capacity_type)));
    InstanceType {
        name: Arc::from(recorded["name"].as_str().unwrap_or_default()),
        requirements: requirements(&recorded["requirements"]),
        capacity: resources(&recorded["capacity"]),
        overhead: overhead(&recorded["overhead"]),
        offerings,
        devices: Arc::from([]),
    }
}

/// A recorded set of requirements: values, or operator with values and minValues, by key.
pub(crate) fn requirements(recorded: &Value) -> Requirements {
    recorded
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| requirement(key, value))
        .collect()
}

fn requirement(key: &str, recorded: &Value) -> Requirement {
    let values = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.map(|each| each.as_str().unwrap().to_owned()).collect()
    };
    match recorded {
        Value::Object(fields) => {
            let operator: Operator = fields["op"].as_str().unwrap().parse().unwrap();
            let listed = fields.get("values").map(values).unwrap_or_default();
            let each = Requirement::new(key, operator, listed);
            match fields.get("minValues").and_then(Value::as_u64) {
                Some(least) => each.with_min_values(Some(u32::try_from(least).unwrap())),
                None => each,
            }
        }
        list => Requirement::new(key, Operator::In, values(list)),
    }
}

fn offering(recorded: &Value) -> Offering {
    let own: BTreeMap<String, String> = recorded["requirements"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            let value = value.as_array()?.first()?.as_str()?;
            Some((key.clone(), value.to_owned()))
        })
        .collect();
    let has = |key: &str| own.get(key).map(String::as_str);
    let left = recorded["reservationCapacity"].as_u64().unwrap_or(0);
    Offering {
        zone: Arc::from(has(labels::TOPOLOGY_ZONE).unwrap_or_default()),
        capacity_type: has(labels::CAPACITY_TYPE)
            .and_then(CapacityType::parse)
            .unwrap_or(CapacityType::OnDemand),
        price: recorded["price"].as_f64().and_then(MicroUsd::from_dollars),
        available: recorded["available"] == true,
        reservation: has(CAPACITY_RESERVATION_ID)
            .map(|id| (Arc::from(id), u32::try_from(left).unwrap())),
        labels: own
            .iter()
            .filter(|(key, _)| {
                ![labels::TOPOLOGY_ZONE, labels::CAPACITY_TYPE].contains(&key.as_str())
            })
            .map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str())))
            .collect(),
    }
}

fn overhead(recorded: &Value) -> Resources {
    let parts = recorded.as_object().into_iter().flatten();
    parts.fold(Resources::zero(), |sum, (_, part)| {
        sum.add(&resources(part))
    })
}

/// A recorded resource list.
pub(crate) fn resources(recorded: &Value) -> Resources {
    let list: BTreeMap<String, Quantity> =
        serde_json::from_value(recorded.clone()).unwrap_or_default();
    Resources::from_api(&list).unwrap()
}

/// Every recorded type can be read, and no offering has a value that is lost.
#[test]
fn recorded_types_are_read() {
    let (mut types, mut offerings) = (0, 0);
    for (_, line) in super::cases("table_instance_types_resolved.jsonl") {
        let each = instance_type(&line["v"]);
        assert!(!each.name.is_empty(), "{line}");
        types += 1;
        offerings += each.offerings.len();
    }
    println!("{types} types, {offerings} offerings");
}
