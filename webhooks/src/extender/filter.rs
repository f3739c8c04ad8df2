//! filter: output = input less the denied, in input order.

use super::node_filter::{Denial, FilterVerdict, NodeFilter};
use super::wire::{Args, Failed, FilterResult, NodeList};
use super::{ExtenderState, IncomingPod, is_usable};
use crate::{ClusterView, Counters};

/// Answers a filter call. `real`: the call may change what later calls are told (not so for `simulate`).
#[must_use]
pub fn filter<'a>(
    view: &dyn ClusterView,
    state: &ExtenderState,
    counters: &Counters,
    args: &'a Args<'_>,
    real: bool,
) -> FilterResult<'a> {
    let names = args.names();
    let Denials {
        denied,
        nominated_node,
    } = decide_nodes(view, state, counters, args, &names, real);
    let failed: Vec<(&str, &'static str)> = names
        .iter()
        .zip(&denied)
        .filter_map(|(name, denial)| Some((*name, (*denial)?.message())))
        .collect();
    let kept = denied.iter().map(Option::is_none);
    let (nodes, node_names) = match (&args.node_names, &args.nodes) {
        (None, Some(list)) => {
            counters.full_nodes.inc();
            let kept = list.items.iter().zip(kept).filter(|(_, kept)| *kept);
            let list = NodeList {
                metadata: list.metadata.clone(),
                items: kept.map(|(node, _)| node.clone()).collect(),
            };
            (Some(list), None)
        }
        _ => {
            let kept = names.into_iter().zip(kept).filter(|(_, kept)| *kept);
            (None, Some(kept.map(|(name, _)| name).collect()))
        }
    };
    FilterResult {
        nodes,
        node_names,
        failed_nodes: None,
        failed_and_unresolvable_nodes: (!failed.is_empty()).then_some(Failed(failed)),
        error: String::new(),
        nominated_node,
    }
}

struct Denials {
    /// What is denied of the names, in their order.
    denied: Vec<Option<Denial>>,
    nominated_node: Option<bool>,
}

/// An empty list of names denies nothing.
fn decide_nodes(
    view: &dyn ClusterView,
    state: &ExtenderState,
    counters: &Counters,
    args: &Args<'_>,
    names: &[&str],
    real: bool,
) -> Denials {
    let mut denied = vec![None; names.len()];
    let without_nomination = |denied| Denials {
        denied,
        nominated_node: None,
    };
    let snapshot = view.snapshot();
    if !is_usable(view, &snapshot, counters) {
        return without_nomination(denied);
    }
    let incoming = IncomingPod::from_call(&snapshot, &args.pod);
    if let Some(exemption) = incoming.exemption(state.own_namespace()) {
        counters.count_exemption(exemption);
        return without_nomination(denied);
    }
    let now = view.now();
    state.assumed_pods.prune(&snapshot, now);
    let node_filter = NodeFilter::new(&snapshot, state, &incoming, now);
    let mut nominated = Vec::new();
    for (name, denied) in names.iter().zip(&mut denied) {
        match node_filter.decide(name) {
            FilterVerdict::Denied(denial) => *denied = Some(denial),
            FilterVerdict::PassedWithNominations => nominated.push(*name),
            FilterVerdict::Passed => {}
        }
    }
    let is_soft = |denial: &Option<Denial>| denial.is_some_and(Denial::is_soft);
    if denied.iter().all(Option::is_some) && denied.iter().any(is_soft) {
        for denial in denied.iter_mut().filter(|denial| is_soft(denial)) {
            *denial = None;
        }
        counters.soft_denials_dropped.inc();
    }
    let own = node_filter.nominated_among(names);
    let nominated_node = node_filter.is_nominated().then_some(own.is_some());
    if let Some(own) = own.filter(|own| node_filter.prefers_nominated(own)) {
        counters.sent_to_nominated_node.inc();
        for (name, denied) in names.iter().zip(&mut denied) {
            if *name != own {
                denied.get_or_insert(Denial::NominatedElsewhere);
            }
        }
        nominated.retain(|name| *name == own);
    } else if nominated_node == Some(false) {
        counters.nominated_node_absent.inc();
    }
    for denial in denied.iter().flatten() {
        counters.count_denial(*denial);
    }
    if real {
        state.assumed_pods.assume(&nominated, &incoming.pod, now);
        if !denied.is_empty() && denied.iter().all(Option::is_some) {
            state.denied_pods.record_denied(&incoming, names, now);
        } else {
            state.denied_pods.forget(&incoming.pod.uid);
            state.feasibility_signals.push(&incoming.pod.uid, now);
        }
    }
    Denials {
        denied,
        nominated_node,
    }
}
