//! Stories of claims that become ready, or do not.

use serde_json::json;

use crate::tests::{cluster, cluster_with};
use mortise_apis::labels;
use mortise_cloudprovider::{CloudError, LaunchError, Prerequisite, Retry};
use mortise_engine::record::Verdict;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::TestCluster;

fn busy() -> LaunchError {
    LaunchError::Other(CloudError {
        label: "throttled",
        message: "slow down".to_owned(),
        retry: Retry::Again,
    })
}

#[test]
fn a_claim_is_launched_registered_and_initialized() {
    let mut world = cluster();
    world.claim("c", &json!({}));
    world.settle();
    let claim = world.get("NodeClaim/c");
    assert_eq!(claim["status"]["providerID"], "sim:///zone-a/i-00000001");
    assert_eq!(claim["status"]["imageID"], "image-1");
    assert_eq!(claim["status"]["capacity"]["cpu"], "2");
    assert_eq!(claim["metadata"]["labels"][labels::INSTANCE_TYPE], "small");
    assert_eq!(
        claim["metadata"]["labels"]["team"], "a",
        "the claim's own label wins"
    );
    assert_eq!(
        claim["metadata"]["annotations"]["note"], "provider",
        "the provider's annotation wins"
    );
    assert!(world.is_true("c", "Launched"));
    assert_eq!(
        world.condition("c", "Registered").unwrap(),
        ("Unknown".to_owned(), "NodeNotFound".to_owned())
    );

    let node = world.join("c");
    world.settle();
    let node_object = world.get(&format!("Node/{node}"));
    let taints: Vec<&str> = node_object["spec"]["taints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|taint| taint["key"].as_str().unwrap())
        .collect();
    assert_eq!(
        taints,
        [labels::NOT_READY_TAINT, "own", "boot"],
        "the claim's taints are added, the unregistered one is gone"
    );
    assert_eq!(
        node_object["metadata"]["finalizers"],
        json!([labels::TERMINATION_FINALIZER])
    );
    let owner = &node_object["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["blockOwnerDeletion"]),
        (&json!("NodeClaim"), &json!("c"), &json!(true))
    );
    assert_eq!(
        node_object["metadata"]["labels"][labels::REGISTERED],
        "true"
    );
    assert_eq!(node_object["metadata"]["labels"]["team"], "a");
    assert_eq!(node_object["metadata"]["annotations"]["note"], "provider");
    assert!(
        node_object["metadata"]["annotations"]
            .get("mortise.sh/nominated-pods")
            .is_none()
    );
    assert!(world.is_true("c", "Registered"));
    assert_eq!(world.get("NodeClaim/c")["status"]["nodeName"], node);
    assert_eq!(
        world.condition("c", "Initialized").unwrap().1,
        "NodeNotReady"
    );

    world.ready(&node);
    world.settle();
    assert!(world.is_true("c", "Initialized") && world.is_true("c", "Ready"));
    assert_eq!(
        world.get(&format!("Node/{node}"))["metadata"]["labels"][labels::INITIALIZED],
        "true"
    );
    assert_eq!(
        world.verdicts("nodeclaim/c"),
        [Verdict::Launched, Verdict::Registered, Verdict::Initialized]
    );
    assert!(world.event("UnregisteredTaintMissing").is_none());

    // Nothing more is written once it is up, however long it runs.
    let writes = world.done.len();
    world.pass(60_000);
    let later: Vec<&String> = world.done[writes..]
        .iter()
        .filter(|each| each.starts_with("patch node/"))
        .collect();
    assert!(later.is_empty(), "{later:?}");
}

#[test]
fn what_is_missing_for_initialization_is_named_in_order() {
    let mut world = cluster();
    world.claim("c", &json!({}));
    world.settle();
    let node = format!("Node/{}", world.join("c"));
    world.settle();
    let reason = |world: &TestCluster| world.condition("c", "Initialized").unwrap().1;
    world.edit(
        &node,
        &json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }),
    );
    world.settle();
    assert_eq!(reason(&world), "StartupTaintsExist");
    world.edit(&node, &json!({ "spec": { "taints": [{ "key": labels::NOT_READY_TAINT, "effect": "NoExecute" }] } }));
    world.settle();
    assert_eq!(reason(&world), "KnownEphemeralTaintsExist");
    world.edit(&node, &json!({ "spec": { "taints": [] } }));
    world.settle();
    assert_eq!(reason(&world), "ResourceNotRegistered");
    assert_eq!(
        world.get(&node)["spec"]["taints"],
        json!([]),
        "a start-up taint that an agent removed stays removed"
    );
    world.edit(
        &node,
        &json!({ "status": { "allocatable": { "cpu": "2" } } }),
    );
    world.settle();
    assert!(world.is_true("c", "Initialized"));
}

