//! Recorded steps of the selection of a launch, one by one. The recording has the keys of requirements, not their values: what
//! depends on values cannot be replayed, except for the kinds of offerings that names tell.

use std::sync::Arc;

use mortise_apis::labels;
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use serde_json::Value;

use super::replay::{Case, Difference, score};
use super::resolved_type::resources;
use crate::launch::filters::{self, TypeCandidate};

/// What a launch is asked for, as far as it is recorded: how much variety.
fn asked(recorded: &Value) -> Requirements {
    let all = recorded.as_object().into_iter().flatten();
    all.filter_map(|(key, each)| {
        let least = each["MinValues"].as_u64()?;
        let least = u32::try_from(least).unwrap();
        Some(Requirement::exists(&**key).with_min_values(Some(least)))
    })
    .collect()
}

fn instance_type(recorded: &Value) -> InstanceType {
    let name = recorded["Name"].as_str().unwrap();
    let offerings = recorded["Offerings"].as_array().into_iter().flatten();
    InstanceType {
        name: Arc::from(name),
        requirements: [Requirement::is(labels::INSTANCE_TYPE, name)]
            .into_iter()
            .collect(),
        capacity: resources(&recorded["Capacity"]),
        overhead: resources(&Value::Null),
        offerings: offerings.map(|each| offering(name, each)).collect(),
        devices: Arc::from([]),
    }
}

fn offering(name: &str, recorded: &Value) -> Offering {
    let spot = name.contains("spot");
    Offering {
        zone: Arc::from("a"),
        capacity_type: if spot {
            CapacityType::Spot
        } else {
            CapacityType::OnDemand
        },
        price: recorded["Price"].as_f64().and_then(MicroUsd::from_dollars),
        available: recorded["Available"] == true,
        reservation: None,
        labels: Vec::new(),
    }
}

/// Names and prices of what is kept.
fn kept(result: &Value) -> Vec<(String, Vec<Option<MicroUsd>>)> {
    let first = &result[0];
    let list = if first.is_object() { result } else { first };
    let list = list.as_array().into_iter().flatten();
    list.map(|each| {
        let offerings = each["Offerings"].as_array().into_iter().flatten();
        let prices = offerings.map(|each| each["Price"].as_f64().and_then(MicroUsd::from_dollars));
        let name = each["Name"].as_str().unwrap();
        (name.to_owned(), prices.collect())
    })
    .collect()
}

fn run(case: &Case) -> Result<(), Difference> {
    let given = &case.given["args"];
    let types: Vec<InstanceType> = given["instanceTypes"]
        .as_array()
        .unwrap()
        .iter()
        .map(instance_type)
        .collect();
    let asked = asked(&given["requirements"]);
    let all = types.iter().map(|each| TypeCandidate {
        instance_type: each,
        offerings: each.offerings.iter().collect(),
    });
    let mut candidates: Vec<TypeCandidate<'_>> = all.collect();
    let step = case.op.split('.').nth(1).unwrap_or_default();
    let has_own_capacity = given.to_string().contains("CapacityOverride");
    match step {
        "compatibleAvailableFilter" if !has_own_capacity => {
            let requests = resources(&given["requests"]);
            candidates = filters::compatible_available(&types, &asked, &requests);
        }
        "exoticInstanceFilter" => filters::without_exotic(&mut candidates, &asked),
        "spotOfferingFilter" => filters::without_expensive_spot(&mut candidates, &asked),
        _ => {
            return Err(Difference::Meant(
                "it is recorded without the values that it depends on",
            ));
        }
    }
    let ours: Vec<(String, Vec<Option<MicroUsd>>)> = candidates
        .iter()
        .map(|each| {
            let prices = each.offerings.iter().map(|offering| offering.price);
            (each.instance_type.name.to_string(), prices.collect())
        })
        .collect();
    let recorded = kept(&case.expect["result"]);
    if ours == recorded {
        Ok(())
    } else {
        Err(format!("ours {ours:?}\n    recorded {recorded:?}").into())
    }
}

#[test]
fn steps_keep_what_is_recorded() {
    score("instance_filters.jsonl", run);
}
