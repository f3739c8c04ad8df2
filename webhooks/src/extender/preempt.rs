//! preempt: drops nodes that the pod could not use after the eviction, and echoes the rest.

use std::collections::BTreeMap;

use super::node_filter::NodeFilter;
use super::wire::{MetaPod, MetaVictims, PreemptionArgs, PreemptionResult};
use super::{ExtenderState, IncomingPod, is_usable};
use crate::{ClusterView, Counters};

/// Answers a preempt call in the by-UID form, whichever form came in. Empty victim lists are echoed as they are.
#[must_use]
pub fn preempt(
    view: &dyn ClusterView,
    state: &ExtenderState,
    counters: &Counters,
    args: PreemptionArgs,
) -> PreemptionResult {
    let mut victims: BTreeMap<String, MetaVictims> = BTreeMap::new();
    for (node, each) in args.node_name_to_victims.unwrap_or_default() {
        let each = each.unwrap_or_default();
        let pods = each.pods.map(|pods| {
            pods.into_iter()
                .map(|pod| MetaPod {
                    uid: pod.metadata.uid,
                })
                .collect()
        });
        victims.insert(
            node,
            MetaVictims {
                pods,
                num_pdb_violations: each.num_pdb_violations,
            },
        );
    }
    for (node, each) in args.node_name_to_meta_victims.unwrap_or_default() {
        victims.insert(node, each.unwrap_or_default());
    }
    let snapshot = view.snapshot();
    let incoming = IncomingPod::from_call(&snapshot, &args.pod);
    if !is_usable(view, &snapshot, counters) {
        return PreemptionResult {
            node_name_to_meta_victims: victims,
        };
    }
    if let Some(exemption) = incoming.exemption(state.own_namespace()) {
        counters.count_exemption(exemption);
        return PreemptionResult {
            node_name_to_meta_victims: victims,
        };
    }
    let node_filter = NodeFilter::new(&snapshot, state, &incoming, view.now());
    victims.retain(|node, _| {
        let fence = snapshot.node(node).and_then(|node| node_filter.fence(node));
        if let Some(denial) = fence {
            counters.count_denial(denial);
        }
        fence.is_none()
    });
    PreemptionResult {
        node_name_to_meta_victims: victims,
    }
}
