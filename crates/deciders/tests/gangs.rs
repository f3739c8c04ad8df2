//! Gangs over time: their pods come one after another, want more than a NodePool may have, and end.
//!
//! Each node holds one pod.

use std::collections::BTreeMap;

use crate::automatic_cluster::{automatic_cluster, random, running};
use mortise_apis::labels::TOPOLOGY_ZONE;
use mortise_apis::values::money::MicroUsd;
use mortise_engine::record::Verdict;
use mortise_planning::reason::Reason;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, ordinary_types};
use mortise_state::snapshot::GangKind;
use serde_json::{Value, json};

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
/// CPU of a pod in milli: one fits on a node.
const CPU: i64 = 1_500;

/// A cluster of nodes of 2 CPUs, of which there may be this number.
fn cluster(most_nodes: usize) -> TestCluster {
    let settings = Settings {
        gangs: [GangKind::Coscheduling].into(),
        ..Settings::default()
    };
    let small = ordinary_types().into_iter().take(1).collect();
    let mut world = automatic_cluster(small, settings);
    let limits = json!({ "spec": { "limits": { "nodes": most_nodes.to_string() } } });
    world.pool("default", &limits);
    world
}

fn group(world: &mut TestCluster, name: &str, min: usize) {
    world.put(&json!({
        "kind": "CoschedulingPodGroup",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "minMember": min },
        "status": { "phase": "Pending" },
    }));
}

fn members(world: &mut TestCluster, gang: &str, count: usize) {
    let label: Value =
        json!({ "metadata": { "labels": { "scheduling.x-k8s.io/pod-group": gang } } });
    world.pods(gang, count, CPU, &label);
}

/// Pods of each gang that run or are nominated.
fn served(world: &mut TestCluster) -> BTreeMap<String, usize> {
    let snapshot = world.snapshot();
    let mut all = BTreeMap::new();
    for pod in snapshot.pods.values() {
        let has_place = pod.node.is_some() || snapshot.ledger.nomination(&pod.uid).is_some();
        if let Some(gang) = pod.gang.as_ref().filter(|_| has_place) {
            *all.entry(gang.group.name.to_string()).or_default() += 1;
        }
    }
    all
}

#[test]
fn a_gang_is_launched_when_its_last_pod_has_come() {
    let mut world = cluster(10);
    group(&mut world, "train", 3);
    members(&mut world, "train", 2);
    world.pass(MINUTE);
    assert!(world.names("NodeClaim").is_empty());
    let waits = world.events_of("FailedScheduling");
    assert!(
        waits[0]
            .message
            .contains("PodGroup default/train needs 3 pods to run together, and has 2"),
        "{waits:?}"
    );
    members(&mut world, "train", 1);
    world.pass(MINUTE);
    assert_eq!(world.names("NodeClaim").len(), 3);
    assert_eq!(running(&world, "train"), 3);
}

#[test]
fn a_gang_is_launched_when_its_group_comes_or_the_limit_is_raised() {
    let mut world = cluster(2);
    members(&mut world, "train", 3);
    world.pass(MINUTE);
    group(&mut world, "train", 3);
    world.pass(MINUTE);
    assert!(world.names("NodeClaim").is_empty());
    let is_about_gang = |reason: &Reason| matches!(reason, Reason::GangWaits(_));
    let texts: Vec<String> = world
        .records
        .iter()
        .flat_map(|record| &record.reasons)
        .filter(|reason| is_about_gang(reason))
        .map(ToString::to_string)
        .collect();
    assert!(
        texts.iter().any(|text| text.ends_with("does not exist")),
        "{texts:?}"
    );
    assert!(
        texts
            .iter()
            .any(|text| text.contains("only 2 have a place")),
        "{texts:?}"
    );
    world.pool(
        "default",
        &json!({ "spec": { "limits": { "nodes": "3" } } }),
    );
    world.pass(MINUTE);
    assert_eq!(running(&world, "train"), 3);
}

/// The zones of the NodeClaims.
fn zones(world: &TestCluster) -> Vec<Value> {
    let zone = |name: &String| {
        let claim = world.get(&format!("NodeClaim/{name}"));
        let all = claim["spec"]["requirements"].as_array().unwrap();
        let own = all.iter().find(|each| each["key"] == TOPOLOGY_ZONE);
        own.unwrap()["values"].clone()
    };
    world.names("NodeClaim").iter().map(zone).collect()
}

#[test]
fn a_gang_stays_with_the_zone_of_its_nodes_when_another_one_becomes_cheaper() {
    let settings = Settings {
        gangs: [GangKind::Kubernetes].into(),
        ..Settings::default()
    };
    // Zone a is cheaper.
    let mut small = ordinary_types().swap_remove(0);
    let cheap = small.offerings.iter_mut();
    for offering in cheap.filter(|offering| &*offering.zone == "a") {
        offering.price = Some(MicroUsd(1_000));
    }
    let mut world = automatic_cluster(vec![small], settings);
    let in_zones = |values: Value| {
        let zones = json!([{ "key": TOPOLOGY_ZONE, "operator": "In", "values": values }]);
        json!({ "spec": { "template": { "spec": { "requirements": zones } } } })
    };
    world.pool("default", &in_zones(json!(["b"])));
    world.put(&json!({
        "kind": "PodGroup", "metadata": { "name": "train", "namespace": "default" },
        "spec": {
            "schedulingPolicy": { "gang": { "minCount": 3 } },
            "schedulingConstraints": { "topology": [{ "key": TOPOLOGY_ZONE }] },
        },
    }));
    let member = json!({ "spec": { "schedulingGroup": { "podGroupName": "train" } } });
    world.pods("train", 3, CPU, &member);
    world.pass(2 * SECOND);
    assert_eq!(zones(&world), [json!(["b"]), json!(["b"]), json!(["b"])]);
    assert_eq!(running(&world, "train"), 0, "the nodes are coming");
    world.pool("default", &in_zones(json!(["a", "b"])));
    // One more pod has the gang planned again.
    world.pods("train", 1, CPU, &member);
    world.pass(MINUTE);
    assert_eq!(running(&world, "train"), 4);
    assert_eq!(
        zones(&world),
        [json!(["b"]), json!(["b"]), json!(["b"]), json!(["b"])]
    );
}

