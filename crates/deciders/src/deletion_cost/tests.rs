use mortise_apis::labels::{DO_NOT_DISRUPT, OWN_DELETION_COST, POD_DELETION_COST};
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{CreateDeciders, TestCluster, ordinary_types};
use serde_json::{Value, json};

use super::{DeletionCostDecider, PACE};

/// A cluster with two nodes of eight CPUs each, the second one a day younger, and no other decider.
fn cluster() -> TestCluster {
    cluster_with(true)
}

fn cluster_with(pod_deletion_costs: bool) -> TestCluster {
    let settings = Settings {
        pod_deletion_costs,
        ..Settings::default()
    };
    let deciders: CreateDeciders = |_| vec![Box::new(DeletionCostDecider::default())];
    let mut world = TestCluster::with_types(deciders, settings, ordinary_types());
    world.automate_nodes();
    world.put_automatic_pool();
    world.running_node("old", "large", "default");
    world.pass(24 * 3_600_000);
    world.running_node("young", "large", "default");
    world.settle();
    world
}

fn on(node: &str) -> Value {
    json!({ "spec": { "nodeName": node }, "status": { "phase": "Running" } })
}

fn annotation(world: &TestCluster, pod: &str, key: &str) -> Option<String> {
    let text = world.get(&format!("Pod/default/{pod}"))["metadata"]["annotations"][key].as_str();
    text.map(str::to_owned)
}

/// The cost of a pod; it must say that it is ours.
fn cost(world: &TestCluster, pod: &str) -> Option<i64> {
    let text = annotation(world, pod, POD_DELETION_COST)?;
    assert_eq!(
        annotation(world, pod, OWN_DELETION_COST),
        Some(text.clone())
    );
    Some(text.parse().expect("a number"))
}

#[test]
fn pods_that_share_their_node_with_little_else_go_first() {
    let mut world = cluster();
    world.pods("web", 2, 100, &on("old"));
    world.pods("web", 2, 100, &on("young"));
    world.settle();
    let costs = ["web-00001", "web-00003"].map(|pod| cost(&world, pod).expect("a cost"));
    assert!(
        costs[1] < costs[0],
        "the younger node goes first: {costs:?}"
    );
    assert!(costs[0] < 0, "a pod without a cost stays longer: {costs:?}");
    // Half of the younger node is of others now.
    world.pods("api", 5, 400, &on("young"));
    world.settle();
    let now = ["web-00001", "web-00003"].map(|pod| cost(&world, pod).expect("a cost"));
    assert_eq!(now[0], costs[0]);
    assert!(now[0] < now[1], "others would have to move: {now:?}");
    let of_api = cost(&world, "api-00005").expect("a cost");
    assert!(of_api < now[1], "its own pods are no others: {of_api}");
}

#[test]
fn a_drifted_node_goes_first_and_a_protected_one_last() {
    let mut world = cluster();
    world.pods("web", 1, 100, &on("old"));
    world.pods("web", 1, 100, &on("young"));
    let drifted = world.true_condition("Drifted");
    world.edit(
        "NodeClaim/old",
        &json!({ "status": { "conditions": [drifted] } }),
    );
    world.settle();
    let first = cost(&world, "web-00001").expect("a cost");
    assert!(first < cost(&world, "web-00002").expect("a cost"));
    world.pods("db", 1, 100, &on("young"));
    let annotated = json!({ "metadata": { "annotations": { DO_NOT_DISRUPT: "true" } } });
    world.edit("Pod/default/db-00003", &annotated);
    world.settle();
    assert_eq!(cost(&world, "web-00002"), None, "its node stays");
    assert_eq!(annotation(&world, "web-00002", OWN_DELETION_COST), None);
    // Protection that ends by itself.
    let for_an_hour = json!({ "metadata": { "annotations": { DO_NOT_DISRUPT: "1h" } }, "status": { "startTime": world.now().to_string() } });
    world.edit("Pod/default/db-00003", &for_an_hour);
    world.pass(30 * 60_000);
    assert_eq!(cost(&world, "web-00002"), None);
    world.pass(31 * 60_000);
    assert!(cost(&world, "web-00002").is_some());
}

#[test]
fn costs_of_users_and_pods_of_other_owners_are_left_alone() {
    let mut world = cluster();
    let user = json!({ "metadata": { "annotations": { POD_DELETION_COST: "100" } } });
    world.pods("web", 2, 100, &on("old"));
    world.edit("Pod/default/web-00001", &user);
    let of_set = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db", "controller": true }] } });
    world.pods("db", 1, 100, &on("old"));
    world.edit("Pod/default/db-00003", &of_set);
    world.settle();
    assert_eq!(
        annotation(&world, "web-00001", POD_DELETION_COST).as_deref(),
        Some("100")
    );
    assert_eq!(annotation(&world, "db-00003", POD_DELETION_COST), None);
    assert!(cost(&world, "web-00002").is_some());
    // A user takes a pod over.
    world.edit("Pod/default/web-00002", &user);
    world.pass(60_000);
    assert_eq!(
        annotation(&world, "web-00002", POD_DELETION_COST).as_deref(),
        Some("100")
    );
}

#[test]
fn writes_have_a_pace_and_are_not_repeated() {
    let mut world = cluster();
    world.pods("web", 3 * PACE, 10, &on("old"));
    let written = |world: &TestCluster| {
        let pods = world.names("Pod").into_iter();
        let name = |pod: String| pod.trim_start_matches("default/").to_owned();
        pods.filter(|pod| cost(world, &name(pod.clone())).is_some())
            .count()
    };
    world.settle();
    assert_eq!(written(&world), PACE);
    world.pass(1_000);
    assert_eq!(written(&world), 2 * PACE);
    world.pass(10_000);
    assert_eq!(written(&world), 3 * PACE);
    let patches = |world: &TestCluster| {
        world
            .done
            .iter()
            .filter(|each| each.starts_with("patch"))
            .count()
    };
    let before = patches(&world);
    world.restart();
    world.pass(3_600_000);
    assert_eq!(patches(&world), before, "the costs are in the pods");
}

#[test]
fn nothing_is_written_unless_it_is_asked_for() {
    let mut world = cluster_with(false);
    world.pods("web", 2, 100, &on("old"));
    world.pass(60_000);
    assert_eq!(cost(&world, "web-00001"), None);
}
