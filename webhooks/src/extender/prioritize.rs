//! prioritize: where the pod should rather go, 0 to 10.
//!
//! The arithmetic, so that it can be compared with the in-tree scores (an extender of weight 5 is worth 5 x 10 x score
//! = 500 points at most, the in-tree plugins together 1,200):
//!
//! | score | node |
//! |---|---|
//! | 10 | the pod is nominated to it |
//! | 2..9 | 2 + packing (0..3) + stays (0..2) + price (0..1) + company (0..1), halved (but 2 at least) on capacity that the workload does not want now |
//! | 2 | it has accelerators, and the pod asks for none: they stay free for pods that do |
//! | 1 | it is not initialized yet, should go, or ends before the pod does |
//! | 0 | it is fenced, or not known |
//!
//! - packing: 3 x the fill of its fuller resource (CPU or state) with the pod on it, rounded down: other nodes run empty;
//! - stays: 2 when something on it must not be disturbed, or mortise may not remove it: it stays anyway; 1 while it is
//!   not `Consolidatable` and not near its end; else 0;
//! - price: 1 when the pod's share of its price is within a tenth of the cheapest in the list;
//! - company: 1 when most of its pods are of the same kind: pods that end by themselves with their like, others with theirs.

use super::node_filter::NodeFilter;
use super::node_lifetime::NodeLifetime;
use super::wire::{Args, HostPriority};
use super::{ExtenderState, IncomingPod, is_usable};
use crate::{ClusterView, Counters};
use mortise_apis::labels;
use mortise_apis::resources::Resources;
use mortise_state::snapshot::StateNode;

const MILLION: i64 = 1_000_000;

/// Answers a prioritize call: every input host is in the answer. A stale or unknown snapshot scores all alike.
#[must_use]
pub fn prioritize<'a>(
    view: &dyn ClusterView,
    state: &ExtenderState,
    counters: &Counters,
    args: &'a Args<'_>,
) -> Vec<HostPriority<'a>> {
    let snapshot = view.snapshot();
    let names = args.names();
    if !is_usable(view, &snapshot, counters) {
        let all = names.into_iter();
        return all.map(|host| HostPriority { host, score: 0 }).collect();
    }
    let incoming = IncomingPod::from_call(&snapshot, &args.pod);
    let node_filter = NodeFilter::new(&snapshot, state, &incoming, view.now());
    let requests = &incoming.pod.class.requests;
    let entry = |host: &&str| {
        let node = snapshot.node(host).map(|node| &**node);
        let price_share = node.and_then(|node| price_share(requests, node));
        ScoredNode { node, price_share }
    };
    let entries: Vec<ScoredNode<'_>> = names.iter().map(entry).collect();
    let scores = Scores::new(&node_filter, &entries);
    let all = names.into_iter().zip(&entries);
    all.map(|(host, entry)| HostPriority {
        host,
        score: scores.score(entry),
    })
    .collect()
}

/// A node of a call.
struct ScoredNode<'a> {
    node: Option<&'a StateNode>,
    /// What of its price the pod would have to pay.
    price_share: Option<i64>,
}

/// What is the same for all nodes of a call.
struct Scores<'a> {
    node_filter: &'a NodeFilter<'a>,
    incoming: &'a IncomingPod,
    /// A share of a price up to this is cheap; millionths of micro-dollars.
    cheap: Option<i64>,
    /// Whether the workload wants its next pod on spot capacity.
    prefers_spot: Option<bool>,
}

impl<'a> Scores<'a> {
    fn new(node_filter: &'a NodeFilter<'a>, entries: &[ScoredNode<'_>]) -> Self {
        let incoming = node_filter.incoming;
        let cheapest = entries.iter().filter_map(|entry| entry.price_share);
        let prefers_spot = incoming.spot.map(|preference| {
            let (spot, others) = node_filter
                .state
                .spot_counts
                .count_for_owner(node_filter.snapshot, &incoming.pod);
            preference.prefers_spot(spot, others)
        });
        Self {
            node_filter,
            incoming,
            cheap: cheapest.min().map(|least| least.saturating_add(least / 10)),
            prefers_spot,
        }
    }

    fn score(&self, entry: &ScoredNode<'_>) -> i64 {
        let Some(node) = entry.node else {
            return 0;
        };
        let node_filter = self.node_filter;
        if node_filter.fence(node).is_some() {
            return 0;
        }
        if node_filter.is_expected(node) {
            return 10;
        }
        let lifetime = NodeLifetime::from_node(node, node_filter.now);
        if !node.initialized || lifetime.drifted_ms.is_some() || lifetime.ends_before(self.incoming)
        {
            return 1;
        }
        let requests = &self.incoming.pod.class.requests;
        if node.allocatable.has_accelerators() && !requests.has_accelerators() {
            return 2;
        }
        let packing = 3 * fill_percent(requests, node) / 100;
        let cheap = self.cheap.zip(entry.price_share);
        let price = i64::from(cheap.is_some_and(|(cheap, own)| own <= cheap));
        let affinity = i64::from(
            node.disruption_state
                .suits(self.incoming.runs_to_completion),
        );
        let score = 2 + packing + retention_score(node, &lifetime) + price + affinity;
        let is_preferred = self.prefers_spot.is_none_or(|spot| spot == is_spot(node));
        if is_preferred {
            score
        } else {
            (score / 2).max(2)
        }
    }
}

fn is_spot(node: &StateNode) -> bool {
    node.label(labels::CAPACITY_TYPE) == Some(labels::CAPACITY_TYPE_SPOT)
}

/// How certain it is that the node stays whether or not the pod comes.
fn retention_score(node: &StateNode, lifetime: &NodeLifetime) -> i64 {
    if node.claim.is_none() {
        2
    } else if lifetime.is_near_end() {
        0
    } else if node.disruption_state.do_not_disrupt {
        2
    } else {
        i64::from(!node.disruption_state.consolidatable)
    }
}

/// The part of the node's price that the pod has to pay, by its larger part of CPU or memory; `None` when it is unknown.
fn price_share(requests: &Resources, node: &StateNode) -> Option<i64> {
    let price = node.price?.0;
    // Of more than nine terabytes the units are left out of account, so that nothing overflows.
    let part = |own: i64, of: i64| match own.checked_mul(MILLION) {
        _ if of <= 0 => 0,
        Some(millionths) => millionths / of,
        None => own / (of / MILLION).max(1),
    };
    let cpu = part(requests.cpu, node.allocatable.cpu);
    let part = cpu.max(part(requests.memory, node.allocatable.memory));
    Some(price.saturating_mul(part))
}

/// How full the fuller of CPU and memory would be with the pod, in per cent.
fn fill_percent(requests: &Resources, node: &StateNode) -> i64 {
    let percent = |used: i64, own: i64, of: i64| {
        if of <= 0 {
            0
        } else {
            (used.saturating_add(own).saturating_mul(100) / of).clamp(0, 100)
        }
    };
    let (used, all) = (&node.used, &node.allocatable);
    let cpu = percent(used.cpu, requests.cpu, all.cpu);
    cpu.max(percent(used.memory, requests.memory, all.memory))
}
