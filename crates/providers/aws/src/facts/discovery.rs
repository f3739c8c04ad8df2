//! What selectors find, and with which calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mortise_apis::schema::requirement::RequirementSpec;
use mortise_aws_class::spec::Ec2NodeClass;
use serde_json::{Value, json};

use super::api::wire::{ApiCall, ApiError};
use super::api::{self, Answers};
use super::replay::{Case, Difference, RecordedCode, Replay, score};
use crate::node_class::cache::{PlacementGroup, PlacementStrategy};
use crate::node_class::placement_groups::PlacementGroups;
use crate::node_class::{amis, networks};
use crate::sdk::AwsClients;
use crate::sdk::ssm_parameter_cache::SsmParameterCache;

/// Runs something to its end, with a clock that only moves when there is nothing else to do.
pub(super) fn paused<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(work)
}

/// The case as AWS would have answered: the stand-in had no code for a parameter that does not exist.
pub(super) fn with_codes(case: &Case) -> Case {
    let mut case = case.clone();
    for call in &mut case.calls {
        if let Some(error) = &mut call.error
            && error.aws.is_none()
            && error.message.starts_with("parameter not found")
        {
            error.aws = Some(RecordedCode {
                code: "ParameterNotFound".to_owned(),
                message: error.message.clone(),
            });
        }
    }
    case
}

fn replay(case: &Case) -> (Arc<Replay>, Arc<AwsClients>) {
    let replay = Arc::new(Replay::of(&with_codes(case)));
    let answers: Arc<dyn Answers> = Arc::clone(&replay) as _;
    (replay, Arc::new(api::clients(answers)))
}

pub(super) fn class(case: &Case) -> Ec2NodeClass {
    serde_json::from_value(case.given["args"]["nodeClass"].clone()).unwrap()
}

pub(super) fn now(case: &Case) -> Timestamp {
    case.given["now"].as_str().unwrap().parse().unwrap()
}

fn equal(ours: &Value, recorded: &Value) -> Result<(), Difference> {
    if ours == recorded {
        Ok(())
    } else {
        Err(format!("ours {ours}, recorded {recorded}").into())
    }
}

/// Rows in the order of their text.
fn sorted(rows: impl IntoIterator<Item = Value>) -> Value {
    let mut rows: Vec<Value> = rows.into_iter().collect();
    rows.sort_by_key(Value::to_string);
    Value::Array(rows)
}