#[test]
fn a_node_that_joins_ready_waits_for_the_devices_that_its_pods_count_on() {
    let mut world = cluster_with(Settings {
        ignore_devices: false,
        ..Settings::default()
    });
    world.claim_with_devices("c");
    world.settle();
    let node = world.join("c");
    world.ready(&node);
    world.settle();
    let is_marked = |world: &TestCluster| {
        let labels = &world.get(&format!("Node/{node}"))["metadata"]["labels"];
        labels[labels::INITIALIZED] == "true"
    };
    assert!(world.is_true("c", "Registered") && !is_marked(&world));
    let waits = (
        "Unknown".to_owned(),
        "DRADriverPoolsNotPublished".to_owned(),
    );
    assert_eq!(world.condition("c", "Initialized"), Some(waits));
    world.publish_devices(&node);
    world.pass(2_000);
    assert!(world.is_true("c", "Initialized") && is_marked(&world));
    assert_eq!(world.violations(), Vec::<String>::new());
}

#[test]
fn taints_are_left_alone_where_the_node_manages_them() {
    let mut world = cluster();
    world.claim("c", &json!({}));
    world.settle();
    world.put(&json!({ "kind": "Node", "metadata": { "name": "n", "labels": { labels::DO_NOT_SYNC_TAINTS: "true" } },
        "spec": { "providerID": "sim:///zone-a/i-00000001", "taints": [{ "key": "mine", "effect": "NoSchedule" }] } }));
    world.settle();
    assert_eq!(
        world.get("Node/n")["spec"]["taints"],
        json!([{ "key": "mine", "effect": "NoSchedule" }])
    );
    assert!(
        world.event("UnregisteredTaintMissing").is_some(),
        "a node that joined open is told of"
    );
}

#[test]
fn a_claim_without_finalizer_gets_it_before_the_launch() {
    let mut world = cluster();
    world.put(&json!({ "kind": "NodeClaim", "metadata": { "name": "mine" }, "spec": { "nodeClassRef": { "group": "fake.test", "kind": "FakeNodeClass", "name": "default" } } }));
    world.settle();
    let order: Vec<&String> = world
        .done
        .iter()
        .filter(|each| each.ends_with("nodeclaim/mine"))
        .collect();
    assert_eq!(
        order[..2],
        ["patch nodeclaim/mine", "launch nodeclaim/mine"]
    );
    assert!(world.is_true("mine", "Launched"));
}

#[test]
fn without_capacity_the_claim_is_deleted() {
    let errors = [
        LaunchError::InsufficientCapacity {
            message: "none left".to_owned(),
            unavailable: Vec::new(),
            again_ms: None,
            missing: None,
        },
        LaunchError::NodeClassNotReady {
            message: "no subnets".to_owned(),
        },
    ];
    for (error, event) in errors.into_iter().zip([true, false]) {
        let mut world = cluster();
        world.answers.launch_errors.push_back(error);
        world.claim("c", &json!({}));
        world.settle();
        assert!(!world.has("NodeClaim/c"), "{:?}", world.done);
        assert_eq!(world.event("InsufficientCapacityError").is_some(), event);
        assert_eq!(
            world.verdicts("nodeclaim/c"),
            [Verdict::LaunchFailed, Verdict::Removed]
        );
        assert!(
            !world.done.contains(&"list_instances ".to_owned()),
            "the provider said that there is no instance"
        );
    }
}

#[test]
fn what_the_account_lacks_is_told_on_the_claim_and_its_pool() {
    let mut world = cluster();
    let error = LaunchError::InsufficientCapacity {
        message: "no role".to_owned(),
        unavailable: Vec::new(),
        again_ms: None,
        missing: Some(Prerequisite {
            what: "no spot instance can be launched",
            remedy: "make the role",
        }),
    };
    world.answers.launch_errors.push_back(error);
    world.claim("c", &json!({}));
    world.settle();
    let told: Vec<String> = world
        .events_of("PrerequisiteMissing")
        .iter()
        .map(|event| event.target.to_string())
        .collect();
    assert_eq!(told, ["nodeclaim/c", "nodepool/default"]);
    let event = world.event("PrerequisiteMissing").unwrap();
    assert!(event.warning && event.message.ends_with(": make the role"));
}

