//! Disruption as a story: nodes are deleted when it is worth it and allowed, and stay with a reason when not.

use std::collections::BTreeMap;

use crate::automatic_cluster::{automatic_cluster, fleet, ordinary_cluster};
use mortise_apis::values::since;
use mortise_engine::effect::Effect;
use mortise_engine::record::Verdict;
use mortise_engine::write::{ObjectWrite, WritePriority};
use mortise_planning::reason::Reason;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, instance_type};
use serde_json::{Value, json};

const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

fn is_delete(effect: &Effect) -> bool {
    matches!(effect, Effect::Delete { .. })
}

fn deletions(world: &TestCluster) -> usize {
    world
        .effects
        .iter()
        .filter(|(_, effect)| is_delete(effect))
        .count()
}

#[test]
fn an_empty_node_goes_after_its_hold() {
    let mut world = ordinary_cluster();
    world.running_node("m1", "small", "default");
    world.pass(14_000);
    assert_eq!(deletions(&world), 0, "it is held");
    world.pass(30_000);
    assert!(world.names("Node").is_empty());
    assert!(world.names("NodeClaim").is_empty());
    let gone = world.records_of(Verdict::Disrupted);
    assert!(gone[0].reasons.contains(&Reason::Empty), "{gone:?}");
    assert_eq!(world.events_of("DisruptionTerminating").len(), 2);
}

#[test]
fn a_node_that_gets_a_pod_while_held_stays() {
    let mut world = ordinary_cluster();
    world.running_node("m1", "small", "default");
    world.pass(10_000);
    world.pods("web", 1, 1_500, &json!({}));
    world.pass(60_000);
    assert_eq!(world.names("Node"), ["m1"]);
    assert_eq!(world.pending(), 0);
    assert!(!world.records_of(Verdict::Abandoned).is_empty());
}

/// Why a claim says that it is disrupted.
fn disruption_reason(world: &TestCluster, claim: &str) -> Option<String> {
    let claim = world.get(&format!("NodeClaim/{claim}"));
    let list = claim["status"]["conditions"].as_array()?;
    let found = list
        .iter()
        .find(|each| each["type"] == "DisruptionReason" && each["status"] == "True")?;
    Some(found["reason"].as_str()?.to_owned())
}

#[test]
fn a_pod_that_arrives_behind_the_fence_saves_its_node() {
    let mut world = ordinary_cluster();
    world.running_node("m1", "small", "default");
    // Held until 15 s, fenced, and validated again two seconds later.
    world.pass(15_500);
    assert_eq!(disruption_reason(&world, "m1").as_deref(), Some("Empty"));
    assert!(
        world.get("Node/m1")["spec"]["taints"]
            .as_array()
            .is_none_or(Vec::is_empty),
        "the fence comes before the taint"
    );
    world.pods(
        "web",
        1,
        1_500,
        &json!({ "spec": { "nodeName": "m1" }, "status": { "phase": "Running" } }),
    );
    world.pass(10_000);
    assert_eq!(world.names("Node"), ["m1"]);
    assert_eq!(
        disruption_reason(&world, "m1"),
        None,
        "the fence is taken down"
    );
    assert_eq!(deletions(&world), 0);
}

#[test]
fn half_of_the_pods_gone_means_fewer_nodes() {
    let mut world = ordinary_cluster();
    world.pods("web", 32, 1_000, &json!({}));
    world.pass(60_000);
    assert_eq!(world.pending(), 0);
    let before = world.bill();
    world.scale_down("web", 16);
    world.pass(900_000);
    assert_eq!(world.pending(), 0);
    assert!(
        world.bill() <= before / 2,
        "{} -> {}: {:?}",
        before,
        world.bill(),
        world.node_types()
    );
}

#[test]
fn two_half_full_nodes_become_one() {
    let mut world = ordinary_cluster();
    fleet(&mut world, "medium", &[1_500, 1_500]);
    world.pass(120_000);
    assert_eq!(world.names("Node").len(), 1);
    assert_eq!(world.pending(), 0);
    assert!(world.claim_times().is_empty(), "nothing is launched");
}

