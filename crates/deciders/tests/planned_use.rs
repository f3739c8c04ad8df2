//! What claims will use counts against limits from their plan on, whoever asks and however often the process was
//! killed.

use crate::automatic_cluster::ordinary_cluster;
use mortise_apis::crds::CrdSet;
use mortise_apis::issues::IssueSeverity;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::WellKnown;
use mortise_apis::validation::{faults, template_faults};
use mortise_sim::test_cluster::{GROUP, KIND, TestCluster};
use mortise_state::snapshot::PoolUsage;
use serde_json::{Value, json};

const PLANNED: &str = "mortise.sh/planned-capacity";

fn limited(cpu: &str) -> TestCluster {
    let mut world = ordinary_cluster();
    world.pool("default", &json!({ "spec": { "limits": { "cpu": cpu } } }));
    world
}

/// Runs until more claims are there than before; none of them is launched then.
fn until_claims(world: &mut TestCluster) -> bool {
    let before = world.names("NodeClaim").len();
    for _ in 0..500 {
        world.pass(20);
        if world.names("NodeClaim").len() > before {
            return true;
        }
    }
    false
}

fn usage(world: &mut TestCluster) -> PoolUsage {
    let snapshot = world.snapshot();
    PoolUsage::all(&snapshot)
        .remove("default")
        .unwrap_or_default()
}

fn cpus(world: &TestCluster) -> i64 {
    let nodes = world.names("Node");
    nodes
        .iter()
        .map(|name| {
            let cpu = world.get(&format!("Node/{name}"))["status"]["capacity"]["cpu"]
                .as_str()
                .unwrap();
            cpu.parse::<i64>().unwrap()
        })
        .sum()
}

#[test]
fn killed_between_creation_and_launch_a_process_counts_what_will_be_launched() {
    let mut world = limited("16");
    for _ in 0..6 {
        world.pods("web", 6, 1_000, &json!({}));
        let created = until_claims(&mut world);
        let before = usage(&mut world);
        world.restart();
        assert_eq!(usage(&mut world), before, "a restart forgets nothing");
        if !created {
            break;
        }
    }
    assert!(
        usage(&mut world).capacity.cpu <= 16_000,
        "{:?}",
        usage(&mut world)
    );
    world.pass(120_000);
    let cpus = cpus(&world);
    assert!((14..=16).contains(&cpus), "{cpus} CPUs, limit 16");
}

/// A claim of the pool that has no instance, with these annotations and requirements.
fn unlaunched(name: &str, annotations: Value, requirements: Value) -> Value {
    json!({
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "labels": { "karpenter.sh/nodepool": "default" }, "finalizers": ["karpenter.sh/termination"],
            "annotations": annotations,
        },
        "spec": {
            "nodeClassRef": { "group": GROUP, "kind": KIND, "name": "default" },
            "requirements": requirements,
        },
    })
}