#[test]
fn other_failures_are_tried_again_with_back_off_until_the_launch_times_out() {
    let mut world = cluster();
    world.answers.launch_errors.push_back(LaunchError::Create {
        reason: "BadImage".to_owned(),
        message: "x".repeat(1_000),
    });
    world.claim("c", &json!({}));
    world.settle();
    assert_eq!(
        world.condition("c", "Launched").unwrap(),
        ("Unknown".to_owned(), "BadImage".to_owned())
    );
    world.answers.launch_errors.push_back(busy());
    world.pass(999);
    let launches = |world: &TestCluster| {
        world
            .done
            .iter()
            .filter(|each| *each == "launch nodeclaim/c")
            .count()
    };
    assert_eq!(launches(&world), 1);
    world.pass(1);
    assert_eq!(launches(&world), 2);
    assert_eq!(world.condition("c", "Launched").unwrap().1, "LaunchFailed");
    world.pass(1_999);
    assert_eq!(launches(&world), 2);
    world.pass(1);
    assert_eq!(launches(&world), 3);
    assert!(world.is_true("c", "Launched"));

    world
        .answers
        .launch_errors
        .extend(std::iter::repeat_n(busy(), 100));
    world.claim("d", &json!({}));
    world.pass(5 * 60_000 - 1_000);
    assert!(world.has("NodeClaim/d"));
    world.pass(2_000);
    assert!(!world.has("NodeClaim/d"));
    assert!(
        world.done.contains(&"list_instances ".to_owned()),
        "a throttled launch may have made an instance"
    );
}

#[test]
fn a_node_that_does_not_register_is_deleted() {
    let mut world = cluster();
    world.claim("c", &json!({}));
    world.pass(14 * 60_000);
    assert!(world.has("NodeClaim/c"));
    world.restart();
    world.pass(61_000);
    assert!(world.done.contains(&"delete nodeclaim/c".to_owned()));
    world.pass(10_000);
    assert!(!world.has("NodeClaim/c"));
    assert!(world.instances().is_empty(), "its instance was terminated");
}

#[test]
fn killed_between_launch_and_status_there_is_exactly_one_instance() {
    for label in ["launch", "patch"] {
        let mut world = cluster();
        world.claim("c", &json!({}));
        world.answers.crash_after = Some(label);
        world.settle();
        world.settle();
        assert_eq!(world.instances().len(), 1, "after {label}");
        assert!(world.is_true("c", "Launched"));
    }
}

#[test]
fn killed_after_the_launch_and_deleted_meanwhile_no_instance_is_left() {
    let mut world = cluster();
    world.claim("c", &json!({}));
    world.answers.crash_after = Some("launch");
    world.settle();
    assert_eq!(world.instances().len(), 1);
    world.delete("NodeClaim/c");
    world.pass(10_000);
    assert!(world.instances().is_empty(), "{:?}", world.done);
    assert!(!world.has("NodeClaim/c"));
    assert_eq!(
        world
            .done
            .iter()
            .filter(|each| each.starts_with("launch"))
            .count(),
        1,
        "nothing was launched to be ended"
    );
}

#[test]
fn a_provider_that_does_not_answer_has_not_said_that_there_is_no_instance() {
    let mut world = cluster();
    world.claim("c", &json!({}));
    world.answers.crash_after = Some("launch");
    world.settle();
    world.answers.mute = true;
    world.delete("NodeClaim/c");
    world.pass(60_000);
    assert!(
        world.has("NodeClaim/c"),
        "another provider's answer is no answer"
    );
    assert_eq!(world.instances().len(), 1);
    world.answers.mute = false;
    world.pass(60_000);
    assert!(world.instances().is_empty(), "{:?}", world.done);
    assert!(!world.has("NodeClaim/c"));
}

#[test]
fn a_claim_deleted_before_any_launch_is_released_after_one_list() {
    let mut world = cluster();
    let mut claims = Vec::new();
    world
        .answers
        .launch_errors
        .extend(std::iter::repeat_n(busy(), 50));
    for n in 0..50 {
        world.claim(&format!("c{n}"), &json!({}));
        claims.push(format!("NodeClaim/c{n}"));
    }
    world.pass(500); // their conditions and their hashes were written at the same moment
    for claim in &claims {
        world.delete(claim);
    }
    world.settle();
    let left: Vec<&String> = claims.iter().filter(|claim| world.has(claim)).collect();
    assert!(left.is_empty(), "{left:?} {:?}", world.done);
    assert_eq!(
        world
            .done
            .iter()
            .filter(|each| each.starts_with("list_instances"))
            .count(),
        1
    );
}

#[test]
fn conflicts_are_decided_again() {
    let mut world = cluster();
    world.answers.conflicts = 7;
    world.claim("c", &json!({}));
    world.pass(60_000);
    let node = world.join("c");
    world.answers.conflicts = 2;
    world.pass(1_000);
    world.ready(&node);
    world.pass(10_000);
    assert!(world.is_true("c", "Initialized"));
    assert_eq!(world.instances().len(), 1);
}

#[test]
fn a_label_that_admission_takes_off_is_not_written_as_fast_as_the_server_answers() {
    let mut world = cluster();
    world.claim("c", &json!({}));
    world.settle();
    let node = world.join("c");
    world.veto_label(Some("team"));
    world.pass(60_000);
    let writes = world
        .done
        .iter()
        .filter(|each| **each == format!("patch node/{node}"))
        .count();
    assert!((5..=8).contains(&writes), "{writes} writes in a minute");
    assert!(!world.is_true("c", "Registered"));
    world.veto_label(None);
    world.pass(60_000);
    assert!(world.is_true("c", "Registered"));
}

