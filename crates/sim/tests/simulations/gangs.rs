//! Gangs that come at random: each runs whole, none waits while there may be room for it, and no node is launched that no plan needs.
//!
//! A gang is a Job whose pods name a PodGroup of coscheduling. The scheduler of the simulator binds its pods together or not at all.
//!
//! `MORTISE_GANG_SEEDS=50` runs that many seeds instead of the default; `MORTISE_GANG_SEEDS=17-17` runs one. With `--nocapture` each
//! prints its figures.
//!
//! # Nodes that are needed
//! What a plan with full knowledge launches: when the last pod of a gang is there, one solve of all pods that wait, over the nodes that
//! are there and that are on their way. What it launches beyond the nodes that are needed for gangs before, and that are not launched
//! yet, is needed for this gang. The sum over all gangs is compared with the instances that were launched; those that
//! take the place of others, in consolidation, are counted apart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mortise_apis::names::NamespacedName;
use mortise_apis::values::{SplitMix64, after, since};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::write::lifecycle_step::LifecycleStep;
use mortise_planning::scheduling::{REPACK, SolveOptions, solve};
use mortise_planning::settings::Settings;
use mortise_sim::{Fault, FaultTarget, Job, JobArrival, SimOptions, Simulation, Workloads};
use mortise_state::resource_kinds::ObjectKey;
use mortise_state::snapshot::{GangKey, GangKind, Pod, Snapshot};
use serde_json::json;

use crate::world::extender::ProductionExtender;
use crate::world::seeds::{Seeds, Steps, each_seed};
use crate::world::{left, minutes, quiet, start, template};

/// Default number of seeds.
const SEEDS: u64 = 2;
/// Gangs of a seed.
const GANGS: usize = 100;
/// They come within this time, on average.
const COME_S: i64 = 3_600;
/// Pods are created at each second. The cluster is read after this time, in milliseconds: the service knows them then, and the scheduler
/// has not said yet that there is no room for them.
const LOOK_MS: i64 = 7;
/// Virtual time after which all gangs have run, in milliseconds.
const PATIENCE_MS: i64 = 12 * 3_600_000;

/// A gang of a seed.
struct Arrival {
    name: String,
    pods: u32,
    cpu: &'static str,
    after_ms: i64,
    run_s: i64,
}

/// Of ten gangs one has up to 64 pods, the others up to 16.
fn arrivals(rng: &mut SplitMix64, steps: &mut Steps) -> Vec<Arrival> {
    let mut at_ms = 0;
    let mut all = Vec::new();
    for nth in 0..GANGS {
        at_ms += rng.between(0, 2 * COME_S * 1_000 / 100);
        let most = if rng.below(10) == 0 { 63 } else { 15 };
        let arrival = Arrival {
            name: format!("gang-{nth:02}"),
            pods: u32::try_from(2 + rng.below(most)).unwrap(),
            cpu: ["500m", "1500m", "3", "6"][usize::try_from(rng.below(4)).unwrap()],
            after_ms: at_ms,
            run_s: rng.between(120, 900),
        };
        let Arrival {
            name, pods, cpu, ..
        } = &arrival;
        if steps.take(|| format!("{name} of {pods} pods of {cpu} CPUs after {at_ms} ms")) {
            all.push(arrival);
        }
    }
    all
}

/// The small cluster with these gangs alone. Their pods may not be moved: a gang that loses some starts from its last checkpoint.
fn options(seed: u64, gangs: &[Arrival]) -> SimOptions {
    let mut options = quiet(seed);
    options.settings.gangs.insert(GangKind::Coscheduling);
    options.deployments.clear();
    options.catalog.retain(|each| &*each.name != "t32");
    // Room for one of the largest, or for all.
    let cpu = if seed.is_multiple_of(2) {
        "600"
    } else {
        "4000"
    };
    options.pools[0]["spec"]["limits"] = json!({ "cpu": cpu });
    options.others = gangs
        .iter()
        .map(|gang| {
            let key = NamespacedName::new("default", gang.name.as_str());
            let group = json!({
                "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
                "metadata": { "name": gang.name, "namespace": "default" },
                "spec": { "minMember": gang.pods },
            });
            (ObjectKey::CoschedulingPodGroup(key), group)
        })
        .collect();
    let jobs = gangs.iter().map(|gang| JobArrival {
        after_ms: gang.after_ms,
        job: job(gang),
    });
    options.workloads = Workloads {
        arrivals: jobs.collect(),
        ..Workloads::default()
    };
    options
}