#[test]
fn an_expensive_node_is_replaced_by_a_cheaper_one_that_is_ready_first() {
    let mut world = ordinary_cluster();
    fleet(&mut world, "large", &[1_500]);
    world.pass(18_000);
    assert_eq!(world.claim_times().len(), 1);
    let claim = world
        .names("NodeClaim")
        .into_iter()
        .find(|name| name.starts_with("default-"))
        .unwrap();
    let object = world.get(&format!("NodeClaim/{claim}"));
    assert_eq!(
        object["metadata"]["annotations"]["mortise.sh/replaces"],
        "m0"
    );
    let old = world.get("Node/m0");
    assert_eq!(old["spec"]["taints"][0]["key"], "karpenter.sh/disrupted");
    assert_eq!(deletions(&world), 0, "the replacement is not ready");
    world.pass(120_000);
    assert_eq!(world.node_types(), ["small"]);
    assert_eq!(world.pending(), 0);
    assert_eq!(world.events_of("DisruptionLaunching").len(), 1);
    let candidate = world.events_of("ConsolidationCandidate");
    assert_eq!(
        candidate[0].message,
        "Consolidation candidate: replace: [m0] -> [1 replacement] (savings: $0.30)"
    );
    // It has come by a move, so it rests.
    world.pass(60_000);
    assert_eq!(world.claim_times().len(), 1);
}

#[test]
fn an_equal_price_moves_nothing() {
    let types = vec![
        instance_type("one", 4, &[("on-demand", 200)]),
        instance_type("other", 4, &[("on-demand", 200)]),
    ];
    let mut world = automatic_cluster(types, Settings::default());
    fleet(&mut world, "one", &[3_000]);
    world.pass(600_000);
    assert_eq!(world.names("Node"), ["m0"]);
    assert!(world.claim_times().is_empty());
    let told = world.events_of("Unconsolidatable");
    assert_eq!(told[0].message, "Can't replace with a cheaper node");
    let refused = world.records_of(Verdict::Refused);
    assert!(
        matches!(refused[0].reasons[0], Reason::NotCheaper { old, new } if old == new),
        "{refused:?}"
    );
}

#[test]
fn a_pod_disruption_budget_blocks_and_says_so() {
    let mut world = ordinary_cluster();
    fleet(&mut world, "medium", &[1_500, 1_500]);
    world.pdb("web", 2);
    world.pass(300_000);
    assert_eq!(world.names("Node").len(), 2);
    let events = world.events_of("DisruptionBlocked");
    assert!(
        events.iter().any(|event| event.message
            == "Pdb prevents pod evictions (PodDisruptionBudget=[default/web])"),
        "{events:?}"
    );
    assert!(
        world.records_of(Verdict::Blocked).len() <= 2 * 3,
        "said again every two minutes, not at every look"
    );
    world.pdb("web", 1);
    world.pass(120_000);
    assert_eq!(world.names("Node").len(), 1);
}

#[test]
fn a_budget_of_zero_blocks_and_a_budget_of_one_goes_one_by_one() {
    let mut world = ordinary_cluster();
    world.pool(
        "default",
        &json!({ "spec": { "disruption": { "budgets": [{ "nodes": "0" }] } } }),
    );
    for at in 0..3 {
        world.running_node(&format!("m{at}"), "small", "default");
    }
    world.pass(60_000);
    assert_eq!(world.names("Node").len(), 3);
    let events = world.events_of("DisruptionBlocked");
    assert!(
        events.iter().any(|event| event.message
            == "No allowed disruptions for disruption reason Empty due to blocking budget"),
        "{events:?}"
    );
    world.pool(
        "default",
        &json!({ "spec": { "disruption": { "budgets": [{ "nodes": "1" }] } } }),
    );
    world.checks.push(|world| {
        let tainted = world.names("Node").into_iter().filter(|node| {
            !world.get(&format!("Node/{node}"))["spec"]["taints"]
                .as_array()
                .is_none_or(Vec::is_empty)
        });
        assert!(tainted.count() <= 1, "one at a time");
    });
    world.pass(120_000);
    assert!(world.names("Node").is_empty());
}

#[test]
fn a_drifted_node_is_replaced_without_a_hold() {
    let mut world = ordinary_cluster();
    fleet(&mut world, "small", &[1_500]);
    let condition = json!({ "type": "Drifted", "status": "True", "reason": "NodePoolDrifted", "message": "", "lastTransitionTime": world.now().to_string() });
    let mut conditions = world.get("NodeClaim/m0")["status"]["conditions"].clone();
    conditions.as_array_mut().unwrap().push(condition);
    world.edit(
        "NodeClaim/m0",
        &json!({ "status": { "conditions": conditions } }),
    );
    world.pass(6_000);
    assert_eq!(
        world.claim_times().len(),
        1,
        "only the bind grace is waited for"
    );
    world.pass(120_000);
    assert_ne!(world.names("Node"), ["m0"]);
    assert_eq!(world.names("Node").len(), 1);
    assert_eq!(world.pending(), 0);
    let gone = world.records_of(Verdict::Disrupted);
    assert!(
        gone[0].reasons.contains(&Reason::Drifted {
            why: "NodePoolDrifted".to_owned()
        }),
        "{gone:?}"
    );
}

