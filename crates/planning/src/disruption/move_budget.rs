//! Whether consolidation moves more pods of a workload than its user allows in a day.
//!
//! # Rule
//! A workload whose pods have the annotation `mortise.sh/max-moves-per-day`, or else whose nodes have a policy with `maxMovesPerDay`, is not
//! moved by consolidation if more of its pods than that would be younger than a day afterwards. Pods count that are younger than a day, whatever brought them, those on nodes that are about to go, and those
//! that the command moves. So after a rollout such a workload rests for a day.
//!
//! Empty nodes, drift, expiry and interruption do not ask.
//!
//! # Source
//! Creation times of pods. No object says that a pod came because another one was evicted; counting every young pod needs no memory, so a
//! restart or a new leader changes nothing, and errs on the side of rest.

use std::collections::BTreeMap;

use super::candidate::Candidate;
use super::disruption_view::DisruptionView;
use super::rejection::DisruptionRejection;
use crate::reason::{DisruptionBlocker, MoveBudgetSource};
use mortise_apis::names::Uid;
use mortise_apis::values::since;
use mortise_state::snapshot::{Pod, Snapshot};

const DAY_MS: i64 = 24 * 3_600_000;

/// Pods of workloads with a move budget that are young or about to be moved by other commands, by owner.
#[derive(Debug, Default)]
pub(super) struct RecentMoves {
    by_owner: BTreeMap<Uid, usize>,
}

impl RecentMoves {
    /// Those of the cluster of a view.
    ///
    /// # Cost
    /// One pass over all pods.
    pub(super) fn of(view: &DisruptionView<'_>) -> Self {
        let snapshot = view.snapshot();
        let is_leaving = |pod: &Pod| {
            let node = pod.node.as_ref().and_then(|name| snapshot.named.get(name));
            node.is_some_and(|node| node.deleting || view.is_taken(&node.key))
        };
        // A policy may limit any workload.
        let mut policies = snapshot
            .pools
            .keys()
            .filter_map(|pool| snapshot.policy_of(pool));
        let are_all = policies.any(|policy| policy.max_moves_per_day.is_some());
        let mut by_owner: BTreeMap<Uid, usize> = BTreeMap::new();
        let budgeted = snapshot.pods.values().filter(|pod| {
            (are_all || pod.max_moves_per_day.is_some())
                && pod.is_active()
                && (since(view.now, pod.created) < DAY_MS || is_leaving(pod))
        });
        for owner in budgeted.filter_map(|pod| pod.owner.as_ref()) {
            *by_owner.entry(owner.uid.clone()).or_default() += 1;
        }
        Self { by_owner }
    }
}

/// How many moves a workload may have in a day, and who says so.
#[derive(Clone, Copy)]
enum MoveBudget<'a> {
    /// An annotation of the pod, as written.
    Annotation(&'a str),
    /// The policy of the node's NodePool, with its name.
    Policy(&'a str, usize),
}

impl<'a> MoveBudget<'a> {
    /// The annotation of a pod, or else the policy of the NodePool that it leaves.
    fn of(pod: &'a Pod, pool: &str, snapshot: &'a Snapshot) -> Option<Self> {
        if let Some(value) = &pod.max_moves_per_day {
            return Some(Self::Annotation(value));
        }
        let policy = snapshot.policy_of(pool)?;
        Some(Self::Policy(&policy.name, policy.max_moves_per_day?))
    }

    /// The number; `None` if it is none.
    fn allowed(self) -> Option<usize> {
        match self {
            Self::Annotation(value) => value.parse().ok(),
            Self::Policy(_, allowed) => Some(allowed),
        }
    }

    fn source(self) -> MoveBudgetSource {
        match self {
            Self::Annotation(value) => MoveBudgetSource::Annotation(value.to_owned()),
            Self::Policy(name, _) => MoveBudgetSource::Policy(name.to_owned()),
        }
    }
}

/// Pods of one workload that a command moves.
struct Moved<'a> {
    pod: &'a Pod,
    budget: MoveBudget<'a>,
    allowed: Option<usize>,
    pods: usize,
    /// Those of them that are younger than a day: they count once.
    young: usize,
}

/// Checks that a command keeps the move budgets of the workloads whose pods it evicts.
pub(super) fn check(
    candidates: &[&Candidate],
    view: &DisruptionView<'_>,
) -> Result<(), DisruptionRejection> {
    let mut workloads: BTreeMap<&Uid, Moved<'_>> = BTreeMap::new();
    let pods = candidates
        .iter()
        .flat_map(|each| each.pods.iter().map(|pod| (&each.pool_name, pod)));
    for (pool, pod) in pods {
        let budget = MoveBudget::of(pod, pool.as_str(), view.snapshot());
        let (Some(owner), Some(budget)) = (&pod.owner, budget) else {
            continue;
        };
        // Of several, as on nodes of several NodePools, the strictest holds; what cannot be read allows none.
        let allowed = budget.allowed();
        let moved = workloads.entry(&owner.uid).or_insert(Moved {
            pod,
            budget,
            allowed,
            pods: 0,
            young: 0,
        });
        if allowed < moved.allowed {
            (moved.budget, moved.allowed) = (budget, allowed);
        }
        moved.pods += 1;
        moved.young += usize::from(since(view.now, pod.created) < DAY_MS);
    }
    for (owner, moved) in workloads {
        let Moved {
            pod,
            budget,
            allowed,
            pods,
            young,
        } = moved;
        let recent = view.recent_moves().by_owner.get(owner);
        let recent = recent.copied().unwrap_or_default();
        if recent.saturating_sub(young) + pods <= allowed.unwrap_or(0) {
            continue;
        }
        let workload = pod.owner_key().map(|name| name.to_string());
        return Err(DisruptionRejection::from_reason(
            DisruptionBlocker::MovesUsedUp {
                workload: workload.unwrap_or_default(),
                source: budget.source(),
                allowed,
                recent,
                pods,
            },
        ));
    }
    Ok(())
}
