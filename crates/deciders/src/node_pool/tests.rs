//! Stories of pools, and the recorded answers of runtime validation.

use serde_json::{Value, json};

use crate::tests::{bare_cluster, cluster};
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::validation::template_faults;
use mortise_engine::record::Verdict;
use mortise_sim::test_cluster::{GROUP, KIND, TestCluster};

fn condition(world: &TestCluster, type_: &str) -> (String, String) {
    let list = world.get("NodePool/default")["status"]["conditions"]
        .as_array()
        .unwrap();
    let found = list.iter().find(|each| each["type"] == type_).unwrap();
    (
        found["status"].as_str().unwrap().to_owned(),
        found["reason"].as_str().unwrap().to_owned(),
    )
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn a_pool_is_ready_when_its_class_is_and_its_template_is_valid() {
    let mut world = cluster();
    assert_eq!(condition(&world, "Ready"), pair("True", "Ready"));
    world.records.clear();
    world.edit("NodePool/default", &json!({ "metadata": { "generation": 2 }, "spec": { "template": { "spec": { "requirements": [{ "key": "a", "operator": "in", "values": ["b"] }] } } } }));
    world.settle();
    assert_eq!(
        condition(&world, "ValidationSucceeded"),
        pair("False", "NodePoolValidationFailed")
    );
    assert_eq!(
        condition(&world, "Ready"),
        pair("False", "UnhealthyDependents")
    );
    assert_eq!(world.verdicts("nodepool/default"), [Verdict::Condition]);
    world.edit("NodePool/default", &json!({ "metadata": { "generation": 3 }, "spec": { "template": { "spec": { "requirements": [] } } } }));
    world.settle();
    assert_eq!(condition(&world, "Ready"), pair("True", "Ready"));

    world.edit("FakeNodeClass/default", &json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "NoSubnets", "message": "none" }] } }));
    world.settle();
    assert_eq!(
        condition(&world, "NodeClassReady"),
        pair("False", "NoSubnets")
    );
    world.edit("FakeNodeClass/default", &json!({ "status": null }));
    world.settle();
    assert_eq!(
        condition(&world, "NodeClassReady").1,
        "NodeClassReadinessUnknown"
    );
    world.delete("FakeNodeClass/default");
    world.settle();
    assert_eq!(
        condition(&world, "NodeClassReady").1,
        "NodeClassNotFound",
        "no claim used it, so it went at once"
    );
}

#[test]
fn counters_follow_the_nodes() {
    let mut world = cluster();
    assert_eq!(
        world.get("NodePool/default")["status"]["resources"],
        json!({ "cpu": "0", "memory": "0", "pods": "0", "ephemeral-storage": "0", "nodes": "0" })
    );
    world.up("a", &json!({}));
    world.up("b", &json!({}));
    world.pass(5_100);
    let status = &world.get("NodePool/default")["status"];
    assert_eq!(
        (
            &status["nodes"],
            &status["resources"]["cpu"],
            &status["resources"]["nodes"]
        ),
        (&json!(2), &json!("4"), &json!("2"))
    );
    world.delete("NodeClaim/a");
    world.pass(5_100);
    assert_eq!(
        world.get("NodePool/default")["status"]["nodes"],
        1,
        "a node that is being deleted counts no longer"
    );
    world.restart();
    world.pass(5_100);
    assert_eq!(world.get("NodePool/default")["status"]["nodes"], 1);
}

#[test]
fn a_burst_of_nodes_is_one_write_in_five_seconds() {
    let mut world = cluster();
    world.pass(10_000);
    let before = world.done.len();
    for n in 0..100 {
        world.claim(&format!("c{n}"), &json!({}));
        world.pass(100);
    }
    let writes = world.done[before..]
        .iter()
        .filter(|each| *each == "patch nodepool/default")
        .count();
    assert!((2..=3).contains(&writes), "{writes} writes in ten seconds");
}

