//! Which of the nodes that are left is best: scores of 0 to 100 each, times the weights of an unconfigured kube-scheduler.

use mortise_apis::names::NodeName;
use mortise_apis::resources::Resources;

use super::cache::Machine;
use super::filters::tolerates;
use super::neighbours::Neighbours;
use super::pod::PodView;
use super::selectors::node_term;
use super::spread::Spreads;

const FULL: i64 = 100;
const WEIGHT_ROOM: i64 = 1;
const WEIGHT_NODE_AFFINITY: i64 = 2;
const WEIGHT_TAINTS: i64 = 3;
const WEIGHT_SPREAD: i64 = 2;
const WEIGHT_NEIGHBOURS: i64 = 2;

/// Scores in the order of the nodes.
pub(super) fn scores(
    pod: &PodView,
    nodes: &[(&NodeName, &Machine)],
    neighbours: &Neighbours<'_>,
    spreads: &Spreads<'_>,
) -> Vec<i64> {
    let each = |of: &dyn Fn(&NodeName, &Machine) -> i64| -> Vec<i64> {
        nodes
            .iter()
            .map(|(name, machine)| of(name, machine))
            .collect()
    };
    let room = each(&|_, machine| least_allocated(pod, machine));
    let wished = up(&each(&|name, machine| node_points(pod, name, machine)));
    let disliked = down(&each(&|_, machine| disliked(pod, machine)));
    let points = between(&each(&|_, machine| neighbours.points(machine)));
    let crowding = nodes.iter().map(|(_, machine)| spreads.crowding(machine));
    let crowding = if spreads.prefers() {
        apart(&crowding.collect::<Vec<_>>())
    } else {
        vec![0; nodes.len()]
    };
    let all = room
        .iter()
        .zip(&wished)
        .zip(&disliked)
        .zip(&points)
        .zip(&crowding);
    all.map(|((((room, wished), disliked), points), crowding)| {
        WEIGHT_ROOM * room
            + WEIGHT_NODE_AFFINITY * wished
            + WEIGHT_TAINTS * disliked
            + WEIGHT_NEIGHBOURS * points
            + WEIGHT_SPREAD * crowding
    })
    .collect()
}

/// The share of CPU and memory that stays free with the pod.
fn least_allocated(pod: &PodView, machine: &Machine) -> i64 {
    let of = &machine.allocatable;
    let used = machine.used.add(&pod.requests);
    let share = |free: i64, of: i64| {
        if of <= 0 {
            return 0;
        }
        let share = i128::from(free.max(0)) * i128::from(FULL) / i128::from(of);
        i64::try_from(share.min(i128::from(FULL))).unwrap_or(0)
    };
    let both = |of: &Resources, used: &Resources| {
        share(of.cpu - used.cpu, of.cpu) + share(of.memory - used.memory, of.memory)
    };
    both(of, &used) / 2
}

/// Weights of the preferred node affinity terms that hold.
fn node_points(pod: &PodView, name: &str, machine: &Machine) -> i64 {
    let affinity = pod.spec.affinity.as_ref();
    let preferred = affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|node| {
            node.preferred_during_scheduling_ignored_during_execution
                .as_ref()
        });
    let terms = preferred.into_iter().flatten();
    terms
        .filter(|each| node_term(&each.preference, name, &machine.labels))
        .map(|each| i64::from(each.weight))
        .sum()
}

/// Taints that should keep the pod away.
fn disliked(pod: &PodView, machine: &Machine) -> i64 {
    let soft = machine.taints.iter();
    let soft = soft.filter(|taint| taint.effect == "PreferNoSchedule" && !tolerates(pod, taint));
    i64::try_from(soft.count()).unwrap_or(i64::MAX)
}

/// In parts of the largest.
fn up(values: &[i64]) -> Vec<i64> {
    let most = values.iter().copied().max().unwrap_or(0);
    let score = |value: &i64| if most == 0 { 0 } else { value * FULL / most };
    values.iter().map(score).collect()
}

/// The largest is worth nothing.
fn down(values: &[i64]) -> Vec<i64> {
    up(values).iter().map(|score| FULL - score).collect()
}

/// The smallest is worth nothing, the largest everything.
fn between(values: &[i64]) -> Vec<i64> {
    let least = values.iter().copied().min().unwrap_or(0);
    up(&values.iter().map(|value| value - least).collect::<Vec<_>>())
}

/// The smallest is worth most; nodes without the labels are worth nothing.
fn apart(values: &[Option<i64>]) -> Vec<i64> {
    let known = || values.iter().flatten().copied();
    let (least, most) = (known().min().unwrap_or(0), known().max().unwrap_or(0));
    let score = |value: &Option<i64>| match value {
        None => 0,
        Some(_) if most == 0 => FULL,
        Some(value) => FULL * (most + least - value) / most,
    };
    values.iter().map(score).collect()
}