#[test]
fn a_pod_that_is_lost_waits_for_no_other() {
    let mut world = cluster(10);
    group(&mut world, "train", 3);
    members(&mut world, "train", 3);
    world.pass(MINUTE);
    world.scale_down("train", 1);
    world.pass(MINUTE);
    members(&mut world, "train", 1);
    world.pass(MINUTE);
    assert_eq!(running(&world, "train"), 3);
}

#[test]
fn no_further_node_is_launched_while_one_of_the_gang_is_slow() {
    let mut world = cluster(10);
    group(&mut world, "train", 3);
    members(&mut world, "train", 3);
    world.automation.never_ready = true;
    world.automation.rejected_apps = ["train".to_owned()].into();
    world.pass(MINUTE);
    let claims = world.names("NodeClaim");
    assert_eq!(claims.len(), 3);
    // Two are ready and reject their pods with every node that comes, until the third is.
    for claim in &claims[..2] {
        world.boot_late(claim);
        world.pass(4 * MINUTE);
    }
    assert_eq!(world.names("NodeClaim"), claims);
    let stalled = world.records_of(Verdict::Stalled);
    assert!(stalled.is_empty(), "{stalled:?}");
    world.boot_late(&claims[2]);
    world.automation.rejected_apps.clear();
    world.pass(MINUTE);
    assert_eq!(running(&world, "train"), 3);
    assert_eq!(world.names("NodeClaim"), claims);
}

/// A gang that comes at random.
struct Arrival {
    name: String,
    pods: usize,
    created: usize,
    ends_at: Option<i64>,
}

/// 100 gangs of 2 to 64 pods in an hour, in a NodePool with room for one of the largest, with minutes without capacity.
#[test]
fn gangs_that_come_at_random_are_never_served_in_part() {
    let mut world = cluster(80);
    let mut random = random(11);
    let mut gangs: Vec<Arrival> = Vec::new();
    let (mut pods, mut second, mut ended) = (0, 0, 0);
    while ended < 100 {
        assert!(second < 12 * 3_600, "{ended} of 100 gangs have run");
        if gangs.len() < 100 && random(30) == 0 {
            let most = if random(10) == 0 { 63 } else { 15 };
            let size = 2 + random(most);
            let name = format!("g{:03}", gangs.len());
            group(&mut world, &name, size);
            gangs.push(Arrival {
                name,
                pods: size,
                created: 0,
                ends_at: None,
            });
            pods += size;
        }
        for gang in &mut gangs {
            let more = (gang.pods - gang.created).min(1 + random(16));
            members(&mut world, &gang.name, more);
            gang.created += more;
            if gang.created == gang.pods
                && gang.ends_at.is_none()
                && running(&world, &gang.name) == gang.pods
            {
                gang.ends_at = Some(second + 60 + i64::try_from(random(180)).unwrap_or(0));
            }
            if gang.ends_at == Some(second) {
                world.scale_down(&gang.name, gang.pods);
                ended += 1;
            }
        }
        let is_short = (1_800..1_920).contains(&second);
        world.automation.no_capacity = is_short;
        // A scheduler that knows gangs binds no pod of one that has no place for all.
        let now = served(&mut world);
        let is_held = |gang: &&Arrival| now.get(&gang.name) != Some(&gang.pods);
        world.automation.rejected_apps = gangs
            .iter()
            .filter(is_held)
            .map(|gang| gang.name.clone())
            .collect();
        world.pass(SECOND);
        second += 1;
        // Launches that fail take the nominations of some pods away; the gang is whole again within minutes.
        if !(1_800..2_400).contains(&second) {
            let served = served(&mut world);
            for gang in gangs
                .iter()
                .filter(|gang| gang.ends_at.is_none_or(|end| second <= end))
            {
                let count = served.get(&gang.name).copied().unwrap_or(0);
                assert!(
                    count == 0 || count == gang.pods,
                    "{count} of {} pods of {} after {second} s",
                    gang.pods,
                    gang.name
                );
            }
        }
    }
    let times = world.claim_times();
    let is_after_shortage = |at: &&i64| !(1_800 * SECOND..2_100 * SECOND).contains(*at);
    let launched = times.iter().filter(is_after_shortage).count();
    println!(
        "{pods} pods of 100 gangs: {} NodeClaims, {launched} of them not during the shortage; {second} s",
        times.len()
    );
    assert!(
        launched * 100 <= pods * 102,
        "{launched} NodeClaims for {pods} pods"
    );
    assert!(world.violations().is_empty(), "{:?}", world.violations());
}
