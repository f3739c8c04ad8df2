//! Conditions and terminations of claims and pools, under the names that the library behind Karpenter's kinds gives them.
//!
//! Karpenter has a series per object, and so has the full page. By default claims are summed up, so that the page does not
//! grow with the cluster: `count` is how many objects have this status, the `seconds` are those of the one that has had it
//! longest, and `name` is empty. The names for every kind (`operator_nodeclaim_...`) tell claims by pool and node class, and
//! pools by name. Nodes and node classes are told of in full only.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::Condition;
use mortise_apis::labels::{INITIALIZED, NODEPOOL, node_class_key};
use mortise_apis::values::since;
use mortise_state::snapshot::Snapshot;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde::Deserialize;

use super::{FloatGauge, MOST_POOLS};
use crate::config::TelemetryDetail;
use crate::metrics::SeriesLimit;
use crate::metrics::conditions::{ConditionedKind, GROUP, Seen, seen};
use crate::metrics::numbers::seconds;

/// Most series of each of these gauges. What is not True comes first: that is what one searches.
const MOST_SERIES: usize = 30;

type ConditionSeries = Vec<(String, String)>;

/// How many, and since when.
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

    /// Returns how many series were left out.
    fn register(self, live: &mut Registry, prefix: &str, limit: &SeriesLimit) -> usize {
        let mut omitted = 0;
        let most = limit.most(MOST_SERIES);
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

/// Registers the gauges. Returns how many series were left out.
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
        let group = ("group", GROUP.to_owned());
        [namespace, name, group, ("kind", kind.kind().to_owned())]
    };
    for (name, pool) in snapshot.pools.iter() {
        let (conditions, deleted) = (seen(&pool.status.conditions), deleted(&pool.metadata));
        let shared = of_kind(ConditionedKind::Pool, name);
        of_all.add(&shared, &conditions, deleted, now);
        of_pools.add(&named(name), &conditions, deleted, now);
    }
    let most = limit.most(MOST_POOLS);
    let shown: Vec<_> = snapshot.pools.keys().take(most).collect();
    let pool_label = label_name(NODEPOOL);
    for claim in snapshot.claims.values() {
        let (conditions, deleted) = (seen(&claim.status.conditions), deleted(&claim.metadata));
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
        + of_all.register(live, "operator", limit);
    if is_full {
        omitted += of_nodes(snapshot, now).register(live, "operator_node", limit);
        for (kind, gauges) in of_classes(snapshot, now) {
            omitted += gauges.register(live, &format!("operator_{kind}"), limit);
        }
    }
    omitted
}

/// Nodes of pools, each by itself.
fn of_nodes(snapshot: &Snapshot, now: Timestamp) -> ConditionGauges {
    let mut gauges = ConditionGauges::default();
    let initialized = label_name(INITIALIZED);
    let pool_label = label_name(NODEPOOL);
    for machine in snapshot.nodes.values() {
        let (Some(node), Some(claim)) = (&machine.node, &machine.claim) else {
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
        let conditions = seen(&node.status.conditions);
        gauges.add(&own, &conditions, deleted(&node.metadata), now);
    }
    gauges
}

/// Node classes, each by itself, by their kind in lower case.
fn of_classes(snapshot: &Snapshot, now: Timestamp) -> BTreeMap<String, ConditionGauges> {
    let mut all: BTreeMap<String, ConditionGauges> = BTreeMap::new();
    for (key, class) in &*snapshot.node_classes {
        let list = class.object.pointer("/status/conditions");
        let list = list.and_then(|list| Vec::<Condition>::deserialize(list).ok());
        let deleted = class.object.pointer("/metadata/deletionTimestamp");
        let deleted = deleted.and_then(|at| at.as_str()?.parse().ok());
        let own = [("namespace", String::new()), ("name", key.name.to_string())];
        let gauges = all.entry(key.kind.to_lowercase()).or_default();
        gauges.add(&own, &seen(&list.unwrap_or_default()), deleted, now);
    }
    all
}

fn deleted(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Option<Timestamp> {
    meta.deletion_timestamp.as_ref().map(|time| time.0)
}

/// A label key as a label name: what Prometheus does not allow becomes `_`.
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
