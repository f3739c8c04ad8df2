//! Plans a set of pods: builds the input of a pass, runs it, and reads plan and report from it.

use std::collections::{BTreeMap, HashSet};

use foldhash::fast::FixedState;
use jiff::Timestamp;

use super::daemon_set_pods::DaemonSetPods;
use super::devices::Devices;
use super::equivalence_class::EquivalenceClasses;
use super::existing_node::{ExistingNodeQuery, SolveContext};
use super::gangs::GangDemands;
use super::in_flight_node_claim::FillOrder;
use super::launch_plan::PlanBuilder;
use super::narrowed_template::NarrowedTemplates;
use super::pass::{HostnameDomain, Pass, QueuedPod};
use super::placements::Placements;
use super::plan::{LaunchPlan, SolveOptions, SolveReport, Unplaced};
use super::pod_queue::PodQueue;
use super::pod_requirements::{PodRequirementsTable, TaintSets};
use super::pool_template::{self, PoolTemplate, UnusablePool};
use super::reasons::PassExplainer;
use super::relax::PreferencePolicy;
use super::repack::repack;
use super::reservations::Reservations;
use super::resource_vector::ResourceDimensions;
use super::topology::{Topology, TopologyGroupKey, TopologyKey};
use super::topology_counts::{TopologyCounts, inverse_anti_affinity, place_of};
use crate::reason::{Reason, SchedulingFailure};
use mortise_apis::names::Uid;
use mortise_apis::resources::Resources;
use mortise_apis::taints::PREFER_NO_SCHEDULE;
use mortise_state::snapshot::{Pod, Snapshot};

/// Places pods on existing nodes and on new NodeClaims.
///
/// The solver is an anytime algorithm: when `stop` returns true, the plan contains the placements made until then, the report
/// has `stopped` set, and pods that were not tried are in neither.
///
/// # Cost
/// One pass over the pods on nodes, then proportional to pods times (distinct) nodes that may still have capacity; some
/// microseconds per pod.
pub fn solve(
    now: Timestamp,
    snapshot: &Snapshot,
    options: &SolveOptions,
    stop: &dyn Fn() -> bool,
) -> (LaunchPlan, SolveReport) {
    let mut queue = PodQueue::new(now, snapshot, options);
    let mut gangs = GangDemands::take(&mut queue, snapshot, options);
    gangs.choose_domains(&mut queue, (snapshot, options), |queue| {
        solve_once(snapshot, options, queue, stop)
    });
    loop {
        let (mut plan, mut report) = solve_once(snapshot, options, &queue, stop);
        if report.stopped {
            gangs.strip(&queue, &mut plan, &report);
        } else if gangs.retry_without(&mut queue, &plan, &report) {
            continue;
        }
        gangs.report(snapshot, &mut report);
        return (plan, report);
    }
}

/// Places the pods of a queue one by one.
fn solve_once(
    snapshot: &Snapshot,
    options: &SolveOptions,
    queue: &PodQueue,
    stop: &dyn Fn() -> bool,
) -> (LaunchPlan, SolveReport) {
    let mut report = SolveReport {
        considered: queue.considered,
        ignored: queue.ignored.clone(),
        ..SolveReport::default()
    };
    if queue.pods.is_empty() {
        return (LaunchPlan::default(), report);
    }
    let uids: HashSet<&Uid, FixedState> = queue.pods.iter().map(|(pod, _)| &pod.uid).collect();
    let daemons = DaemonSetPods::from_snapshot(snapshot);
    let requests = queue.pods.iter().map(|(pod, _)| &pod.class.requests);
    let dimensions = ResourceDimensions::new(
        requests.chain(daemons.all().iter().map(|daemon| &daemon.class.requests)),
    );
    let best_effort = options.min_values_best_effort;
    let build = || pool_template::templates(snapshot, &daemons, &dimensions, best_effort);
    let (templates, unusable) = match &options.templates {
        Some(kept) => kept.templates(snapshot, &dimensions, best_effort, build),
        None => build(),
    };
    report.typeless = pool_template::typeless(&unusable);
    let context = SolveContext {
        snapshot,
        daemons: &daemons,
        dimensions: &dimensions,
        is_in_pass: &|uid| uids.contains(uid),
    };
    let mut pass = build_pass(&context, options, queue, templates);
    pass.run(stop);
    if options.repack > 0 && !pass.stopped {
        repack(&mut pass);
    }
    let (plan, dropped) = PlanBuilder::new(&pass).build();
    report.stopped = pass.stopped;
    report.broken = std::mem::take(&mut pass.placements.broken);
    let entrusted = pass.placements.entrusted.iter();
    report.entrusted = entrusted
        .map(|at| pass.items[*at].pod.key.clone())
        .collect();
    report.unplaced = unplaced(&pass, &unusable, dropped);
    (plan, report)
}

