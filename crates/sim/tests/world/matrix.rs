//! Something goes wrong around every step of nodes' lives, in an order that chance makes.

use std::sync::atomic::{AtomicU64, Ordering};

use mortise_apis::values::SplitMix64;
use mortise_engine::lifecycle_step::LifecycleStep;
use mortise_sim::{Deployment, Fault, FaultTarget, Options, Simulation};
use mortise_state::resource_kinds::ObjectKey;
use serde_json::json;

use super::{left, options, stuck, template};

/// Longest virtual time until a step comes by, in milliseconds.
const PATIENCE_MS: i64 = 12 * 60 * 60_000;
/// How often the pool's template is edited while a node is to be replaced, in milliseconds.
const EDIT_MS: i64 = 15 * 60_000;

/// A small cluster in which every step comes by again and again: workloads that swing, one that must not be disrupted on
/// machines that the cloud takes back, a grace period that ends.
fn small(seed: u64) -> Options {
    let mut options = options(seed);
    let mut pinned = template("pinned", "1", "1Gi");
    pinned["metadata"]["annotations"] = json!({ "karpenter.sh/do-not-disrupt": "true" });
    options.deployments = vec![
        Deployment {
            name: "web".to_owned(),
            template: template("web", "1500m", "3Gi"),
            low: 1,
            high: 9,
            period_s: 600,
            max_unavailable: Some(2),
        },
        Deployment {
            name: "pinned".to_owned(),
            template: pinned,
            low: 2,
            high: 2,
            period_s: 0,
            max_unavailable: None,
        },
    ];
    options.jobs.clear();
    options.interruption_every_s = 180;
    options.pools[0]["spec"]["template"]["spec"]["terminationGracePeriod"] = json!("60s");
    options
}

/// Steps that do not come by here. Only a claim that a person made lacks the finalizer at its birth; and that a node has
/// drained is told with the answer of the cloud that is to end its machine, which comes within a second.
const MISSING: [LifecycleStep; 2] = [
    LifecycleStep::AddClaimFinalizer,
    LifecycleStep::WriteDrained,
];

/// Every step with every fault, in the order that the seed makes.
fn shuffled(faults: [Fault; 2], rng: &mut SplitMix64) -> Vec<(LifecycleStep, Fault)> {
    let mut points: Vec<(LifecycleStep, Fault)> = LifecycleStep::ALL
        .into_iter()
        .filter(|step| !MISSING.contains(step))
        .flat_map(|step| faults.map(|fault| (step, fault)))
        .collect();
    for end in (1..points.len()).rev() {
        let other = usize::try_from(rng.below(end as u64 + 1)).unwrap();
        points.swap(end, other);
    }
    points
}

/// Somebody edits the pool's template: its nodes have drifted, and those with pods that fit nowhere else are replaced.
fn edit_template(simulation: &mut Simulation) {
    let labels = json!({ "edited": simulation.now().as_second().to_string() });
    let edit = json!({ "spec": { "template": { "metadata": { "labels": labels } } } });
    simulation
        .edit(&ObjectKey::Pool("general".into()), edit)
        .unwrap();
}

/// What is played.
pub(crate) struct Matrix {
    pub(crate) seed: u64,
    /// What goes wrong around each step.
    pub(crate) faults: [Fault; 2],
    /// Processes of the service.
    pub(crate) replicas: usize,
}

/// Plays it; what is wrong at its end.
fn play(matrix: &Matrix) -> Vec<String> {
    let mut rng = SplitMix64::new(matrix.seed);
    let mut simulation = Simulation::new(small(matrix.seed), mortise_deciders::all());
    for _ in 1..matrix.replicas {
        simulation.add_replica(mortise_deciders::all());
    }
    for (step, fault) in shuffled(matrix.faults, &mut rng) {
        simulation.disturb(
            FaultTarget::Step(step),
            rng.below(3),
            fault,
            mortise_deciders::all(),
        );
        let begin = simulation.now();
        let mut edited = None;
        while !simulation.is_undisturbed() {
            let now = simulation.now();
            if mortise_apis::values::since(now, begin) > PATIENCE_MS {
                return vec![format!("no {} in half a day", step.name())];
            }
            // What is empty goes without a replacement, and all else goes by itself.
            let is_due = edited.is_none_or(|at| mortise_apis::values::since(now, at) >= EDIT_MS);
            if step == LifecycleStep::MarkNode && is_due {
                edit_template(&mut simulation);
                edited = Some(now);
            }
            simulation.run_until(mortise_apis::values::after(simulation.now(), 5_000));
        }
    }
    let rest = |simulation: &mut Simulation, minutes: i64| {
        simulation.run_until(mortise_apis::values::after(
            simulation.now(),
            minutes * 60_000,
        ));
    };
    rest(&mut simulation, 6);
    let mut wrong: Vec<String> = stuck(&mut simulation)
        .into_iter()
        .map(|pod| format!("{pod} found no place"))
        .collect();
    simulation.apply_scale(0);
    rest(&mut simulation, 20);
    wrong.extend(
        left(&simulation)
            .into_iter()
            .map(|each| format!("{each} is left")),
    );
    wrong.extend(simulation.stats().violations);
    wrong
}

/// Plays the seeds that the environment variable asks for, or so many.
pub(crate) fn play_seeds(variable: &str, seeds: u64, matrix: impl Fn(u64) -> Matrix + Sync) {
    each_seed(variable, seeds, |seed| play(&matrix(seed)));
}

/// Asks about each of the seeds that the environment variable asks for, or so many, what is wrong at its end.
pub(crate) fn each_seed(variable: &str, seeds: u64, play: impl Fn(u64) -> Vec<String> + Sync) {
    let given = std::env::var(variable).ok();
    let (first, seeds): (u64, u64) = match given.as_deref().map(|text| text.split_once('-')) {
        Some(Some((first, last))) => (first.parse().unwrap(), last.parse().unwrap()),
        Some(None) => (1, given.unwrap().parse().unwrap()),
        None => (1, seeds),
    };
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut failed = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > seeds {
                return failed;
            }
            let wrong = play(seed);
            if !wrong.is_empty() {
                failed.push(format!("seed {seed}: {}", wrong.join("; ")));
            }
        }
    };
    let failed: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let results = workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap());
        results.collect()
    });
    assert!(
        failed.is_empty(),
        "{} of the seeds {first} to {seeds} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
}
