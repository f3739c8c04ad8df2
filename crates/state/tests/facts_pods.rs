//! Pods and instance types against results of the reference implementation: effective requests, host ports, predicates,
//! selection of types.
//!
//! Every recorded case is compared; `MORTISE_FACTS_DIR` selects another folder for the same comparison.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../../apis/tests/facts/mod.rs"]
mod facts;

use std::collections::BTreeMap;
use std::sync::Arc;

use facts::{check, read, same, text};
use jiff::Timestamp;
use mortise_apis::k8s;
use mortise_apis::k8s::pod::ContainerPort;
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_kwok_class::labels::well_known;
use mortise_state::catalog::Catalog;
use mortise_state::pods::{HostPort, RequestSource, requests};
use mortise_state::snapshot::{EvictionCost, Pod, PodClasses};
use serde::Deserialize;
use serde_json::Value;

fn pod(case: &Value) -> Result<k8s::Pod, String> {
    read(&case["pod"])
}

#[test]
fn pod_requests() {
    check("pod_requests", |case| {
        let pod = pod(case)?;
        let want = |key: &str| -> Result<Resources, String> {
            let list: k8s::ResourceList = read(&case[key])?;
            Resources::from_api(&list).map_err(|error| error.to_string())
        };
        let ours = |source| requests(&pod, source).map_err(|error| error.to_string());
        same(
            "requestsForPods",
            ours(RequestSource::SpecAndStatus)?,
            want("requestsForPods")?,
        )?;
        same(
            "requestsForSpecOnly",
            ours(RequestSource::Spec)?,
            want("requestsForSpecOnly")?.with("pods", 1),
        )
    });
}

#[test]
fn hostport() {
    check("hostport", |case| {
        let port = |value: &Value| read::<ContainerPort>(value);
        if let Some(ports) = case["ports"].as_array() {
            let ours: Result<Vec<_>, String> = ports.iter().map(port).collect();
            let ours: Vec<String> = ours?
                .iter()
                .filter_map(HostPort::from_container_port)
                .map(|each| each.to_string())
                .collect();
            let want: Vec<String> = read(&case["hostPorts"])?;
            return same("hostPorts", ours, want);
        }
        let (used, new) = (
            HostPort::from_container_port(&port(&case["used"])?),
            HostPort::from_container_port(&port(&case["new"])?),
        );
        let conflict = match (used, new) {
            // A pod does not conflict with itself; the solver never compares it.
            _ if case["samePod"] == true => false,
            (Some(used), Some(new)) => used.conflicts(&new) && new.conflicts(&used),
            _ => false,
        };
        same("conflict", conflict, case["conflict"] == true)
    });
}

/// Intended differences: an owner of a removed API group is still an owner of its kind, and a terminal pod needs no node,
/// regardless of its owner.
fn differs_on_purpose(pod: &Pod, old_group: bool, predicate: &str) -> bool {
    let daemon = pod.is_daemon() && old_group;
    match predicate {
        "isOwnedByDaemonSet" | "isProvisionable" => daemon,
        "isReschedulable" => daemon || pod.is_terminal(),
        _ => false,
    }
}

