//! Recorded looks at instances, terminations and lists, against ours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mortise_aws_class::labels as aws_labels;
use mortise_cloudprovider::{CapacityType, CloudError, Instance, TerminationStatus};
use serde_json::{Map, Value, json};

use super::api;
use super::replay::{Case, Difference, RecordedCall, Replay, resolved, score};
use crate::config::AwsConfig;
use crate::instances::{InstanceCache, InstanceDescription, InstanceRecord, InstanceReservation};
use crate::offerings::reservation_counts::ReservationCounts;
use crate::offerings::shifted_zones::ShiftedZones;
use crate::tags;

/// A cache as it was before a case, with what it calls and what it shares.
pub(super) struct Stage {
    pub(super) cache: InstanceCache,
    pub(super) replay: Arc<Replay>,
    pub(super) reservations: Arc<ReservationCounts>,
}

/// Options that a case was recorded with.
fn options(case: &Case, field: &str) -> Value {
    resolved(&case.given[field])
}

impl Stage {
    pub(super) fn of(case: &Case, calls: &Case) -> Self {
        let replay = Arc::new(Replay::of(calls));
        let clients = Arc::new(api::clients(Arc::clone(&replay) as Arc<dyn api::Answers>));
        let core = options(case, "coreOptions");
        let own = options(case, "options");
        let cluster = own["ClusterName"].as_str().unwrap_or("test-cluster");
        let config = AwsConfig {
            cluster_name: cluster.to_owned(),
            reserved_capacity: core["FeatureGates"]["ReservedCapacity"] == true,
            ..AwsConfig::default()
        };
        let reservations = Arc::new(ReservationCounts::default());
        let counts = case.given["capacityReservationAvailability"].as_object();
        for (id, count) in counts.into_iter().flatten() {
            let left = u32::try_from(count["count"].as_u64().unwrap()).unwrap();
            reservations.read(id, left, tokio::time::Instant::now());
        }
        let shifted = Arc::new(ShiftedZones::default());
        let zones = case.given["zonalShifts"].as_object();
        let zones = zones.into_iter().flatten();
        let applied = zones.filter(|(_, shift)| shift["applied"] == true);
        shifted.replace(
            applied.map(|(id, _)| (Arc::from(&**id), std::time::Duration::from_secs(600))),
        );
        let cache = InstanceCache::new(
            &clients,
            Arc::new(config),
            Arc::clone(&reservations),
            shifted,
        );
        Self {
            cache,
            replay,
            reservations,
        }
    }

    /// Knows what the recorded cache had, as of launches long ago: nothing of it is fresh, and none of it is too new to be seen.
    pub(super) async fn remember(&self, case: &Case) {
        let known = case.given["instanceCache"].as_object();
        for instance in known.into_iter().flat_map(Map::values) {
            self.cache.launched(&remembered(instance));
        }
        // A launch into a reservation remembers it; the recorded operation reads it from the claim instead.
        let claim = &case.given["args"]["nodeClaim"];
        let reservation = &claim["metadata"]["labels"][aws_labels::CAPACITY_RESERVATION_ID];
        let id = claim["status"]["providerID"].as_str().unwrap_or_default();
        let id = id.rsplit('/').next().unwrap_or_default();
        if let Some(reservation) = reservation.as_str() {
            let unknown = || remembered(&json!({ "ID": id, "CapacityType": "reserved" }));
            let mut record = self.cache.known(id).unwrap_or_else(unknown);
            record.reservation = Some(InstanceReservation {
                id: reservation.to_owned(),
                is_block: false,
                interruptible: false,
            });
            self.cache.launched(&record);
        }
        tokio::time::advance(Duration::from_secs(61)).await;
    }
}

fn text(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned)
}

