//! Stories of pools whose instances do not register.

use serde_json::{Value, json};

use crate::tests::{cluster, cluster_with};
use mortise_apis::karpenter::nodepool::LAUNCHES_PAUSED;
use mortise_engine::record::Verdict;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::TestCluster;

const MINUTE: i64 = 60_000;
const HEALTHY: &str = "NodeRegistrationHealthy";

/// A claim that the pool made.
fn claim(world: &mut TestCluster, name: &str) {
    world.claim(name, &json!({}));
    let uid = world.get("NodePool/default")["metadata"]["uid"].clone();
    let owner = json!([{ "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": uid }]);
    world.edit(
        &format!("NodeClaim/{name}"),
        &json!({ "metadata": { "ownerReferences": owner } }),
    );
}

fn condition(world: &TestCluster, type_: &str) -> Option<(String, String)> {
    let list = world
        .get("NodePool/default")
        .pointer("/status/conditions")?
        .as_array()?;
    let found = list.iter().find(|each| each["type"] == type_)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason")))
}

fn status(world: &TestCluster, type_: &str) -> String {
    condition(world, type_).map_or_else(String::new, |(status, _)| status)
}

fn launches(world: &TestCluster) -> usize {
    world
        .done
        .iter()
        .filter(|each| each.starts_with("launch "))
        .count()
}

/// Keeps `wanted` claims there, as provisioning would, and lets time pass; nothing ever registers.
fn an_hour_of_demand(world: &mut TestCluster, wanted: usize, minutes: usize) {
    let mut made = world.done.len();
    for _ in 0..minutes {
        let closed = status(world, LAUNCHES_PAUSED) == "True";
        let there = world.snapshot().claims.len();
        // While launches are paused, the solver does not choose the pool.
        for _ in there..if closed { there } else { wanted } {
            made += 1;
            claim(world, &format!("c{made}"));
        }
        world.pass(MINUTE);
    }
}

#[test]
fn a_bad_image_costs_at_most_ten_instances_in_its_first_hour_and_says_so() {
    for wanted in [1, 3, 20, 100] {
        let mut world = cluster();
        an_hour_of_demand(&mut world, wanted, 60);
        assert!(
            launches(&world) <= 10,
            "{wanted} wanted: {} launches",
            launches(&world)
        );
        assert_eq!(status(&world, HEALTHY), "False");
        let reason = condition(&world, HEALTHY).map(|(_, reason)| reason);
        assert_eq!(reason.as_deref(), Some("RegistrationFailed"));
        let event = world.event(LAUNCHES_PAUSED).unwrap();
        assert!(
            event.warning && event.message.contains("did not register"),
            "{}",
            event.message
        );
        assert!(
            world
                .verdicts("nodepool/default")
                .contains(&Verdict::Blocked)
        );
        let held = status(&world, LAUNCHES_PAUSED);
        assert!(["True", "Unknown"].contains(&held.as_str()), "{held}");
    }
}

#[test]
fn instances_of_a_trial_that_fail_one_after_another_are_not_made_up_for() {
    let mut world = cluster();
    for n in 0..30 {
        claim(&mut world, &format!("c{n:02}"));
        world.pass(2_000);
    }
    world.pass(19 * MINUTE);
    assert_eq!(launches(&world), 8);
    assert_eq!(status(&world, LAUNCHES_PAUSED), "True");
}

#[test]
fn later_hours_cost_at_most_two_instances_each_also_with_restarts() {
    let mut world = cluster();
    an_hour_of_demand(&mut world, 5, 60);
    let before = launches(&world);
    an_hour_of_demand(&mut world, 5, 120);
    assert!(
        launches(&world) - before <= 4,
        "{}",
        launches(&world) - before
    );
    world.restart();
    let before = launches(&world);
    an_hour_of_demand(&mut world, 5, 30);
    assert!(
        launches(&world) - before <= 2,
        "a restart is no amnesty: {}",
        launches(&world) - before
    );
}

#[test]
fn a_restart_knows_how_often_it_failed_and_when_the_next_is_tried() {
    let mut world = cluster();
    // Long enough for the wait to have doubled a few times.
    an_hour_of_demand(&mut world, 5, 240);
    while status(&world, LAUNCHES_PAUSED) != "True" {
        an_hour_of_demand(&mut world, 5, 1);
    }
    let told = |world: &TestCluster| {
        let list = world.get("NodePool/default")["status"]["conditions"].clone();
        let all = list.as_array().unwrap();
        let held = all.iter().find(|each| each["type"] == LAUNCHES_PAUSED);
        held.unwrap()["message"].clone()
    };
    let before = told(&world);
    world.restart();
    world.pass(1_000);
    assert_eq!(told(&world), before);
}

#[test]
fn the_first_that_registers_lets_all_others_go() {
    let mut world = cluster();
    for n in 0..30 {
        claim(&mut world, &format!("c{n:02}"));
    }
    world.pass(1_000);
    assert_eq!(world.instances().len(), 8);
    assert_eq!(
        world.condition("c20", "Launched").unwrap().1,
        "LaunchPaused"
    );
    world.pass(6 * MINUTE);
    assert_eq!(
        world.instances().len(),
        8,
        "waiting is no failure to launch"
    );
    assert!(world.has("NodeClaim/c20"));
    world.join("c03");
    world.pass(1_000);
    assert_eq!(world.instances().len(), 30);
    assert_eq!(status(&world, HEALTHY), "True");
    assert_eq!(condition(&world, LAUNCHES_PAUSED), None);
    world.pass(14 * MINUTE);
    assert!(
        world.is_true("c20", "Launched") && world.has("NodeClaim/c20"),
        "its time to register runs from its launch"
    );
}