#[test]
fn pod_predicates() {
    check("pod_predicates", |case| {
        let object = pod(case)?;
        let owners = object.metadata.owner_references.iter().flatten();
        let old_group = owners
            .into_iter()
            .any(|owner| owner.api_version.starts_with("extensions/"));
        let pod = Pod::from_api(&object, &mut PodClasses::default());
        let time = |key: &str| -> Result<Timestamp, String> {
            text(case, key)?.parse().map_err(|error| format!("{error}"))
        };
        let (now, expiry) = (time("now")?, time("nodeGraceExpiry")?);
        let owner = |kind: &str| pod.owner.as_ref().is_some_and(|owner| &*owner.kind == kind);
        let apart = &pod.class.anti_affinity;
        let ours = BTreeMap::from([
            ("doNotDisruptActive", pod.is_protected(now)),
            ("failedToSchedule", pod.unschedulable),
            ("forcedEviction", pod.outlives(expiry)),
            ("hasDRA", pod.class.claims_devices),
            ("hasPodAntiAffinity", !apart.is_empty()),
            ("hasRequiredPodAntiAffinity", !apart.required.is_empty()),
            ("isActive", pod.is_active()),
            ("isDisruptable", pod.is_disruptable(now)),
            ("isDrainable", pod.is_drainable(now)),
            ("isEvictable", pod.is_evictable(now)),
            ("isOwnedByDaemonSet", pod.is_daemon()),
            ("isOwnedByNode", pod.is_node_owned()),
            ("isOwnedByStatefulSet", owner("StatefulSet")),
            ("isProvisionable", pod.is_provisionable(false)),
            ("isReschedulable", pod.is_reschedulable()),
            ("isStuckTerminating", pod.is_stuck_terminating(now)),
            ("isTerminal", pod.is_terminal()),
            ("isTerminating", pod.deleted.is_some()),
            ("isWaitingEviction", pod.is_waiting_eviction(now)),
            ("toleratesDisrupted", pod.class.tolerates_disruption()),
        ]);
        let recorded = case["out"].as_object().ok_or("out is no object")?;
        for (name, want) in recorded {
            if name == "evictionCost" {
                let EvictionCost(one) = EvictionCost::ONE;
                let want = (want.as_f64().ok_or("evictionCost")? * one as f64).round() as i64;
                let EvictionCost(cost) = pod.eviction_cost();
                // A deletion cost is an integer to Kubernetes; Karpenter keeps the fraction of one that is not.
                if (cost - want).abs() > 1 {
                    return Err(format!("evictionCost: we say {cost}, recorded {want}"));
                }
                continue;
            }
            let own = *ours
                .get(name.as_str())
                .ok_or_else(|| format!("no predicate {name}"))?;
            if !differs_on_purpose(&pod, old_group, name) {
                same(name, own, *want == true)?;
            }
        }
        Ok(())
    });
}

// === instance types ===