fn job(gang: &Arrival) -> Job {
    let mut template = template(&gang.name, gang.cpu, "1Gi");
    template["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = json!(gang.name);
    template["metadata"]["annotations"] = json!({ "karpenter.sh/do-not-disrupt": "true" });
    Job {
        name: gang.name.clone(),
        template,
        completions: gang.pods,
        parallelism: gang.pods,
        run_ms: gang.run_s * 1_000,
    }
}

/// Counts the nodes that gangs need.
#[derive(Default)]
struct NeededNodes {
    /// By gang: nodes that are needed for it beyond those for others before.
    of_gang: BTreeMap<String, usize>,
    /// The cluster at the last look.
    before: Option<Arc<Snapshot>>,
}

impl NeededNodes {
    /// Counts those of gangs whose last pod has come since the last look.
    fn look(&mut self, gangs: &[Arrival], simulation: &mut Simulation) {
        let snapshot = simulation.snapshot();
        let before = self.before.replace(Arc::clone(&snapshot));
        let passed = since(simulation.now(), start());
        let came: Vec<&Arrival> = gangs
            .iter()
            .take_while(|gang| gang.after_ms <= passed)
            .filter(|gang| !self.of_gang.contains_key(&gang.name))
            .filter(|gang| members(&snapshot, gang).count() == usize::try_from(gang.pods).unwrap())
            .collect();
        if came.is_empty() {
            return;
        }
        // It waits, and nothing is planned for it yet.
        let is_open = |gang: &&Arrival| {
            let is_waiting = |pod: &Arc<Pod>| {
                pod.node.is_none() && snapshot.ledger.nomination(&pod.uid).is_none()
            };
            let mut pods = members(&snapshot, gang).peekable();
            pods.peek().is_some() && pods.all(is_waiting)
        };
        let extra = gangs.iter().filter(|gang| {
            let is_known = self.of_gang.contains_key(&gang.name);
            let is_new = came.iter().any(|each| each.name == gang.name);
            is_new || (is_known && is_open(gang))
        });
        let extra = extra
            .flat_map(|gang| members(&snapshot, gang).cloned())
            .collect();
        let mut settings = Settings::default();
        settings.gangs.insert(GangKind::Coscheduling);
        let mut options = SolveOptions {
            extra,
            closed: snapshot.fenced_nodes(),
            repack: REPACK,
            split: true,
            ..settings.solve_options()
        };
        // A pass that was due at this moment has planned it at once: then it is asked what the room of a second ago would need.
        let is_planned = !came.iter().all(is_open);
        let room = before.filter(|_| is_planned);
        let room = room.as_ref().unwrap_or(&snapshot);
        if is_planned {
            // Of its pods some did not exist then.
            options.gangs.clear();
        }
        let (plan, _) = solve(simulation.now(), room, &options, &|| false);
        // What was counted for gangs that are not planned yet is launched with this one's.
        let open = gangs.iter().filter(is_open);
        let open = open.filter_map(|gang| self.of_gang.get(&gang.name));
        let new = plan.claims.len().saturating_sub(open.sum());
        // Of several that came at one time, the first has all of it.
        for (nth, gang) in came.into_iter().enumerate() {
            let needed = if nth == 0 { new } else { 0 };
            self.of_gang.insert(gang.name.clone(), needed);
        }
    }

    fn all(&self) -> usize {
        self.of_gang.values().sum()
    }
}

/// The pods of a gang that exist.
fn members<'s>(snapshot: &'s Snapshot, gang: &Arrival) -> impl Iterator<Item = &'s Arc<Pod>> {
    let key = GangKey {
        kind: GangKind::Coscheduling,
        group: NamespacedName::new("default", gang.name.as_str()),
    };
    let keys: Vec<_> = snapshot.gangs.members(&key).cloned().collect();
    keys.into_iter().filter_map(|key| snapshot.pods.get(&key))
}

