//! Disruption as a story: machines go when it is worth it and allowed, and stay with a reason when not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod small_world;

use std::collections::BTreeMap;

use mortise_apis::values::since;
use mortise_engine::effect::Effect;
use mortise_engine::record::Verdict;
use mortise_engine::write::{ObjectWrite, WritePriority};
use mortise_planning::reason::Reason;
use mortise_planning::settings::Settings;
use serde_json::{Value, json};
use small_world::{SmallWorld, instance_type};

const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// Machines of a type with one pod of so much CPU on each.
fn fleet(world: &mut SmallWorld, of: &str, cpus: &[i64]) {
    for (at, cpu) in cpus.iter().enumerate() {
        let name = format!("m{at}");
        world.machine(&name, of, "default");
        world.pods(
            "web",
            1,
            *cpu,
            &json!({ "spec": { "nodeName": name }, "status": { "phase": "Running" } }),
        );
    }
}

fn is_delete(effect: &Effect) -> bool {
    matches!(effect, Effect::Delete { .. })
}

fn deletions(world: &SmallWorld) -> usize {
    world
        .effects
        .iter()
        .filter(|(_, effect)| is_delete(effect))
        .count()
}

#[test]
fn an_empty_machine_goes_after_its_hold() {
    let mut world = SmallWorld::ordinary();
    world.machine("m1", "small", "default");
    world.run(14_000);
    assert_eq!(deletions(&world), 0, "it is held");
    world.run(30_000);
    assert!(world.names("Node").is_empty());
    assert!(world.names("NodeClaim").is_empty());
    let gone = world.records_of(Verdict::Disrupted);
    assert!(gone[0].reasons.contains(&Reason::Empty), "{gone:?}");
    assert_eq!(world.events_of("DisruptionTerminating").len(), 2);
}

#[test]
fn a_machine_that_gets_a_pod_while_held_stays() {
    let mut world = SmallWorld::ordinary();
    world.machine("m1", "small", "default");
    world.run(10_000);
    world.pods("web", 1, 1_500, &json!({}));
    world.run(60_000);
    assert_eq!(world.names("Node"), ["m1"]);
    assert_eq!(world.pending(), 0);
    assert!(!world.records_of(Verdict::Abandoned).is_empty());
}

/// Why a claim says that it is disrupted.
fn disruption_reason(world: &SmallWorld, claim: &str) -> Option<String> {
    let claim = world.get("NodeClaim", claim).unwrap();
    let list = claim["status"]["conditions"].as_array()?;
    let found = list
        .iter()
        .find(|each| each["type"] == "DisruptionReason" && each["status"] == "True")?;
    Some(found["reason"].as_str()?.to_owned())
}

