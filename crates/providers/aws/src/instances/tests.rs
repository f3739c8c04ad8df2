//! Stories of instances in a cloud that counts its calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::ProviderId;
use mortise_cloudprovider::TerminationStatus;
use serde_json::{Value, json};

use super::*;
use crate::config::AwsConfig;
use crate::facts::api::wire::{ApiCall, ApiError};
use crate::facts::api::{self, Answers};
use crate::offerings::reservation_counts::ReservationCounts;
use crate::offerings::shifted_zones::ShiftedZones;

/// EC2 with instances by id.
#[derive(Debug, Default)]
struct Ec2 {
    instances: Mutex<BTreeMap<String, Value>>,
    calls: Mutex<Vec<ApiCall>>,
    /// Codes that the next calls of an operation fail with.
    errors: Mutex<Vec<(&'static str, &'static str)>>,
}

fn ids(input: &Value, key: &str) -> Vec<String> {
    serde_json::from_value(input[key].clone()).unwrap_or_default()
}

impl Ec2 {
    fn add(&self, id: &str, more: &Value) {
        let mut instance = json!({
            "InstanceId": id, "InstanceType": "m5.large", "State": { "Name": "running" },
            "LaunchTime": "2026-01-01T00:00:00Z",
            "Placement": { "AvailabilityZone": "z-1a", "AvailabilityZoneId": "z1" },
            "Tags": [],
        });
        for (key, value) in more.as_object().unwrap() {
            instance[key] = value.clone();
        }
        self.instances
            .lock()
            .unwrap()
            .insert(id.to_owned(), instance);
    }

    fn state(&self, id: &str, state: &str) {
        if let Some(instance) = self.instances.lock().unwrap().get_mut(id) {
            instance["State"]["Name"] = json!(state);
        }
    }

    fn count(&self, op: &str) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| call.op == op).count()
    }

    fn missing(&self, asked: &[String]) -> Result<(), ApiError> {
        let all = self.instances.lock().unwrap();
        let missing: Vec<&str> = asked
            .iter()
            .filter(|id| !all.contains_key(*id))
            .map(|id| &**id)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(ApiError::Service {
            code: "InvalidInstanceID.NotFound".to_owned(),
            message: format!("The instance IDs '{}' do not exist", missing.join(", ")),
        })
    }
}

impl Answers for Ec2 {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        self.calls.lock().unwrap().push(call.clone());
        let mut errors = self.errors.lock().unwrap();
        if let Some(at) = errors.iter().position(|(op, _)| *op == call.op) {
            return Err(ApiError::Service {
                code: errors.remove(at).1.to_owned(),
                message: "no".to_owned(),
            });
        }
        drop(errors);
        let asked = ids(
            &call.input,
            if call.op == "CreateTags" {
                "Resources"
            } else {
                "InstanceIds"
            },
        );
        self.missing(&asked)?;
        let mut all = self.instances.lock().unwrap();
        Ok(match call.op.as_str() {
            "DescribeInstances" => {
                let is_asked = |id: &&String| asked.is_empty() || asked.contains(id);
                let found = all
                    .iter()
                    .filter(|(id, each)| is_asked(id) && each["State"]["Name"] != "terminated");
                json!({ "Reservations": [{ "Instances": found.map(|(_, each)| each.clone()).collect::<Vec<_>>() }] })
            }
            "TerminateInstances" => {
                let ended = asked.iter().map(|id| {
                    all.get_mut(id).unwrap()["State"]["Name"] = json!("shutting-down");
                    json!({ "InstanceId": id, "CurrentState": { "Name": "shutting-down" } })
                });
                json!({ "TerminatingInstances": ended.collect::<Vec<_>>() })
            }
            "CreateTags" => {
                for id in &asked {
                    let tags = call.input["Tags"].as_array().unwrap().clone();
                    all.get_mut(id).unwrap()["Tags"]
                        .as_array_mut()
                        .unwrap()
                        .extend(tags);
                }
                Value::Null
            }
            other => panic!("{other}"),
        })
    }
}

struct World {
    ec2: Arc<Ec2>,
    cache: Arc<InstanceCache>,
    reservations: Arc<ReservationCounts>,
    shifted: Arc<ShiftedZones>,
}

