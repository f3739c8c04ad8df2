//! Conditions and terminations of NodeClaims, NodePools and CapacityBuffers, under the names of operatorpkg, Karpenter's controller library.
//!
//! Karpenter has a series per object, and so has the page in full detail. By default NodeClaims are aggregated, so that the
//! page does not grow with the cluster: `count` is the number of objects with this status, `seconds` is the longest duration
//! among them, and `name` is empty. The metrics per kind (`operator_nodeclaim_...`) label NodeClaims by NodePool and node
//! class, NodePools by name, and CapacityBuffers by namespace and name. Nodes and node classes appear in full detail only.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::labels::{INITIALIZED, NODEPOOL, node_class_key};
use mortise_apis::values::since;
use mortise_state::snapshot::Snapshot;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{FloatGauge, MOST_POOLS};
use crate::config::TelemetryDetail;
use crate::metrics::SeriesLimit;
use crate::metrics::conditions::{ConditionedKind, Seen, condition_states};
use crate::metrics::numbers::seconds;

/// Maximum series of each of these gauges. Statuses other than True come first, because those are searched for.
const MOST_SERIES: usize = 30;

type ConditionSeries = Vec<(String, String)>;

/// Number of objects, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct ConditionState {
    count: u32,
    oldest_ms: i64,
}

/// ConditionGauges of one name prefix.
#[derive(Default)]
struct ConditionGauges {
    states: BTreeMap<ConditionSeries, ConditionState>,
    terminating: BTreeMap<ConditionSeries, ConditionState>,
}

