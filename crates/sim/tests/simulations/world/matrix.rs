//! Faults around every lifecycle step of nodes, in random order.

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::values::SplitMix64;
use mortise_cloudprovider::LaunchWindow;
use mortise_engine::write::lifecycle_step::LifecycleStep;
use mortise_planning::settings::LaunchBatching;
use mortise_sim::{Deployment, Fault, FaultTarget, SimOptions, Simulation};
use mortise_state::resource_kinds::ObjectKey;
use serde_json::json;

use super::seeds::{Seeds, Steps, each_seed};
use super::{left, options, stuck, template};

/// Maximum virtual time until a step occurs, in milliseconds.
const PATIENCE_MS: i64 = 12 * 60 * 60_000;
/// How long launches wait for others of the same call, as those of EC2.
const WINDOW: LaunchWindow = LaunchWindow {
    quiet_ms: 35,
    longest_ms: 1_000,
    most: 500,
};
/// Interval of edits of the NodePool's template while a node must be replaced, in milliseconds.
const EDIT_MS: i64 = 15 * 60_000;
/// On-demand nodes that are paid for in advance, where any are.
const PAID: usize = 3;
/// After a crash between the launch of a replacement and the fence of what it replaces, both run. One of them goes within this time, in
/// milliseconds.
const DOUBLED_MS: i64 = 5 * 60_000;
/// A step that does not occur for this long is helped by the deletion of the oldest Node, in milliseconds.
const DELETE_MS: i64 = 2 * 60 * 60_000;