fn world() -> World {
    let ec2 = Arc::new(Ec2::default());
    let clients = Arc::new(api::clients(Arc::clone(&ec2) as Arc<dyn Answers>));
    let config = AwsConfig {
        cluster_name: "c".to_owned(),
        reserved_capacity: true,
        ..AwsConfig::default()
    };
    let (reservations, shifted) = (Arc::default(), Arc::default());
    let cache = InstanceCache::new(
        &clients,
        Arc::new(config),
        Arc::clone(&reservations),
        Arc::clone(&shifted),
    );
    World {
        ec2,
        cache: Arc::new(cache),
        reservations,
        shifted,
    }
}

fn id(instance: &str) -> ProviderId {
    format!("aws:///z-1a/{instance}").as_str().into()
}

fn claim(name: &str, instance: &str, annotations: &Value) -> NodeClaim {
    serde_json::from_value(json!({
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "nodeClassRef": { "group": "g", "kind": "k", "name": "n" }, "requirements": [] },
        "status": { "providerID": &*id(instance), "nodeName": format!("node-{name}") },
    }))
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_thousand_instances_end_with_a_few_calls() {
    let world = world();
    for n in 0..1_000 {
        world.ec2.add(&format!("i-{n:04}"), &json!({}));
    }
    let end = async || {
        let all = (0..1_000).map(|n| {
            let cache = Arc::clone(&world.cache);
            async move { cache.terminate(&id(&format!("i-{n:04}"))).await.unwrap() }
        });
        join_all(all).await
    };
    assert!(
        end()
            .await
            .iter()
            .all(|each| *each == TerminationStatus::Started)
    );
    assert!(
        end()
            .await
            .iter()
            .all(|each| *each == TerminationStatus::Started)
    );
    assert_eq!(
        world.ec2.count("DescribeInstances"),
        2,
        "a moment later nothing is asked"
    );
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(
        end()
            .await
            .iter()
            .all(|each| *each == TerminationStatus::Started)
    );
    tokio::time::advance(Duration::from_secs(10)).await;
    for n in 0..1_000 {
        world.ec2.state(&format!("i-{n:04}"), "terminated");
    }
    // One looks at all; the others hear of it when they ask next.
    end().await;
    assert!(
        end()
            .await
            .iter()
            .all(|each| *each == TerminationStatus::Gone)
    );
    // A call takes 500; how the answers of the looks arrive decides whether a window more is opened.
    let (ends, looks) = (
        world.ec2.count("TerminateInstances"),
        world.ec2.count("DescribeInstances"),
    );
    assert!(
        (2..=4).contains(&ends) && (6..=8).contains(&looks),
        "{ends} {looks}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_missing_fails_no_other() {
    let world = world();
    world.ec2.add("i-1", &json!({}));
    let (one, gone) = (id("i-1"), id("i-2"));
    let (one, gone) = futures::join!(world.cache.get(&one), world.cache.get(&gone));
    assert!(one.unwrap().is_some() && gone.unwrap().is_none());
    assert_eq!(
        world.ec2.count("DescribeInstances"),
        2,
        "EC2 names what is missing"
    );
    world
        .ec2
        .errors
        .lock()
        .unwrap()
        .push(("TerminateInstances", "UnauthorizedOperation"));
    assert_eq!(
        world.cache.terminate(&id("i-1")).await,
        Ok(TerminationStatus::Started),
        "tried once more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_place_in_a_reservation_is_free_once() {
    let world = world();
    world
        .reservations
        .read("cr-1", 3, tokio::time::Instant::now());
    world.ec2.add("i-1", &json!({
        "CapacityReservationId": "cr-1",
        "CapacityReservationSpecification": { "CapacityReservationPreference": "capacity-reservations-only" },
    }));
    assert_eq!(
        world.cache.terminate(&id("i-1")).await,
        Ok(TerminationStatus::Started)
    );
    world.cache.list().await.unwrap();
    world.ec2.state("i-1", "terminated");
    world.cache.list().await.unwrap();
    assert_eq!(
        world.cache.terminate(&id("i-1")).await,
        Ok(TerminationStatus::Started)
    );
    tokio::time::advance(Duration::from_secs(10)).await;
    for _ in 0..3 {
        assert_eq!(
            world.cache.terminate(&id("i-1")).await,
            Ok(TerminationStatus::Gone)
        );
    }
    assert_eq!(world.reservations.left("cr-1"), 4);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_in_a_shifted_zone() {
    let world = world();
    world.ec2.add("i-1", &json!({}));
    assert_eq!(world.cache.list().await.unwrap().len(), 1);
    world
        .shifted
        .replace([(Arc::from("z1"), Duration::from_secs(600))]);
    world.ec2.instances.lock().unwrap().clear();
    assert_eq!(world.cache.list().await.unwrap().len(), 0);
    assert!(
        world.cache.get(&id("i-1")).await.unwrap().is_some(),
        "as it was seen last"
    );
    let error = world.cache.terminate(&id("i-1")).await.unwrap_err();
    assert_eq!(
        error.message,
        "instance i-1 is in zonally shifted availability zone z-1a (z1), skipping termination"
    );
    let error = world
        .cache
        .tag(&claim("a", "i-1", &json!({})))
        .await
        .unwrap_err();
    assert!(error.message.ends_with("skipping tag creation"), "{error}");
    assert_eq!(
        world.ec2.count("TerminateInstances") + world.ec2.count("CreateTags"),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn tags_are_added_once_at_the_rate_of_the_api() {
    let world = world();
    for n in 0..200 {
        world.ec2.add(
            &format!("i-{n}"),
            &json!({ "Tags": [{ "Key": "Name", "Value": "of a user" }] }),
        );
    }
    world.cache.list().await.unwrap();
    let started = tokio::time::Instant::now();
    let tag = |n: u32| {
        let cache = Arc::clone(&world.cache);
        async move {
            cache
                .tag(&claim(&format!("c-{n}"), &format!("i-{n}"), &json!({})))
                .await
                .unwrap()
        }
    };
    let annotations = join_all((0..200).map(tag)).await;
    assert!(annotations.iter().all(|each| each.len() == 2));
    let took = started.elapsed();
    assert!(
        took <= Duration::from_secs(11),
        "a burst of 100, then 10 a second: {took:?}"
    );
    assert_eq!(
        (
            world.ec2.count("CreateTags"),
            world.ec2.count("DescribeInstances")
        ),
        (200, 1)
    );
    let tags = world.ec2.instances.lock().unwrap()["i-7"]["Tags"].clone();
    assert_eq!(
        tags.as_array().unwrap().len(),
        3,
        "the user's name stays: {tags}"
    );
    // A crash before the annotations were written has them checked again, and nothing written.
    assert_eq!(tag(7).await.len(), 2);
    let done = json!({ TAGGED_ANNOTATIONS[0]: "true", TAGGED_ANNOTATIONS[1]: "true" });
    assert!(
        world
            .cache
            .tag(&claim("c-7", "i-7", &done))
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(world.ec2.count("CreateTags"), 200);
}

#[tokio::test(start_paused = true)]
async fn the_same_tags_of_many_instances_are_one_call() {
    let world = world();
    for n in 0..200 {
        let tags = json!([{ "Key": "Name", "Value": "n" }, { "Key": "karpenter.sh/nodeclaim", "Value": "c" }]);
        world.ec2.add(&format!("i-{n}"), &json!({ "Tags": tags }));
    }
    let tagged = json!({ TAGGED_ANNOTATIONS[0]: "true" });
    let tag = |n: u32| {
        let cache = Arc::clone(&world.cache);
        let claim = claim(&format!("c-{n}"), &format!("i-{n}"), &tagged);
        async move { cache.tag(&claim).await.unwrap() }
    };
    assert!(
        join_all((0..200).map(tag))
            .await
            .iter()
            .all(|each| each.len() == 2)
    );
    assert_eq!(
        (
            world.ec2.count("CreateTags"),
            world.ec2.count("DescribeInstances")
        ),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn launches_that_begin_together_are_looked_up_together() {
    let world = world();
    for n in 0..3 {
        let uid = json!([{ "Key": "mortise.sh/nodeclaim-uid", "Value": format!("u-{n}") }]);
        world.ec2.add(&format!("i-{n}"), &json!({ "Tags": uid }));
    }
    let uids: Vec<String> = (0..400).map(|n| format!("u-{n}")).collect();
    let found = join_all(uids.iter().map(|uid| world.cache.of_claim(uid))).await;
    let found: Vec<String> = found
        .into_iter()
        .filter_map(|each| Some(each.unwrap()?.id))
        .collect();
    assert_eq!(found, ["i-0", "i-1", "i-2"]);
    assert_eq!(
        world.ec2.count("DescribeInstances"),
        2,
        "200 values in a filter"
    );
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_does_not_end_is_asked_again() {
    let world = world();
    world.ec2.add("i-1", &json!({}));
    assert_eq!(
        world.cache.terminate(&id("i-1")).await,
        Ok(TerminationStatus::Started)
    );
    world.ec2.state("i-1", "running");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(
        world.cache.terminate(&id("i-1")).await,
        Ok(TerminationStatus::Started)
    );
    assert_eq!(world.ec2.count("TerminateInstances"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_was_just_launched_is_tagged_after_the_next_list() {
    let world = world();
    world.ec2.add("i-1", &json!({}));
    let record = world.cache.of_claim("u").await.unwrap();
    assert!(record.is_none());
    world.cache.list().await.unwrap();
    let mut record = world.cache.known("i-1").unwrap();
    record.id = "i-2".to_owned();
    world.cache.launched(&record);
    let claim = claim("a", "i-2", &json!({}));
    assert!(world.cache.tag(&claim).await.unwrap().is_empty());
    world.ec2.add("i-2", &json!({}));
    world.cache.list().await.unwrap();
    assert_eq!(world.cache.tag(&claim).await.unwrap().len(), 2);
    assert_eq!(
        (
            world.ec2.count("CreateTags"),
            world.ec2.count("DescribeInstances")
        ),
        (1, 3)
    );
}

#[tokio::test(start_paused = true)]
async fn a_young_instance_is_gone_when_ec2_knows_it_and_not_while_ec2_does_not() {
    let world = world();
    world.ec2.add("i-1", &json!({}));
    world.cache.list().await.unwrap();
    let mut record = world.cache.known("i-1").unwrap();
    record.id = "i-2".to_owned();
    world.cache.launched(&record);
    let unknown = world.cache.get(&id("i-2")).await.unwrap_err();
    assert_eq!(unknown.label, "unsettled");
    world.ec2.add("i-2", &json!({}));
    assert!(world.cache.get(&id("i-2")).await.unwrap().is_some());
    world.ec2.state("i-2", "terminated");
    assert_eq!(world.cache.get(&id("i-2")).await.unwrap(), None);
}

/// Seconds that an instance takes to end.
const SHUTDOWN_S: usize = 40;

/// Calls in an hour of 1,000 nodes of which 100 are replaced, one by one, ours against the reference's.
///
/// # Source
/// Of the reference: its garbage collection lists every 2 min and its sync of capacity types every minute; drift is checked in what those
/// lists remember. A new node costs a look and the tags. The end of an instance costs a look, the call, a look every 5 s until it is gone,
/// and the last one twice, because what is missing is asked for again. Its batches have a window of a second at most: what is replaced one
/// by one shares none.
#[tokio::test(start_paused = true)]
async fn calls_per_node_hour_are_half_of_the_references() {
    let world = world();
    let instance = |n: usize| format!("i-{n:04}");
    for n in 0..1_000 {
        world.ec2.add(&instance(n), &json!({}));
    }
    let template = {
        world.cache.list().await.unwrap();
        world.cache.known("i-0000").unwrap()
    };
    // Every 36 s a node is replaced; the engine asks each second for what is ending, and for tags as its back-off says.
    let (mut ending, mut untagged) = (Vec::new(), Vec::new());
    let mut replaced = 0;
    for second in 0..3_600 {
        if second % 120 == 0 && second > 0 {
            world.cache.list().await.unwrap();
        }
        if second % 36 == 0 {
            let new = instance(1_000 + replaced);
            world.ec2.add(&new, &json!({}));
            let mut record = template.clone();
            record.id.clone_from(&new);
            world.cache.launched(&record);
            untagged.push(new);
            ending.push((second, instance(replaced)));
            replaced += 1;
        }
        if second % 10 == 0 {
            let mut left = Vec::new();
            for new in untagged {
                let tagged = world
                    .cache
                    .tag(&claim(&new, &new, &json!({})))
                    .await
                    .unwrap();
                left.extend(tagged.is_empty().then_some(new));
            }
            untagged = left;
        }
        let mut left = Vec::new();
        for (since, old) in ending {
            if second == since + SHUTDOWN_S {
                world.ec2.state(&old, "terminated");
            }
            let gone = world.cache.terminate(&id(&old)).await.unwrap() == TerminationStatus::Gone;
            left.extend((!gone).then_some((since, old)));
        }
        ending = left;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let calls = world.ec2.calls.lock().unwrap().len();
    let reference = 30 + 60 + replaced * (2 + 1 + 1 + SHUTDOWN_S / 5 + 2);
    println!(
        "calls in an hour of 1,000 nodes of which {replaced} are replaced: ours {calls} ({:.2} per node-hour), the reference's {reference} ({:.2})",
        calls as f64 / 1_000.0,
        reference as f64 / 1_000.0,
    );
    assert!(calls * 2 <= reference, "{calls} of {reference}");
}
