//! Groups of nodes that are replaced by several cheaper ones: stories, and random clusters against every set of their nodes.

use std::collections::BTreeMap;

use crate::automatic_cluster::{automatic_cluster, plan};
use mortise_apis::values::SplitMix64;
use mortise_planning::context::PlanningContext;
use mortise_planning::disruption::candidate::{Candidate, DisruptionClass};
use mortise_planning::disruption::disruption_view::DisruptionView;
use mortise_planning::disruption::search;
use mortise_planning::disruption::simulation::{SimulationRules, what_if};
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{TestCluster, instance_type, ordinary_types};
use serde_json::json;

const GPU: &str = "nvidia.com/gpu";

fn groups() -> Settings {
    Settings {
        consolidate_groups: true,
        ..Settings::default()
    }
}

fn run(world: &mut TestCluster, node: &str, cpu: i64, gpus: i64) {
    let amounts = json!({ "cpu": format!("{cpu}m"), "memory": format!("{cpu}Mi") });
    let mut requests = amounts;
    if gpus > 0 {
        requests[GPU] = json!(gpus.to_string());
    }
    let containers =
        json!([{ "name": "c", "resources": { "requests": requests, "limits": requests } }]);
    let running = json!({ "spec": { "nodeName": node, "containers": containers }, "status": { "phase": "Running" } });
    world.pods("web", 1, cpu, &running);
}

#[test]
fn a_big_node_is_split_when_two_smaller_ones_cost_less() {
    let mut world = automatic_cluster(ordinary_types(), groups());
    world.running_node("big", "large", "default");
    for cpu in [1_500, 1_500, 1_000, 1_000] {
        run(&mut world, "big", cpu, 0);
    }
    world.pass(10 * 60_000);
    assert_eq!(world.node_types(), ["medium", "small"]);
    assert_eq!(world.pending(), 0);
    let events = world.events_of("ConsolidationCandidate");
    assert!(!events.is_empty(), "the command is announced");
}

#[test]
fn what_saves_too_little_for_its_moves_stays() {
    // Two small nodes cost 195 instead of 200.
    let mut world = automatic_cluster(
        vec![
            instance_type("small", 2, &[("on-demand", 95)]),
            instance_type("medium", 4, &[("on-demand", 200)]),
        ],
        groups(),
    );
    world.running_node("one", "medium", "default");
    for cpu in [1_800, 1_800] {
        run(&mut world, "one", cpu, 0);
    }
    world.pass(20 * 60_000);
    assert_eq!(world.node_types(), ["medium"]);
}

#[test]
fn a_big_gpu_node_is_freed_of_pods_that_need_no_gpu() {
    let mut types = ordinary_types();
    for (name, cpus, gpus, price) in [("gpu-1", 4, 1, 800), ("gpu-4", 16, 4, 3_200)] {
        let mut of = instance_type(name, cpus, &[("on-demand", price)]);
        of.capacity = of.capacity.with(GPU, gpus);
        types.push(of);
    }
    let mut world = automatic_cluster(types, groups());
    world.running_node("big", "gpu-4", "default");
    run(&mut world, "big", 1_000, 1);
    for _ in 0..5 {
        run(&mut world, "big", 1_500, 0);
    }
    world.pass(20 * 60_000);
    let left = world.node_types();
    assert!(left.contains(&"gpu-1".to_owned()), "{left:?}");
    assert!(!left.contains(&"gpu-4".to_owned()), "{left:?}");
    assert!(world.bill() <= 1_300_000, "{} {left:?}", world.bill());
    assert_eq!(world.pending(), 0);
}

/// What the best command for any set of the nodes saves per hour, in millionths of a dollar.
fn best_of_every_set(context: PlanningContext<'_>) -> i64 {
    let none = BTreeMap::new();
    let view = DisruptionView::new(context, &none, None).without_bound();
    let all: Vec<Candidate> = view
        .nodes()
        .into_iter()
        .filter_map(|node| Candidate::new(node, &view, DisruptionClass::Graceful).ok())
        .filter(|each| {
            each.pods.is_empty() || search::eligible(each, &view, &BTreeMap::new()).is_ok()
        })
        .collect();
    let mut best = 0;
    for set in 1_usize..1 << all.len() {
        let chosen = all.iter().enumerate();
        let chosen: Vec<&Candidate> = chosen
            .filter(|(at, _)| set & (1 << at) != 0)
            .map(|(_, each)| each)
            .collect();
        for rules in [SimulationRules::Cheaper, SimulationRules::CheaperTogether] {
            if let Ok(moves) = what_if(&chosen, rules, &view, &|| false) {
                best = best.max(moves.savings().map_or(0, |saved| saved.0));
            }
        }
    }
    best
}

/// Few by default, because the core is built without optimisation; `PROPTEST_CASES` asks for more.
fn cases() -> u64 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(24)
}

/// A cluster of up to eight nodes of types whose prices per CPU differ, with pods of many sizes.
fn random_cluster(seed: u64) -> TestCluster {
    let mut random = SplitMix64::new(seed);
    let types = [(2, 110), (4, 190), (8, 400), (16, 720)];
    let names = ["small", "medium", "large", "huge"];
    let each = names.into_iter().zip(types);
    let types = each
        .clone()
        .map(|(name, (cpus, price))| instance_type(name, cpus, &[("on-demand", price)]));
    let mut world = automatic_cluster(types.collect(), groups());
    let nodes = 2 + random.below(7);
    for at in 0..nodes {
        let of = usize::try_from(random.below(4)).unwrap();
        let (name, (cpus, _)) = each.clone().nth(of).unwrap();
        let node = format!("n{at}");
        world.running_node(&node, name, "default");
        let mut free = cpus * 1_000;
        for _ in 0..random.below(7) {
            let cpu = i64::try_from(100 * (1 + random.below(40))).unwrap();
            if cpu <= free {
                free -= cpu;
                run(&mut world, &node, cpu, 0);
            }
        }
    }
    world
}

/// The most that a day of consolidation misses in these clusters, compared with the best single command at its start. Most of it is
/// not decided but comes of placement: this kube-scheduler asks no extender, so it may place relocated pods in another way than
/// planned, one of them finds no room, and its new node rests. Measured over 100 clusters: 11.8 % at worst, 1.0 % on average.
const MOST_MISSED_PERCENT: i64 = 20;

#[test]
fn no_command_for_any_set_of_nodes_beats_a_search_by_more_than_it_is_known_to_miss() {
    let (mut worst, mut gaps) = (0.0_f64, 0.0_f64);
    let mut beaten = Vec::new();
    for seed in 0..cases() {
        let mut world = random_cluster(seed);
        let before = world.bill();
        let best = plan(&mut world, best_of_every_set);
        world.pass(24 * 3_600_000);
        assert_eq!(world.pending(), 0, "seed {seed}");
        let after = world.bill();
        assert!(after <= before, "seed {seed}: {before} -> {after}");
        let least = before - best;
        #[expect(clippy::cast_precision_loss, reason = "for display")]
        let gap = (after - least) as f64 * 100.0 / least.max(1) as f64;
        worst = worst.max(gap);
        gaps += gap;
        if (after - least) * 100 > least * MOST_MISSED_PERCENT {
            beaten.push((seed, before, after, least));
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    let mean = gaps / cases() as f64;
    println!(
        "{} clusters: mean gap {mean:.2} %, worst {worst:.2} %",
        cases()
    );
    assert!(beaten.is_empty(), "seed, before, after, best: {beaten:?}");
    assert!(mean <= 3.0, "{mean:.2} %");
}
