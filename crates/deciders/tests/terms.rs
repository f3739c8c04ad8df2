//! What is left of a term when the lease is lost and comes back: nothing that no object shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::automatic_cluster::ordinary_cluster;
use jiff::Timestamp;
use mortise_apis::labels::WellKnown;
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectError, Outcome};
use mortise_engine::engine::{Engine, EngineInput};
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::TestCluster;
use mortise_state::index::Changes;
use serde_json::json;

/// A large node with a small pod, whose replacement has been asked for and is not there yet.
fn replacing() -> TestCluster {
    let mut world = ordinary_cluster();
    world.running_node("m", "large", "default");
    let running = json!({ "spec": { "nodeName": "m" }, "status": { "phase": "Running" } });
    world.pods("web", 1, 500, &running);
    for _ in 0..600 {
        world.pass(100);
        if world.names("NodeClaim").len() == 2 {
            return world;
        }
    }
    panic!("no replacement was asked for");
}

fn lead(world: &mut TestCluster, leading: bool) {
    let now = world.now();
    world.engine.apply(EngineInput::Leading(leading), now);
}

fn has_taint(world: &TestCluster) -> bool {
    let taints = &world.get("Node/m")["spec"]["taints"];
    taints.as_array().is_some_and(|all| !all.is_empty())
}

#[test]
fn a_command_of_an_earlier_term_is_not_executed() {
    let mut world = replacing();
    world.pass(60_000);
    assert!(!world.has("Node/m"), "it goes when nothing happens");

    let mut world = replacing();
    lead(&mut world, false);
    let none = json!({ "spec": { "disruption": { "budgets": [{ "nodes": "0" }] } } });
    world.pool("default", &none);
    world.pass(60_000);
    lead(&mut world, true);
    world.pass(120_000);
    assert!(world.has("Node/m"), "the budget allows nothing");
    assert!(!has_taint(&world), "what the command left is taken away");

    // A user protects its pod meanwhile.
    let mut world = replacing();
    lead(&mut world, false);
    let pod = world.names("Pod").remove(0);
    let protect =
        json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } });
    world.edit(&format!("Pod/{pod}"), &protect);
    world.pass(60_000);
    lead(&mut world, true);
    world.pass(120_000);
    assert!(world.has("Node/m"));
    assert!(!has_taint(&world));
}

/// What the ledger holds, without times.
fn held(world: &mut TestCluster) -> Vec<String> {
    let ledger = Arc::clone(&world.snapshot().ledger);
    let pods = ledger.nominations();
    let pods = pods.map(|each| format!("{} on {:?}", each.pod, each.place));
    let coming = ledger.expected_claims().values();
    let coming = coming.map(|each| format!("{} with {:?}", each.claim, each.capacity));
    let fences = ledger.fences().values();
    let fences = fences.map(|each| format!("{} {:?}", each.claim, each.reason));
    let mut all: Vec<String> = pods.chain(coming).chain(fences).collect();
    all.sort();
    all
}

/// At any moment, what a replica holds that does not lead is what a new process reads from objects.
#[test]
fn after_a_term_the_ledger_holds_what_objects_show() {
    for ms in (0..9_000).step_by(300) {
        let mut world = ordinary_cluster();
        world.answers.create_ms = 700;
        world.running_node("m", "large", "default");
        world.pods("web", 6, 1_500, &json!({}));
        world.pass(ms);
        lead(&mut world, false);
        let kept = held(&mut world);
        world.restart();
        lead(&mut world, false);
        assert_eq!(kept, held(&mut world), "after {ms} ms");
    }
}

/// Asks for something at its first step, and counts its steps and what is delivered.
#[derive(Clone, Debug, Default)]
struct Counting {
    steps: usize,
    answers: Arc<AtomicUsize>,
}

impl Decider for Counting {
    fn id(&self) -> DeciderId {
        DeciderId::GarbageCollection
    }
    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(self.clone())
    }
    fn is_interested(&self, _: &Changes) -> bool {
        false
    }
    fn step(&mut self, input: &StepInput<'_>, _: &dyn Fn() -> bool) -> Step {
        let answers = input.inbox.iter();
        let answers = answers.filter(|each| matches!(each, InboxMessage::Outcome(_)));
        self.answers.fetch_add(answers.count(), Ordering::Relaxed);
        self.steps += 1;
        let mut step = Step::default();
        if self.steps == 1 {
            step.effect(Effect::ListInstances);
        }
        step
    }
}

#[test]
fn a_step_and_an_answer_of_an_earlier_term_come_to_nothing() {
    let now = Timestamp::UNIX_EPOCH;
    let answers = Arc::default();
    let decider = Counting {
        answers: Arc::clone(&answers),
        ..Counting::default()
    };
    let mut engine = Engine::new(
        vec![Box::new(decider)],
        Settings::default(),
        WellKnown::core(),
        1,
        now,
    );
    engine.apply(EngineInput::Synced, now);
    engine.apply(EngineInput::Leading(true), now);
    let first = engine.turn(now, 10, &|| false).orders.remove(0);
    let answer = |term| EngineInput::Outcome {
        decider: DeciderId::GarbageCollection,
        term,
        outcome: Outcome {
            effect: Arc::clone(&first.effect),
            result: Err(EffectError::Unavailable("no".to_owned())),
        },
    };
    engine.apply(answer(first.term), now);
    assert!(engine.turn(now, 10, &|| false).orders.is_empty());
    assert_eq!(answers.load(Ordering::Relaxed), 1, "an answer of this term");

    // The lease goes and comes back while a step is computed: it remembers, and is not heard.
    engine.apply(answer(first.term), now);
    let job = engine.prepare(DeciderId::GarbageCollection, now).unwrap();
    engine.apply(EngineInput::Leading(false), now);
    engine.apply(EngineInput::Leading(true), now);
    assert!(engine.due(now).is_none(), "one step at a time");
    let old = engine.commit(job.run(&|| false), now);
    assert!(old.orders.is_empty() && old.records.is_empty());
    let second = engine.turn(now, 10, &|| false).orders.remove(0);
    assert_ne!(first.term, second.term, "it begins again");

    let before = answers.load(Ordering::Relaxed);
    engine.apply(answer(first.term), now);
    assert!(
        engine.due(now).is_none(),
        "no decider waits for it any more"
    );
    engine.apply(answer(second.term), now);
    engine.turn(now, 10, &|| false);
    assert_eq!(answers.load(Ordering::Relaxed), before + 1);
}

/// Names of the claims that a process makes for these pods, which is then killed. The cloud has no room, so all claims
/// go.
fn names_of_a_life(world: &mut TestCluster) -> Vec<String> {
    world.restart();
    let before = world.effects.len();
    world.pods("web", 3, 7_000, &json!({}));
    world.pass(4_000);
    let new = world.effects.get(before..).unwrap();
    let new = new.iter().filter_map(|(_, effect)| match &**effect {
        Effect::CreateClaim(claim) => Some(claim.name().to_string()),
        _ => None,
    });
    new.collect()
}

#[test]
fn names_do_not_repeat_when_a_process_is_started_again_with_the_same_seed() {
    let mut world = ordinary_cluster();
    world.automation.no_capacity = true;
    let mut all = std::collections::BTreeSet::new();
    for life in 0..5 {
        let names = names_of_a_life(&mut world);
        assert!(!names.is_empty());
        for name in names {
            assert!(all.insert(name.clone()), "{name} again, in life {life}");
        }
        for pod in world.names("Pod") {
            world.erase(&format!("Pod/{pod}"));
        }
        world.pass(10_000);
    }
}