fn rows(case: &Case) -> &[Value] {
    case.expect["result"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Answers come from the reference's cache of a minute. We look classes up every few minutes instead of every minute.
fn is_cached(case: &Case, cache: &str) -> bool {
    case.calls.is_empty()
        && case.given["warm"][cache]
            .as_u64()
            .is_some_and(|entries| entries > 0)
}

fn subnets(case: &Case) -> Result<(), Difference> {
    if is_cached(case, "subnet") {
        return Err(Difference::Meant(
            "classes are looked up every five minutes instead of every minute, and nothing is cached in between",
        ));
    }
    let (replay, clients) = replay(case);
    let terms = class(case).spec.subnet_selector_terms;
    let found = paused(networks::subnets(&clients, &terms)).map_err(|error| error.to_string())?;
    replay.settled()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let recorded = rows(case).iter().map(|row| {
        json!([
            row["SubnetId"],
            text(&row["AvailabilityZone"]),
            row["AvailabilityZoneId"],
            row["AvailableIpAddressCount"].as_i64().unwrap_or(0)
        ])
    });
    let ours = found.iter().map(|each| {
        json!([
            each.subnet.id,
            each.subnet.zone,
            each.subnet.zone_id,
            each.free
        ])
    });
    equal(&sorted(ours), &sorted(recorded))?;
    if found.windows(2).all(|pair| pair[0].free >= pair[1].free) {
        Ok(())
    } else {
        Err("not sorted".into())
    }
}

fn groups(case: &Case) -> Result<(), Difference> {
    let (replay, clients) = replay(case);
    let terms = class(case).spec.security_group_selector_terms;
    let found =
        paused(networks::security_groups(&clients, &terms)).map_err(|error| error.to_string())?;
    replay.settled()?;
    let recorded = rows(case)
        .iter()
        .map(|row| json!([row["GroupId"], row["GroupName"]]));
    equal(
        &sorted(found.iter().map(|each| json!([each.id, each.name]))),
        &sorted(recorded),
    )
}

fn images(case: &Case) -> Result<(), Difference> {
    let (replay, clients) = replay(case);
    let spec = class(case).spec;
    let parameters = SsmParameterCache::new(Arc::clone(&clients));
    let version = case.given["cluster"]["kubernetesVersion"].as_str().unwrap();
    let found = paused(amis::find(&clients, &parameters, &spec, version, now(case)))
        .map_err(|error| error.to_string())?;
    replay.settled()?;
    let requirements = |all: &[RequirementSpec]| -> BTreeMap<String, Value> {
        all.iter()
            .map(|each| {
                let value = json!({ "op": each.operator, "values": each.values() });
                (each.key.clone(), value)
            })
            .collect()
    };
    let ours = found.iter().map(|ami| {
        json!([
            ami.id,
            ami.name,
            ami.deprecated.unwrap_or(false),
            requirements(&ami.requirements)
        ])
    });
    let recorded = rows(case).iter().map(|row| {
        json!([
            row["AmiID"],
            row["Name"],
            row["Deprecated"],
            row["Requirements"]
        ])
    });
    // In order: the first that fits is booted.
    equal(
        &Value::Array(ours.collect()),
        &Value::Array(recorded.collect()),
    )
}

/// Answers as recorded, but first, while the caches fill, as the case says that they were filled.
#[derive(Debug)]
struct Filled {
    replay: Replay,
    before: std::sync::Mutex<Option<Value>>,
}

impl Answers for Filled {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        match self.before.lock().unwrap().take() {
            Some(answer) => Ok(answer),
            None => self.replay.answer(call),
        }
    }
}

fn group(case: &Case) -> Result<(), Difference> {
    let selector = class(case).spec.placement_group_selector;
    let recorded = &case.expect["result"];
    let has_error = !case.expect["error"].is_null();
    // Fresh if nothing was called, stale if the call failed and there is a result all the same.
    let known = (case.calls.is_empty() && selector.is_some()) || (has_error && !recorded.is_null());
    let listed = match recorded {
        Value::Null => json!([]),
        found => json!([{
            "GroupId": found["ID"],
            "GroupName": found["Name"],
            "Strategy": found["Strategy"],
            "PartitionCount": found["PartitionCount"],
        }]),
    };
    let answers = Arc::new(Filled {
        replay: Replay::of(case),
        before: std::sync::Mutex::new(known.then(|| json!({ "PlacementGroups": listed }))),
    });
    let clients = api::clients(Arc::clone(&answers) as Arc<dyn Answers>);
    let groups = PlacementGroups::new(Arc::new(clients));
    let selector = selector.unwrap_or_default();
    let found = paused(async {
        if known {
            groups.get(&selector).await.unwrap();
        }
        if has_error {
            tokio::time::advance(Duration::from_secs(3600)).await;
        }
        groups.get(&selector).await
    });
    answers.replay.settled()?;
    let ours = match found {
        Ok(found) => found.map_or(Value::Null, |found| described(&found)),
        Err(error) if recorded.is_null() && has_error => json!(error.to_string()),
        Err(error) => return Err(error.to_string().into()),
    };
    equal(&ours, recorded)
}

fn described(group: &PlacementGroup) -> Value {
    let strategy = match group.strategy {
        PlacementStrategy::Cluster => "cluster",
        PlacementStrategy::Partition => "partition",
        PlacementStrategy::Spread => "spread",
    };
    json!({ "ID": group.id, "Name": group.name, "PartitionCount": group.partitions, "Strategy": strategy })
}

fn parameter(case: &Case) -> Result<(), Difference> {
    let (replay, clients) = replay(case);
    let name = case.given["args"]["parameter"]["Name"].as_str().unwrap();
    let parameters = SsmParameterCache::new(clients);
    let found = paused(parameters.get(name)).map_err(|error| error.to_string())?;
    replay.settled()?;
    equal(&json!(found), &case.expect["result"])
}

#[test]
fn selectors_find_what_is_recorded() {
    score("discovery.jsonl", |case| match case.op.as_str() {
        "subnet.List" => subnets(case),
        "securitygroup.List" => groups(case),
        "amifamily.List" => images(case),
        "placementgroup.Get" => group(case),
        "ssm.Get" => parameter(case),
        other => Err(format!("no check for {other}").into()),
    });
}