#[test]
fn a_replacement_that_never_gets_ready_is_waited_for_and_then_abandoned() {
    let mut world = ordinary_cluster();
    world.automation.never_ready = true;
    fleet(&mut world, "large", &[1_500]);
    world.pass(60_000);
    assert_eq!(world.claim_times().len(), 1);
    world.pass(11 * 60_000);
    assert_eq!(deletions(&world), 0);
    let old = world.get("Node/m0");
    assert!(
        old["spec"]["taints"].as_array().is_none_or(Vec::is_empty),
        "the taint is taken off"
    );
    assert_eq!(disruption_reason(&world, "m0"), None);
    assert_eq!(world.events_of("ConsolidationRejected").len(), 2);
}

/// The NodeClaim that replaces the node `m0`.
fn replacement(world: &TestCluster) -> String {
    let mut claims = world.names("NodeClaim").into_iter();
    claims.find(|name| name != "m0").unwrap()
}

#[test]
fn a_protection_that_comes_during_a_replacement_is_no_failed_launch() {
    let mut world = ordinary_cluster();
    world.automation.never_ready = true;
    fleet(&mut world, "large", &[1_000]);
    let pod = format!("Pod/{}", world.names("Pod").remove(0));
    let protect =
        |value: Value| json!({ "metadata": { "annotations": { DO_NOT_DISRUPT: value } } });
    world.pass(60_000);
    assert_eq!(world.claim_times().len(), 1);
    let replacement = replacement(&world);
    world.automation.never_ready = false;
    world.edit(&pod, &protect(json!("true")));
    world.boot_late(&replacement);
    // Otherwise the replacement goes as it is empty.
    let node = format!("Node/{replacement}");
    world.edit(&node, &protect(json!("true")));
    world.pass(5_000);
    assert_eq!(world.records_of(Verdict::Abandoned).len(), 1);
    // Its NodePool does not rest: nothing failed.
    world.edit(&pod, &protect(Value::Null));
    world.pass(40_000);
    assert_eq!(world.node_types(), ["small"]);
}

#[test]
fn consolidation_goes_on_when_the_rest_after_a_failed_replacement_ends() {
    let mut world = ordinary_cluster();
    world.automation.never_ready = true;
    fleet(&mut world, "large", &[1_500]);
    world.pass(11 * 60_000);
    assert_eq!(world.records_of(Verdict::Abandoned).len(), 1);
    // Liveness, which this cluster does not have, ends the replacement.
    let failed = replacement(&world);
    world.erase(&format!("NodeClaim/{failed}"));
    world.automation.never_ready = false;
    world.pass(2 * 60_000);
    assert_eq!(world.node_types(), ["small"]);
}

