//! filter: output = input less the denied, in input order.

use std::collections::BTreeMap;

use super::verdict::{Denial, Verdict, Verdicts};
use super::wire::{Args, FilterResult, NodeList};
use super::{Asker, Memory, is_usable};
use crate::{Counters, World};

/// Answers a filter call. `real`: the call may change what later calls are told (not so for `simulate`).
#[must_use]
pub fn filter<'a>(
    world: &dyn World,
    memory: &Memory,
    counters: &Counters,
    args: &'a Args<'_>,
    real: bool,
) -> FilterResult<'a> {
    let names = args.names();
    let denied = denials(world, memory, counters, args, &names, real);
    let failed: BTreeMap<&str, &'static str> = denied
        .iter()
        .map(|(name, denial)| (*name, denial.message()))
        .collect();
    let (nodes, node_names) = match (&args.node_names, &args.nodes) {
        (None, Some(list)) => {
            counters.full_nodes.inc();
            let kept = list
                .items
                .iter()
                .filter(|node| !denied.contains_key(NodeList::name(node)))
                .cloned()
                .collect();
            (
                Some(NodeList {
                    metadata: list.metadata.clone(),
                    items: kept,
                }),
                None,
            )
        }
        _ => (
            None,
            Some(
                names
                    .into_iter()
                    .filter(|name| !denied.contains_key(name))
                    .collect(),
            ),
        ),
    };
    FilterResult {
        nodes,
        node_names,
        failed_nodes: None,
        failed_and_unresolvable_nodes: (!failed.is_empty()).then_some(failed),
        error: String::new(),
    }
}

fn denials<'a>(
    world: &dyn World,
    memory: &Memory,
    counters: &Counters,
    args: &Args<'_>,
    names: &[&'a str],
    real: bool,
) -> BTreeMap<&'a str, Denial> {
    let snapshot = world.snapshot();
    if !is_usable(world, &snapshot, counters) {
        return BTreeMap::new();
    }
    let asker = Asker::of_call(&snapshot, &args.pod);
    if let Some(exemption) = asker.exemption(memory.own_namespace()) {
        counters.exempt(exemption);
        return BTreeMap::new();
    }
    let now = world.now();
    let verdicts = Verdicts {
        snapshot: &snapshot,
        memory,
        asker: &asker,
        now,
    };
    let mut denied = BTreeMap::new();
    let mut promised = Vec::new();
    for name in names {
        match verdicts.on(name) {
            Verdict::Denied(denial) => {
                denied.insert(*name, denial);
            }
            Verdict::BesidePromises => promised.push(*name),
            Verdict::Passed => {}
        }
    }
    // No scheduler asks twice about a name in one call; for one that does, every mention is denied.
    if !names.is_empty() && names.iter().all(|name| denied.contains_key(name)) {
        let before = denied.len();
        denied.retain(|_, denial| !denial.is_soft());
        if denied.len() < before {
            counters.soft_dropped.inc();
        }
    }
    if let Some(own) = verdicts.kept_on(names) {
        counters.sent_to_own_room.inc();
        let others = names.iter().filter(|name| **name != own);
        others.for_each(|name| {
            denied.entry(*name).or_insert(Denial::Elsewhere);
        });
        promised.retain(|name| *name == own);
    }
    for denial in denied.values() {
        counters.denied(*denial);
    }
    if real {
        memory.charges.charge(&promised, &asker.pod, now);
        if !names.is_empty() && denied.len() >= names.len() {
            memory.held.hold(&asker, names, now);
        } else {
            memory.held.passed(&asker.pod.uid);
            memory.signals.tell(&asker.pod.uid, now);
        }
    }
    denied
}
