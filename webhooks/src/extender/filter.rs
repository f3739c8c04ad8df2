//! filter: output = input less the denied, in input order.

use std::collections::BTreeMap;

use super::pod::{is_exempt, of_call};
use super::verdict::{Denial, Verdict, Verdicts};
use super::wire::{Args, FilterResult, NodeList};
use super::{Charges, STALE_MS};
use crate::{Counters, World};

/// Answers a filter call. `charge`: whether passing counts (the real call) or not (`simulate`).
#[must_use]
pub fn filter<'a>(
    world: &dyn World,
    charges: &Charges,
    counters: &Counters,
    args: &'a Args<'_>,
    charge: bool,
) -> FilterResult<'a> {
    let names = args.names();
    let denied = denials(world, charges, counters, args, &names, charge);
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
    charges: &Charges,
    counters: &Counters,
    args: &Args<'_>,
    names: &[&'a str],
    charge: bool,
) -> BTreeMap<&'a str, Denial> {
    let snapshot = world.snapshot();
    if !snapshot.synced || world.age_ms() > STALE_MS {
        counters.passed_stale.inc();
        return BTreeMap::new();
    }
    let pod = of_call(&snapshot, &args.pod);
    if is_exempt(&pod) {
        counters.passed_exempt.inc();
        return BTreeMap::new();
    }
    let now = world.now();
    let verdicts = Verdicts {
        snapshot: &snapshot,
        charges,
        pod: &pod,
        now,
    };
    let mut denied = BTreeMap::new();
    let mut promised = Vec::new();
    for name in names {
        match verdicts.on(name) {
            Verdict::Denied(denial) => {
                match denial {
                    Denial::Reserved | Denial::Elsewhere => counters.denied_reserved.inc(),
                    Denial::Disrupting | Denial::Interrupted | Denial::Draining => {
                        counters.denied_fenced.inc()
                    }
                }
                denied.insert(*name, denial);
            }
            Verdict::BesidePromises => promised.push(*name),
            Verdict::Passed => {}
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
    if charge {
        charges.charge(&promised, &pod, now);
    }
    denied
}
