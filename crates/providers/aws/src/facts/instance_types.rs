//! Labels, capacity and allocatable of every recorded instance type, and overhead under recorded node classes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mortise_apis::requirements::{Operator, Requirements};
use mortise_apis::resources::Resources;
use mortise_aws_class::spec::Ec2NodeClassSpec;
use serde_json::Value;

use super::check;
use mortise_aws_catalog::CapacityOptions;
use mortise_aws_catalog::launch_zones::{LaunchZones, ZonePrices};
use mortise_aws_catalog::node_settings::NodeSettings;
use mortise_aws_catalog::{self as catalog, CatalogRow};

fn row(name: &str) -> Option<CatalogRow> {
    catalog::embedded_catalog().unwrap().find(name).cloned()
}

/// The recorded resource list, without what the resource arithmetic has no place for.
fn resources(value: &Value) -> Resources {
    let list: BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity> =
        serde_json::from_value(value.clone()).unwrap();
    Resources::from_api(&list).unwrap()
}

fn differ(what: &str, ours: &Resources, recorded: &Value) -> Result<(), String> {
    let recorded = resources(recorded);
    if *ours == recorded {
        Ok(())
    } else {
        Err(format!("{what}: ours {ours}, recorded {recorded}"))
    }
}

/// The recording goes below zero where an instance is too small for its own overhead; ours stops there, so that no pod "fits" by arithmetic.
fn floored(mut recorded: Value) -> Value {
    for amount in recorded
        .as_object_mut()
        .into_iter()
        .flat_map(|list| list.values_mut())
    {
        if amount.as_str().is_some_and(|text| text.starts_with('-')) {
            *amount = Value::from("0");
        }
    }
    recorded
}

/// Values per label, as the recording lists them: labels that the type lacks are left out.
fn labels(requirements: &Requirements) -> BTreeMap<String, BTreeSet<String>> {
    let listed = requirements
        .iter()
        .filter(|each| each.operator() == Operator::In);
    listed
        .map(|each| {
            (
                each.key().to_owned(),
                each.values()
                    .iter()
                    .map(|value| value.to_string())
                    .collect(),
            )
        })
        .collect()
}

#[test]
fn every_type_has_the_recorded_labels_and_resources() {
    let place = |zone: &str, id: &str| ZonePrices {
        zone: Arc::from(zone),
        zone_id: Some(Arc::from(id)),
        on_demand: None,
        spot: None,
    };
    // Recorded with subnets in 1a and 1c, and every type offered in 1a and 1b: only 1a is in both.
    let placement = LaunchZones {
        region: Arc::from("us-east-1"),
        places: vec![place("us-east-1a", "use1-az1")],
        ..LaunchZones::default()
    };
    check("aws_instance_type_resolved_all.jsonl", |case| {
        let name = case["type"].as_str().unwrap();
        let row = row(name).ok_or_else(|| format!("{name} is not in the catalogue"))?;
        let ours = row.info.instance_type(&NodeSettings::default(), &placement);
        let recorded: BTreeMap<String, BTreeSet<String>> =
            serde_json::from_value(case["labels"].clone()).unwrap();
        let have = labels(&ours.requirements);
        for key in recorded.keys().chain(have.keys()) {
            if recorded.get(key) != have.get(key) {
                return Err(format!(
                    "{key}: ours {:?}, recorded {:?}",
                    have.get(key),
                    recorded.get(key)
                ));
            }
        }
        differ("capacity", &ours.capacity, &case["capacity"])?;
        differ(
            "allocatable",
            &ours.allocatable(),
            &floored(case["allocatable"].clone()),
        )?;
        Ok(true)
    });
}

#[test]
fn overhead_is_as_recorded() {
    let ppm = |percent: f64| format!("{:.0}", percent * 1e6).parse::<i64>().unwrap();
    check("aws_overhead.jsonl", |case| {
        let name = case["type"].as_str().unwrap();
        let row = row(name).ok_or_else(|| format!("{name} is not in the catalogue"))?;
        let options = &case["options"];
        let spec: Ec2NodeClassSpec = serde_json::from_value(case["spec"].clone()).unwrap();
        let options = CapacityOptions {
            vm_overhead_ppm: ppm(options["vmMemoryOverheadPercent"].as_f64().unwrap()),
            reserved_enis: options["reservedENIs"].as_i64().unwrap(),
            prefix_delegation: false,
            expressions: options["nodeClassCEL"] == true,
        };
        let shape = NodeSettings::read(&spec, options).map_err(|error| error.to_string())?;
        if case.get("error").is_some() {
            return Err("an error is recorded".to_owned());
        }
        let capacity = row.info.capacity(&shape);
        let ours = row.info.instance_type(&shape, &LaunchZones::default());
        differ("capacity", &capacity, &case["capacity"])?;
        differ(
            "kubeReserved",
            &row.info.kube_reserved(&shape),
            &case["kubeReserved"],
        )?;
        differ(
            "systemReserved",
            &row.info.system_reserved(&shape),
            &case["systemReserved"],
        )?;
        differ(
            "evictionThreshold",
            &row.info.eviction_threshold(&shape, &capacity),
            &case["evictionThreshold"],
        )?;
        differ(
            "allocatable",
            &ours.allocatable(),
            &floored(case["allocatable"].clone()),
        )?;
        let os = labels(&ours.requirements)
            .remove("kubernetes.io/os")
            .unwrap_or_default();
        let recorded: BTreeSet<String> = serde_json::from_value(case["os"].clone()).unwrap();
        if os == recorded {
            Ok(true)
        } else {
            Err(format!("os: ours {os:?}, recorded {recorded:?}"))
        }
    });
}