/// An instance as the recorded cache writes it.
pub(super) fn remembered(instance: &Value) -> InstanceRecord {
    let details = &instance["CapacityReservationDetails"];
    InstanceRecord {
        id: text(&instance["ID"]).unwrap(),
        instance_type: text(&instance["Type"]).unwrap_or_default(),
        zone: text(&instance["Zone"]).unwrap_or_default(),
        capacity_type: instance["CapacityType"]
            .as_str()
            .and_then(CapacityType::parse)
            .unwrap(),
        reservation: text(&details["ID"]).map(|id| InstanceReservation {
            id,
            is_block: details["Type"] == "capacity-block",
            interruptible: details["Interruptible"] == true,
        }),
        subnet: text(&instance["SubnetID"]),
        image: text(&instance["ImageID"]),
        dedicated: instance["Tenancy"] == "dedicated",
        groups: serde_json::from_value(instance["SecurityGroupIDs"].clone()).unwrap_or_default(),
        described: InstanceDescription {
            zone_id: text(&instance["ZoneID"]),
            ..InstanceDescription::default()
        },
    }
}

/// Our record in the words of the recorded cache.
fn written(record: &InstanceRecord, reference: &Value) -> Value {
    let described = &record.described;
    let launched = described.launched.map(|time| time.to_string());
    let reservation = record.reservation.as_ref().map(|each| {
        json!({ "ID": each.id, "Type": each.type_label(), "Interruptible": each.interruptible })
    });
    let mut all = json!({
        "CapacityType": record.capacity_type.as_str(),
        "EFACount": described.efa_count,
        "ID": record.id,
        "ImageID": record.image.as_deref().unwrap_or_default(),
        "LaunchTime": launched.unwrap_or_else(|| "0001-01-01T00:00:00Z".to_owned()),
        "SecurityGroupIDs": record.groups,
        "State": described.state.as_ref().map(|state| state.as_str()),
        "SubnetID": record.subnet.as_deref().unwrap_or_default(),
        "Tags": described.tags,
        "Tenancy": if record.dedicated { "dedicated" } else { "default" },
        "Type": record.instance_type,
        "Zone": record.zone,
        "ZoneID": described.zone_id.as_deref().unwrap_or_default(),
    });
    for (key, value) in [
        ("CapacityReservationDetails", reservation),
        ("PartitionNumber", described.partition.map(Value::from)),
    ] {
        if let Some(value) =
            value.filter(|_| reference.get(key).is_some() || key != "PartitionNumber")
        {
            all[key] = value;
        }
    }
    all
}

/// A recorded instance without what we do not remember: other tags, and parts of a second.
fn comparable(instance: &Value) -> Value {
    let mut instance = instance.clone();
    let ours = [
        "Name",
        tags::NODECLAIM,
        tags::NODEPOOL,
        tags::NODE_CLASS,
        tags::EKS_CLUSTER,
    ];
    if let Some(tags) = instance["Tags"].as_object_mut() {
        tags.retain(|key, _| ours.contains(&key.as_str()));
    }
    instance["LaunchTime"] = whole(&instance["LaunchTime"]);
    instance
}

fn whole(time: &Value) -> Value {
    match time
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok())
    {
        Some(time) if time.as_second() > -62_000_000_000 => {
            json!(
                Timestamp::from_second(time.as_second())
                    .unwrap()
                    .to_string()
            )
        }
        _ => time.clone(),
    }
}