#[test]
fn a_pod_that_arrives_behind_the_fence_saves_its_machine() {
    let mut world = SmallWorld::ordinary();
    world.machine("m1", "small", "default");
    // Held until 15 s, fenced, and looked at again two seconds later.
    world.run(15_500);
    assert_eq!(disruption_reason(&world, "m1").as_deref(), Some("Empty"));
    assert!(
        world.get("Node", "m1").unwrap()["spec"]["taints"]
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
    world.run(10_000);
    assert_eq!(world.names("Node"), ["m1"]);
    assert_eq!(
        disruption_reason(&world, "m1"),
        None,
        "the fence is taken down"
    );
    assert_eq!(deletions(&world), 0);
}

#[test]
fn half_of_the_pods_gone_means_fewer_machines() {
    let mut world = SmallWorld::ordinary();
    world.pods("web", 32, 1_000, &json!({}));
    world.run(60_000);
    assert_eq!(world.pending(), 0);
    let before = world.bill();
    world.scale_down("web", 16);
    world.run(900_000);
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
fn two_half_full_machines_become_one() {
    let mut world = SmallWorld::ordinary();
    fleet(&mut world, "medium", &[1_500, 1_500]);
    world.run(120_000);
    assert_eq!(world.names("Node").len(), 1);
    assert_eq!(world.pending(), 0);
    assert!(world.claim_times().is_empty(), "nothing is bought");
}

#[test]
fn a_dear_machine_is_replaced_by_a_cheaper_one_that_is_ready_first() {
    let mut world = SmallWorld::ordinary();
    fleet(&mut world, "large", &[1_500]);
    world.run(18_000);
    assert_eq!(world.claim_times().len(), 1);
    let claim = world
        .names("NodeClaim")
        .into_iter()
        .find(|name| name.starts_with("default-"))
        .unwrap();
    let object = world.get("NodeClaim", &claim).unwrap();
    assert_eq!(
        object["metadata"]["annotations"]["mortise.sh/replaces"],
        "m0"
    );
    let old = world.get("Node", "m0").unwrap();
    assert_eq!(old["spec"]["taints"][0]["key"], "karpenter.sh/disrupted");
    assert_eq!(deletions(&world), 0, "the replacement is not ready");
    world.run(120_000);
    assert_eq!(world.node_types(), ["small"]);
    assert_eq!(world.pending(), 0);
    assert_eq!(world.events_of("DisruptionLaunching").len(), 1);
    let candidate = world.events_of("ConsolidationCandidate");
    assert_eq!(
        candidate[0].message,
        "Consolidation candidate: replace: [m0] -> [1 replacement] (savings: $0.30)"
    );
    // It has come by a move, so it rests.
    world.run(60_000);
    assert_eq!(world.claim_times().len(), 1);
}

#[test]
fn an_equal_price_moves_nothing() {
    let types = vec![
        instance_type("one", 4, &[("on-demand", 200)]),
        instance_type("other", 4, &[("on-demand", 200)]),
    ];
    let mut world = SmallWorld::new(types, Settings::default());
    fleet(&mut world, "one", &[3_000]);
    world.run(600_000);
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
    let mut world = SmallWorld::ordinary();
    fleet(&mut world, "medium", &[1_500, 1_500]);
    world.pdb("web", 2);
    world.run(300_000);
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
    world.run(120_000);
    assert_eq!(world.names("Node").len(), 1);
}

#[test]
fn protected_pods_and_nodes_are_left_alone() {
    let mut world = SmallWorld::ordinary();
    fleet(&mut world, "large", &[1_000, 1_000]);
    let pod = world.names("Pod").remove(0);
    world.change(
        "Pod",
        &pod,
        &json!({ "metadata": { "annotations": { DO_NOT_DISRUPT: "true" } } }),
    );
    world.change(
        "Node",
        "m1",
        &json!({ "metadata": { "annotations": { DO_NOT_DISRUPT: "true" } } }),
    );
    world.run(300_000);
    assert_eq!(world.names("Node"), ["m0", "m1"]);
    let blocked = world.records_of(Verdict::Blocked);
    assert!(
        blocked
            .iter()
            .any(|record| matches!(record.reasons[0], Reason::DoNotDisruptPod { .. }))
    );
    assert!(
        blocked
            .iter()
            .any(|record| record.reasons[0] == Reason::DoNotDisruptNode)
    );
}

#[test]
fn a_protection_that_ends_ends() {
    let mut world = SmallWorld::ordinary();
    fleet(&mut world, "large", &[1_000]);
    let pod = world.names("Pod").remove(0);
    let start = world.stamp();
    world.change("Pod", &pod, &json!({ "metadata": { "annotations": { DO_NOT_DISRUPT: "5m" } }, "status": { "startTime": start } }));
    world.run(290_000);
    assert_eq!(world.node_types(), ["large"]);
    world.run(90_000);
    assert_eq!(world.node_types(), ["small"]);
}

#[test]
fn a_budget_of_zero_blocks_and_a_budget_of_one_goes_one_by_one() {
    let mut world = SmallWorld::ordinary();
    world.pool(
        "default",
        json!({ "spec": { "disruption": { "budgets": [{ "nodes": "0" }] } } }),
    );
    for at in 0..3 {
        world.machine(&format!("m{at}"), "small", "default");
    }
    world.run(60_000);
    assert_eq!(world.names("Node").len(), 3);
    let events = world.events_of("DisruptionBlocked");
    assert!(
        events.iter().any(|event| event.message
            == "No allowed disruptions for disruption reason Empty due to blocking budget"),
        "{events:?}"
    );
    world.pool(
        "default",
        json!({ "spec": { "disruption": { "budgets": [{ "nodes": "1" }] } } }),
    );
    world.checks.push(|world| {
        let tainted = world.names("Node").into_iter().filter(|node| {
            !world.get("Node", node).unwrap()["spec"]["taints"]
                .as_array()
                .is_none_or(Vec::is_empty)
        });
        assert!(tainted.count() <= 1, "one at a time");
    });
    world.run(120_000);
    assert!(world.names("Node").is_empty());
}

#[test]
fn a_drifted_machine_is_replaced_without_a_hold() {
    let mut world = SmallWorld::ordinary();
    fleet(&mut world, "small", &[1_500]);
    let condition = json!({ "type": "Drifted", "status": "True", "reason": "NodePoolDrifted", "message": "", "lastTransitionTime": world.stamp() });
    let mut conditions = world.get("NodeClaim", "m0").unwrap()["status"]["conditions"].clone();
    conditions.as_array_mut().unwrap().push(condition);
    world.change(
        "NodeClaim",
        "m0",
        &json!({ "status": { "conditions": conditions } }),
    );
    world.run(6_000);
    assert_eq!(
        world.claim_times().len(),
        1,
        "only the bind grace is waited for"
    );
    world.run(120_000);
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
fn a_replacement_that_never_gets_ready_is_waited_for_and_then_given_up() {
    let mut world = SmallWorld::ordinary();
    world.never_ready = true;
    fleet(&mut world, "large", &[1_500]);
    world.run(60_000);
    assert_eq!(world.claim_times().len(), 1);
    world.run(11 * 60_000);
    assert_eq!(deletions(&world), 0);
    let old = world.get("Node", "m0").unwrap();
    assert!(
        old["spec"]["taints"].as_array().is_none_or(Vec::is_empty),
        "the taint is taken off"
    );
    assert_eq!(disruption_reason(&world, "m0"), None);
    assert_eq!(world.events_of("ConsolidationRejected").len(), 2);
}

#[test]
fn leftovers_of_a_process_that_ended_are_cleaned() {
    let mut world = SmallWorld::ordinary();
    fleet(&mut world, "small", &[1_900]);
    world.change("Node", "m0", &json!({ "spec": { "taints": [{ "key": "karpenter.sh/disrupted", "effect": "NoSchedule" }, { "key": "mine", "effect": "NoSchedule" }] } }));
    let mut conditions = world.get("NodeClaim", "m0").unwrap()["status"]["conditions"].clone();
    conditions
        .as_array_mut()
        .unwrap()
        .push(world.condition("DisruptionReason"));
    world.change("NodeClaim", "m0", &json!({ "metadata": { "annotations": { "mortise.sh/fence": "disruption" } }, "status": { "conditions": conditions } }));
    world.run(1_000);
    let node = world.get("Node", "m0").unwrap();
    assert_eq!(
        node["spec"]["taints"].as_array().unwrap().len(),
        1,
        "somebody else's taint stays"
    );
    assert_eq!(node["spec"]["taints"][0]["key"], "mine");
    let claim = world.get("NodeClaim", "m0").unwrap();
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
    let mut world = SmallWorld::ordinary();
    fleet(&mut world, "small", &[1_900, 1_900]);
    world.run(60_000);
    let (effects, records) = (world.effects.len(), world.records.len());
    world.run(120_000);
    let written = world
        .effects
        .iter()
        .skip(effects)
        .filter(|(_, effect)| !matches!(&**effect, Effect::Event(_)));
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
    let mut world = SmallWorld::new(types(20), Settings::default());
    fleet(&mut world, "dear", &[3_000]);
    world.run(60_000);
    let told = world.events_of("Unconsolidatable");
    assert_eq!(
        told[0].message,
        "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
    );

    let mut settings = Settings::default();
    settings.gates.spot_to_spot_consolidation = true;
    let mut world = SmallWorld::new(types(10), settings.clone());
    fleet(&mut world, "dear", &[3_000]);
    world.run(60_000);
    let told = world.events_of("Unconsolidatable");
    assert_eq!(
        told[0].message,
        "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate, got 10"
    );

    let mut world = SmallWorld::new(types(20), settings);
    fleet(&mut world, "dear", &[3_000]);
    world.run(120_000);
    assert_eq!(world.node_types(), ["t00"]);
}

#[test]
fn on_demand_is_replaced_by_spot_only() {
    let types = vec![
        instance_type("dear", 4, &[("on-demand", 300)]),
        instance_type("both", 4, &[("on-demand", 200), ("spot", 80)]),
    ];
    let mut world = SmallWorld::new(types, Settings::default());
    fleet(&mut world, "dear", &[3_000]);
    world.run(18_000);
    let claim = world
        .names("NodeClaim")
        .into_iter()
        .find(|name| name.starts_with("default-"))
        .unwrap();
    let requirements = world.get("NodeClaim", &claim).unwrap()["spec"]["requirements"].clone();
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
    let mut world = SmallWorld::ordinary();
    world.machine("m1", "small", "default");
    world.run(60_000);
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
        let mut world = SmallWorld::ordinary();
        fleet(&mut world, "large", &[1_000, 2_000, 3_000, 500, 700]);
        world.pdb("web", 3);
        world.run(60_000);
        world.pods("batch", 7, 900, &json!({}));
        world.run(120_000);
        world.scale_down("batch", 4);
        world.run(600_000);
        let effects: Vec<String> = world
            .effects
            .iter()
            .map(|each| format!("{each:?}"))
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
    let mut world = SmallWorld::ordinary();
    fleet(&mut world, "medium", &[3_000, 3_000]);
    // Every half a minute another pod comes and goes, so that what is in the way has another name each time.
    for _ in 0..60 {
        world.pods("guest", 1, 500, &json!({}));
        world.run(30_000);
        world.scale_down("guest", 1);
    }
    let mut last = BTreeMap::new();
    let mut told = 0;
    for (at, effect) in &world.effects {
        let Effect::Event(event) = &**effect else {
            continue;
        };
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
    let mut world = SmallWorld::ordinary();
    fleet(&mut world, "medium", &[3_000]);
    world.run(20_000);
    world.pods(
        "guarded",
        1,
        200,
        &json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } }),
    );
    world.run(100_000);
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
