//! The page that Prometheus reads: counted series, and facts about the cluster computed at this moment.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;

use mortise_core::disruption::budget_states;
use mortise_core::ledger::NominationOutcomes;
use mortise_core::money::MicroUsd;
use mortise_core::names::PoolName;
use mortise_core::snapshot::{PoolUsage, Snapshot};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::detail::SeriesLimit;
use super::observe::as_i64;
use super::{Metrics, TelemetryDetail, conditions, labels, lifecycle, nodes, offerings, pods};
use crate::service_state::ServiceState;

/// Media type of the page.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Most pools with series of their own. Clusters have up to some 60; later ones, by name, are left out and counted.
pub(super) const MOST_POOLS: usize = 25;
/// Resources per pool that are shown: the standard ones, GPUs and the count of nodes.
pub(super) const RESOURCES: [&str; 6] = [
    "cpu",
    "memory",
    "pods",
    "ephemeral-storage",
    "nvidia.com/gpu",
    "nodes",
];

pub(super) type FloatGauge = Gauge<f64, AtomicU64>;

/// How old what each watch says is. At most one watch per kind, and each is old in one way.
fn watches(live: &mut Registry, shared: &ServiceState) {
    let (freshness, now) = (shared.freshness(), shared.now());
    let silences = Family::<labels::Kind, FloatGauge>::default();
    for (kind, ms) in freshness.silences(now) {
        let kind = kind.to_string();
        silences
            .get_or_create(&labels::Kind { kind })
            .set(seconds(ms));
    }
    live.register(
        "mortise_watch_silence_seconds",
        "Time since the last event or bookmark of a watch",
        silences,
    );
    let old = Family::<labels::OldWatch, Gauge>::default();
    for each in freshness.old(now) {
        let how = each.how.label();
        let kind = each.kind;
        old.get_or_create(&labels::OldWatch { kind, how }).set(1);
    }
    live.register(
        "mortise_old_watches",
        "Watches that are too stale to act on: broken, silent or behind",
        old,
    );
}

impl Metrics {
    /// The page. `calls` are counts kept elsewhere, by label.
    ///
    /// # Errors
    /// Writing text failed, which strings do not do.
    pub fn page(
        &self,
        shared: &ServiceState,
        calls: &BTreeMap<&'static str, u64>,
    ) -> Result<String, fmt::Error> {
        let mut text = String::with_capacity(32 << 10);
        encode_registry(&mut text, &self.registry)?;
        self.machines.termination.encode(&mut text)?;
        self.pods.startup.encode(&mut text)?;
        let mut live = Registry::default();
        let (snapshot, now, ceiling) = (shared.snapshot(), shared.now(), &self.ceiling);
        process(&mut live);
        state(&mut live, shared, &snapshot);
        self.queue(&mut live, &snapshot);
        pods::pending(&mut live, &snapshot, shared.now(), ceiling.most(MOST_ZONES));
        nodes::utilization(&mut live, &snapshot);
        let omitted = pools(&mut live, &snapshot, ceiling.most(MOST_POOLS));
        lifecycle::paused_launches(&mut live, &snapshot);
        lifecycle::drains(&mut live, &shared.records, &snapshot, now);
        budgets(&mut live, &snapshot, now, ceiling);
        let conditions_omitted = conditions::gauges(&mut live, &snapshot, now, ceiling);
        if self.detail() == TelemetryDetail::Full {
            nodes::each_node(&mut live, &snapshot, now);
            self.pods.each(&mut live, &snapshot, now);
            offerings::each(&mut live, &snapshot);
        }
        live.register(
            "mortise_metrics_conditions_omitted",
            "Condition series omitted because of the series limit",
            ConstGauge::new(as_i64(conditions_omitted)),
        );
        live.register(
            "mortise_webhook_calls",
            "Webhook and extender requests by call and result",
            webhook_calls(calls),
        );
        live.register(
            "mortise_metrics_dropped",
            "Observations dropped because of the series limit",
            ConstCounter::new(ceiling.dropped()),
        );
        live.register(
            "mortise_metrics_nodepools_omitted",
            "NodePools omitted because of the series limit",
            ConstGauge::new(as_i64(omitted)),
        );
        encode_registry(&mut text, &live)?;
        encode_eof(&mut text)?;
        Ok(text)
    }