#[test]
fn without_a_readable_plan_the_most_that_the_claim_allows_counts() {
    let planned = |text: &str| json!({ PLANNED: text });
    let types = |names: &[&str]| json!([{ "key": "node.kubernetes.io/instance-type", "operator": "In", "values": names }]);
    let any = json!([]);
    for (annotations, requirements, cpu) in [
        (planned(r#"{"cpu":"3"}"#), any.clone(), 3_000),
        (json!({}), types(&["small", "medium"]), 4_000),
        (json!({}), any.clone(), 8_000),
        (planned("three"), types(&["small"]), 2_000),
        (planned(r#"{"cpu":"-3"}"#), types(&["small"]), 2_000),
        (planned("{}"), types(&["small"]), 2_000),
        // No type is allowed: whatever the catalogue will offer may be.
        (json!({}), types(&["unheard-of"]), 8_000),
    ] {
        let mut world = limited("100");
        let claim = unlaunched("c", annotations.clone(), requirements.clone());
        world.put(&claim);
        let usage = usage(&mut world);
        assert_eq!(
            (usage.nodes, usage.capacity.cpu),
            (1, cpu),
            "{annotations} {requirements}"
        );
    }
}

#[test]
fn where_no_catalogue_says_what_a_claim_allows_the_pool_is_full() {
    let mut world = limited("100");
    let mut claim = unlaunched("c", json!({}), json!([]));
    claim["spec"]["nodeClassRef"]["name"] = json!("another");
    claim["spec"]["taints"] = json!([{ "key": "for-others", "effect": "NoSchedule" }]);
    world.put(&claim);
    world.pods("web", 1, 1_000, &json!({}));
    world.pass(20_000);
    assert_eq!(world.names("NodeClaim"), ["c"]);
    world.erase("NodeClaim/c");
    world.pass(60_000);
    assert_eq!(world.pending(), 0);
}

#[test]
fn a_plan_counts_until_status_says_what_the_instance_has() {
    let mut world = limited("100");
    let annotations = json!({ PLANNED: r#"{"cpu":"8","memory":"32Gi"}"# });
    world.put(&unlaunched("c", annotations, json!([])));
    let id = json!({ "status": { "providerID": "kwok://c" } });
    world.edit("NodeClaim/c", &id);
    assert_eq!(usage(&mut world).capacity.cpu, 8_000);
    let capacity = json!({ "status": { "capacity": { "cpu": "2", "memory": "8Gi" } } });
    world.edit("NodeClaim/c", &capacity);
    let usage = usage(&mut world);
    assert_eq!((usage.nodes, usage.capacity.cpu), (1, 2_000));
}

/// What the service writes on a claim of its own comes from nowhere else: here the template names a foreign instance.
#[test]
fn own_annotations_of_a_template_are_not_copied_to_claims() {
    let mut world = ordinary_cluster();
    let annotations = json!({
        "mortise.sh/provider-id": "kwok://somebody-elses", "mortise.sh/fence": "draining", "mortise.sh/replaces": "a,b",
        "mortise.sh/deletion-reason": "somebody", "mortise.sh/anything": "else", PLANNED: "{}",
        "mortise.sh/registration-hooks": "network", "example.com/team": "a",
    });
    let template =
        json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
    world.pool("default", &template);
    world.pods("web", 1, 1_000, &json!({}));
    assert!(until_claims(&mut world));
    let name = world.names("NodeClaim").remove(0);
    let claim = world.get(&format!("NodeClaim/{name}"));
    let all = claim["metadata"]["annotations"].as_object().unwrap();
    let own = all.keys().filter(|key| key.starts_with("mortise.sh/"));
    assert_eq!(
        own.collect::<Vec<_>>(),
        [
            "mortise.sh/intent",
            "mortise.sh/nominated-pods",
            "mortise.sh/planned-capacity",
            "mortise.sh/registration-hooks"
        ]
    );
    assert_eq!(all["example.com/team"], "a");
    assert_ne!(all[PLANNED], "{}");
}

#[test]
fn own_annotations_of_a_template_are_refused_and_told_in_a_condition() {
    let pool = |key: &str| {
        json!({
            "metadata": { "name": "p" },
            "spec": { "template": {
                "metadata": { "annotations": { key: "x" } },
                "spec": { "nodeClassRef": { "group": "g", "kind": "K", "name": "n" }, "requirements": [] },
            } },
        })
    };
    let known = WellKnown::core();
    for key in [
        "provider-id",
        "fence",
        "nominated-pods",
        "planned-capacity",
        "intent",
        "replaces",
        "deletion-reason",
    ] {
        let pool = pool(&format!("mortise.sh/{key}"));
        let found = faults(CrdSet::core(), &known, "NodePool", &pool, None);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].weight, IssueSeverity::Unusable);
        assert_eq!(
            found[0].field,
            format!("spec.template.metadata.annotations[\"mortise.sh/{key}\"]")
        );
        let pool: NodePool = serde_json::from_value(pool).unwrap();
        assert_eq!(template_faults(&pool, &known), found, "for the condition");
    }
    for key in ["mortise.sh/registration-hooks", "example.com/fence"] {
        let found = faults(CrdSet::core(), &known, "NodePool", &pool(key), None);
        assert!(found.is_empty(), "{found:?}");
    }
}