/// Steps around which every third seed kills the service.
const CRASHES: [LifecycleStep; 3] = [
    LifecycleStep::CreateClaim,
    LifecycleStep::Launch,
    LifecycleStep::WriteRegistered,
];

/// Totals of all seeds that have room for all gangs.
#[derive(Debug, Default)]
struct Figures {
    needed: usize,
    launched: usize,
    replaced: usize,
    /// What each seed gave, also those without room.
    of_seeds: Vec<String>,
}

/// Runs a seed; returns the violations.
fn play(seed: u64, steps: &mut Steps, figures: &Mutex<Figures>) -> Vec<String> {
    let mut rng = SplitMix64::new(seed);
    let gangs = arrivals(&mut rng, steps);
    let mut simulation = Simulation::new(options(seed, &gangs), mortise_deciders::all());
    // Without it, the scheduler gives the room of a gang whose nodes come one after another to gangs that come later.
    simulation.set_extender(Box::new(ProductionExtender::default()));
    let mut needed = NeededNodes::default();
    let (mut replaced, mut nth) = (0, 0);
    let is_running = |simulation: &Simulation| {
        let last = gangs.last().map_or(0, |gang| gang.after_ms);
        since(simulation.now(), start()) <= last || has_pods(simulation)
    };
    while is_running(&simulation) && since(simulation.now(), start()) < PATIENCE_MS {
        if seed % 3 == 2 && rng.below(240) == 0 {
            let step = CRASHES[usize::try_from(rng.below(3)).unwrap()];
            let fault =
                [Fault::CrashBefore, Fault::CrashAfter][usize::try_from(rng.below(2)).unwrap()];
            let deciders = mortise_deciders::all();
            simulation.disturb(FaultTarget::Step(step), rng.below(4), fault, deciders);
        }
        let second = after(start(), nth * 1_000);
        nth += 1;
        simulation.run_until(after(second, LOOK_MS));
        needed.look(&gangs, &mut simulation);
        let commands = simulation.take_commands();
        replaced += commands
            .iter()
            .map(|command| command.moves.claims.len())
            .sum::<usize>();
        drop(simulation.take_records());
        drop(simulation.take_events());
    }
    let mut violations = simulation.stats().violations;
    let scores = simulation.scores();
    if scores.gangs != gangs.len() as u64 || has_pods(&simulation) {
        violations.push(format!("{} of {} gangs ran", scores.gangs, gangs.len()));
    }
    simulation.run_until(after(simulation.now(), 20 * 60_000));
    violations.extend(
        left(&simulation)
            .into_iter()
            .map(|each| format!("{each} is left")),
    );
    let launched = usize::try_from(scores.nodes_launched).unwrap();
    let (needed, waited) = (needed.all(), scores.gang_wait_s);
    let mut figures = figures.lock().unwrap();
    figures.of_seeds.push(format!(
        "seed {seed}: {} gangs, {needed} nodes needed, {launched} launched, {replaced} of them for others; gangs waited {waited:?}",
        gangs.len()
    ));
    let has_room = !seed.is_multiple_of(2);
    if has_room {
        figures.needed += needed;
        figures.launched += launched;
        figures.replaced += replaced;
    }
    violations
}

fn has_pods(simulation: &Simulation) -> bool {
    let mut keys = simulation.api_server().iter().map(|(key, _)| key);
    keys.any(|key| matches!(key, ObjectKey::Pod(pod) if pod.name.starts_with("gang-")))
}