#[test]
fn that_a_launch_is_paused_is_written_after_a_moment() {
    let mut world = cluster();
    world.settings.held_grace_ms = 3_000;
    world.restart();
    world.settle();
    for n in 0..10 {
        claim(&mut world, &format!("c{n}"));
    }
    world.pass(2_900);
    assert_eq!(world.instances().len(), 8);
    for held in ["c8", "c9"] {
        assert_eq!(world.condition(held, "Launched"), None);
    }
    world.pass(200);
    for held in ["c8", "c9"] {
        let (_, reason) = world.condition(held, "Launched").unwrap();
        assert_eq!(reason, "LaunchPaused");
    }
}

#[test]
fn a_proven_pool_is_not_tried_again_after_a_restart_but_after_a_change_of_its_class() {
    let mut world = cluster();
    claim(&mut world, "first");
    world.settle();
    world.join("first");
    world.pass(1_000);
    world.restart();
    for n in 0..20 {
        claim(&mut world, &format!("c{n}"));
    }
    world.pass(1_000);
    assert_eq!(world.instances().len(), 21);
    world.edit(
        "FakeNodeClass/default",
        &json!({ "metadata": { "generation": 2 }, "spec": { "image": "new" } }),
    );
    world.settle();
    assert_eq!(status(&world, HEALTHY), "Unknown", "it starts again");
    assert_eq!(
        world.get("NodePool/default")["status"]["nodeClassObservedGeneration"],
        2
    );
    for n in 0..20 {
        claim(&mut world, &format!("d{n}"));
    }
    world.pass(1_000);
    // 20 of the old ones are still out.
    assert_eq!(world.instances().len(), 21);
}

#[test]
fn a_fixed_class_ends_the_wait() {
    let mut world = cluster();
    an_hour_of_demand(&mut world, 4, 17);
    assert_eq!(status(&world, LAUNCHES_PAUSED), "True");
    let before = launches(&world);
    world.edit(
        "FakeNodeClass/default",
        &json!({ "metadata": { "generation": 2 }, "spec": { "image": "good" } }),
    );
    world.settle();
    assert_eq!(condition(&world, LAUNCHES_PAUSED), None);
    claim(&mut world, "now");
    world.settle();
    assert_eq!(launches(&world), before + 1);
    world.join("now");
    world.pass(1_000);
    assert_eq!(status(&world, HEALTHY), "True");
}

#[test]
fn one_is_tried_and_when_it_registers_launches_go_on() {
    let mut world = cluster();
    an_hour_of_demand(&mut world, 4, 21);
    assert_eq!(condition(&world, LAUNCHES_PAUSED).unwrap().1, "ProbeLaunch");
    let tried: Vec<String> = world
        .instances()
        .iter()
        .map(|instance| instance.claim.clone())
        .collect();
    let alive: Vec<&String> = tried
        .iter()
        .filter(|claim| world.has(&format!("NodeClaim/{claim}")))
        .collect();
    assert_eq!(alive.len(), 1, "{tried:?}");
    let alive = alive[0].clone();
    world.join(&alive);
    world.pass(1_000);
    assert_eq!(condition(&world, LAUNCHES_PAUSED), None);
    let all: Vec<&Value> = vec![world.get("NodePool/default")];
    assert_eq!(all[0]["status"]["conditions"].as_array().unwrap().len(), 4);
}

#[test]
fn the_breaker_can_be_switched_off() {
    let settings = Settings {
        max_unproven_launches: 0,
        launch_failure_threshold: 0,
        ..Settings::default()
    };
    let mut world = cluster_with(settings);
    an_hour_of_demand(&mut world, 20, 40);
    assert!(launches(&world) >= 40, "{}", launches(&world));
    assert_eq!(condition(&world, LAUNCHES_PAUSED), None);
    assert_eq!(status(&world, HEALTHY), "False");
}

#[test]
fn two_failures_of_the_last_four_are_unhealthy_and_claims_of_others_do_not_count() {
    let mut world = cluster_with(Settings {
        launch_failure_threshold: 0,
        ..Settings::default()
    });
    let register = |world: &mut TestCluster, name: &str| {
        claim(world, name);
        world.settle();
        world.join(name);
        world.pass(1_000);
    };
    let fail = |world: &mut TestCluster, name: &str| {
        claim(world, name);
        world.pass(16 * MINUTE);
    };
    assert_eq!(status(&world, HEALTHY), "Unknown");
    register(&mut world, "a");
    assert_eq!(status(&world, HEALTHY), "True");
    fail(&mut world, "b");
    assert_eq!(status(&world, HEALTHY), "True", "one of two");
    fail(&mut world, "c");
    assert_eq!(status(&world, HEALTHY), "False", "two of three");
    for name in ["d", "e"] {
        register(&mut world, name);
        assert_eq!(status(&world, HEALTHY), "False");
    }
    register(&mut world, "f");
    assert_eq!(status(&world, HEALTHY), "True", "one of the last four");
    for name in ["u1", "u2", "u3"] {
        world.claim(name, &json!({})); // a user's own
    }
    world.pass(17 * MINUTE);
    assert_eq!(status(&world, HEALTHY), "True");
}