impl ConditionGauges {
    fn add(
        &mut self,
        own: &[(&str, String)],
        conditions: &[Seen<'_>],
        deleted: Option<Timestamp>,
        now: Timestamp,
    ) {
        let series = |more: &[(&str, &str)]| -> ConditionSeries {
            let own = own.iter().map(|(key, value)| (*key, value.as_str()));
            own.chain(more.iter().copied())
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect()
        };
        let enter = |into: &mut BTreeMap<ConditionSeries, ConditionState>,
                     at: ConditionSeries,
                     from: Timestamp| {
            let state = into.entry(at).or_default();
            state.count += 1;
            state.oldest_ms = state.oldest_ms.max(since(now, from));
        };
        for condition in conditions {
            let more = [
                ("type", condition.type_),
                ("status", condition.status),
                ("reason", condition.reason),
            ];
            let from = condition.since.unwrap_or(now);
            enter(&mut self.states, series(&more), from);
        }
        if let Some(deleted) = deleted {
            enter(&mut self.terminating, series(&[]), deleted);
        }
    }

    /// Returns the number of omitted series.
    fn register(self, live: &mut Registry, prefix: &str, limit: &SeriesLimit) -> usize {
        let mut omitted = 0;
        let most = limit.scaled(MOST_SERIES);
        let counts = Family::<ConditionSeries, FloatGauge>::default();
        let ages = Family::<ConditionSeries, FloatGauge>::default();
        let terminating = Family::<ConditionSeries, FloatGauge>::default();
        let mut states: Vec<_> = self.states.into_iter().collect();
        let holds = |series: &ConditionSeries| series.iter().any(|(_, value)| value == "True");
        states.sort_by_key(|(series, _)| holds(series));
        for (position, (series, state)) in states.into_iter().enumerate() {
            if position >= most {
                omitted += 2;
                continue;
            }
            counts.get_or_create(&series).set(f64::from(state.count));
            ages.get_or_create(&series).set(seconds(state.oldest_ms));
        }
        for (position, (series, state)) in self.terminating.into_iter().enumerate() {
            if position >= most {
                omitted += 1;
                continue;
            }
            let gauge = terminating.get_or_create(&series);
            gauge.set(seconds(state.oldest_ms));
        }
        live.register(
            format!("{prefix}_status_condition_count"),
            "Objects by condition status",
            counts,
        );
        live.register(
            format!("{prefix}_status_condition_current_status_seconds"),
            "Time since the last change of a condition, maximum over objects",
            ages,
        );
        live.register(
            format!("{prefix}_termination_current_time_seconds"),
            "Time since the deletion timestamp, maximum over objects",
            terminating,
        );
        omitted
    }
}

/// Registers the gauges. Returns the number of omitted series.
pub(super) fn gauges(
    live: &mut Registry,
    snapshot: &Snapshot,
    now: Timestamp,
    limit: &SeriesLimit,
) -> usize {
    let is_full = limit.detail == TelemetryDetail::Full;
    let mut of_claims = ConditionGauges::default();
    let mut of_pools = ConditionGauges::default();
    let mut of_all = ConditionGauges::default();
    let named = |name: &str| [("namespace", String::new()), ("name", name.to_owned())];
    let of_kind = |kind: ConditionedKind, name: &str| {
        let [namespace, name] = named(if is_full { name } else { "" });
        let group = ("group", kind.group().to_owned());
        [namespace, name, group, ("kind", kind.kind().to_owned())]
    };
    for (name, pool) in snapshot.pools.iter() {
        let (conditions, deleted) = (
            condition_states(&pool.status.conditions),
            deleted(&pool.metadata),
        );
        let shared = of_kind(ConditionedKind::Pool, name);
        of_all.add(&shared, &conditions, deleted, now);
        of_pools.add(&named(name), &conditions, deleted, now);
    }
    let mut of_buffers = ConditionGauges::default();
    let buffers = snapshot.buffers.iter();
    for (key, buffer) in buffers.filter(|(_, buffer)| !buffer.is_foreign()) {
        let conditions = condition_states(&buffer.status.conditions);
        let deleted = deleted(&buffer.metadata);
        let [shared_namespace, shared_name] = if is_full {
            [key.namespace.to_string(), key.name.to_string()]
        } else {
            [String::new(), String::new()]
        };
        let kind = ConditionedKind::Buffer;
        let shared = [
            ("namespace", shared_namespace),
            ("name", shared_name),
            ("group", kind.group().to_owned()),
            ("kind", kind.kind().to_owned()),
        ];
        of_all.add(&shared, &conditions, deleted, now);
        let own = [
            ("namespace", key.namespace.to_string()),
            ("name", key.name.to_string()),
        ];
        of_buffers.add(&own, &conditions, deleted, now);
    }
    let most = limit.scaled(MOST_POOLS);
    let shown: Vec<_> = snapshot.pools.keys().take(most).collect();
    let pool_label = label_name(NODEPOOL);
    for claim in snapshot.claims.values() {
        let (conditions, deleted) = (
            condition_states(&claim.status.conditions),
            deleted(&claim.metadata),
        );
        let shared = of_kind(ConditionedKind::Claim, &claim.name());
        of_all.add(&shared, &conditions, deleted, now);
        let pool = claim.pool().unwrap_or_else(|| "".into());
        if !shown.contains(&&pool) && !is_full {
            continue;
        }
        let class = claim.node_class_key();
        let class_label = label_name(&node_class_key(&class.group, &class.kind));
        let claim_name = claim.name();
        let [namespace, name] = named(if is_full { &claim_name } else { "" });
        let own = [
            namespace,
            name,
            (class_label.as_str(), class.name.to_string()),
            (pool_label.as_str(), pool.to_string()),
        ];
        of_claims.add(&own, &conditions, deleted, now);
    }
    let mut omitted = of_claims.register(live, "operator_nodeclaim", limit)
        + of_pools.register(live, "operator_nodepool", limit)
        + of_buffers.register(live, "operator_capacitybuffer", limit)
        + of_all.register(live, "operator", limit);
    if is_full {
        omitted += node_gauges(snapshot, now).register(live, "operator_node", limit);
        for (kind, gauges) in class_gauges(snapshot, now) {
            omitted += gauges.register(live, &format!("operator_{kind}"), limit);
        }
    }
    omitted
}

/// Managed Nodes, one series each.
fn node_gauges(snapshot: &Snapshot, now: Timestamp) -> ConditionGauges {
    let mut gauges = ConditionGauges::default();
    let initialized = label_name(INITIALIZED);
    let pool_label = label_name(NODEPOOL);
    for state_node in snapshot.nodes.values() {
        let (Some(node), Some(claim)) = (&state_node.node, &state_node.claim) else {
            continue;
        };
        let class = claim.node_class_key();
        let class_label = label_name(&node_class_key(&class.group, &class.kind));
        let label = |key: &str| node.label(key).unwrap_or_default().to_owned();
        let own = [
            ("namespace", String::new()),
            ("name", node.metadata.name.clone().unwrap_or_default()),
            (class_label.as_str(), class.name.to_string()),
            (pool_label.as_str(), label(NODEPOOL)),
            (initialized.as_str(), label(INITIALIZED)),
        ];
        let conditions = condition_states(&node.status.conditions);
        gauges.add(&own, &conditions, deleted(&node.metadata), now);
    }
    gauges
}

/// Node classes, one series each, by their kind in lower case.
fn class_gauges(snapshot: &Snapshot, now: Timestamp) -> BTreeMap<String, ConditionGauges> {
    let mut all: BTreeMap<String, ConditionGauges> = BTreeMap::new();
    for (key, class) in &*snapshot.node_classes {
        let own = [("namespace", String::new()), ("name", key.name.to_string())];
        let gauges = all.entry(key.kind.to_lowercase()).or_default();
        gauges.add(
            &own,
            &condition_states(&class.conditions),
            deleted(&class.metadata),
            now,
        );
    }
    all
}

fn deleted(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Option<Timestamp> {
    meta.deletion_timestamp.as_ref().map(|time| time.0)
}

/// A label key as a label name: characters that Prometheus does not allow become `_`.
fn label_name(key: &str) -> String {
    let allowed = |each: char| {
        if each.is_ascii_alphanumeric() {
            each
        } else {
            '_'
        }
    };
    key.chars().map(allowed).collect()
}
