//! Whether what consolidation saves pays for evicting pods of workloads that change all the time.
//!
//! # Rule
//! A workload churns if a tenth of its pods are of the last day and came an hour later than its oldest pod: it was scaled, or its
//! pods were evicted. Room that is packed for it today is launched again tomorrow, or in an hour.
//!
//! To evict a pod of such a workload costs what an average pod of the NodePool costs in `--consolidation-eviction-cost`: the
//! requested part of the price of its nodes, or a cluster that wastes much would never be packed. The savings must pay for that while
//! they last:
//!
//! - What a node costs more than as much capacity elsewhere is saved as long as prices stay as they are: [`PRICES_LAST_MS`].
//! - What capacity is saved is saved until the load changes: an hour, or a quarter of the time in which no pod came to the nodes or
//!   left them.
//!
//! Pods of other workloads cost nothing, as in Karpenter: new workloads, rollouts, and those that were scaled down once.
//!
//! # Source
//! Creation times of pods and times of pod events of NodeClaims: every replica sees the same, and it survives a restart.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;
use jiff::Timestamp;

use super::candidate::Candidate;
use super::command::RelocationPlan;
use super::disruption_view::DisruptionView;
use super::rejection::DisruptionRejection;
use super::totals::price_of_part;
use crate::reason::DisruptionBlocker;
use crate::scheduling::PlannedClaim;
use mortise_apis::names::Uid;
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::values::since;
use mortise_state::snapshot::{EvictionCost, Pod, Snapshot};

const HOUR_MS: i64 = 3_600_000;

/// Pods that came within this time show churn.
const DAY_MS: i64 = 24 * HOUR_MS;

/// ... if their workload was this old then: a rollout is over.
const LATE_MS: i64 = HOUR_MS;

/// One pod of this many is enough.
const ONE_OF: usize = 10;

/// How long the difference between two prices is expected to last.
const PRICES_LAST_MS: i64 = 12 * HOUR_MS;

/// How long a load is expected to last at least ...
const LOAD_LASTS_MS: i64 = HOUR_MS;

/// ... and which part of the time that it has lasted.
const LOAD_LASTS_PART: i64 = 4;

/// Workloads whose pods come and go, or are evicted again and again.
#[derive(Debug, Default)]
pub(super) struct ChurningWorkloads {
    owners: BTreeSet<Uid>,
}

/// Ages of the pods of one workload.
#[derive(Clone, Copy, Debug)]
struct Ages {
    pods: usize,
    oldest: Timestamp,
    late: usize,
}

impl ChurningWorkloads {
    /// Those of a snapshot.
    ///
    /// # Cost
    /// Two passes over all pods.
    pub(super) fn of(snapshot: &Snapshot, now: Timestamp) -> Self {
        let pods = || {
            let active = snapshot.pods.values().filter(|pod| pod.is_active());
            active.filter_map(|pod| Some((&pod.owner.as_ref()?.uid, pod.created)))
        };
        // Hashed: in a sorted map most of the time went into comparing UIDs.
        let mut all: HashMap<&Uid, Ages, FixedState> = HashMap::default();
        for (owner, created) in pods() {
            let ages = all.entry(owner).or_insert(Ages {
                pods: 0,
                oldest: created,
                late: 0,
            });
            ages.pods += 1;
            ages.oldest = ages.oldest.min(created);
        }
        all.retain(|_, ages| since(now, ages.oldest) > LATE_MS);
        for (owner, created) in pods() {
            let Some(ages) = all.get_mut(owner) else {
                continue;
            };
            let is_late = since(created, ages.oldest) > LATE_MS && since(now, created) < DAY_MS;
            ages.late += usize::from(is_late);
        }
        all.retain(|_, ages| ages.late > 0 && ages.late * ONE_OF >= ages.pods);
        Self {
            owners: all.into_keys().cloned().collect(),
        }
    }

    /// Whether a pod belongs to one.
    pub(super) fn has(&self, pod: &Pod) -> bool {
        let owner = pod.owner.as_ref();
        owner.is_some_and(|owner| self.owners.contains(&owner.uid))
    }
}