/// What is remembered afterwards of the instances that the case describes is what the recorded cache has.
fn check_cache(case: &Case, cache: &InstanceCache) -> Result<(), Difference> {
    let Some(after) = case.expect["after"]["instanceCache"].as_object() else {
        return Ok(());
    };
    let calls = case.calls.iter().filter(|call| call.error.is_none());
    let described: BTreeSet<String> = calls
        .flat_map(|call| {
            resolved(&call.out)["Reservations"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        })
        .flat_map(|each| each["Instances"].as_array().cloned().unwrap_or_default())
        .filter_map(|each| text(&each["InstanceId"]))
        .collect();
    for (id, recorded) in after.iter().filter(|(id, _)| described.contains(*id)) {
        let ours = cache.known(id).map(|record| written(&record, recorded));
        if ours.as_ref() != Some(&comparable(recorded)) {
            return Err(format!("cache of {id}: ours {ours:?}\n    recorded {recorded}").into());
        }
    }
    Ok(())
}

/// The port's instance in the words of a recorded NodeClaim, and what is compared of the recorded one. Labels that follow from the
/// instance type are those of the catalogue.
fn check_instance(
    ours: &Instance,
    cache: &InstanceCache,
    recorded: &Value,
) -> Result<(), Difference> {
    let id = ours.provider_id.rsplit('/').next().unwrap_or_default();
    let record = cache.known(id).ok_or("it is not remembered")?;
    let meta = &recorded["metadata"];
    let labels = &meta["labels"];
    let details = &ours.details;
    let reservation = record.reservation.as_ref();
    let pairs = [
        (
            "provider id",
            Some(ours.provider_id.to_string()),
            text(&recorded["status"]["providerID"]),
        ),
        (
            "image",
            details.image.clone(),
            text(&recorded["status"]["imageID"]),
        ),
        (
            "capacity type",
            details.capacity_type.map(|each| each.to_string()),
            text(&labels["karpenter.sh/capacity-type"]),
        ),
        (
            "zone",
            details.zone.clone(),
            text(&labels["topology.kubernetes.io/zone"]),
        ),
        (
            "tenancy",
            Some(
                if record.dedicated {
                    "dedicated"
                } else {
                    "default"
                }
                .to_owned(),
            ),
            text(&labels[aws_labels::INSTANCE_TENANCY]),
        ),
        (
            "pool",
            record.described.tags.get(tags::NODEPOOL).cloned(),
            text(&labels["karpenter.sh/nodepool"]),
        ),
        (
            "reservation",
            details.reservation.clone(),
            text(&labels[aws_labels::CAPACITY_RESERVATION_ID]),
        ),
        (
            "reservation type",
            reservation.map(|each| each.type_label().to_owned()),
            text(&labels[aws_labels::CAPACITY_RESERVATION_TYPE]),
        ),
        (
            "interruptible",
            reservation.map(|each| each.interruptible.to_string()),
            text(&labels[aws_labels::CAPACITY_RESERVATION_INTERRUPTIBLE]),
        ),
        (
            "created",
            ours.created.map(|time| time.to_string()),
            text(&whole(&meta["creationTimestamp"])).filter(|time| !time.starts_with("0001")),
        ),
        (
            "terminating",
            Some(ours.terminating.to_string()),
            Some(text(&meta["deletionTimestamp"]).is_some().to_string()),
        ),
    ];
    for (what, ours, recorded) in pairs {
        if ours != recorded {
            return Err(format!("{what}: ours {ours:?}, recorded {recorded:?}").into());
        }
    }
    // The labels of class and type are there when those are found; ours are what the instance says.
    let zone_id = text(&labels[aws_labels::ZONE_ID]);
    if zone_id.is_some() && zone_id != record.described.zone_id {
        return Err(format!(
            "zone id: ours {:?}, recorded {zone_id:?}",
            record.described.zone_id
        )
        .into());
    }
    let recorded = text(&labels["node.kubernetes.io/instance-type"]);
    if recorded.is_some() && recorded != details.instance_type {
        return Err(format!(
            "type: ours {:?}, recorded {recorded:?}",
            details.instance_type
        )
        .into());
    }
    Ok(())
}

/// What is on purpose where the recorded operation fails.
fn meant(case: &Case) -> Option<&'static str> {
    let message = case.expect["error"]["message"].as_str().unwrap_or_default();
    message.contains("resolving instance type").then_some(
        "an instance of a type that is not in the catalogue is found and listed like any other",
    )
}

/// The error is the recorded one.
fn check_error(ours: &CloudError, recorded: &Value) -> Result<(), Difference> {
    let recorded = recorded["message"].as_str().unwrap_or_default();
    let same = ours.message.contains(recorded);
    if recorded.is_empty() || !same {
        return Err(format!("ours fails: {ours}\n    recorded {recorded:?}").into());
    }
    Ok(())
}

fn provider_id(case: &Case) -> String {
    let args = &case.given["args"];
    text(&args["providerID"])
        .or_else(|| text(&args["nodeClaim"]["status"]["providerID"]))
        .or_else(|| Some(format!("aws:///{}/{}", zone_of(case), args["id"].as_str()?)))
        .unwrap_or_default()
}

