//! How well a cluster was run: what it cost, how long pods waited, and how often they moved.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use mortise_apis::names::{NodeName, PoolName};
use mortise_apis::values::money::MicroUsd;
use mortise_apis::values::{after, since};
use mortise_planning::disruption::budget_states;
use mortise_planning::disruption::resource_values::ResourceValues;
use mortise_state::snapshot::Snapshot;
use serde::Serialize;

use crate::moved_pods::MovedPods;

/// Scores of a whole history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scores {
    /// Cost of all instances, in micro-dollars.
    pub spent_micro_usd: i64,
    /// What the pods that ran on managed nodes would have cost at least, in micro-dollars: a linear program every ten minutes,
    /// with pods and nodes divisible, at the prices of what can be launched then. Less can be spent on them only by nodes from
    /// before a shortage.
    pub bound_micro_usd: i64,
    /// Seconds from a pod's creation to its node: of half of the pods, of 99 in 100, and of all, at most.
    pub pending_s: Percentiles,
    /// Pods of DaemonSets that got their node, or should have.
    pub daemon_pods: u64,
    /// Of these, pods that had no node 30 seconds after their creation.
    pub late_daemon_pods: u64,
    /// Spot instances that the cloud announced to take back.
    pub interruptions: u64,
    /// Pods that still ran on such an instance when it was taken, those of DaemonSets not counted.
    pub reclaimed_pods: u64,
    /// Pods evicted.
    pub evictions: u64,
    /// The workload with the most evictions; `None` without evictions.
    pub most_moved: Option<MovedWorkload>,
    /// Instances launched.
    pub nodes_launched: u64,
    /// Of these, instances that ended without a pod ever having been on them, those of DaemonSets not counted.
    pub unused_nodes: u64,
    /// Pods that were bound to another node than the one that they were nominated to; counted once a minute, after which a process
    /// that ends takes no count with it.
    pub bound_elsewhere: u64,
    /// Pods that consolidation moved back within a day: from one kind of node to another, and then the other way.
    pub moved_back: u64,
    /// Most instances at a time.
    pub most_nodes: u64,
    /// Minutes that nodes without pods ran, those of DaemonSets not counted; measured once a minute.
    pub empty_node_minutes: u64,
    /// Minutes that terminated instances lived.
    pub lifetime_min: Percentiles,
    /// The highest share of the disruption budgets of a NodePool that was in use at a time, in percent; measured once a minute. Nodes
    /// that expire, that the cloud takes and that users delete are part of it, so that it can exceed 100.
    pub budget_use_percent: i64,
    /// Gangs that ran: as many of their pods had a node as run together.
    pub gangs: u64,
    /// Seconds from the creation of the last pod that such a gang needed to the nodes of all of them.
    pub gang_wait_s: Percentiles,
    /// Violated invariants.
    pub violations: u64,
}

impl Scores {
    /// What was spent above the bound, in percent of it as a text: `12.3 %`; `unknown` without a bound.
    #[must_use]
    pub fn above_bound(&self) -> String {
        if self.bound_micro_usd <= 0 {
            return "unknown".to_owned();
        }
        let over = (self.spent_micro_usd - self.bound_micro_usd).saturating_mul(1_000);
        let tenths = over / self.bound_micro_usd;
        format!("{}.{} %", tenths / 10, (tenths % 10).abs())
    }

    /// Adds those of another seed: sums of what adds up; of nodes at a time, times and one workload's evictions, the worst.
    pub fn add_seed(&mut self, own: &Self) {
        self.spent_micro_usd += own.spent_micro_usd;
        self.bound_micro_usd += own.bound_micro_usd;
        self.daemon_pods += own.daemon_pods;
        self.late_daemon_pods += own.late_daemon_pods;
        self.interruptions += own.interruptions;
        self.reclaimed_pods += own.reclaimed_pods;
        self.evictions += own.evictions;
        self.nodes_launched += own.nodes_launched;
        self.unused_nodes += own.unused_nodes;
        self.bound_elsewhere += own.bound_elsewhere;
        self.moved_back += own.moved_back;
        self.empty_node_minutes += own.empty_node_minutes;
        self.gangs += own.gangs;
        self.gang_wait_s = self.gang_wait_s.worst(own.gang_wait_s);
        self.violations += own.violations;
        self.most_nodes = self.most_nodes.max(own.most_nodes);
        self.budget_use_percent = self.budget_use_percent.max(own.budget_use_percent);
        self.pending_s = self.pending_s.worst(own.pending_s);
        self.lifetime_min = self.lifetime_min.worst(own.lifetime_min);
        if own.most_moves() > self.most_moves() {
            self.most_moved.clone_from(&own.most_moved);
        }
    }

    /// The most evictions of one workload.
    #[must_use]
    pub fn most_moves(&self) -> u64 {
        self.most_moved.as_ref().map_or(0, |most| most.evictions)
    }
}