/// Checks that a command pays for the pods that it evicts.
pub(super) fn check(
    moves: &RelocationPlan,
    candidates: &[&Candidate],
    view: &DisruptionView<'_>,
) -> Result<(), DisruptionRejection> {
    let costs = candidates.iter().map(|each| cost_ms(each, view));
    let cost_ms = costs.max().unwrap_or_default();
    if cost_ms == 0 {
        return Ok(());
    }
    let (Some(old), Some(new)) = (moves.old, moves.new) else {
        return Ok(()); // refused elsewhere
    };
    let savings = Savings::of(old, new, &moves.claims, candidates, view);
    let totals = view.totals_of(candidates.iter().map(|each| &each.pool_name));
    let all = i128::from(totals.disruption.max(EvictionCost::ONE.0));
    let is_paid = |pods: &[&Pod]| {
        let costs = pods.iter().map(|pod| pod.eviction_cost().0.max(0));
        let own: i128 = costs.map(i128::from).sum();
        let costs = i128::from(totals.used_price.0) * own / all * i128::from(cost_ms);
        own == 0 || savings.in_total() >= costs
    };
    let pods = candidates.iter().flat_map(|each| each.pods.iter());
    let mut evicted: Vec<&Pod> = pods.map(|pod| &**pod).collect();
    // Which workloads churn takes two passes over all pods, and does not matter if evicting all of these pods is paid for.
    if is_paid(&evicted) {
        return Ok(());
    }
    let churning = view.churning();
    evicted.retain(|pod| churning.has(pod));
    if is_paid(&evicted) {
        return Ok(());
    }
    let most = evicted
        .iter()
        .max_by_key(|pod| (pod.eviction_cost(), Reverse(&pod.key)));
    let workload = most.and_then(|pod| pod.owner_key());
    let blocker = DisruptionBlocker::PaysForTooLittle {
        saved: old - new,
        pods: evicted.len(),
        workload: workload.map(|name| name.to_string()).unwrap_or_default(),
    };
    Err(DisruptionRejection::from_reason(blocker))
}

/// For how long the price of an average pod is what an eviction from this node costs: what its policy says, or the setting.
fn cost_ms(candidate: &Candidate, view: &DisruptionView<'_>) -> i64 {
    let policy = view.snapshot().policy_of(&candidate.pool_name);
    let own = policy.and_then(|policy| policy.eviction_cost_ms);
    own.unwrap_or(view.context.settings.consolidation_eviction_cost_ms)
}

/// What is saved per hour, and for how many milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Savings {
    of_prices: i128,
    of_load: i128,
    load_lasts_ms: i64,
}

impl Savings {
    fn of(
        old: MicroUsd,
        new: MicroUsd,
        claims: &[PlannedClaim],
        candidates: &[&Candidate],
        view: &DisruptionView<'_>,
    ) -> Self {
        let mut before = Resources::zero();
        for each in candidates {
            before.add_assign(&each.node.capacity);
        }
        let mut then = Resources::zero();
        for claim in claims {
            if let Some(capacity) = capacity_of(claim, view) {
                then.add_assign(&capacity);
            }
        }
        let of_prices = saved_by_prices(old, new, &before, &then);
        let events = candidates
            .iter()
            .filter_map(|each| last_pod_event(each))
            .max();
        let calm = events.map_or(0, |last| since(view.now, last));
        Self {
            of_prices,
            of_load: i128::from((old - new).0) - of_prices,
            load_lasts_ms: LOAD_LASTS_MS.max(calm / LOAD_LASTS_PART),
        }
    }

    fn in_total(self) -> i128 {
        self.of_prices * i128::from(PRICES_LAST_MS) + self.of_load * i128::from(self.load_lasts_ms)
    }
}

/// What the capacity that is there afterwards cost before, less what it costs then. The capacity is that of CPU or memory, of
/// which more is left.
fn saved_by_prices(old: MicroUsd, new: MicroUsd, before: &Resources, then: &Resources) -> i128 {
    (price_of_part(old, then, before) - i128::from(new.0)).max(0)
}

fn capacity_of(claim: &PlannedClaim, view: &DisruptionView<'_>) -> Option<Resources> {
    let pool = view.snapshot().pools.get(&claim.pool)?;
    let name = &claim.cheapest.as_ref()?.instance_type;
    let found = view.snapshot().catalog_of(pool)?.get(name)?;
    Some(found.capacity.clone())
}

/// When a pod came to the node or left it; its creation if none ever did.
fn last_pod_event(candidate: &Candidate) -> Option<Timestamp> {
    let event = candidate.claim.status.last_pod_event_time.as_ref();
    event
        .map(|time| time.0)
        .into_iter()
        .chain(candidate.node.created())
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_save_what_the_capacity_that_stays_costs_less() {
        let of = |old, new, before: (i64, i64), then: (i64, i64)| {
            saved_by_prices(
                MicroUsd(old),
                MicroUsd(new),
                &Resources::new(before.0, before.1),
                &Resources::new(then.0, then.1),
            )
        };
        // The same capacity at half the price.
        assert_eq!(of(100, 50, (16, 64), (16, 64)), 50);
        // Half the capacity at half the price.
        assert_eq!(of(100, 50, (16, 64), (8, 32)), 0);
        // Half of it at a quarter of the price.
        assert_eq!(of(100, 25, (16, 64), (8, 32)), 25);
        // As much CPU with less memory.
        assert_eq!(of(100, 80, (16, 128), (16, 32)), 20);
        // Nothing is launched.
        assert_eq!(of(100, 0, (16, 64), (0, 0)), 0);
        // More capacity for less.
        assert_eq!(of(100, 90, (16, 64), (32, 128)), 10);
    }
}