#[test]
fn hooks_are_waited_for_by_name_and_the_node_stays_closed_meanwhile() {
    let mut world = cluster();
    world.claim("c", &json!({}));
    world.edit(
        "NodeClaim/c",
        &json!({ "metadata": { "annotations": { labels::REGISTRATION_HOOKS: "network, scanner" } } }),
    );
    world.settle();
    let node = world.join("c");
    let key = format!("Node/{node}");
    world.pass(1_000);
    assert_eq!(
        world.condition("c", "Registered").unwrap(),
        ("Unknown".to_owned(), "RegistrationHookPending".to_owned())
    );
    assert_eq!(
        world.get(&key)["metadata"]["labels"]["team"],
        "a",
        "all else is copied"
    );
    assert!(
        world.get(&key)["metadata"]["labels"]
            .get(labels::REGISTERED)
            .is_none()
    );
    let born = |world: &TestCluster| {
        let taints = world.get(&key)["spec"]["taints"]
            .as_array()
            .unwrap()
            .clone();
        taints
            .iter()
            .any(|taint| taint["key"] == labels::UNREGISTERED_TAINT)
    };
    assert!(born(&world));
    for (hook, left) in [("scanner", true), ("network", false)] {
        let done = format!("{}{hook}", labels::REGISTRATION_HOOK);
        world.edit(
            &key,
            &json!({ "metadata": { "annotations": { done: "true" } } }),
        );
        world.pass(1_000);
        assert_eq!(born(&world), left, "{hook}");
    }
    assert!(world.is_true("c", "Registered"));
}

#[test]
fn several_nodes_with_one_provider_id_are_not_registered_and_are_named() {
    let mut world = cluster();
    world.claim("c", &json!({}));
    world.settle();
    let node = world.join("c");
    let mut twin = world.get(&format!("Node/{node}")).clone();
    twin["metadata"] = json!({ "name": "twin" });
    let mut both = cluster();
    both.claim("c", &json!({}));
    both.settle();
    both.put(&twin);
    both.join("c");
    both.settle();
    assert_eq!(
        both.condition("c", "Registered").unwrap(),
        ("False".to_owned(), "MultipleNodesFound".to_owned())
    );
    both.delete("Node/twin");
    both.pass(1_000);
    assert!(both.is_true("c", "Registered"));
}

#[test]
fn objects_of_older_versions_get_the_label_of_their_class() {
    let mut world = cluster();
    let node = world.up("c", &json!({}));
    let label = labels::node_class_key(
        mortise_sim::test_cluster::GROUP,
        mortise_sim::test_cluster::KIND,
    );
    for key in ["NodeClaim/c".to_owned(), format!("Node/{node}")] {
        assert_eq!(
            world.get(&key)["metadata"]["labels"][&label],
            "default",
            "{key}"
        );
        world.edit(
            &key,
            &json!({ "metadata": { "labels": { label.as_str(): null } } }),
        );
        world.pass(5_000);
        assert_eq!(
            world.get(&key)["metadata"]["labels"][&label],
            "default",
            "{key}"
        );
    }
}

#[test]
fn a_node_that_does_not_initialize_is_deleted_if_that_is_asked_for() {
    for (limit, stays) in [(0, true), (10 * 60_000, false)] {
        let settings = mortise_planning::settings::Settings {
            initialization_timeout_ms: limit,
            ..mortise_planning::settings::Settings::default()
        };
        let mut world = cluster_with(settings);
        world.claim("c", &json!({}));
        world.pass(9 * 60_000);
        world.join("c"); // and never gets ready
        world.pass(9 * 60_000);
        assert!(world.is_true("c", "Registered"));
        assert!(
            world.has("NodeClaim/c"),
            "its time runs from its registration"
        );
        world.pass(30 * 60_000);
        assert_eq!(world.has("NodeClaim/c"), stays);
        assert_eq!(world.violations(), [""; 0]);
    }
}

#[test]
fn a_node_that_says_nothing_of_ready_is_registered_after_a_moment() {
    let mut world = cluster();
    world.settings.join_grace_ms = 250;
    world.restart();
    world.claim("c", &json!({}));
    world.claim("slow", &json!({}));
    world.settle();
    world.join_silently("c");
    world.join("slow");
    world.pass(50);
    assert!(
        world.is_true("slow", "Registered"),
        "it says that it is not ready, and may take minutes"
    );
    world.pass(150);
    assert!(!world.is_true("c", "Registered"));
    world.pass(100);
    assert!(world.is_true("c", "Registered"));
    assert!(!world.is_true("c", "Initialized"));
}
