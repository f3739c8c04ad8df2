//! Scores of feasible nodes: 0 to 100 each, times the default weights of kube-scheduler.

use mortise_apis::names::NodeName;
use mortise_apis::resources::Resources;

use super::cache::NodeInfo;
use super::filters::tolerates;
use super::neighbours::Neighbours;
use super::pod::PodView;
use super::selectors::node_term;
use super::spread::Spreads;

const FULL: i64 = 100;
const WEIGHT_LEAST_ALLOCATED: i64 = 1;
const WEIGHT_NODE_AFFINITY: i64 = 2;
const WEIGHT_TAINTS: i64 = 3;
const WEIGHT_SPREAD: i64 = 2;
const WEIGHT_NEIGHBOURS: i64 = 2;

/// Scores in the order of the nodes.
pub(super) fn scores(
    pod: &PodView,
    nodes: &[(&NodeName, &NodeInfo)],
    neighbours: &Neighbours<'_>,
    spreads: &Spreads<'_>,
) -> Vec<i64> {
    let each = |of: &dyn Fn(&NodeName, &NodeInfo) -> i64| -> Vec<i64> {
        nodes.iter().map(|(name, node)| of(name, node)).collect()
    };
    let allocated = each(&|_, node| least_allocated(pod, node));
    let affinity = normalized(&each(&|name, node| node_affinity_points(pod, name, node)));
    let tainted = reversed(&each(&|_, node| untolerated_soft_taints(pod, node)));
    let points = normalized_range(&each(&|_, node| neighbours.points(node)));
    let spread_cost = nodes.iter().map(|(_, node)| spreads.spread_cost(node));
    let spread_cost = if spreads.has_preferred() {
        spread_scores(&spread_cost.collect::<Vec<_>>())
    } else {
        vec![0; nodes.len()]
    };
    let all = allocated
        .iter()
        .zip(&affinity)
        .zip(&tainted)
        .zip(&points)
        .zip(&spread_cost);
    all.map(
        |((((allocated, affinity), tainted), points), spread_cost)| {
            WEIGHT_LEAST_ALLOCATED * allocated
                + WEIGHT_NODE_AFFINITY * affinity
                + WEIGHT_TAINTS * tainted
                + WEIGHT_NEIGHBOURS * points
                + WEIGHT_SPREAD * spread_cost
        },
    )
    .collect()
}

/// Percentage of CPU and memory that stays free with the pod.
fn least_allocated(pod: &PodView, node: &NodeInfo) -> i64 {
    let of = &node.allocatable;
    let used = node.used.add(&pod.requests);
    let percentage = |free: i64, of: i64| {
        if of <= 0 {
            return 0;
        }
        let percentage = i128::from(free.max(0)) * i128::from(FULL) / i128::from(of);
        i64::try_from(percentage.min(i128::from(FULL))).unwrap_or(0)
    };
    let both = |of: &Resources, used: &Resources| {
        percentage(of.cpu - used.cpu, of.cpu) + percentage(of.memory - used.memory, of.memory)
    };
    both(of, &used) / 2
}

/// Sum of the weights of the matching preferred node affinity terms.
fn node_affinity_points(pod: &PodView, name: &str, node: &NodeInfo) -> i64 {
    let affinity = pod.spec.affinity.as_ref();
    let preferred = affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|node| {
            node.preferred_during_scheduling_ignored_during_execution
                .as_ref()
        });
    let terms = preferred.into_iter().flatten();
    terms
        .filter(|each| node_term(&each.preference, name, &node.labels))
        .map(|each| i64::from(each.weight))
        .sum()
}

/// Number of `PreferNoSchedule` taints that the pod does not tolerate.
fn untolerated_soft_taints(pod: &PodView, node: &NodeInfo) -> i64 {
    let soft = node.taints.iter();
    let soft =
        soft.filter(|taint| taint.effect == "PreferNoSchedule" && !tolerates(&pod.spec, taint));
    i64::try_from(soft.count()).unwrap_or(i64::MAX)
}

/// Relative to the largest value.
fn normalized(values: &[i64]) -> Vec<i64> {
    let most = values.iter().copied().max().unwrap_or(0);
    let score = |value: &i64| if most == 0 { 0 } else { value * FULL / most };
    values.iter().map(score).collect()
}

/// Relative to the largest value, which scores 0.
fn reversed(values: &[i64]) -> Vec<i64> {
    normalized(values)
        .iter()
        .map(|score| FULL - score)
        .collect()
}

/// From the smallest value, which scores 0, to the largest.
fn normalized_range(values: &[i64]) -> Vec<i64> {
    let least = values.iter().copied().min().unwrap_or(0);
    normalized(&values.iter().map(|value| value - least).collect::<Vec<_>>())
}

/// The smallest value scores highest; nodes without the labels score 0.
fn spread_scores(values: &[Option<i64>]) -> Vec<i64> {
    let known = || values.iter().flatten().copied();
    let (least, most) = (known().min().unwrap_or(0), known().max().unwrap_or(0));
    let score = |value: &Option<i64>| match value {
        None => 0,
        Some(_) if most == 0 => FULL,
        Some(value) => FULL * (most + least - value) / most,
    };
    values.iter().map(score).collect()
}