/// A distribution in three numbers; all 0 without values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Half of the values are no larger.
    pub p50: i64,
    /// 99 in 100 are no larger.
    pub p99: i64,
    /// The largest.
    pub most: i64,
}

impl Percentiles {
    /// The larger of each.
    fn worst(self, other: Self) -> Self {
        Self {
            p50: self.p50.max(other.p50),
            p99: self.p99.max(other.p99),
            most: self.most.max(other.most),
        }
    }
}

/// How often pods of a workload were evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MovedWorkload {
    /// Name of the owner of the pods.
    pub name: String,
    /// Evictions of its pods.
    pub evictions: u64,
}

/// The cluster in one minute, for plots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterMinute {
    /// Instances at its end.
    pub nodes: u64,
    /// Most pods that had no node at a time, those of DaemonSets included.
    pub pods_waiting: u64,
    /// Price of the instances at its end, in micro-dollars an hour.
    pub price_micro_usd: i64,
    /// The least price of what runs, as last computed, in micro-dollars an hour.
    pub bound_micro_usd: i64,
    /// Pods evicted since the start.
    pub evictions: u64,
}

/// A pod of a DaemonSet is late when it has no node after this.
pub(crate) const LATE_MS: i64 = 30_000;
/// The bound is computed this often, in minutes.
const BOUND_MINUTES: u64 = 10;

/// Accumulates the scores that cannot be read from the state at the end.
#[derive(Debug, Default)]
pub(crate) struct ScoreMeter {
    pending_s: BTreeMap<i64, u64>,
    daemon_pods: u64,
    late_daemon_pods: u64,
    reclaimed_pods: u64,
    lifetime_min: BTreeMap<i64, u64>,
    evictions: BTreeMap<String, u64>,
    /// Nodes that had a pod.
    used: BTreeSet<NodeName>,
    unused_nodes: u64,
    pub(crate) moved: MovedPods,
    /// Pods bound elsewhere, by all processes, and by the present one as last seen.
    bound_elsewhere: (u64, u64),
    most_nodes: u64,
    empty_node_minutes: u64,
    budget_use_percent: i64,
    /// Sum of the bounds so far, in micro-dollars an hour.
    bound: i64,
    /// The last of them.
    last_bound: i64,
    minutes: Vec<ClusterMinute>,
    /// Most pods without a node since the last minute.
    most_waiting: u64,
    /// When nodes are counted next; `None`: never.
    count_at: Option<Timestamp>,
}

impl ScoreMeter {
    /// A pod got its node after these seconds.
    pub(crate) fn pod_placed(&mut self, waited_s: i64) {
        *self.pending_s.entry(waited_s).or_default() += 1;
    }

    /// A pod of a DaemonSet got its node after these seconds.
    pub(crate) fn daemon_pod_placed(&mut self, waited_s: i64) {
        self.daemon_pods += 1;
        self.late_daemon_pods += u64::from(waited_s * 1000 > LATE_MS);
    }

    /// The cloud took an instance on which the pod still was.
    pub(crate) const fn pod_reclaimed(&mut self) {
        self.reclaimed_pods += 1;
    }

    /// A pod that is no DaemonSet's is on a node.
    pub(crate) fn node_used(&mut self, node: &NodeName) {
        if !self.used.contains(node) {
            self.used.insert(node.clone());
        }
    }

    /// An instance that was launched then ended. `node`: its Node, if it had one.
    pub(crate) fn node_ended(
        &mut self,
        launched: Timestamp,
        now: Timestamp,
        node: Option<&NodeName>,
    ) {
        self.unused_nodes += u64::from(!node.is_some_and(|node| self.used.remove(node)));
        let minutes = since(now, launched) / 60_000;
        *self.lifetime_min.entry(minutes).or_default() += 1;
    }

    /// A pod of this owner was evicted; the name of a pod without an owner.
    pub(crate) fn pod_evicted(&mut self, owner: &str) {
        *self.evictions.entry(owner.to_owned()).or_default() += 1;
    }

    /// From now on, nodes are counted.
    pub(crate) const fn begin(&mut self, now: Timestamp) {
        self.count_at = Some(now);
    }

    /// Whether the nodes are to be counted now: once a minute.
    pub(crate) fn is_due(&mut self, now: Timestamp) -> bool {
        if self.count_at.is_none_or(|at| now < at) {
            return false;
        }
        self.count_at = Some(after(now, 60_000));
        true
    }

    /// These pods have no node now.
    pub(crate) fn pods_wait(&mut self, pods: usize) {
        self.most_waiting = self.most_waiting.max(pods as u64);
    }

