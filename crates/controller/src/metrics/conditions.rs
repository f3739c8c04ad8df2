//! Conditions and terminations of claims and pools, under the names that the library behind Karpenter's kinds gives them.
//!
//! Karpenter has a series per object. Here claims are summed up, so that the page does not grow with the cluster: `count`
//! is how many objects have this status, the `seconds` are those of the one that has had it longest, and `name` is empty.
//! The names for every kind (`operator_nodeclaim_...`) tell claims by pool and node class, and pools by name.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_core::apis::{Condition, NodeClaim, NodePool};
use mortise_core::deciders::since;
use mortise_core::labels::NODEPOOL;
use mortise_core::snapshot::Snapshot;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::observe::count;
use super::page::{FloatGauge, MOST_POOLS, seconds};
use super::{Metrics, labels};

/// Most series of each of these gauges. What is not True comes first: that is what one looks for.
const MOST_SERIES: usize = 30;
const GROUP: &str = "karpenter.sh";

/// A kind with conditions of this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conditioned {
    Claim,
    Pool,
}

impl Conditioned {
    const fn kind(self) -> &'static str {
        match self {
            Self::Claim => "NodeClaim",
            Self::Pool => "NodePool",
        }
    }
}

type Series = Vec<(String, String)>;

/// How many, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    count: u32,
    oldest_ms: i64,
}

/// Gauges of one name prefix.
#[derive(Default)]
struct Gauges {
    states: BTreeMap<Series, State>,
    terminating: BTreeMap<Series, State>,
}

impl Gauges {
    fn add(
        &mut self,
        own: &[(&str, String)],
        conditions: &[Condition],
        deleted: Option<Timestamp>,
        now: Timestamp,
    ) {
        let series = |more: &[(&str, &str)]| -> Series {
            let own = own.iter().map(|(key, value)| (*key, value.as_str()));
            own.chain(more.iter().copied())
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect()
        };
        let enter = |into: &mut BTreeMap<Series, State>, at: Series, from: Timestamp| {
            let state = into.entry(at).or_default();
            state.count += 1;
            state.oldest_ms = state.oldest_ms.max(since(now, from));
        };
        for condition in conditions {
            let more = [
                ("type", condition.type_.as_str()),
                ("status", condition.status.as_str()),
                ("reason", condition.reason.as_str()),
            ];
            let from = condition.last_transition_time.as_ref();
            let from = from.map_or(now, |time| time.0);
            enter(&mut self.states, series(&more), from);
        }
        if let Some(deleted) = deleted {
            enter(&mut self.terminating, series(&[]), deleted);
        }
    }

    /// Returns how many series were left out.
    fn register(self, live: &mut Registry, prefix: &str) -> usize {
        let mut left_out = 0;
        let counts = Family::<Series, FloatGauge>::default();
        let ages = Family::<Series, FloatGauge>::default();
        let terminating = Family::<Series, FloatGauge>::default();
        let mut states: Vec<_> = self.states.into_iter().collect();
        let holds = |series: &Series| series.iter().any(|(_, value)| value == "True");
        states.sort_by_key(|(series, _)| holds(series));
        for (position, (series, state)) in states.into_iter().enumerate() {
            if position >= MOST_SERIES {
                left_out += 2;
                continue;
            }
            counts.get_or_create(&series).set(f64::from(state.count));
            ages.get_or_create(&series).set(seconds(state.oldest_ms));
        }
        for (position, (series, state)) in self.terminating.into_iter().enumerate() {
            if position >= MOST_SERIES {
                left_out += 1;
                continue;
            }
            let gauge = terminating.get_or_create(&series);
            gauge.set(seconds(state.oldest_ms));
        }
        live.register(
            format!("{prefix}_status_condition_count"),
            "Objects by the status of their conditions",
            counts,
        );
        live.register(
            format!("{prefix}_status_condition_current_status_seconds"),
            "How long a condition has had its status; of several objects the longest",
            ages,
        );
        live.register(
            format!("{prefix}_termination_current_time_seconds"),
            "How long objects have been going; of several objects the longest",
            terminating,
        );
        left_out
    }
}