#[test]
fn gangs_that_come_at_random_run_whole_on_the_nodes_that_they_need() {
    let seeds = Seeds {
        variable: "MORTISE_GANG_SEEDS",
        usual: SEEDS,
        test: "gangs",
    };
    let figures = Mutex::default();
    each_seed(&seeds, |seed, steps| play(seed, steps, &figures));
    let figures = figures.into_inner().unwrap();
    let Figures {
        needed,
        launched,
        replaced,
        of_seeds,
    } = figures;
    println!(
        "{}\nwith room for all: {needed} nodes needed, {launched} launched, {replaced} of them for others",
        of_seeds.join("\n")
    );
    assert!(
        (launched - replaced) * 100 <= needed * 102,
        "{launched} nodes were launched, {replaced} of them for others, and {needed} are needed"
    );
}

/// Eight pods of six CPUs at the start, which run for an hour.
fn one_gang() -> Vec<Arrival> {
    vec![Arrival {
        name: "gang-0".to_owned(),
        pods: 8,
        cpu: "6",
        after_ms: 0,
        run_s: 3_600,
    }]
}

/// What is violated within these minutes.
fn violated(mut simulation: Simulation, within: i64) -> Vec<String> {
    simulation.run_until(minutes(within));
    simulation.stats().violations
}

#[test]
fn a_gang_waits_until_all_its_pods_have_a_node() {
    let mut simulation = Simulation::new(options(1, &one_gang()), mortise_deciders::all());
    let mut bound = std::collections::BTreeSet::new();
    while since(simulation.now(), start()) < 300_000 {
        simulation.run_until(after(simulation.now(), 100));
        let snapshot = simulation.snapshot();
        let pods = snapshot.pods.values().filter(|pod| pod.gang.is_some());
        bound.insert(pods.filter(|pod| pod.node.is_some()).count());
    }
    assert_eq!(bound, [0, 8].into());
    let scores = simulation.scores();
    assert_eq!(scores.gangs, 1);
    assert!((15..90).contains(&scores.gang_wait_s.most), "{scores:?}");
    assert_eq!(simulation.stats().violations, Vec::<String>::new());
}

#[test]
fn a_scheduler_that_binds_a_part_of_a_gang_is_reported() {
    let mut simulation = Simulation::new(options(1, &one_gang()), mortise_deciders::all());
    simulation.bind_gangs_one_by_one(true);
    let violations = violated(simulation, 10);
    let is_meant = |text: &String| text.ends_with("gang default/gang-0 runs in part");
    assert!(violations.iter().any(is_meant), "{violations:?}");
}

#[test]
fn a_service_that_launches_nodes_for_a_part_of_a_gang_is_reported() {
    let mut options = options(1, &one_gang());
    // It knows nothing of gangs, and may launch nodes for four pods.
    options.settings.gangs.clear();
    options.pools[0]["spec"]["limits"] = json!({ "cpu": "32" });
    let violations = violated(Simulation::new(options, mortise_deciders::all()), 30);
    let is_meant =
        |text: &String| text.ends_with("gang default/gang-0 has room for a part of its pods");
    assert!(violations.iter().any(is_meant), "{violations:?}");
}

#[test]
fn a_gang_that_is_left_waiting_is_reported_if_there_may_be_room() {
    let left_waiting = |limit: &str| {
        let mut options = options(1, &one_gang());
        options.pools[0]["spec"]["limits"] = json!({ "cpu": limit });
        // Nothing is launched.
        let mut deciders = mortise_deciders::all();
        deciders.retain(|decider| decider.id() != DeciderId::Provisioning);
        let violations = violated(Simulation::new(options, deciders), 30);
        let is_meant =
            |text: &String| text.ends_with("gang default/gang-0 waits although there may be room");
        violations.iter().any(is_meant)
    };
    assert!(left_waiting("100"));
    assert!(!left_waiting("32"));
}