#[test]
fn hashes_of_older_versions_are_migrated_but_drifted_claims_stay_drifted() {
    let mut world = bare_cluster(mortise_planning::settings::Settings::default());
    world.put(&json!({ "kind": KIND, "metadata": { "name": "default" } }));
    let old = json!({ labels::NODEPOOL_HASH: "1", labels::NODEPOOL_HASH_VERSION: "v2" });
    world.put(&json!({ "kind": "NodePool", "metadata": { "name": "default", "annotations": old }, "spec": { "template": { "spec": { "nodeClassRef": { "group": GROUP, "kind": KIND, "name": "default" } } } } }));
    for name in ["calm", "drifted"] {
        world.claim(name, &json!({}));
        world.edit(
            &format!("NodeClaim/{name}"),
            &json!({ "metadata": { "annotations": old } }),
        );
    }
    let drifted = json!([{ "type": "Drifted", "status": "True", "reason": "NodePoolDrifted", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z" }]);
    world.edit(
        "NodeClaim/drifted",
        &json!({ "status": { "conditions": drifted } }),
    );
    world.settle();
    let annotation = |world: &TestCluster, key: &str, name: &str| {
        world.get(key)["metadata"]["annotations"][name].clone()
    };
    let hash = annotation(&world, "NodePool/default", labels::NODEPOOL_HASH);
    for key in ["NodePool/default", "NodeClaim/calm", "NodeClaim/drifted"] {
        assert_eq!(annotation(&world, key, labels::NODEPOOL_HASH_VERSION), "v3");
    }
    assert_eq!(
        annotation(&world, "NodeClaim/calm", labels::NODEPOOL_HASH),
        hash
    );
    assert_eq!(
        annotation(&world, "NodeClaim/drifted", labels::NODEPOOL_HASH),
        "1"
    );
    assert!(world.is_true("drifted", "Drifted"));
}

#[test]
fn validation_answers_as_recorded() {
    let cases: Vec<Value> = include_str!("validation_cases.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(cases.len(), 48);
    for case in cases {
        let pool: NodePool = serde_json::from_value(case["object"].clone()).unwrap();
        let faults = template_faults(&pool, &WellKnown::core());
        assert_eq!(
            faults.is_empty(),
            case["valid"].as_bool().unwrap(),
            "{case}: {faults:?}"
        );
    }
}

#[test]
fn faults_name_field_value_and_what_is_allowed() {
    let pool: NodePool = serde_json::from_value(json!({ "spec": { "template": { "spec": {
        "requirements": [{ "key": "a", "operator": "Inn", "values": ["v"] }, { "key": "karpenter.sh/capacity-typ", "operator": "Exists" }],
        "taints": [{ "key": "a", "effect": "NoSchedul" }],
    } } } })).unwrap();
    let faults = template_faults(&pool, &WellKnown::core());
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            r#"spec.template.spec.requirements[0].operator: "Inn" is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte; did you mean "In"?"#,
            r#"spec.template.spec.requirements[1].key: "karpenter.sh/capacity-typ" is in the domain karpenter.sh, which is not yours; allowed in it: karpenter.sh/capacity-type, karpenter.sh/nodepool; did you mean "karpenter.sh/capacity-type"?"#,
            r#"spec.template.spec.taints[0].effect: "NoSchedul" is not one of NoSchedule, PreferNoSchedule, NoExecute; did you mean "NoSchedule"?"#,
        ]
    );
}

#[test]
fn a_pool_shows_the_version_and_when_it_changed() {
    let of_version = |version: &str| mortise_planning::settings::Settings {
        version: version.to_owned(),
        ..mortise_planning::settings::Settings::default()
    };
    let mut world = bare_cluster(of_version("0.1.0"));
    world.put(&json!({ "kind": KIND, "metadata": { "name": "default" } }));
    // As Karpenter left it: no upgrade of ours.
    let spec = json!({ "template": { "spec": { "nodeClassRef": { "group": GROUP, "kind": KIND, "name": "default" } } } });
    world.put(
        &json!({ "kind": "NodePool", "metadata": { "name": "default", "annotations": { labels::NODEPOOL_HASH: "1", labels::NODEPOOL_HASH_VERSION: "v3" } }, "spec": spec }),
    );
    world.settle();
    let shown = |world: &TestCluster| {
        let annotations = world.get("NodePool/default")["metadata"]["annotations"].clone();
        (
            annotations[labels::VERSION].as_str().map(str::to_owned),
            annotations[labels::UPGRADED_AT].as_str().map(str::to_owned),
        )
    };
    let first = Some("0.1.0".to_owned());
    assert_eq!(shown(&world), (first.clone(), None));
    world.restart();
    world.pass(10_000);
    assert_eq!(shown(&world), (first, None));

    world.settings = of_version("0.2.0");
    let now = world.now();
    world.restart();
    world.settle();
    let second = Some("0.2.0".to_owned());
    let (version, at) = shown(&world);
    let at: jiff::Timestamp = at.unwrap().parse().unwrap();
    assert_eq!((version, at.as_second()), (second.clone(), now.as_second()));
    // Removed by a person: it stays removed.
    world.edit(
        "NodePool/default",
        &json!({ "metadata": { "annotations": { labels::UPGRADED_AT: null } } }),
    );
    world.restart();
    world.pass(10_000);
    assert_eq!(shown(&world), (second, None));
}