/// The zone of the instance that is asked for by its bare id.
fn zone_of(case: &Case) -> String {
    let id = case.given["args"]["id"].as_str().unwrap_or_default();
    text(&case.given["instanceCache"][id]["Zone"]).unwrap_or_else(|| "test-zone-1a".to_owned())
}

/// Ids that the recorded calls ask for together: as many callers at once.
fn asked_together(case: &Case) -> BTreeSet<String> {
    let ids = case
        .calls
        .iter()
        .flat_map(|call| call.input["InstanceIds"].as_array());
    ids.flatten().filter_map(text).collect()
}

/// The recorded calls with those for what the first left out as one, and whether that makes them fewer.
fn joined(case: &Case) -> (Case, bool) {
    let mut joined = case.clone();
    if case.calls.len() <= 2 {
        return (joined, false);
    }
    let again = joined.calls.split_off(1);
    let parts = |name: &str, of: &dyn Fn(&RecordedCall) -> Value| -> Vec<Value> {
        let all = again.iter().map(|call| of(call)[name].clone());
        all.filter_map(|each| each.as_array().cloned())
            .flatten()
            .collect()
    };
    let ids = parts("InstanceIds", &|call| call.input.clone());
    let found = parts("Reservations", &|call| resolved(&call.out));
    if let Some(mut one) = again.first().cloned() {
        one.input["InstanceIds"] = json!(ids);
        one.out = json!({ "Reservations": found });
        joined.calls.push(one);
    }
    (joined, true)
}

async fn get(case: &Case) -> Result<(), Difference> {
    let (calls, fewer) = joined(case);
    let stage = Stage::of(case, &calls);
    if case.op == "instance.Get" && case.calls.is_empty() {
        stage.remember(case).await;
    }
    let id = provider_id(case);
    let own = stage.cache.get_text(&id);
    let together = asked_together(case);
    let others = together.iter().filter(|other| !id.ends_with(&***other));
    let others = others.map(|other| format!("aws:///us-west-2/{other}"));
    let others: Vec<String> = others.collect();
    let others = others.iter().map(|other| stage.cache.get_text(other));
    let (found, _) = futures::join!(own, futures::future::join_all(others));
    let error = &case.expect["error"];
    match found {
        Ok(Some(_)) if meant(case).is_some() => {
            return Err(Difference::Meant(meant(case).unwrap_or_default()));
        }
        Ok(Some(_)) if !error.is_null() => {
            return Err(format!("ours finds it, recorded {error}").into());
        }
        Ok(Some(instance)) if case.op == "instance.Get" => {
            let recorded = &case.expect["result"];
            let id = instance.provider_id.rsplit('/').next().unwrap_or_default();
            let mut ours = written(&stage.cache.known(id).unwrap(), recorded);
            let mut recorded = comparable(recorded);
            if case.calls.is_empty() {
                // Remembered of a launch: what only a description says is not known.
                for field in ["State", "LaunchTime", "Tags"] {
                    ours[field] = Value::Null;
                    recorded[field] = Value::Null;
                }
            }
            if ours != recorded {
                return Err(format!("ours {ours}\n    recorded {recorded}").into());
            }
        }
        Ok(Some(instance)) => check_instance(&instance, &stage.cache, &case.expect["result"])?,
        Ok(None) if error["class"] != json!(["NodeClaimNotFound"]) => {
            return Err("ours does not find it".into());
        }
        Ok(None) => {}
        Err(ours) => check_error(&ours, error)?,
    }
    stage.replay.settled()?;
    check_cache(case, &stage.cache)?;
    if fewer {
        let why = "instances that an answer leaves out are asked for once more in one call, not one by one";
        return Err(Difference::Meant(why));
    }
    Ok(())
}