    /// Pods that wait for a place, and since when the plan for them is being made.
    fn queue(&self, live: &mut Registry, snapshot: &Snapshot) {
        let begun = *self.planning.lock().unwrap_or_else(PoisonError::into_inner);
        let unfinished = begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
        let waiting = snapshot.pending.len();
        let waiting = f64::from(u32::try_from(waiting).unwrap_or(u32::MAX));
        let mut own = vec![("controller", "provisioner".to_owned())];
        if self.detail() == TelemetryDetail::Full {
            own.push(("scheduling_id", snapshot.generation.to_string()));
        }
        for (name, help, value) in [
            (
                "karpenter_scheduler_queue_depth",
                "Pods that are pending",
                waiting,
            ),
            (
                "karpenter_scheduler_unfinished_work_seconds",
                "Time since the start of the current scheduling pass",
                unfinished,
            ),
        ] {
            let family = Family::<Vec<(&'static str, String)>, FloatGauge>::default();
            family.get_or_create_owned(&own).set(value);
            live.register(name, help, family);
        }
    }
}

/// Most zones of pending pods that are shown.
const MOST_ZONES: usize = 6;

/// The consolidation policy of a pool as metrics spell it, such as `when_empty`; empty for a pool that is gone.
pub(super) fn policy_of(snapshot: &Snapshot, pool: &PoolName) -> String {
    let pool = snapshot.pools.get(pool);
    let disruption = pool.and_then(|pool| pool.spec.disruption.as_ref());
    let Some(policy) = disruption.and_then(|each| each.consolidation_policy.as_deref()) else {
        return String::new();
    };
    let mut text = String::with_capacity(policy.len() + 4);
    for each in policy.chars() {
        if each.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(each.to_ascii_lowercase());
    }
    text
}

fn webhook_calls(
    calls: &BTreeMap<&'static str, u64>,
) -> Family<labels::Call, prometheus_client::metrics::counter::Counter> {
    let family = Family::<labels::Call, prometheus_client::metrics::counter::Counter>::default();
    for (call, count) in calls {
        family.get_or_create(&labels::Call { call }).inc_by(*count);
    }
    family
}

fn process(live: &mut Registry) {
    if let Some(bytes) = resident_bytes() {
        live.register(
            "process_resident_memory_bytes",
            "Resident memory size in bytes",
            ConstGauge::new(bytes),
        );
        live.register(
            "mortise_resident_memory_bytes",
            "Resident memory size in bytes",
            ConstGauge::new(bytes),
        );
    }
}

/// Resident memory of this process, as the kernel counts it; `None` where there is no `/proc`.
pub(crate) fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<i64>()
        .ok()
        .map(|kib| kib * 1024)
}

fn state(live: &mut Registry, shared: &ServiceState, snapshot: &Snapshot) {
    let synced = i64::from(snapshot.synced);
    live.register(
        "karpenter_cluster_state_node_count",
        "Nodes in the cluster state",
        ConstGauge::new(as_i64(snapshot.nodes.len())),
    );
    live.register(
        "karpenter_cluster_state_synced",
        "1 if all watches are synced",
        ConstGauge::new(synced),
    );
    let unsynced_ms = if snapshot.synced {
        0
    } else {
        shared.health.uptime_ms()
    };
    live.register(
        "karpenter_cluster_state_unsynced_time_seconds",
        "Time during which not all watches were synced",
        ConstGauge::new(seconds(i64::try_from(unsynced_ms).unwrap_or(i64::MAX))),
    );
    let unplaced = snapshot
        .pending
        .values()
        .filter(|pod| snapshot.ledger.nomination(&pod.uid).is_none())
        .count();
    let unschedulable = Family::<labels::Controller, Gauge>::default();
    unschedulable
        .get_or_create(&labels::Controller {
            controller: "provisioner",
        })
        .set(as_i64(unplaced));
    live.register(
        "karpenter_scheduler_unschedulable_pods_count",
        "Pending pods without a nomination",
        unschedulable,
    );
    live.register(
        "mortise_snapshot_age_seconds",
        "Age of the current snapshot",
        ConstGauge::new(seconds(shared.snapshot_age_ms())),
    );
    watches(live, shared);
    live.register(
        "mortise_snapshot_generation",
        "Generation of the current snapshot",
        ConstGauge::new(i64::try_from(snapshot.generation).unwrap_or(i64::MAX)),
    );
    live.register(
        "mortise_pods",
        "Pods in the cluster state",
        ConstGauge::new(as_i64(snapshot.pods.len())),
    );
    live.register(
        "mortise_pod_nominations",
        "Pods nominated to a node or NodeClaim",
        ConstGauge::new(as_i64(snapshot.ledger.nominations().count())),
    );
    live.register(
        "mortise_fences",
        "Nodes fenced against new pods",
        ConstGauge::new(as_i64(snapshot.ledger.fences().len())),
    );
    live.register(
        "mortise_nominations",
        "Nominations that ended, by outcome",
        nominations(snapshot),
    );
    let (records, bytes) = shared.records.size();
    live.register(
        "mortise_decisions_retained",
        "Decisions in memory",
        ConstGauge::new(as_i64(records)),
    );
    live.register(
        "mortise_decisions_retained_bytes",
        "Size of the decisions in memory",
        ConstGauge::new(as_i64(bytes)),
    );
}

