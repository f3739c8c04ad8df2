//! Pods with every kind of constraint between pods are created one after the other, in random order and at random times, while
//! nodes boot: no pod stays pending, and the invariants of [`mortise_sim`] hold all the time.
//!
//! `MORTISE_ARRIVAL_SEEDS=10000` runs that many seeds instead of the default; `MORTISE_ARRIVAL_SEEDS=17-17` runs
//! one.

use crate::world::seeds::{Seeds, Steps, each_seed};
use crate::world::{options, stuck, template};
use mortise_apis::labels;
use mortise_apis::values::SplitMix64;
use mortise_sim::{Deployment, SimOptions, Simulation};
use serde_json::{Value, json};

/// Default number of seeds.
const SEEDS: u64 = 150;
/// Workloads of a seed, and pods of each.
const WORKLOADS: u64 = 6;
const REPLICAS: u64 = 4;
/// Nodes boot within three minutes; a shortage may take as long again.
const PATIENCE_MS: i64 = 8 * 60_000;

/// A constraint between pods that can always be satisfied: two zones, and as many nodes as necessary.
fn constraint(kind: u64, app: &str, other: &str) -> Value {
    let of = |app: &str| json!({ "matchLabels": { "app": app } });
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let term = |app: &str, key: &str| json!({ "labelSelector": of(app), "topologyKey": key });
    let spread = |key: &str, when: &str| json!({ "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": of(app) }] });
    match kind {
        0 => {
            json!({ "affinity": { "podAntiAffinity": { required: [term(app, labels::HOSTNAME)] } } })
        }
        1 => spread(labels::TOPOLOGY_ZONE, "DoNotSchedule"),
        2 => spread(labels::HOSTNAME, "DoNotSchedule"),
        3 => {
            json!({ "affinity": { "podAffinity": { required: [term(app, labels::TOPOLOGY_ZONE)] } } })
        }
        4 => {
            json!({ "affinity": { "podAffinity": { required: [term(other, labels::TOPOLOGY_ZONE)] } } })
        }
        5 => {
            json!({ "affinity": { "podAntiAffinity": { required: [term(other, labels::HOSTNAME)] } } })
        }
        6 => spread(labels::TOPOLOGY_ZONE, "ScheduleAnyway"),
        _ => json!({}),
    }
}

fn random_options(seed: u64, rng: &mut SplitMix64) -> SimOptions {
    let name = |at: u64| format!("d{at}");
    let deployment = |at: u64, rng: &mut SplitMix64| {
        let cpu = ["100m", "500m", "1500m"][usize::try_from(rng.below(3)).unwrap()];
        let mut template = template(&name(at), cpu, "256Mi");
        // The pod that an affinity term selects has no term of its own: a cycle could never start.
        let kind = if at == 0 { 7 } else { rng.below(8) };
        let constraint = constraint(kind, &name(at), &name(0));
        let spec = template["spec"].as_object_mut().unwrap();
        spec.extend(constraint.as_object().unwrap().clone());
        Deployment {
            name: name(at),
            template,
            low: 0,
            high: 0,
            period_s: 0,
            max_unavailable: None,
        }
    };
    let deployments = (0..WORKLOADS).map(|at| deployment(at, rng)).collect();
    SimOptions {
        deployments,
        jobs: Vec::new(),
        others: Vec::new(),
        interruption_every_s: 0,
        ..options(seed)
    }
}

/// Runs a seed; returns the violations.
fn play(seed: u64, steps: &mut Steps) -> Vec<String> {
    let mut rng = SplitMix64::new(seed);
    let options = random_options(seed, &mut rng);
    let mut simulation = Simulation::new(options, mortise_deciders::all());
    let mut sizes = vec![0; usize::try_from(WORKLOADS).unwrap()];
    // The selected pod is created first, once; all others in random order.
    let mut order: Vec<usize> = vec![0];
    let mut rest: Vec<usize> = (0..WORKLOADS * REPLICAS - 1)
        .map(|at| usize::try_from((at + 1) % WORKLOADS).unwrap())
        .collect();
    for end in (1..rest.len()).rev() {
        rest.swap(end, usize::try_from(rng.below(end as u64 + 1)).unwrap());
    }
    order.extend(rest);
    let pause = [500, 2_000, 15_000][usize::try_from(rng.below(3)).unwrap()];
    for at in order {
        let ms = rng.between(0, pause);
        if !steps.take(|| format!("one more pod of d{at}, then {ms} ms")) {
            continue;
        }
        sizes[at] += 1;
        simulation.scale(&format!("d{at}"), sizes[at]);
        simulation.run_until(mortise_apis::values::after(simulation.now(), ms));
    }
    simulation.run_until(mortise_apis::values::after(simulation.now(), PATIENCE_MS));
    // Consolidation moves pods at any time, so some may be pending at the end, but none for longer than a node takes to boot.
    let mut violations: Vec<String> = stuck(&mut simulation)
        .into_iter()
        .map(|pod| format!("{pod} is pending"))
        .collect();
    let snapshot = simulation.snapshot();
    let workload_pods = snapshot.pods.values().filter(|pod| !pod.is_daemon());
    let count = u64::try_from(workload_pods.count()).unwrap();
    if count != sizes.iter().map(|size| u64::from(*size)).sum::<u64>() {
        violations.push(format!("there are {count} pods"));
    }
    violations.extend(simulation.stats().violations);
    violations
}

#[test]
fn all_pods_that_arrive_one_after_the_other_are_scheduled() {
    let seeds = Seeds {
        variable: "MORTISE_ARRIVAL_SEEDS",
        usual: SEEDS,
        test: "arrivals",
    };
    each_seed(&seeds, play);
}

#[test]
fn a_failing_seed_is_shrunk_to_the_steps_that_are_enough() {
    let failed = std::panic::catch_unwind(|| {
        let seeds = Seeds {
            variable: "MORTISE_SHRUNK_SEEDS",
            usual: 3,
            test: "arrivals",
        };
        each_seed(&seeds, |seed, steps| {
            let mut taken = [6, 7, 8, 9].map(|step| steps.take(|| format!("step {step}")));
            taken[3] = true;
            let fails = seed == 2 && taken[1];
            fails
                .then(|| "a violation".to_owned())
                .into_iter()
                .collect()
        });
    });
    let text = failed.unwrap_err();
    let text = text.downcast_ref::<String>().unwrap();
    assert!(
        text.contains("seed 2 fails with 1 of 4 steps:\n  1: step 7\n"),
        "{text}"
    );
    assert!(
        text.contains("MORTISE_STEPS=1 MORTISE_SHRUNK_SEEDS=2-2 cargo test"),
        "{text}"
    );
}