async fn delete(case: &Case) -> Result<(), Difference> {
    let stage = Stage::of(case, case);
    stage.remember(case).await;
    let counts = |stage: &Stage| -> BTreeMap<String, u32> {
        let ids = case.given["capacityReservationAvailability"].as_object();
        let ids = ids.into_iter().flat_map(Map::keys);
        ids.map(|id| (id.clone(), stage.reservations.left(id)))
            .collect()
    };
    let mut expected = counts(&stage);
    let effects = case.expect["effects"].as_array();
    for effect in effects.into_iter().flatten() {
        let id = effect["args"]["id"].as_str().unwrap_or_default();
        if let ("capacityreservation.MarkTerminated", Some(left)) = (
            effect["op"].as_str().unwrap_or_default(),
            expected.get_mut(id),
        ) {
            *left += 1;
        }
    }
    let ended = stage
        .cache
        .terminate(&provider_id(case).as_str().into())
        .await;
    let error = &case.expect["error"];
    match ended {
        Ok(TerminationStatus::Gone) if error["class"] == json!(["NodeClaimNotFound"]) => {}
        Ok(TerminationStatus::Started) if error.is_null() => {}
        Ok(other) => return Err(format!("ours {other:?}, recorded {error}").into()),
        Err(ours) => check_error(&ours, error)?,
    }
    stage.replay.settled()?;
    if counts(&stage) != expected {
        return Err(format!("counts: ours {:?}, recorded {expected:?}", counts(&stage)).into());
    }
    check_cache(case, &stage.cache)
}

async fn list(case: &Case) -> Result<(), Difference> {
    let stage = Stage::of(case, case);
    stage.remember(case).await;
    let listed = stage.cache.list().await;
    stage.replay.settled()?;
    let all = match listed {
        Ok(_) if meant(case).is_some() => {
            return Err(Difference::Meant(meant(case).unwrap_or_default()));
        }
        Ok(all) => all,
        Err(ours) => return check_error(&ours, &case.expect["error"]),
    };
    let recorded = case.expect["result"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    if all.len() != recorded.len() {
        return Err(format!("ours lists {}, recorded {}", all.len(), recorded.len()).into());
    }
    if case.op == "cloudprovider.List" {
        for ours in &all {
            let same = |each: &&Value| each["status"]["providerID"] == *ours.provider_id;
            let recorded = recorded.iter().find(same);
            let recorded =
                recorded.ok_or_else(|| format!("{} is not recorded", ours.provider_id))?;
            check_instance(ours, &stage.cache, recorded)?;
        }
    }
    check_cache(case, &stage.cache)
}

async fn create_tags(case: &Case) -> Result<(), Difference> {
    let stage = Stage::of(case, case);
    stage.remember(case).await;
    let args = &case.given["args"];
    let id = text(&args["id"]).unwrap_or_default();
    let unknown = || remembered(&json!({ "ID": id, "CapacityType": "on-demand" }));
    let instance = stage.cache.known(&id).unwrap_or_else(unknown);
    let tags: BTreeMap<String, String> = serde_json::from_value(args["tags"].clone()).unwrap();
    let error = &case.expect["error"];
    match stage
        .cache
        .add_tags(&instance, tags.into_iter().collect())
        .await
    {
        Ok(true) if error.is_null() => {}
        Ok(false) if error["class"] == json!(["NodeClaimNotFound"]) => {}
        Ok(other) => return Err(format!("ours {other}, recorded {error}").into()),
        Err(ours) => check_error(&ours, error)?,
    }
    stage.replay.settled()
}

#[test]
fn instances_are_found_listed_and_ended_as_recorded() {
    score("instances.jsonl", |case| {
        block_on(async {
            match case.op.as_str() {
                "cloudprovider.Get" | "instance.Get" => get(case).await,
                "cloudprovider.Delete" | "instance.Delete" => delete(case).await,
                "cloudprovider.List" | "instance.List" => list(case).await,
                "instance.CreateTags" => create_tags(case).await,
                other => Err(format!("{other} is not replayed").into()),
            }
        })
    });
}

/// Runs an operation in a time of its own, which passes as soon as everything waits.
pub(super) fn block_on<T>(operation: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(operation)
}

impl InstanceCache {
    /// As [`Self::get`], by the text of a provider id.
    async fn get_text(&self, id: &str) -> Result<Option<Instance>, CloudError> {
        self.get(&id.into()).await
    }
}
