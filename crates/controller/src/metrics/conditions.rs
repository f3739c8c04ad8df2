//! Conditions and terminations of claims and pools, under the names that the library behind Karpenter's kinds gives them.
//!
//! Karpenter has a series per object, and so has the full page. By default claims are summed up, so that the page does not
//! grow with the cluster: `count` is how many objects have this status, the `seconds` are those of the one that has had it
//! longest, and `name` is empty. The names for every kind (`operator_nodeclaim_...`) tell claims by pool and node class, and
//! pools by name. Nodes and node classes are told of in full only.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_core::apis::k8s::{Node, ObjectCondition};
use mortise_core::apis::{Condition, NodeClaim, NodePool};
use mortise_core::labels::{INITIALIZED, NODEPOOL, node_class_key};
use mortise_core::snapshot::Snapshot;
use mortise_core::values::since;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use serde::Deserialize;

use super::detail::{SeriesLimit, TelemetryDetail};
use super::exposition::{FloatGauge, MOST_POOLS, seconds};
use super::observe::count;
use super::{Counters, Histograms, Metrics, counters, histograms, labels};

/// Most series of each of these gauges. What is not True comes first: that is what one looks for.
const MOST_SERIES: usize = 30;
const GROUP: &str = "karpenter.sh";

/// A kind with conditions of this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConditionedKind {
    Claim,
    Pool,
    Node,
}

impl ConditionedKind {
    const fn kind(self) -> &'static str {
        match self {
            Self::Claim => "NodeClaim",
            Self::Pool => "NodePool",
            Self::Node => "Node",
        }
    }
}

/// Some of the bounds that Karpenter has for conditions.
fn long_duration() -> Histogram {
    Histogram::new([2.0, 32.0, 512.0, 4096.0])
}

/// Karpenter's bounds for conditions: from half a second, doubling.
fn fine_long_duration() -> Histogram {
    let bounds = std::iter::successors(Some(0.5), |bound| Some(bound * 2.0));
    Histogram::new(bounds.take(15))
}

/// What is counted of the conditions of every kind.
#[derive(Debug)]
pub(super) struct ConditionMetrics {
    claims: OfKind,
    pools: OfKind,
    nodes: Option<OfKind>,
    transitions: Counters<labels::TransitionOfKind>,
    times: Histograms<labels::Duration>,
    ended: Histograms<labels::GroupKind>,
}

/// What is counted of one kind.
#[derive(Debug)]
struct OfKind {
    transitions: Counters<labels::Transition>,
    /// Those with a set of series for each status of each condition.
    times: Option<(Histograms<labels::TypeStatus>, Histogram)>,
}

impl OfKind {
    fn register(registry: &mut Registry, ceiling: &SeriesLimit, kind: &str, most: usize) -> Self {
        let transitions = counters(
            registry,
            &format!("operator_{kind}_status_condition_transitions"),
            "Status changes of conditions of this kind",
            most,
            ceiling,
        );
        let times = (ceiling.detail == TelemetryDetail::Full).then(|| {
            let times = histograms(
                registry,
                &format!("operator_{kind}_status_condition_transition_seconds"),
                "Time that conditions had a status before it changed",
                0,
                fine_long_duration,
                ceiling,
            );
            let ended = fine_long_duration();
            registry.register(
                format!("operator_{kind}_termination_duration_seconds"),
                "Time from the deletion timestamp of an object until it was removed",
                ended.clone(),
            );
            (times, ended)
        });
        Self { transitions, times }
    }
}

impl ConditionMetrics {
    pub(super) fn register(registry: &mut Registry, ceiling: &SeriesLimit) -> Self {
        let (r, c) = (registry, ceiling);
        let is_full = c.detail == TelemetryDetail::Full;
        let bounds = if is_full {
            fine_long_duration
        } else {
            long_duration
        };
        Self {
            claims: OfKind::register(r, c, "nodeclaim", 24),
            pools: OfKind::register(r, c, "nodepool", 8),
            nodes: is_full.then(|| OfKind::register(r, c, "node", 0)),
            transitions: counters(
                r,
                "operator_status_condition_transitions",
                "Status changes of conditions",
                28,
                c,
            ),
            times: histograms(
                r,
                "operator_status_condition_transition_seconds",
                "Time that conditions had a status before it changed",
                8,
                bounds,
                c,
            ),
            ended: histograms(
                r,
                "operator_termination_duration_seconds",
                "Time from the deletion timestamp of an object until it was removed",
                2,
                bounds,
                c,
            ),
        }
    }

    const fn of(&self, kind: ConditionedKind) -> Option<&OfKind> {
        match kind {
            ConditionedKind::Claim => Some(&self.claims),
            ConditionedKind::Pool => Some(&self.pools),
            ConditionedKind::Node => self.nodes.as_ref(),
        }
    }
}

/// A condition, whatever kind of object has it.
#[derive(Clone, Copy, Debug)]
struct Seen<'a> {
    type_: &'a str,
    status: &'a str,
    reason: &'a str,
    since: Option<Timestamp>,
}

impl<'a> From<&'a Condition> for Seen<'a> {
    fn from(condition: &'a Condition) -> Self {
        Self {
            type_: &condition.type_,
            status: condition.status.as_str(),
            reason: &condition.reason,
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        }
    }
}

impl<'a> From<&'a ObjectCondition> for Seen<'a> {
    fn from(condition: &'a ObjectCondition) -> Self {
        Self {
            type_: &condition.type_,
            status: &condition.status,
            reason: &condition.reason,
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        }
    }
}

