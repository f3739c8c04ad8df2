//! preempt: drops nodes that the pod could not use after the eviction, and echoes the rest.

use std::collections::BTreeMap;

use super::pod::{is_exempt, of_call};
use super::verdict::Verdicts;
use super::wire::{MetaPod, MetaVictims, PreemptionArgs, PreemptionResult};
use super::{Charges, STALE_MS};
use crate::{Counters, World};

/// Answers a preempt call in the by-UID form, whichever form came in. Empty victim lists are echoed as they are.
#[must_use]
pub fn preempt(
    world: &dyn World,
    charges: &Charges,
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
    let snapshot = world.snapshot();
    if !snapshot.synced || world.age_ms() > STALE_MS {
        counters.passed_stale.inc();
        return PreemptionResult {
            node_name_to_meta_victims: victims,
        };
    }
    let pod = of_call(&snapshot, &args.pod);
    if is_exempt(&pod) {
        counters.passed_exempt.inc();
        return PreemptionResult {
            node_name_to_meta_victims: victims,
        };
    }
    let verdicts = Verdicts {
        snapshot: &snapshot,
        charges,
        pod: &pod,
        now: world.now(),
    };
    victims.retain(|node, _| {
        snapshot
            .node(node)
            .is_none_or(|node| verdicts.fence(node).is_none())
    });
    PreemptionResult {
        node_name_to_meta_victims: victims,
    }
}