/// The pass over these pods and NodePools before its first placement.
fn build_pass<'a>(
    context: &'a SolveContext<'a>,
    options: &'a SolveOptions,
    queue: &'a PodQueue,
    templates: Vec<PoolTemplate>,
) -> Pass<'a> {
    let snapshot = context.snapshot;
    let query = ExistingNodeQuery {
        snapshot,
        ground: context,
        options,
        templates: &templates,
        least: least(queue.pods.iter().map(|(pod, _)| &pod.class.requests)),
    };
    let mut hosts = query.hosts();
    let mut taint_sets = TaintSets::default();
    let template_taints: Vec<usize> = templates
        .iter()
        .map(|template| taint_sets.intern(&template.taints))
        .collect();
    hosts
        .iter_mut()
        .for_each(|host| host.taints = taint_sets.intern(&host.node.taints));
    let policy = PreferencePolicy {
        respect_preferences: options.respect_preferences,
        soft_taints: templates
            .iter()
            .flat_map(|template| &template.taints)
            .any(|taint| taint.effect == PREFER_NO_SCHEDULE),
    };
    let mut devices = devices(snapshot, options, queue, &templates);
    let mut topology = Topology::default();
    let mut asks = PodRequirementsTable::default();
    let mut shapes = NarrowedTemplates::new(&snapshot.well_known, context.dimensions);
    let mut classes = EquivalenceClasses::new(snapshot, policy, context.dimensions, &taint_sets);
    let items: Vec<QueuedPod<'_>> = queue
        .pods
        .iter()
        .map(|(pod, volumes)| {
            let asked = devices
                .as_mut()
                .and_then(|devices| devices.intern_requirements(pod));
            let needs = (volumes.clone(), asked);
            QueuedPod {
                pod,
                class: classes.intern(pod, needs, &mut asks, &mut shapes, &mut topology),
            }
        })
        .collect();
    let concerns = |statement: &TopologyGroupKey| classes.concerns(statement);
    let leaving: Vec<&Pod> = queue
        .pods
        .iter()
        .map(|(pod, _)| &**pod)
        .filter(|pod| is_counted(snapshot, pod))
        .collect();
    let repelling = inverse_anti_affinity(snapshot, &mut topology, &leaving, &concerns);
    let classes = classes.finish(&topology);
    TopologyCounts {
        snapshot,
        templates: &templates,
        hosts: &hosts,
        repelling,
        leaving: &leaving,
    }
    .count_into(&mut topology);
    let domains_of = |key: &TopologyKey| {
        let hosts = if key.is_host { 0 } else { hosts.len() };
        vec![HostnameDomain::Unknown; hosts]
    };
    Pass {
        options,
        ground: context,
        host_domains: topology.keys.iter().map(domains_of).collect(),
        placements: Placements::new(items.len()),
        reservations: Reservations::new(&templates, options.reserved, snapshot),
        template_taints,
        templates,
        hosts,
        shapes,
        topology,
        asks,
        classes,
        items,
        devices,
        held_up: false,
        claims: Vec::new(),
        order: FillOrder::default(),
        stopped: false,
    }
}

/// The devices of the cluster, when a pod of the pass claims any.
fn devices<'a>(
    snapshot: &'a Snapshot,
    options: &SolveOptions,
    queue: &'a PodQueue,
    templates: &[PoolTemplate],
) -> Option<Box<Devices<'a>>> {
    let pods = || queue.pods.iter().map(|(pod, _)| pod);
    if options.ignore_devices || pods().all(|pod| pod.claims.is_none()) {
        return None;
    }
    let is_left = |node: &str| {
        let of = snapshot.node(node);
        of.is_some_and(|of| of.deleting || options.without.contains(&of.key))
    };
    let devices = Devices::new(snapshot, templates, pods(), &is_left);
    Some(Box::new(devices))
}

/// Whether the pod index of the snapshot counts the pod: it is bound or assumed, and not made up by the caller.
fn is_counted(snapshot: &Snapshot, pod: &Pod) -> bool {
    place_of(snapshot, pod).is_some()
        && snapshot
            .pods
            .get(&pod.key)
            .is_some_and(|own| own.uid == pod.uid)
}

/// The smallest CPU, memory and pod requests among these.
fn least<'a>(requests: impl Iterator<Item = &'a Resources>) -> [i64; 3] {
    let each = requests.map(|own| [own.cpu, own.memory, own.pods]);
    each.reduce(|least, own| std::array::from_fn(|at| least[at].min(own[at])))
        .unwrap_or_default()
}

/// Pods without a placement, grouped by class. `dropped`: pods of NodeClaims that the plan left out.
fn unplaced(
    pass: &Pass<'_>,
    unusable: &[UnusablePool],
    dropped: Vec<(usize, Reason)>,
) -> Vec<Unplaced> {
    let explainer = PassExplainer { pass, unusable };
    let mut by_class: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, item) in pass.items.iter().enumerate() {
        let tried = !pass.stopped || pass.classes[item.class].failed_at.is_some();
        if tried && pass.placements.is_open(at) {
            by_class.entry(item.class).or_default().push(at);
        }
    }
    let keys = |pods: &[usize]| {
        let pods = pods.iter().map(|at| pass.items[*at].pod);
        pods.map(|pod| (pod.key.clone(), pod.uid.clone())).collect()
    };
    let mut all: Vec<Unplaced> = by_class
        .into_iter()
        .map(|(class, pods)| {
            let reasons = explainer.explain(class);
            Unplaced {
                pods: keys(&pods),
                message: SchedulingFailure::new(&reasons).to_string(),
                reasons,
                deferred: pass.classes[class].lacks_reservation,
            }
        })
        .collect();
    all.extend(dropped.into_iter().map(|(at, reason)| Unplaced {
        pods: keys(&[at]),
        message: reason.to_string(),
        reasons: vec![reason],
        deferred: false,
    }));
    all.sort_by(|a, b| a.pods.cmp(&b.pods));
    all
}
