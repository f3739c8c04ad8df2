//! prioritize: where the pod should rather go, 0 to 10.
//!
//! The arithmetic, so that it can be set beside the in-tree scores (an extender of weight 5 is worth 5 x 10 x score = 500
//! points at most, the in-tree plugins together 1,200):
//!
//! | score | node |
//! |---|---|
//! | 10 | the pod is expected there |
//! | 2..8 | 2 + 6 x (fill of its fuller resource with the pod on it): packs, so that other nodes run empty |
//! | one less | it could be consolidated away soon |
//! | 1 | it is not initialized yet |
//! | 0 | it is fenced |

use super::pod::of_call;
use super::verdict::Verdicts;
use super::wire::{Args, HostPriority};
use super::{Charges, STALE_MS};
use crate::{Counters, World};
use mortise_core::snapshot::{Pod, StateNode};

/// Answers a prioritize call: every input host is in the answer. A stale or unknown picture scores all alike.
#[must_use]
pub fn prioritize<'a>(
    world: &dyn World,
    charges: &Charges,
    counters: &Counters,
    args: &'a Args<'_>,
) -> Vec<HostPriority<'a>> {
    let snapshot = world.snapshot();
    let stale = !snapshot.synced || world.age_ms() > STALE_MS;
    if stale {
        counters.passed_stale.inc();
        return args
            .names()
            .into_iter()
            .map(|host| HostPriority { host, score: 0 })
            .collect();
    }
    let pod = of_call(&snapshot, &args.pod);
    let verdicts = Verdicts {
        snapshot: &snapshot,
        charges,
        pod: &pod,
        now: world.now(),
    };
    let score = |host: &str| {
        snapshot
            .node(host)
            .map_or(0, |node| score(&verdicts, &pod, node))
    };
    args.names()
        .into_iter()
        .map(|host| HostPriority {
            host,
            score: score(host),
        })
        .collect()
}

fn score(verdicts: &Verdicts<'_>, pod: &Pod, node: &StateNode) -> i64 {
    if verdicts.fence(node).is_some() {
        return 0;
    }
    if verdicts.is_expected(node) {
        return 10;
    }
    if !node.initialized {
        return 1;
    }
    let consolidatable = node
        .claim
        .as_ref()
        .is_some_and(|claim| claim.is_true("Consolidatable"));
    2 + 6 * fill_percent(pod, node) / 100 - i64::from(consolidatable)
}

/// How full the fuller of CPU and memory would be with the pod, in per cent.
fn fill_percent(pod: &Pod, node: &StateNode) -> i64 {
    let with = node.used.add(&pod.class.requests);
    let percent = |used: i64, of: i64| {
        if of <= 0 {
            0
        } else {
            (i128::from(used) * 100 / i128::from(of)).clamp(0, 100)
        }
    };
    let fuller =
        percent(with.cpu, node.allocatable.cpu).max(percent(with.memory, node.allocatable.memory));
    i64::try_from(fuller).unwrap_or(100)
}
