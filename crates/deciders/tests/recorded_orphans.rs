//! Recorded garbage collections of the reference implementation: which instances are ended, and which nodes go with them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and its table is its output"
)]

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use jiff::{SignedDuration, Timestamp};
use mortise_cloudprovider::{Instance, InstanceDetails};
use mortise_deciders::GarbageCollectionDecider;
use mortise_engine::decider::Decider;
use mortise_engine::effect::Effect;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::TestCluster;
use serde_json::{Value, json};

/// The cases, where that file exists: next to other recorded facts, or below the folder in the environment.
fn cases() -> Vec<Value> {
    let own = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/facts");
    let root = std::env::var_os("MORTISE_FACTS_DIR").map_or_else(own, PathBuf::from);
    let path = root.join("aws/nodeclaim_controllers.jsonl");
    let mut text = String::new();
    match std::fs::read_to_string(&path) {
        Ok(plain) => text = plain,
        Err(_) => {
            let packed = std::fs::read(path.with_extension("jsonl.gz")).unwrap();
            GzDecoder::new(&*packed).read_to_string(&mut text).unwrap();
        }
    }
    let all = text.lines().map(|line| serde_json::from_str(line).unwrap());
    all.filter(|case: &Value| {
        case["op"]
            .as_str()
            .is_some_and(|op| op.contains("garbagecollection"))
    })
    .collect()
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// What the recorded list had, as old when the decider lists as it was then.
fn listed(case: &Value, at: Timestamp) -> Vec<Instance> {
    let now = time(&case["given"]["now"]).unwrap();
    let reservations = case["calls"][0]["out"]["Reservations"].as_array();
    let instances = reservations
        .into_iter()
        .flatten()
        .filter_map(|each| each["Instances"].as_array());
    let instance = |each: &Value| {
        let age = time(&each["LaunchTime"]).map(|launched| now.duration_since(launched));
        let mut tags = each["Tags"].as_array().into_iter().flatten();
        let claim = tags.find(|tag| tag["Key"] == "karpenter.sh/nodeclaim");
        Instance {
            provider_id: format!(
                "aws:///{}/{}",
                each["Placement"]["AvailabilityZone"].as_str().unwrap(),
                each["InstanceId"].as_str().unwrap()
            )
            .as_str()
            .into(),
            claim: claim.and_then(|tag| Some(tag["Value"].as_str()?.to_owned())),
            batch: None,
            created: age.map(|age: SignedDuration| at - age),
            terminating: each["State"]["Name"] == "shutting-down",
            details: InstanceDetails::default(),
        }
    };
    instances.flatten().map(instance).collect()
}

fn deciders(_: &Settings) -> Vec<Box<dyn Decider>> {
    vec![Box::new(GarbageCollectionDecider::new())]
}

/// Instances that ours ends, and nodes that go, after one list.
fn collected(case: &Value) -> BTreeSet<String> {
    let mut world = TestCluster::new(deciders, Settings::default());
    world.put_default_pool();
    for object in case["given"]["objects"].as_array().into_iter().flatten() {
        let mut object = object.clone();
        if object["kind"] == "NodeClaim" {
            // The classes that test clusters serve.
            object["spec"]["nodeClassRef"] =
                json!({ "group": "fake.test", "kind": "FakeNodeClass", "name": "default" });
        }
        if ["NodeClaim", "Node"].contains(&object["kind"].as_str().unwrap()) {
            world.put(&object);
        }
    }
    let interval = world.settings.garbage_collection_interval_ms;
    let at = world.now() + SignedDuration::from_millis(interval);
    world.answers.listed = Some(listed(case, at));
    world.pass(interval + 5_000);
    let done = world
        .effects
        .iter()
        .filter_map(|(_, effect)| match &**effect {
            Effect::Terminate { provider_id, .. } => Some(provider_id.to_string()),
            Effect::Delete { target, .. } => Some(target.to_string()),
            _ => None,
        });
    done.collect()
}

fn recorded(case: &Value) -> BTreeSet<String> {
    let effects = case["expect"]["effects"].as_array();
    let ended = effects.into_iter().flatten().filter_map(|effect| {
        let is_end = effect["op"] == "cloudprovider.Delete";
        is_end.then(|| effect["args"]["providerID"].as_str().unwrap().to_owned())
    });
    let changes = case["expect"]["changes"].as_array();
    let deleted = changes.into_iter().flatten().map(|change| {
        assert_eq!(change["deleted"], true, "{change}");
        format!("node/{}", change["name"].as_str().unwrap())
    });
    ended.chain(deleted).collect()
}

/// Whether the recording ended before each termination that was begun had its end.
fn is_cut_off(case: &Value) -> bool {
    let effects = case["expect"]["effects"].as_array();
    let count = |op: &str| {
        let all = effects.into_iter().flatten();
        all.filter(|effect| effect["op"] == op).count()
    };
    count("instance.Delete") != count("cloudprovider.Delete")
}

#[test]
fn the_recorded_instances_are_ended_and_no_others() {
    let (mut passed, mut failed) = (0, Vec::new());
    for case in cases() {
        let (ours, recorded) = (collected(&case), recorded(&case));
        // A recording that ended while terminations were under way lacks the last of them.
        let is_rest = is_cut_off(&case) && recorded.is_subset(&ours);
        if ours == recorded || is_rest {
            passed += 1;
        } else {
            failed.push(format!(
                "{}: ours {ours:?}\n    recorded {recorded:?}",
                case["id"]
            ));
        }
    }
    println!(
        "nodeclaim_controllers.jsonl (garbage collection): {passed} passed, {} failed",
        failed.len()
    );
    assert!(passed > 0 && failed.is_empty(), "{}", failed.join("\n"));
}