/// Registers the gauges. Returns how many series were left out.
pub(super) fn gauges(live: &mut Registry, snapshot: &Snapshot, now: Timestamp) -> usize {
    let mut of_claims = Gauges::default();
    let mut of_pools = Gauges::default();
    let mut of_all = Gauges::default();
    let named = |name: &str| [("namespace", String::new()), ("name", name.to_owned())];
    let of_kind = |kind: Conditioned| {
        let [namespace, name] = named("");
        let group = ("group", GROUP.to_owned());
        [namespace, name, group, ("kind", kind.kind().to_owned())]
    };
    for (name, pool) in snapshot.pools.iter() {
        let (conditions, deleted) = (&pool.status.conditions, deleted(&pool.metadata));
        of_all.add(&of_kind(Conditioned::Pool), conditions, deleted, now);
        of_pools.add(&named(name), conditions, deleted, now);
    }
    let shown: Vec<_> = snapshot.pools.keys().take(MOST_POOLS).collect();
    for claim in snapshot.claims.values() {
        let (conditions, deleted) = (&claim.status.conditions, deleted(&claim.metadata));
        of_all.add(&of_kind(Conditioned::Claim), conditions, deleted, now);
        let pool = claim.pool().unwrap_or_else(|| "".into());
        if !shown.contains(&&pool) {
            continue;
        }
        let class = claim.node_class_key();
        let class_label = label_name(&mortise_core::labels::node_class_key(
            &class.group,
            &class.kind,
        ));
        let pool_label = label_name(NODEPOOL);
        let [namespace, name] = named("");
        let own = [
            namespace,
            name,
            (class_label.as_str(), class.name.to_string()),
            (pool_label.as_str(), pool.to_string()),
        ];
        of_claims.add(&own, conditions, deleted, now);
    }
    of_claims.register(live, "operator_nodeclaim")
        + of_pools.register(live, "operator_nodepool")
        + of_all.register(live, "operator")
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
        let before = before.map(|claim| claim.status.conditions.as_slice());
        self.conditions_changed(Conditioned::Claim, before, &now.status.conditions);
    }

    /// A pool of ours came or changed.
    pub(crate) fn pool_changed(&self, before: Option<&NodePool>, now: &NodePool) {
        let before = before.map(|pool| pool.status.conditions.as_slice());
        self.conditions_changed(Conditioned::Pool, before, &now.status.conditions);
    }

    /// Counts what moved. An object that is seen for the first time is no transition: a restart would count all of them.
    fn conditions_changed(
        &self,
        kind: Conditioned,
        before: Option<&[Condition]>,
        now: &[Condition],
    ) {
        let Some(before) = before else { return };
        for condition in now {
            let was = before.iter().find(|each| each.type_ == condition.type_);
            if was.is_some_and(|was| was.status == condition.status) {
                continue;
            }
            let labels = labels::Transition {
                r#type: condition.type_.clone(),
                status: condition.status.as_str(),
                reason: condition.reason.clone(),
            };
            let shared = labels::TransitionOfKind {
                r#type: condition.type_.clone(),
                status: condition.status.as_str(),
                reason: condition.reason.clone(),
                group: GROUP,
                kind: kind.kind(),
            };
            let own = match kind {
                Conditioned::Claim => &self.claim_transitions,
                Conditioned::Pool => &self.pool_transitions,
            };
            own.with(&labels, count);
            self.transitions.with(&shared, count);
            let times = was.and_then(|was| {
                let from = was.last_transition_time.as_ref()?;
                let to = condition.last_transition_time.as_ref()?;
                Some((was.status.as_str(), since(to.0, from.0)))
            });
            if let Some((status, took)) = times {
                let labels = labels::Duration {
                    r#type: condition.type_.clone(),
                    status,
                    group: GROUP,
                    kind: kind.kind(),
                };
                self.transition_time
                    .with(&labels, |histogram| histogram.observe(seconds(took)));
            }
        }
    }

    /// An object that was being deleted since then is gone.
    pub(super) fn terminated_since(&self, kind: Conditioned, since_ms: i64) {
        let labels = labels::GroupKind {
            group: GROUP,
            kind: kind.kind(),
        };
        self.termination_time
            .with(&labels, |histogram| histogram.observe(seconds(since_ms)));
    }
}