fn nominations(
    snapshot: &Snapshot,
) -> Family<labels::Outcome, prometheus_client::metrics::counter::Counter> {
    let NominationOutcomes {
        bound,
        bound_elsewhere,
        expired,
        node_lost,
    } = snapshot.ledger.nomination_outcomes();
    let family = Family::<labels::Outcome, prometheus_client::metrics::counter::Counter>::default();
    for (outcome, count) in [
        ("bound", bound),
        ("bound_elsewhere", bound_elsewhere),
        ("expired", expired),
        ("node_lost", node_lost),
    ] {
        family
            .get_or_create(&labels::Outcome { outcome })
            .inc_by(count);
    }
    family
}

/// Returns how many pools have no series.
fn pools(live: &mut Registry, snapshot: &Snapshot, most: usize) -> usize {
    let usage = PoolUsage::all(snapshot);
    let used = Family::<labels::PoolResource, FloatGauge>::default();
    let limits = Family::<labels::PoolResource, FloatGauge>::default();
    let costs = Family::<labels::Pool, FloatGauge>::default();
    for (name, pool) in snapshot.pools.iter().take(most) {
        let labels = |resource: &str| labels::PoolResource {
            resource_type: resource.to_owned(),
            nodepool: name.to_string(),
        };
        if let Some(usage) = usage.get(name) {
            for resource in RESOURCES {
                let amount = if resource == "nodes" {
                    usage.nodes
                } else {
                    usage.capacity.get(resource)
                };
                if amount != 0 {
                    used.get_or_create(&labels(resource))
                        .set(unit(resource, amount));
                }
            }
        }
        let limit = pool.limits();
        for (resource, amount) in limit
            .resources
            .iter()
            .filter(|(resource, _)| RESOURCES.contains(&resource.as_str()))
        {
            limits
                .get_or_create(&labels(resource))
                .set(unit(resource, *amount));
        }
        if let Some(nodes) = limit.nodes {
            limits
                .get_or_create(&labels("nodes"))
                .set(unit("nodes", nodes));
        }
        // Added up as money: a sum of no floats at all would be -0.
        let cost = snapshot.nodes_of_pool(name).filter_map(|node| node.price);
        let cost = cost.fold(0_i64, |sum, price| sum.saturating_add(price.0));
        costs
            .get_or_create(&labels::Pool {
                nodepool: name.to_string(),
            })
            .set(MicroUsd(cost).dollars());
    }
    live.register(
        "karpenter_nodepools_usage",
        "Capacity of the nodes of a NodePool",
        used,
    );
    live.register("karpenter_nodepools_limit", "Limits of a pool", limits);
    live.register(
        "karpenter_nodepools_cost_total",
        "Price per hour of the nodes of a NodePool, without nodes of unknown price",
        costs,
    );
    snapshot.pools.len().saturating_sub(most)
}

/// What a budget without limit shows, as in Karpenter.
const NO_LIMIT: i64 = 2_147_483_647;
/// Most series about nodes that consume budgets: three for each pool with such a node.
const MOST_CONSUMING: usize = 30;

fn budgets(live: &mut Registry, snapshot: &Snapshot, now: jiff::Timestamp, ceiling: &SeriesLimit) {
    let allowed = Family::<labels::PoolReason, Gauge>::default();
    let consumed = Family::<labels::PoolReason, Gauge>::default();
    let shown = snapshot.pools.keys();
    let shown: Vec<_> = shown.take(ceiling.most(MOST_POOLS)).collect();
    let mut states = budget_states(snapshot, now);
    states.retain(|state| shown.contains(&&state.pool));
    let mut shown_consuming = 0;
    for state in states {
        let labels = labels::PoolReason {
            nodepool: state.pool.to_string(),
            reason: state.reason,
        };
        let most = state.allowed.unwrap_or(NO_LIMIT);
        allowed.get_or_create(&labels).set(most);
        // Nought says nothing: a series comes when a node consumes.
        if state.consumed > 0 && shown_consuming < ceiling.most(MOST_CONSUMING) {
            shown_consuming += 1;
            consumed.get_or_create(&labels).set(state.consumed);
        }
    }
    live.register(
        "karpenter_nodepools_allowed_disruptions",
        "Nodes of a NodePool that its budgets allow to be disrupted at once",
        allowed,
    );
    live.register(
        "karpenter_nodepools_nodes_consuming_budgets",
        "Nodes of a NodePool that are terminating or not ready",
        consumed,
    );
}

/// Amounts are kept in milli-CPU, bytes and counts; metrics use cores, bytes and counts.
#[expect(clippy::cast_precision_loss, reason = "for display only")]
pub(super) fn unit(resource: &str, amount: i64) -> f64 {
    if resource == "cpu" {
        amount as f64 / 1000.0
    } else {
        amount as f64
    }
}

#[expect(clippy::cast_precision_loss, reason = "for display only")]
pub(super) fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}