/// A small cluster in which every step occurs repeatedly: oscillating workloads, one that must not be disrupted on instances
/// that are interrupted, a grace period that expires.
fn small(seed: u64) -> SimOptions {
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

/// In every fourth seed on-demand nodes are paid for in advance. Spot capacity never runs short there: no further node is on-demand.
fn pay_in_advance(options: &mut SimOptions) {
    options.shortage_per_mille = 0;
    let policy = json!({
        "apiVersion": "mortise.sh/v1alpha1", "kind": "NodePoolPolicy", "metadata": { "name": "paid", "generation": 1 },
        "spec": { "nodePools": ["general"], "commitments": [{ "name": "ri", "instances": PAID }] },
    });
    options
        .others
        .push((ObjectKey::Policy("paid".into()), policy));
}

/// What on-demand nodes there were.
#[derive(Default)]
struct OnDemandNodes {
    most: usize,
    /// Since when more run than are paid for.
    beyond_since: Option<Timestamp>,
    /// More ran for too long.
    found: Vec<String>,
}

impl OnDemandNodes {
    fn check(&mut self, simulation: &mut Simulation) {
        let (count, now) = (on_demand_nodes(simulation), simulation.now());
        self.most = self.most.max(count);
        if count <= PAID {
            self.beyond_since = None;
            return;
        }
        let from = *self.beyond_since.get_or_insert(now);
        if mortise_apis::values::since(now, from) > DOUBLED_MS {
            self.beyond_since = Some(now);
            self.found.push(format!(
                "{PAID} nodes are paid for in advance, and {count} are on-demand at {now}"
            ));
        }
    }
}

/// On-demand nodes that stay.
fn on_demand_nodes(simulation: &mut Simulation) -> usize {
    let snapshot = simulation.snapshot();
    let claims = snapshot.claims.values().filter(|claim| {
        claim.metadata.deletion_timestamp.is_none()
            && snapshot.ledger.fence(&claim.name()).is_none()
            && claim.label(labels::CAPACITY_TYPE) == Some("on-demand")
    });
    claims.count()
}

/// Steps that do not occur here. Only a claim that a user created lacks the finalizer; and the condition that a node is drained
/// is written with the response of the cloud that terminates its instance, which arrives within a second.
const MISSING: [LifecycleStep; 2] = [
    LifecycleStep::AddClaimFinalizer,
    LifecycleStep::WriteDrained,
];

/// Every step with every fault, in the order of the seed.
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

/// Edits the template of the NodePool: its nodes drift, and those with pods that fit nowhere else are replaced.
fn edit_template(simulation: &mut Simulation) {
    let labels = json!({ "edited": simulation.now().as_second().to_string() });
    let edit = json!({ "spec": { "template": { "metadata": { "labels": labels } } } });
    simulation
        .edit(&ObjectKey::Pool("general".into()), edit)
        .unwrap();
}

/// A run of the matrix.
pub(crate) struct Matrix {
    pub(crate) seed: u64,
    /// Faults around each step.
    pub(crate) faults: [Fault; 2],
    /// Replicas of the service.
    pub(crate) replicas: usize,
    /// Launches of the same shape are one call.
    pub(crate) is_batched: bool,
}

/// Runs it; returns the violations.
fn play(matrix: &Matrix, steps: &mut Steps) -> Vec<String> {
    let mut rng = SplitMix64::new(matrix.seed);
    let mut options = small(matrix.seed);
    if matrix.is_batched {
        options.settings.launch_batching = vec![LaunchBatching {
            serves: ServedNodeClasses::All,
            window: WINDOW,
        }];
    }
    options.settings.pod_deletion_costs = matrix.seed.is_multiple_of(3);
    let are_paid = matrix.seed % 4 == 1;
    if are_paid {
        pay_in_advance(&mut options);
    }
    let mut on_demand = OnDemandNodes::default();
    let mut simulation = Simulation::new(options, mortise_deciders::all());
    for _ in 1..matrix.replicas {
        simulation.add_replica(mortise_deciders::all());
    }
    for (step, fault) in shuffled(matrix.faults, &mut rng) {
        let skip = rng.below(3);
        if !steps.take(|| format!("{fault:?} at {}, {skip} skipped", step.name())) {
            continue;
        }
        simulation.disturb(
            FaultTarget::Step(step),
            skip,
            fault,
            mortise_deciders::all(),
        );
        let begin = simulation.now();
        let (mut edited, mut deletions) = (None, 1);
        while !simulation.is_undisturbed() {
            let now = simulation.now();
            if mortise_apis::values::since(now, begin) > PATIENCE_MS {
                return vec![format!("no {} in half a day", step.name())];
            }
            // Where the protected pods are on an instance that the cloud does not interrupt, a user deletes its Node.
            let waited = mortise_apis::values::since(now, begin);
            if waited >= deletions * DELETE_MS {
                deletions += 1;
                simulation.delete_nodes("general", 1);
            }
            // Empty nodes are deleted without a replacement; all other steps occur without an edit.
            let is_due = edited.is_none_or(|at| mortise_apis::values::since(now, at) >= EDIT_MS);
            if step == LifecycleStep::MarkNode && is_due {
                edit_template(&mut simulation);
                edited = Some(now);
            }
            simulation.run_until(mortise_apis::values::after(simulation.now(), 5_000));
            if are_paid {
                on_demand.check(&mut simulation);
            }
        }
    }
    let rest = |simulation: &mut Simulation, minutes: i64| {
        simulation.run_until(mortise_apis::values::after(
            simulation.now(),
            minutes * 60_000,
        ));
    };
    rest(&mut simulation, 6);
    let mut violations: Vec<String> = stuck(&mut simulation)
        .into_iter()
        .map(|pod| format!("{pod} is pending"))
        .collect();
    simulation.apply_scale(0);
    rest(&mut simulation, 20);
    violations.extend(
        left(&simulation)
            .into_iter()
            .map(|each| format!("{each} is left")),
    );
    violations.extend(simulation.stats().violations);
    violations.extend(on_demand.found);
    if are_paid && steps.are_all() && on_demand.most < PAID {
        violations.push(format!(
            "{PAID} nodes are paid for in advance, and {} were on-demand",
            on_demand.most
        ));
    }
    violations
}

/// Plays the matrix of each seed.
pub(crate) fn play_seeds(seeds: &Seeds, matrix: impl Fn(u64) -> Matrix + Sync) {
    each_seed(seeds, |seed, steps| play(&matrix(seed), steps));
}
