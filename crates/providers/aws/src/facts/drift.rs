//! Recorded comparisons of instances with their class, against ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_aws_catalog::embedded_catalog;
use mortise_aws_catalog::node_settings::NodeSettings;
use mortise_aws_class::hash::HASH_VERSION;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_cloudprovider::InstanceType;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::api::wire::{ApiCall, ApiError};
use super::api::{self, Answers};
use super::instances::{Stage, block_on, remembered};
use super::replay::{Case, Difference, RecordedCall, resolved, score};
use crate::node_class::amis::positions;
use crate::node_class::{CachedNodeClass, FoundSubnet, PlacementGroup, PlacementStrategy};
use crate::offerings::region_offerings::{ClassShape, RegionOfferings};
use crate::tags;

/// Answers with the recorded source of instance types.
#[derive(Debug)]
struct TypeSource(Value);

impl Answers for TypeSource {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        Ok(resolved(&self.0[&call.op]))
    }
}

/// The types of a case, in every zone that sells them.
async fn types(case: &Case) -> Vec<InstanceType> {
    let source = case.given["instanceTypeSource"].clone();
    let sold = resolved(&source["DescribeInstanceTypeOfferings"]);
    let sold = sold["InstanceTypeOfferings"].as_array().cloned();
    let zones: BTreeMap<Arc<str>, Option<Arc<str>>> = sold
        .into_iter()
        .flatten()
        .filter_map(|each| Some((Arc::from(each["Location"].as_str()?), None)))
        .collect();
    let clients = Arc::new(api::clients(Arc::new(TypeSource(source))));
    let offerings = RegionOfferings::as_recorded(clients, embedded_catalog().unwrap());
    let view = offerings.view().await.unwrap();
    let shape = ClassShape {
        settings: &NodeSettings::default(),
        zones: &zones,
        reservations: &[],
        group: None,
    };
    offerings.instance_types(&view, &shape, &[]).unwrap()
}

/// The group that the recorded lookup found for the class.
fn placement_group(case: &Case) -> Option<PlacementGroup> {
    let call = case.calls.iter().find(|call| is_lookup(call))?;
    let group = resolved(&call.out)["PlacementGroups"].get(0)?.clone();
    let text = |key: &str| group[key].as_str().unwrap_or_default().to_owned();
    Some(PlacementGroup {
        id: text("GroupId"),
        name: text("GroupName"),
        strategy: match &*text("Strategy") {
            "partition" => PlacementStrategy::Partition,
            "spread" => PlacementStrategy::Spread,
            _ => PlacementStrategy::Cluster,
        },
        partitions: 0,
    })
}

/// Placement groups are looked up when a class is resolved, not when an instance is compared with it.
fn is_lookup(call: &RecordedCall) -> bool {
    call.op == "DescribePlacementGroups"
}

async fn class(case: &Case) -> CachedNodeClass {
    let object: Ec2NodeClass = serde_json::from_value(case.given["nodeClass"].clone()).unwrap();
    let types = types(case).await;
    let annotation = |key: &str| {
        let all = object.metadata.annotations.as_ref();
        all.and_then(|all| all.get(key)).cloned()
    };
    let version = annotation(tags::CLASS_HASH_VERSION);
    let status = object.status.clone();
    CachedNodeClass {
        settings: NodeSettings::default(),
        subnets: status
            .subnets
            .into_iter()
            .map(|subnet| FoundSubnet { subnet, free: 100 })
            .collect(),
        groups: status.security_groups,
        images: positions(&status.amis, &types),
        amis: status.amis,
        reservations: status.capacity_reservations,
        placement_group: placement_group(case),
        profile: status.instance_profile,
        types,
        hash: annotation(tags::CLASS_HASH).filter(|_| version.as_deref() == Some(HASH_VERSION)),
        not_ready: None,
        found: Instant::now(),
        object,
    }
}

/// Whether the recorded operation checked a reservation again although the instance had drifted for another reason.
fn looked_again_for_nothing(case: &Case) -> bool {
    let result = &case.expect["result"];
    let looks = case.calls.iter().filter(|call| !is_lookup(call)).count();
    looks == 2 && *result != "" && *result != "CapacityReservationDrift"
}

async fn compare(case: &Case) -> Result<(), Difference> {
    let mut calls = case.clone();
    calls.calls.retain(|call| !is_lookup(call));
    let again = looked_again_for_nothing(case);
    if again {
        calls.calls.pop();
    }
    let stage = Stage::of(case, &calls);
    let known = case.given["instanceCache"].as_object();
    for instance in known.into_iter().flat_map(Map::values) {
        stage.cache.seen(remembered(instance));
    }
    let result = &case.expect["result"];
    let error = &case.expect["error"];
    if case.given["nodePool"].is_null() || case.given["nodeClass"].is_null() {
        // Without pool or class no caller asks: the decider's rule. What is recorded must be that nothing drifted and nothing was called.
        let is_silent = *result == "" && error.is_null() && case.calls.is_empty();
        return if is_silent {
            Ok(())
        } else {
            Err("the recorded operation answers without pool or class".into())
        };
    }
    let claim: NodeClaim = serde_json::from_value(case.given["args"]["nodeClaim"].clone()).unwrap();
    match stage.cache.drift(&claim, &class(case).await).await {
        Ok(reason) => {
            let ours = json!(reason.map_or("", |reason| reason.as_str()));
            if !error.is_null() || ours != *result {
                return Err(format!("ours {ours}, recorded {result} {error}").into());
            }
        }
        Err(ours) => {
            let recorded = error["message"].as_str().unwrap_or_default();
            if recorded.is_empty() || !ours.message.contains(recorded) {
                return Err(format!("ours fails: {ours}, recorded {result} {error}").into());
            }
        }
    }
    stage.replay.settled()?;
    if again {
        let why = "a reservation is checked again only when nothing before it in order drifted";
        return Err(Difference::Meant(why));
    }
    Ok(())
}

#[test]
fn drift_is_as_recorded() {
    score("drift.jsonl", |case| {
        if case.op != "cloudprovider.IsDrifted" {
            return Err(format!("{} is not replayed", case.op).into());
        }
        block_on(compare(case))
    });
}