    /// Counts the nodes of a minute. `price`: of all instances.
    pub(crate) fn count_nodes(
        &mut self,
        instances: usize,
        price: MicroUsd,
        snapshot: &Snapshot,
        now: Timestamp,
    ) {
        self.budget_use_percent = self.budget_use_percent.max(budget_use(snapshot, now));
        self.most_nodes = self.most_nodes.max(instances as u64);
        let nodes = snapshot.nodes.values();
        let empty = nodes.filter(|node| {
            node.is_managed() && node.initialized && node.reschedulable().next().is_none()
        });
        self.empty_node_minutes += empty.count() as u64;
        let (all, last) = &mut self.bound_elsewhere;
        let now = snapshot.ledger.nomination_outcomes().bound_elsewhere;
        // A process that has just started counts from zero.
        *all += now.checked_sub(*last).unwrap_or(now);
        *last = now;
        let minute = self.minutes.len() as u64 + 1;
        if minute.is_multiple_of(BOUND_MINUTES) {
            self.last_bound = least_price(snapshot).0;
            self.bound += self.last_bound;
        }
        self.minutes.push(ClusterMinute {
            nodes: instances as u64,
            pods_waiting: std::mem::take(&mut self.most_waiting),
            price_micro_usd: price.0,
            bound_micro_usd: self.last_bound,
            evictions: self.evictions.values().sum(),
        });
    }

    /// Every minute so far.
    pub(crate) fn minutes(&self) -> &[ClusterMinute] {
        &self.minutes
    }

    /// The scores without the totals that others count.
    pub(crate) fn scores(&self) -> Scores {
        let most = self.evictions.iter().max_by_key(|(_, count)| **count);
        Scores {
            pending_s: percentiles(&self.pending_s),
            most_moved: most.map(|(name, evictions)| MovedWorkload {
                name: name.clone(),
                evictions: *evictions,
            }),
            bound_micro_usd: self.bound * BOUND_MINUTES.cast_signed() / 60,
            daemon_pods: self.daemon_pods,
            late_daemon_pods: self.late_daemon_pods,
            reclaimed_pods: self.reclaimed_pods,
            unused_nodes: self.unused_nodes,
            bound_elsewhere: self.bound_elsewhere.0,
            moved_back: self.moved.back(),
            most_nodes: self.most_nodes,
            empty_node_minutes: self.empty_node_minutes,
            budget_use_percent: self.budget_use_percent,
            lifetime_min: percentiles(&self.lifetime_min),
            ..Scores::default()
        }
    }
}

/// The highest share of the budgets of a NodePool that is in use, in percent: of the reason that allows most. NodePools whose budgets
/// allow nothing, or anything, do not count.
fn budget_use(snapshot: &Snapshot, now: Timestamp) -> i64 {
    let mut pools: BTreeMap<PoolName, (Option<i64>, i64)> = BTreeMap::new();
    for state in budget_states(snapshot, now) {
        let (most, consumed) = pools.entry(state.pool).or_insert((Some(0), 0));
        *most = most
            .zip(state.allowed)
            .map(|(most, allowed)| most.max(allowed));
        *consumed = state.consumed;
    }
    let shares = pools.values().filter_map(|(allowed, consumed)| {
        let allowed = allowed.filter(|allowed| *allowed > 0)?;
        Some(consumed.saturating_mul(100) / allowed)
    });
    shares.max().unwrap_or(0)
}

/// Of values with how often they occurred.
pub(crate) fn percentiles(counts: &BTreeMap<i64, u64>) -> Percentiles {
    let all: u64 = counts.values().sum();
    let at = |percent: u64| {
        let mut left = (all * percent).div_ceil(100);
        let mut values = counts.iter();
        let found = values.find(|(_, count)| {
            left = left.saturating_sub(**count);
            left == 0
        });
        found.map_or(0, |(value, _)| *value)
    };
    Percentiles {
        p50: at(50),
        p99: at(99),
        most: at(100),
    }
}

/// The least price at which the pods of managed nodes could run now, per hour.
///
/// # Cost
/// See [`ResourceValues::of_pods`].
fn least_price(snapshot: &Snapshot) -> MicroUsd {
    let values = ResourceValues::of_pods(snapshot);
    let nodes = snapshot.nodes.values().filter(|node| node.is_managed());
    let pods = nodes.flat_map(|node| node.reschedulable());
    pods.map(|pod| values.value_of(&pod.class.requests)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_least_values_that_so_much_does_not_exceed() {
        let of = |values: &[(i64, u64)]| percentiles(&values.iter().copied().collect());
        let three = |p50, p99, most| Percentiles { p50, p99, most };
        assert_eq!(of(&[]), three(0, 0, 0));
        assert_eq!(of(&[(7, 1)]), three(7, 7, 7));
        assert_eq!(of(&[(1, 50), (2, 49), (90, 1)]), three(1, 2, 90));
        assert_eq!(of(&[(1, 49), (2, 50), (90, 1)]), three(2, 2, 90));
        assert_eq!(of(&[(1, 98), (5, 1), (9, 1)]), three(1, 5, 9));
    }
}
