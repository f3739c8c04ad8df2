//! Where pods go: on machines that are there or coming, and on new ones.
//!
//! [`solve`] answers from a snapshot alone. Same snapshot, options and time give the same plan; the order in which pods
//! came does not matter. The semantics (which nodes a pod may use) are upstream's and checked against recorded passes; the
//! choice among allowed places is ours.
//!
//! ```text
//! snapshot ─► batch (which pods, in which order) ─► classes (pods that are alike) ─► pass ─► plan, report
//!          └► templates (pools), hosts (machines), topology (where other pods are) ─┘
//! ```
//!
//! Invariant: every placement passes [`fn@fits`], no machine is given more than it has less what is promised, and no pool
//! exceeds its limits, the number of nodes included.
//!
//! Non-goals: preemption, gangs. A pod with a constraint that is not understood is reported, never placed as if it had none.

mod can_add;
mod daemon_set_pods;
mod default_spread;
mod devices;
mod equivalence_class;
mod existing_node;
mod explain;
mod fits;
mod in_flight_node_claim;
mod instance_type_reasons;
mod launch_plan;
mod messages;
mod narrowed_template;
mod node_claim_object;
mod nominations;
mod pass;
pub mod plan;
mod pod_queue;
mod pod_requirements;
mod pool_template;
mod reasons;
mod relax;
mod repack;
mod reservations;
mod resource_vector;
mod static_claim;
mod topology;
mod topology_counts;
mod volumes;

use std::collections::{BTreeMap, HashSet};

use foldhash::fast::FixedState;
use jiff::Timestamp;

pub use daemon_set_pods::{DaemonSetOverhead, DaemonSetPod, DaemonSetPods};
pub use default_spread::{
    DefaultConstraint, InvalidDefaultConstraint, PodTopologySpread, SchedulerConfig, SpreadDefaults,
};
pub use explain::{PodExplanation, PodSchedulingState, explain};
pub use fits::{FreeCapacity, fits, fits_class};
pub use plan::{
    LaunchPlan, Placement, PlannedClaim, PlannedOffering, REPACK, ReservedCapacityMode,
    SolveOptions, SolveReport, Unplaced,
};
pub use static_claim::plan_static_claim;
pub use volumes::volumes_fit;

use devices::Devices;
use equivalence_class::EquivalenceClasses;
use in_flight_node_claim::FillOrder;
use mortise_apis::names::Uid;
use mortise_apis::taints::PREFER_NO_SCHEDULE;
use mortise_state::snapshot::{Pod, Snapshot};
use narrowed_template::NarrowedTemplates;
use pass::{HostnameDomain, Pass, QueuedPod};
use pod_queue::PodQueue;
use pod_requirements::{PodRequirementsTable, TaintSets};
use relax::PreferencePolicy;
use reservations::Reservations;
use resource_vector::ResourceDimensions;
use topology::Topology;
use topology_counts::{TopologyCounts, inverse_anti_affinity};

