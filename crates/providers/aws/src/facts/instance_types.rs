//! Labels, capacity and allocatable of every recorded instance type, and overhead under recorded node classes: from EC2's descriptions, which
//! come over the SDK in pages and are converted as in production.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use mortise_apis::requirements::{Operator, Requirements};
use mortise_apis::resources::Resources;
use mortise_aws_class::spec::Ec2NodeClassSpec;
use serde_json::{Value, json};

use super::api::wire::{ApiCall, ApiError};
use super::api::{Answers, clients};
use super::{check, read};
use crate::offerings::describe;
use crate::offerings::described_type::convert;
use crate::sdk::AwsClients;
use mortise_aws_catalog::instance_type_info::InstanceTypeInfo;
use mortise_aws_catalog::launch_zones::{LaunchZones, ZonePrices};
use mortise_aws_catalog::node_settings::NodeSettings;
use mortise_aws_catalog::{self as catalog, CapacityOptions};

/// As many as EC2 describes on a page.
const PAGE: usize = 100;

/// EC2 with these descriptions.
#[derive(Debug)]
struct Descriptions(Vec<Value>);

impl Answers for Descriptions {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        assert_eq!(call.op, "DescribeInstanceTypes");
        let from = call.input["NextToken"].as_str().map(str::parse);
        let from: usize = from.transpose().unwrap().unwrap_or(0);
        let page: Vec<&Value> = self.0.iter().skip(from).take(PAGE).collect();
        let next = from + page.len();
        let more = (next < self.0.len()).then(|| next.to_string());
        let mut answer = json!({ "InstanceTypes": page });
        if let Some(token) = more {
            answer["NextToken"] = Value::from(token);
        }
        Ok(answer)
    }
}

/// Asks EC2, which describes every type that is known.
fn asked<T>(question: impl AsyncFnOnce(&AwsClients) -> T) -> T {
    let described: BTreeMap<String, Value> =
        serde_json::from_str(&read("aws-instance-types.json")).unwrap();
    let clients = clients(Arc::new(Descriptions(described.into_values().collect())));
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().unwrap();
    runtime.block_on(question(&clients))
}

type TypesByName = BTreeMap<Arc<str>, InstanceTypeInfo>;

fn by_name(types: Vec<InstanceTypeInfo>) -> TypesByName {
    let named = types.into_iter().map(|each| (Arc::clone(&each.name), each));
    named.collect()
}

/// Every type that EC2 describes, converted as in production; also those that no node can be made of.
static TYPES: LazyLock<TypesByName> = LazyLock::new(|| {
    let tables = catalog::embedded_catalog().unwrap();
    let pages = asked(async |clients| {
        let pages = clients.ec2.describe_instance_types().into_paginator();
        let pages: Result<Vec<_>, _> = pages.send().collect().await;
        pages.unwrap()
    });
    let described = pages.iter().flat_map(|page| page.instance_types());
    by_name(
        described
            .filter_map(|each| convert(each, &tables))
            .collect(),
    )
});

fn described(name: &str) -> Result<&'static InstanceTypeInfo, String> {
    let found = TYPES.get(name);
    found.ok_or_else(|| format!("{name} is not described"))
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
        let info = described(name)?;
        let ours = info.instance_type(&NodeSettings::default(), &placement);
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

/// Facts of the published table that descriptions of another day contradict, by name of the label or resource.
const OTHER_DAY: [&str; 4] = [
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz",
    "karpenter.k8s.aws/instance-network-bandwidth",
    "memory",
    "pods",
];

/// Each label and each resource of the published table is a fact.
#[test]
fn the_published_table_is_met() {
    let golden: Value = serde_json::from_str(&read("aws-golden-instance-types.json")).unwrap();
    let placement = LaunchZones {
        region: Arc::from("us-east-1"),
        ..LaunchZones::default()
    };
    let tables = catalog::embedded_catalog().unwrap();
    let types = asked(async |clients| describe::instance_types(clients, &tables).await.unwrap());
    let types = by_name(types);
    let (mut passed, mut failed, mut unknown) = (0, Vec::new(), Vec::new());
    for (name, published) in golden["types"].as_object().unwrap() {
        let Some(info) = types.get(name.as_str()) else {
            unknown.push(name);
            continue;
        };
        let ours = info.instance_type(&NodeSettings::default(), &placement);
        let (have, free) = (labels(&ours.requirements), ours.allocatable());
        let wanted = resources(&floored(published["resources"].clone()));
        let of_labels = published["labels"].as_object().unwrap().iter();
        let of_labels = of_labels.map(|(key, value)| {
            let value = value.as_str().unwrap();
            let found = have.get(key);
            let is_met = found.is_some_and(|found| found.iter().eq([value]));
            (key, is_met, format!("{found:?}, published {value}"))
        });
        let of_resources = published["resources"].as_object().unwrap().keys();
        let of_resources = of_resources.map(|key| {
            let (found, wanted) = (free.get(key), wanted.get(key));
            (key, found == wanted, format!("{found}, published {wanted}"))
        });
        for (key, is_met, difference) in of_labels.chain(of_resources) {
            if is_met {
                passed += 1;
            } else {
                failed.push((key.clone(), format!("{name} {key}: {difference}")));
            }
        }
    }
    println!(
        "aws-golden-instance-types.json: {passed} passed, {} failed; not described: {unknown:?}",
        failed.len()
    );
    for (_, difference) in &failed {
        println!("  {difference}");
    }
    assert!(passed > 10_000, "{passed}");
    assert!(failed.len() * 1_000 <= 3 * (passed + failed.len()));
    let of_today = failed
        .iter()
        .find(|(key, _)| !OTHER_DAY.contains(&key.as_str()));
    assert_eq!(of_today, None);
}

#[test]
fn overhead_is_as_recorded() {
    let ppm = |percent: f64| format!("{:.0}", percent * 1e6).parse::<i64>().unwrap();
    check("aws_overhead.jsonl", |case| {
        let name = case["type"].as_str().unwrap();
        let info = described(name)?;
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
        let capacity = info.capacity(&shape);
        let ours = info.instance_type(&shape, &LaunchZones::default());
        differ("capacity", &capacity, &case["capacity"])?;
        differ(
            "kubeReserved",
            &info.kube_reserved(&shape),
            &case["kubeReserved"],
        )?;
        differ(
            "systemReserved",
            &info.system_reserved(&shape),
            &case["systemReserved"],
        )?;
        differ(
            "evictionThreshold",
            &info.eviction_threshold(&shape, &capacity),
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
