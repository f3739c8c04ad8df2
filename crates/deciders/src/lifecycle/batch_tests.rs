//! Stories of claims that are launched by one call.

use std::collections::BTreeSet;

use mortise_apis::labels;
use mortise_cloudprovider::{LaunchError, LaunchWindow};
use mortise_planning::settings::{FeatureGates, LaunchBatching, Settings};
use mortise_sim::test_cluster::{TestCluster, served};
use serde_json::json;

use crate::tests::cluster_with;

fn settings() -> Settings {
    let window = LaunchWindow {
        quiet_ms: 35,
        longest_ms: 1_000,
        most: 100,
    };
    Settings {
        launch_batching: vec![LaunchBatching {
            serves: served(),
            window,
        }],
        gates: FeatureGates {
            static_capacity: true,
            ..FeatureGates::default()
        },
        ..Settings::default()
    }
}

/// Claims that were created together.
fn create(world: &mut TestCluster, names: &[&str], token: &str) {
    for name in names {
        world.claim(name, &json!({}));
        let token = json!({ "metadata": { "annotations": { labels::LAUNCH_BATCH: token } } });
        world.edit(&format!("NodeClaim/{name}"), &token);
    }
    world.settle();
}

fn token(world: &TestCluster, name: &str) -> String {
    let claim = world.get(&format!("NodeClaim/{name}"));
    let token = &claim["metadata"]["annotations"][labels::LAUNCH_BATCH];
    token.as_str().unwrap_or_default().to_owned()
}

fn instances(world: &TestCluster, names: &[&str]) -> BTreeSet<String> {
    let id = |name: &&str| {
        let claim = world.get(&format!("NodeClaim/{name}"));
        let id = claim["status"]["providerID"].as_str();
        id.unwrap_or_default().to_owned()
    };
    names.iter().map(id).collect()
}

#[test]
fn claims_that_were_created_together_are_launched_by_one_call() {
    let mut world = cluster_with(settings());
    create(&mut world, &["a", "b", "c"], "t");
    assert_eq!(world.launch_calls(), 0, "others may come");
    world.pass(100);
    assert_eq!((world.launch_calls(), world.launched()), (1, 3));
    assert_eq!(instances(&world, &["a", "b", "c"]).len(), 3);
    create(&mut world, &["late"], "t");
    world.pass(100);
    assert_eq!((world.launch_calls(), world.launched()), (2, 4));
    assert_ne!(token(&world, "late"), "t", "a used token is not used again");
    world.claim("single", &json!({}));
    world.settle();
    assert_eq!((world.launch_calls(), world.launched()), (3, 5));
}

#[test]
fn a_pool_with_replicas_gets_them_by_one_call() {
    let mut world = cluster_with(settings());
    world.edit("NodePool/default", &json!({ "spec": { "replicas": 5 } }));
    world.pass(5_000);
    assert_eq!((world.launch_calls(), world.launched()), (1, 5));
    let mut world = cluster_with(Settings {
        launch_batching: Vec::new(),
        ..settings()
    });
    world.edit("NodePool/default", &json!({ "spec": { "replicas": 5 } }));
    world.pass(5_000);
    assert_eq!((world.launch_calls(), world.launched()), (5, 5));
}

#[test]
fn what_gave_no_instance_is_tried_again_together_by_another_token() {
    let mut world = cluster_with(settings());
    let denied = || LaunchError::Create {
        reason: "Denied".to_owned(),
        message: "by policy".to_owned(),
    };
    world.answers.launch_errors.extend([denied(), denied()]);
    create(&mut world, &["a", "b"], "t");
    world.pass(500);
    assert_eq!(world.launched(), 0);
    world.pass(1_000);
    assert_eq!((world.launch_calls(), world.launched()), (1, 2));
    assert_eq!(token(&world, "a"), token(&world, "b"));
    assert_ne!(token(&world, "a"), "t");
}

#[test]
fn another_process_uses_the_token_again_and_takes_what_it_launched() {
    let mut world = cluster_with(settings());
    create(&mut world, &["a", "b", "c"], "t");
    world.pass(100);
    let before = instances(&world, &["a", "b", "c"]);
    // As if the process had been killed before it wrote what it had launched.
    for name in ["a", "b", "c"] {
        world.edit(
            &format!("NodeClaim/{name}"),
            &json!({
                "metadata": { "annotations": { labels::PROVIDER_ID: null } },
                "status": { "providerID": null, "nodeName": null, "conditions": null },
            }),
        );
    }
    world.delete("NodeClaim/c");
    world.restart();
    world.pass(100);
    assert_eq!(world.launched(), 3);
    let kept = instances(&world, &["a", "b"]);
    assert!(kept.len() == 2 && kept.is_subset(&before), "{kept:?}");
    world.pass(30_000);
    assert!(!world.has("NodeClaim/c"), "{:?}", world.done);
    assert_eq!(
        world.instances().len(),
        2,
        "the third instance went with its claim"
    );
    assert_eq!(instances(&world, &["a", "b"]), kept);
}