/// Finds places for pods.
///
/// The answer is anytime: when `stop` turns true, the plan holds what was placed until then, the report says `stopped`, and
/// pods that were not tried are in neither.
///
/// # Cost
/// One pass over the pods on nodes, then proportional to pods times (differing) machines that still could take them; some
/// microseconds per pod.
pub fn solve(
    now: Timestamp,
    snapshot: &Snapshot,
    options: &SolveOptions,
    stop: &dyn Fn() -> bool,
) -> (LaunchPlan, SolveReport) {
    let batch = PodQueue::of(now, snapshot, options);
    let mut report = SolveReport {
        considered: batch.considered,
        ignored: batch.ignored.clone(),
        ..SolveReport::default()
    };
    if batch.pods.is_empty() {
        return (LaunchPlan::default(), report);
    }
    let uids: HashSet<&Uid, FixedState> = batch.pods.iter().map(|(pod, _)| &pod.uid).collect();
    let ours = |uid: &Uid| uids.contains(uid);
    let daemons = DaemonSetPods::of(snapshot);
    let requests = batch.pods.iter().map(|(pod, _)| &pod.class.requests);
    let dimensions = ResourceDimensions::of(
        requests.chain(daemons.all().iter().map(|daemon| &daemon.class.requests)),
    );
    let (templates, unusable) = pool_template::templates(
        snapshot,
        &daemons,
        &dimensions,
        options.min_values_best_effort,
    );
    report.typeless = pool_template::typeless(&unusable);
    let least = least(batch.pods.iter().map(|(pod, _)| &pod.class.requests));
    let ground = existing_node::SolveContext {
        snapshot,
        daemons: &daemons,
        dimensions: &dimensions,
        ours: &ours,
    };
    let hosts_of = existing_node::ExistingNodeQuery {
        snapshot,
        ground: &ground,
        options,
        templates: &templates,
        least,
    };
    let mut hosts = hosts_of.hosts();
    let mut profiles = TaintSets::default();
    let template_taints: Vec<usize> = templates
        .iter()
        .map(|template| profiles.of(&template.taints))
        .collect();
    hosts
        .iter_mut()
        .for_each(|host| host.taints = profiles.of(&host.node.taints));
    let soft = templates
        .iter()
        .flat_map(|template| &template.taints)
        .any(|taint| taint.effect == PREFER_NO_SCHEDULE);
    let manner = PreferencePolicy {
        respect_preferences: options.respect_preferences,
        soft_taints: soft,
    };

    let mut devices = (!options.ignore_devices)
        .then(|| {
            let pods = || batch.pods.iter().map(|(pod, _)| pod);
            if pods().all(|pod| pod.claims.is_none()) {
                return None;
            }
            let is_left = |node: &str| {
                let of = snapshot.node(node);
                of.is_some_and(|of| of.deleting || options.without.contains(&of.key))
            };
            Some(Box::new(Devices::of(
                snapshot,
                &templates,
                pods(),
                &is_left,
            )))
        })
        .flatten();
    let mut topology = Topology::default();
    let mut asks = PodRequirementsTable::default();
    let mut shapes = NarrowedTemplates::new(&snapshot.well_known, &dimensions);
    let mut classes = EquivalenceClasses::new(snapshot, manner, &dimensions, &profiles);
    let items: Vec<QueuedPod<'_>> = batch
        .pods
        .iter()
        .map(|(pod, volumes)| {
            let asked = devices.as_mut().and_then(|devices| devices.ask(pod));
            let needs = (volumes.clone(), asked);
            QueuedPod {
                pod,
                class: classes.of(pod, needs, &mut asks, &mut shapes, &mut topology),
            }
        })
        .collect();
    let concerns = |statement: &topology::TopologyGroupKey| classes.concerns(statement);
    let leaving: Vec<&Pod> = batch
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
    .take(&mut topology);
    let domains_of = |key: &topology::TopologyKey| {
        let hosts = if key.is_host { 0 } else { hosts.len() };
        vec![HostnameDomain::Unknown; hosts]
    };
    let host_domains = topology.keys.iter().map(domains_of).collect();
    let reservations = Reservations::of(&templates, options.reserved);
    let mut pass = Pass {
        snapshot,
        options,
        ground: &ground,
        template_taints,
        templates,
        hosts,
        host_domains,
        shapes,
        topology,
        asks,
        classes,
        placed: vec![None; items.len()],
        placed_step: vec![0; items.len()],
        entrusted: std::collections::BTreeSet::new(),
        kept: std::collections::BTreeSet::new(),
        broken: Vec::new(),
        items,
        reservations,
        devices,
        held_up: false,
        claims: Vec::new(),
        order: FillOrder::default(),
        progress: 0,
        stopped: false,
    };
    pass.run(stop);
    if options.repack > 0 && !pass.stopped {
        pass.repack();
    }
    let (plan, dropped) = pass.plan();
    report.stopped = pass.stopped;
    report.broken = std::mem::take(&mut pass.broken);
    let entrusted = pass.entrusted.iter();
    report.entrusted = entrusted
        .map(|at| pass.items[*at].pod.key.clone())
        .collect();
    report.unplaced = unplaced(&pass, &unusable, dropped);
    (plan, report)
}

/// The pod is bound, or assumed somewhere, and among the crowds of the snapshot; what a caller made up is not.
fn is_counted(snapshot: &Snapshot, pod: &Pod) -> bool {
    topology_counts::place_of(snapshot, pod).is_some()
        && snapshot
            .pods
            .get(&pod.key)
            .is_some_and(|own| own.uid == pod.uid)
}

/// The least of CPU, memory and pods that any of these asks for.
fn least<'a>(requests: impl Iterator<Item = &'a mortise_apis::resources::Resources>) -> [i64; 3] {
    let each = requests.map(|own| [own.cpu, own.memory, own.pods]);
    each.reduce(|least, own| std::array::from_fn(|at| least[at].min(own[at])))
        .unwrap_or_default()
}

/// Pods without a place, those of a class together.
fn unplaced(
    pass: &Pass<'_>,
    unusable: &[pool_template::UnusablePool],
    dropped: Vec<(usize, String)>,
) -> Vec<Unplaced> {
    let mut by_class: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, item) in pass.items.iter().enumerate() {
        let tried = !pass.stopped || pass.classes[item.class].failed_at.is_some();
        if pass.placed[at].is_none() && tried && !pass.entrusted.contains(&at) {
            by_class.entry(item.class).or_default().push(at);
        }
    }
    let keys = |pods: &[usize]| {
        pods.iter()
            .map(|at| {
                (
                    pass.items[*at].pod.key.clone(),
                    pass.items[*at].pod.uid.clone(),
                )
            })
            .collect::<Vec<_>>()
    };
    let mut all: Vec<Unplaced> = by_class
        .into_iter()
        .map(|(class, pods)| {
            let explained = pass.explain(class, unusable);
            Unplaced {
                pods: keys(&pods),
                reasons: explained.reasons,
                message: explained.message,
                deferred: pass.classes[class].lacks_reservation,
            }
        })
        .collect();
    all.extend(dropped.into_iter().map(|(at, message)| {
        let reason = crate::reason::Reason::Note {
            text: message.clone(),
        };
        Unplaced {
            pods: keys(&[at]),
            reasons: vec![reason],
            message,
            deferred: false,
        }
    }));
    all.sort_by(|a, b| a.pods.cmp(&b.pods));
    all
}