#[test]
fn leftovers_of_a_process_that_ended_are_cleaned() {
    let mut world = ordinary_cluster();
    fleet(&mut world, "small", &[1_900]);
    world.edit("Node/m0", &json!({ "spec": { "taints": [{ "key": "karpenter.sh/disrupted", "effect": "NoSchedule" }, { "key": "mine", "effect": "NoSchedule" }] } }));
    let mut conditions = world.get("NodeClaim/m0")["status"]["conditions"].clone();
    conditions
        .as_array_mut()
        .unwrap()
        .push(world.true_condition("DisruptionReason"));
    world.edit("NodeClaim/m0", &json!({ "metadata": { "annotations": { "mortise.sh/fence": "disruption" } }, "status": { "conditions": conditions } }));
    world.pass(1_000);
    let node = world.get("Node/m0");
    assert_eq!(
        node["spec"]["taints"].as_array().unwrap().len(),
        1,
        "another client's taint stays"
    );
    assert_eq!(node["spec"]["taints"][0]["key"], "mine");
    let claim = world.get("NodeClaim/m0");
    assert_eq!(
        claim["metadata"]["annotations"]["mortise.sh/fence"],
        Value::Null
    );
    assert!(
        claim["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .all(|each| each["type"] != "DisruptionReason")
    );
    assert_eq!(deletions(&world), 0);
}

#[test]
fn a_quiet_cluster_is_left_in_peace() {
    let mut world = ordinary_cluster();
    fleet(&mut world, "small", &[1_900, 1_900]);
    world.pass(60_000);
    let (effects, records) = (world.effects.len(), world.records.len());
    world.pass(120_000);
    let written = world.effects.iter().skip(effects);
    assert_eq!(written.count(), 0);
    assert_eq!(world.records.len(), records, "nothing new is said");
}

#[test]
fn spot_is_not_replaced_by_spot_unless_asked_for() {
    let types = |count: usize| {
        let mut all = vec![instance_type("dear", 16, &[("spot", 900)])];
        all.extend((0..count).map(|at| {
            instance_type(
                &format!("t{at:02}"),
                4,
                &[("spot", 100 + i64::try_from(at).unwrap())],
            )
        }));
        all
    };
    let mut world = automatic_cluster(types(20), Settings::default());
    fleet(&mut world, "dear", &[3_000]);
    world.pass(60_000);
    let told = world.events_of("Unconsolidatable");
    assert_eq!(
        told[0].message,
        "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
    );

    let mut settings = Settings::default();
    settings.gates.spot_to_spot_consolidation = true;
    let mut world = automatic_cluster(types(10), settings.clone());
    fleet(&mut world, "dear", &[3_000]);
    world.pass(60_000);
    let told = world.events_of("Unconsolidatable");
    assert_eq!(
        told[0].message,
        "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate, got 10"
    );

    let mut world = automatic_cluster(types(20), settings);
    fleet(&mut world, "dear", &[3_000]);
    world.pass(120_000);
    assert_eq!(world.node_types(), ["t00"]);
}

#[test]
fn on_demand_is_replaced_by_spot_only() {
    let types = vec![
        instance_type("dear", 4, &[("on-demand", 300)]),
        instance_type("both", 4, &[("on-demand", 200), ("spot", 80)]),
    ];
    let mut world = automatic_cluster(types, Settings::default());
    fleet(&mut world, "dear", &[3_000]);
    world.pass(18_000);
    let claim = world
        .names("NodeClaim")
        .into_iter()
        .find(|name| name.starts_with("default-"))
        .unwrap();
    let requirements = world.get(&format!("NodeClaim/{claim}"))["spec"]["requirements"].clone();
    let capacity = requirements
        .as_array()
        .unwrap()
        .iter()
        .find(|each| each["key"] == "karpenter.sh/capacity-type")
        .unwrap();
    assert_eq!(capacity["values"], json!(["spot"]));
}

#[test]
fn taints_are_written_on_the_version_they_were_read_from() {
    let mut world = ordinary_cluster();
    world.running_node("m1", "small", "default");
    world.pass(60_000);
    let taints: Vec<&ObjectWrite> = world
        .effects
        .iter()
        .filter_map(|(_, effect)| match &**effect {
            Effect::Write(write) if write.edit.priority() == WritePriority::Immediate => {
                Some(write)
            }
            _ => None,
        })
        .collect();
    assert!(!taints.is_empty());
    assert!(taints.iter().all(|write| write.resource_version.is_some()));
}

#[test]
fn the_same_world_gives_the_same_history() {
    let story = || {
        let mut world = ordinary_cluster();
        fleet(&mut world, "large", &[1_000, 2_000, 3_000, 500, 700]);
        world.pdb("web", 3);
        world.pass(60_000);
        world.pods("batch", 7, 900, &json!({}));
        world.pass(120_000);
        world.scale_down("batch", 4);
        world.pass(600_000);
        let effects: Vec<String> = world
            .effects
            .iter()
            .map(|each| format!("{each:?}"))
            .chain(world.timed_events().map(|each| format!("{each:?}")))
            .collect();
        let records: Vec<String> = world
            .records
            .iter()
            .map(|each| format!("{each:?}"))
            .collect();
        (effects, records)
    };
    let (first, second) = (story(), story());
    assert!(first.0.len() > 20, "something happens: {}", first.0.len());
    assert_eq!(first, second);
}

#[test]
fn a_kind_of_refusal_is_an_event_once_per_period_whatever_its_facts_are() {
    let mut world = ordinary_cluster();
    fleet(&mut world, "medium", &[3_000, 3_000]);
    // Every half a minute another pod comes and goes, so that the blocker has another name each time.
    for _ in 0..60 {
        world.pods("guest", 1, 500, &json!({}));
        world.pass(30_000);
        world.scale_down("guest", 1);
    }
    let mut last = BTreeMap::new();
    let mut told = 0;
    for (at, event) in world.timed_events() {
        let every_s = match &*event.reason {
            "DisruptionBlocked" => 120,
            "Unconsolidatable" => 900,
            _ => continue,
        };
        told += 1;
        let kind = (
            event.target.clone(),
            event.reason.clone(),
            event.dedupe_key.clone(),
        );
        if let Some(before) = last.insert(kind, *at) {
            let passed = since(*at, before) / 1_000;
            assert!(passed >= every_s, "{event:?} again after {passed} s");
        }
    }
    assert!(told > 0, "something was said");
}

#[test]
fn another_cause_is_told_at_once() {
    let mut world = ordinary_cluster();
    fleet(&mut world, "medium", &[3_000]);
    world.pass(20_000);
    world.pods(
        "guarded",
        1,
        200,
        &json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } }),
    );
    world.pass(100_000);
    let said: Vec<_> = world
        .events_of("DisruptionBlocked")
        .into_iter()
        .map(|event| event.message.clone())
        .collect();
    assert!(
        said.iter().any(|text| text.contains("do-not-disrupt")),
        "{said:?}"
    );
}