fn seen<'a, C>(all: &'a [C]) -> Vec<Seen<'a>>
where
    Seen<'a>: From<&'a C>,
{
    all.iter().map(Seen::from).collect()
}

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
    fn register(self, live: &mut Registry, prefix: &str, ceiling: &SeriesLimit) -> usize {
        let mut left_out = 0;
        let most = ceiling.most(MOST_SERIES);
        let counts = Family::<ConditionSeries, FloatGauge>::default();
        let ages = Family::<ConditionSeries, FloatGauge>::default();
        let terminating = Family::<ConditionSeries, FloatGauge>::default();
        let mut states: Vec<_> = self.states.into_iter().collect();
        let holds = |series: &ConditionSeries| series.iter().any(|(_, value)| value == "True");
        states.sort_by_key(|(series, _)| holds(series));
        for (position, (series, state)) in states.into_iter().enumerate() {
            if position >= most {
                left_out += 2;
                continue;
            }
            counts.get_or_create(&series).set(f64::from(state.count));
            ages.get_or_create(&series).set(seconds(state.oldest_ms));
        }
        for (position, (series, state)) in self.terminating.into_iter().enumerate() {
            if position >= most {
                left_out += 1;
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
        left_out
    }
}

/// Registers the gauges. Returns how many series were left out.
pub(super) fn gauges(
    live: &mut Registry,
    snapshot: &Snapshot,
    now: Timestamp,
    ceiling: &SeriesLimit,
) -> usize {
    let is_full = ceiling.detail == TelemetryDetail::Full;
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
    let most = ceiling.most(MOST_POOLS);
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
    let mut left_out = of_claims.register(live, "operator_nodeclaim", ceiling)
        + of_pools.register(live, "operator_nodepool", ceiling)
        + of_all.register(live, "operator", ceiling);
    if is_full {
        left_out += of_nodes(snapshot, now).register(live, "operator_node", ceiling);
        for (kind, gauges) in of_classes(snapshot, now) {
            left_out += gauges.register(live, &format!("operator_{kind}"), ceiling);
        }
    }
    left_out
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

impl Metrics {
    /// A claim of ours came or changed.
    pub(crate) fn claim_changed(&self, before: Option<&NodeClaim>, now: &NodeClaim) {
        let Some(before) = before else { return };
        let before = seen(&before.status.conditions);
        self.conditions_changed(
            ConditionedKind::Claim,
            &before,
            &seen(&now.status.conditions),
        );
    }

    /// A pool of ours came or changed.
    pub(crate) fn pool_changed(&self, before: Option<&NodePool>, now: &NodePool) {
        let Some(before) = before else { return };
        let before = seen(&before.status.conditions);
        self.conditions_changed(
            ConditionedKind::Pool,
            &before,
            &seen(&now.status.conditions),
        );
    }

    /// A node of one of our pools came or changed.
    pub(crate) fn node_changed(&self, before: Option<&Node>, now: &Node) {
        let Some(before) = before else { return };
        let before = seen(&before.status.conditions);
        self.conditions_changed(
            ConditionedKind::Node,
            &before,
            &seen(&now.status.conditions),
        );
    }

    /// Counts what moved. An object that is seen for the first time is no transition: a restart would count all of them.
    fn conditions_changed(&self, kind: ConditionedKind, before: &[Seen<'_>], now: &[Seen<'_>]) {
        let all = &self.conditions;
        let Some(own) = all.of(kind) else { return };
        // Upstream's metric of all kinds together knows claims and pools.
        let is_shared = kind != ConditionedKind::Node;
        for condition in now {
            let was = before.iter().find(|each| each.type_ == condition.type_);
            if was.is_some_and(|was| was.status == condition.status) {
                continue;
            }
            let status = status(condition.status);
            let labels = labels::Transition {
                r#type: condition.type_.to_owned(),
                status,
                reason: condition.reason.to_owned(),
            };
            own.transitions.with(&labels, count);
            if is_shared {
                let shared = labels::TransitionOfKind {
                    r#type: condition.type_.to_owned(),
                    status,
                    reason: condition.reason.to_owned(),
                    group: GROUP,
                    kind: kind.kind(),
                };
                all.transitions.with(&shared, count);
            }
            let times = was.and_then(|was| {
                let took = since(condition.since?, was.since?);
                Some((self::status(was.status), seconds(took)))
            });
            let Some((left, took)) = times else { continue };
            if is_shared {
                let labels = labels::Duration {
                    r#type: condition.type_.to_owned(),
                    status: left,
                    group: GROUP,
                    kind: kind.kind(),
                };
                all.times.with(&labels, |histogram| histogram.observe(took));
            }
            if let Some((times, _)) = &own.times {
                let labels = labels::TypeStatus {
                    r#type: condition.type_.to_owned(),
                    status: left,
                };
                times.with(&labels, |histogram| histogram.observe(took));
            }
        }
    }

    /// An object that was being deleted since then is gone.
    pub(super) fn terminated_since(&self, kind: ConditionedKind, since_ms: i64) {
        let all = &self.conditions;
        if let Some((_, ended)) = all.of(kind).and_then(|own| own.times.as_ref()) {
            ended.observe(seconds(since_ms));
        }
        if kind != ConditionedKind::Node {
            let labels = labels::GroupKind {
                group: GROUP,
                kind: kind.kind(),
            };
            all.ended
                .with(&labels, |histogram| histogram.observe(seconds(since_ms)));
        }
    }
}

fn status(word: &str) -> &'static str {
    match word {
        "True" => "True",
        "False" => "False",
        _ => "Unknown",
    }
}