/// A type as the kwok provider's catalog stores it.
#[derive(Deserialize)]
struct KwokType {
    name: String,
    offerings: Vec<KwokOffering>,
    architecture: String,
    #[serde(rename = "operatingSystems")]
    systems: Vec<String>,
    resources: k8s::ResourceList,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct KwokOffering {
    price: f64,
    available: bool,
    requirements: Vec<KwokRequirement>,
}

#[derive(Deserialize)]
struct KwokRequirement {
    key: String,
    values: Vec<String>,
}

impl KwokOffering {
    fn value(&self, key: &str) -> &str {
        self.requirements
            .iter()
            .find(|each| each.key == key)
            .map_or("", |each| &each.values[0])
    }
}

fn kwok_type(of: KwokType) -> InstanceType {
    use mortise_apis::labels as l;
    use mortise_kwok_class::labels as kwok_labels;
    let capacity = Resources::from_api(&of.resources).unwrap();
    let parts: Vec<&str> = of.name.split('-').collect();
    let size = parts[1].trim_end_matches('x').to_owned();
    let memory = of.resources["memory"].0.clone();
    let cpu = of.resources["cpu"].0.clone();
    let unique = |key: &str| -> Vec<String> {
        let mut all: Vec<String> = of
            .offerings
            .iter()
            .map(|each| each.value(key).to_owned())
            .collect();
        all.sort();
        all.dedup();
        all
    };
    let list = |key: &str, values: Vec<String>| Requirement::new(key, Operator::In, values);
    let requirements = [
        list(l::INSTANCE_TYPE, vec![of.name.clone()]),
        list(l::ARCH, vec![of.architecture.clone()]),
        list(l::OS, of.systems.clone()),
        list(l::TOPOLOGY_ZONE, unique(l::TOPOLOGY_ZONE)),
        list(l::CAPACITY_TYPE, unique(l::CAPACITY_TYPE)),
        list(kwok_labels::INSTANCE_CPU, vec![cpu]),
        list(kwok_labels::INSTANCE_MEMORY, vec![memory]),
        list(kwok_labels::INSTANCE_FAMILY, vec![parts[0].to_owned()]),
        list(kwok_labels::INSTANCE_SIZE, vec![size]),
    ];
    InstanceType {
        name: of.name.as_str().into(),
        requirements: requirements.into_iter().collect(),
        capacity,
        overhead: Resources::new(100, 10 << 20),
        offerings: of
            .offerings
            .iter()
            .map(|each| Offering {
                zone: each.value(l::TOPOLOGY_ZONE).into(),
                capacity_type: CapacityType::parse(each.value(l::CAPACITY_TYPE)).unwrap(),
                price: MicroUsd::from_dollars(each.price),
                available: each.available,
                reservation: None,
                labels: Vec::new(),
            })
            .collect(),
        devices: std::sync::Arc::default(),
    }
}

fn kwok_catalog() -> Catalog {
    let all: Vec<KwokType> = serde_json::from_value(facts::table("kwok-instance-types")).unwrap();
    Catalog::build(all.into_iter().map(kwok_type).collect())
}

#[test]
fn kwok_resolved() {
    let catalog = kwok_catalog();
    check("kwok_resolved", |case| {
        let name = text(case, "name")?;
        let found = catalog.get(name).ok_or_else(|| format!("no type {name}"))?;
        let list = |key: &str| -> Result<Resources, String> {
            Resources::from_api(&read(&case[key])?).map_err(|error| error.to_string())
        };
        same("capacity", found.capacity.clone(), list("capacity")?)?;
        same("allocatable", found.allocatable(), list("allocatable")?)?;
        let want: BTreeMap<String, Vec<String>> = read(&case["requirements"])?;
        let ours: BTreeMap<String, Vec<String>> = found
            .requirements
            .iter()
            .map(|each| {
                (
                    each.key().to_owned(),
                    each.values().iter().map(ToString::to_string).collect(),
                )
            })
            .collect();
        same("requirements", ours, want)
    });
}

#[test]
fn instance_type_selection() {
    let catalog = kwok_catalog();
    let known = well_known();
    check("instance_type_selection", |case| {
        let asked = case["requirements"]
            .as_array()
            .ok_or("requirements")?
            .iter()
            .map(|each| {
                let operator: Operator = text(each, "op")?
                    .parse()
                    .map_err(|error| format!("{error}"))?;
                let values: Vec<String> = if each["values"].is_null() {
                    Vec::new()
                } else {
                    read(&each["values"])?
                };
                let min = each["min"].as_u64().and_then(|min| u32::try_from(min).ok());
                Ok(Requirement::new(text(each, "key")?, operator, values).with_min_values(min))
            });
        let asked: Requirements = asked.collect::<Result<_, String>>()?;
        let number = |key: &str| {
            case[key]
                .as_u64()
                .and_then(|n| usize::try_from(n).ok())
                .ok_or_else(|| key.to_owned())
        };
        let offers = catalog.offers(&asked, &known);
        same(
            "byOfferings",
            catalog.count_offered(&asked, &known),
            number("byOfferings")?,
        )?;
        same(
            "byOfferingsAndRequirements",
            offers.len(),
            number("byOfferingsAndRequirements")?,
        )?;
        let first: Vec<String> = offers
            .iter()
            .take(10)
            .map(|offer| offer.instance_type.name.to_string())
            .collect();
        same("cheapest10", first.clone(), read(&case["cheapest10"])?)?;
        let micros = |key: &str| -> Result<Vec<Option<MicroUsd>>, String> {
            let all: Vec<f64> = read(&case[key])?;
            Ok(all.into_iter().map(MicroUsd::from_dollars).collect())
        };
        same(
            "cheapest10prices",
            offers.iter().take(10).map(|offer| offer.price).collect(),
            micros("cheapest10prices")?,
        )?;
        let worst = first
            .iter()
            .map(|name| catalog.worst_launch_price(name, &asked, &known))
            .collect();
        same("worstLaunchPrices", worst, micros("worstLaunchPrices")?)?;
        let types: Vec<Arc<InstanceType>> = offers
            .iter()
            .map(|offer| Arc::clone(&offer.instance_type))
            .collect();
        let needed = catalog.types_needed(&types, &asked);
        same("ok", needed.is_ok(), case["minValues"]["ok"] == true)?;
        match needed {
            Ok(count) => same(
                "typesNeeded",
                count,
                read(&case["minValues"]["typesNeeded"])?,
            )?,
            Err(short) => {
                let ours: BTreeMap<String, usize> = short
                    .into_iter()
                    .map(|(key, left)| (key.to_string(), left))
                    .collect();
                same(
                    "unsatisfied",
                    ours,
                    read(&case["minValues"]["unsatisfied"])?,
                )?;
            }
        }
        for (key, cut) in [("truncateTo5ok", 5), ("truncateTo60ok", 60)] {
            let kept = &types[..types.len().min(cut)];
            same(
                key,
                catalog.check_min_values(kept, &asked).is_ok(),
                case[key] == true,
            )?;
        }
        Ok(())
    });
}
