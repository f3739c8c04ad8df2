//! Nominations as stories: pods that come one after the other are placed as if the earlier ones ran already, and no
//! nomination outlives its reason.

use std::collections::BTreeMap;

use crate::automatic_cluster::{automatic_cluster, ordinary_cluster};
use mortise_apis::labels;
use mortise_apis::values::after;
use mortise_engine::record::Verdict;
use mortise_sim::test_cluster::{TestCluster, instance_type};
use mortise_state::ledger::NominationTarget;
use mortise_state::snapshot::Stalled;
use serde_json::{Value, json};

fn apart(app: &str, key: &str) -> Value {
    let term = json!({ "labelSelector": { "matchLabels": { "app": app } }, "topologyKey": key });
    json!({ "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } } })
}

fn near(app: &str, key: &str) -> Value {
    let term = json!({ "labelSelector": { "matchLabels": { "app": app } }, "topologyKey": key });
    json!({ "spec": { "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } } })
}

fn spread(app: &str, key: &str) -> Value {
    json!({ "spec": { "topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "app": app } },
    }] } })
}

/// Where every pod is, or is expected: its node.
fn places(world: &mut TestCluster) -> BTreeMap<String, String> {
    let snapshot = world.snapshot();
    let mut all = BTreeMap::new();
    for pod in snapshot.pods.values() {
        let nominated = snapshot.ledger.nomination(&pod.uid);
        let place = match (&pod.node, nominated.map(|nomination| &nomination.place)) {
            (Some(node), _) | (None, Some(NominationTarget::Node(node))) => node.to_string(),
            (None, Some(NominationTarget::Claim(claim))) => claim.to_string(),
            (None, None) => continue,
        };
        all.insert(pod.key.to_string(), place);
    }
    all
}

fn stalled_pods(world: &mut TestCluster) -> Vec<Stalled> {
    let now = world.now();
    let snapshot = world.snapshot();
    let pods = snapshot.pods.values();
    pods.filter_map(|pod| snapshot.stalled(pod, now)).collect()
}

fn zone(world: &TestCluster, claim: &str) -> Vec<String> {
    let claim = world.get(&format!("NodeClaim/{claim}"));
    let label = &claim["metadata"]["labels"][labels::TOPOLOGY_ZONE];
    if let Some(label) = label.as_str() {
        return vec![label.to_owned()];
    }
    let all = claim["spec"]["requirements"].as_array().unwrap();
    let of = all.iter().find(|each| each["key"] == labels::TOPOLOGY_ZONE);
    let values = of.and_then(|of| of["values"].as_array()).unwrap();
    values
        .iter()
        .map(|zone| zone.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn pods_that_must_be_apart_get_a_node_each_however_they_come() {
    // A node is ready after 21 s; this world's scheduler knows nothing of constraints between pods.
    for pause_ms in [0, 50, 120, 400, 3_000, 5_000] {
        let mut world = ordinary_cluster();
        for _ in 0..3 {
            world.pods("web", 1, 0, &apart("web", labels::HOSTNAME));
            world.pass(pause_ms);
        }
        world.pass(5_000);
        assert_eq!(world.claim_times().len(), 3, "{pause_ms} ms apart");
        world.pass(60_000);
        let bound = world.bound();
        assert!(world.pending() == 0, "{pause_ms} ms apart: {bound:?}");
        assert_eq!(world.claim_times().len(), 3, "{pause_ms} ms apart");
    }
}

/// A pod that keeps others of its kind out of its zone blocks every zone that its node may still start in.
#[test]
fn pods_that_must_be_in_zones_apart_wait_for_the_zone_of_the_first() {
    let mut world = ordinary_cluster();
    world.pods("web", 1, 0, &apart("web", labels::TOPOLOGY_ZONE));
    world.pass(400);
    world.pods("web", 1, 0, &apart("web", labels::TOPOLOGY_ZONE));
    world.pass(15_000);
    let zones: Vec<_> = world
        .names("NodeClaim")
        .iter()
        .map(|claim| zone(&world, claim))
        .collect();
    assert_eq!(zones.len(), 2, "{zones:?}");
    assert_ne!(zones[0], zones[1]);
}

#[test]
fn a_spread_counts_pods_that_are_only_expected() {
    for pause_ms in [50, 150, 400, 2_000] {
        let mut world = ordinary_cluster();
        for _ in 0..6 {
            world.pods("web", 1, 1_500, &spread("web", labels::TOPOLOGY_ZONE));
            world.pass(pause_ms);
        }
        world.pass(3_000);
        let mut by_zone: BTreeMap<String, usize> = BTreeMap::new();
        for claim in places(&mut world).values() {
            let zones = zone(&world, claim);
            assert_eq!(zones.len(), 1, "a spread pod knows its zone");
            *by_zone.entry(zones[0].clone()).or_default() += 1;
        }
        let counts: Vec<usize> = by_zone.into_values().collect();
        assert_eq!(counts, [3, 3], "{pause_ms} ms apart");
    }
}

#[test]
fn a_partner_on_a_coming_node_is_a_partner() {
    let mut world = ordinary_cluster();
    world.pods("db", 1, 1_500, &json!({}));
    world.pass(400);
    let db = world.names("NodeClaim").remove(0);
    world.pods("web", 1, 1_500, &near("db", labels::HOSTNAME));
    world.pods("cache", 1, 1_500, &near("db", labels::TOPOLOGY_ZONE));
    world.pass(10_000);
    let places = places(&mut world);
    let of = |app: &str| {
        let mut all = places.iter();
        let found = all.find(|(pod, _)| pod.starts_with(&format!("default/{app}-")));
        found.map(|(_, place)| place.clone())
    };
    // A node of 2 CPUs has room for the first only; of one with its host name there is no second.
    assert_eq!(of("db"), Some(db.clone()));
    assert_eq!(of("web"), None, "{places:?}");
    assert_eq!(zone(&world, &of("cache").unwrap()), zone(&world, &db));
}

/// A claim whose object the API server takes long to show is a node all the same.
#[test]
fn a_claim_that_is_being_created_counts_as_a_node() {
    let mut world = ordinary_cluster();
    world.answers.create_ms = 20_000;
    world.pods("web", 1, 0, &apart("web", labels::HOSTNAME));
    world.pass(8_000);
    world.pods("web", 1, 0, &apart("web", labels::HOSTNAME));
    world.pods("free", 1, 100, &json!({}));
    world.pass(8_000);
    assert_eq!(world.claim_times().len(), 2, "{:?}", world.claim_times());
    world.pass(60_000);
    assert_eq!((world.pending(), world.claim_times().len()), (0, 2));
}

#[test]
fn a_pod_that_is_refused_on_its_ready_node_is_expected_elsewhere_and_then_abandoned_with_reasons() {
    let mut world = ordinary_cluster();
    world.automation.rejected_apps.insert("odd".to_owned());
    world.pods("odd", 1, 500, &json!({}));
    world.pass(22_000);
    let ready = world.now();
    assert_eq!(world.claim_times().len(), 1);
    assert_eq!(places(&mut world).len(), 1);
    for _ in 0..60 {
        world.pass(1_000);
        let now = world.now();
        let snapshot = world.snapshot();
        for nomination in snapshot.ledger.nominations() {
            assert!(nomination.until > now, "{nomination:?} outlives its end");
            let state_node = snapshot.node_at(&nomination.place);
            let on_first = state_node.is_some_and(|state_node| state_node.initialized);
            assert!(!on_first || now < after(ready, 60_000), "{nomination:?}");
        }
    }
    assert_eq!(world.claim_times().len(), 2, "another node is tried");
    world.pass(30 * 60_000);
    assert_eq!(world.claim_times().len(), 2, "and then no third");
    let stalled = world.records_of(Verdict::Stalled);
    assert!(stalled.len() >= 5, "{stalled:?}");
    let told = world.events_of("FailedScheduling");
    let last = &told.last().unwrap().message;
    assert!(
        last.contains("kube-scheduler rejected it on default-"),
        "{last}"
    );
    assert!(last.ends_with("is suitable"), "{last}");
    // Its room is released meanwhile.
    assert_eq!(world.snapshot().ledger.nominations().count(), 0);
    assert_eq!(stalled_pods(&mut world), [Stalled::NoNode]);
}

/// A node has less than its type says: the next one has no more, and is not launched one after the other.
#[test]
fn nodes_that_turn_out_too_small_are_launched_ever_more_slowly_and_it_is_said() {
    let mut world = ordinary_cluster();
    world.automation.cpu_of_nodes = Some("100m");
    world.pods("web", 3, 1_500, &json!({}));
    world.pass(60 * 60_000);
    let times = world.claim_times();
    assert!((6..=8).contains(&times.len()), "{times:?}");
    let at_once = times.iter().filter(|at| **at < 60_000).count();
    assert_eq!(at_once, 2, "{times:?}");
    let withdrawn = world.records_of(Verdict::Withdrawn);
    let why = withdrawn[0].reasons[0].to_string();
    assert!(
        why.ends_with("insufficient cpu: 1500 requested, 100 free"),
        "{why}"
    );
    let told = world.events_of("FailedScheduling");
    let last = &told.last().unwrap().message;
    assert!(last.contains("which are unused"), "{last}");
    // Once nodes are what they should be, the next one is the last.
    world.automation.cpu_of_nodes = None;
    let before = world.claim_times().len();
    world.pass(31 * 60_000);
    assert_eq!(world.pending(), 0);
    assert!(world.claim_times().len() <= before + 1);
}

/// kube-scheduler is away: nothing is launched twice because of it.
#[test]
fn a_scheduler_that_says_nothing_is_waited_for() {
    let mut world = automatic_cluster(
        vec![instance_type("small", 2, &[("on-demand", 100)])],
        mortise_planning::settings::Settings::default(),
    );
    world.automation.rejected_apps.insert("odd".to_owned());
    world.pods("odd", 1, 500, &json!({}));
    world.pass(1_000);
    let name = world.names("Pod").remove(0);
    let pod = world.get(&format!("Pod/{name}")).clone();
    world.automation.scheduler_is_down = true;
    world.pass(20 * 60_000);
    assert_eq!(
        *world.get(&format!("Pod/{name}")),
        pod,
        "no record spoke of it"
    );
    assert_eq!(world.claim_times().len(), 1, "{:?}", world.claim_times());
    assert!(world.events_of("FailedScheduling").len() >= 3);
    assert_eq!(stalled_pods(&mut world), [Stalled::OnReadyNode]);
}

#[test]
fn a_pod_whose_node_is_on_its_way_is_not_stalled() {
    let mut world = ordinary_cluster();
    world.set_boot_ms(10 * 60_000);
    world.pods("web", 1, 500, &json!({}));
    world.pass(9 * 60_000);
    assert_eq!(stalled_pods(&mut world), []);
    world.pass(2 * 60_000);
    assert_eq!((world.pending(), stalled_pods(&mut world).len()), (0, 0));
}
