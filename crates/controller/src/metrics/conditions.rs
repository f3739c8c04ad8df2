//! Transitions of conditions, and terminations, of NodeClaims, NodePools and Nodes, under the names of operatorpkg, Karpenter's
//! controller library. Nodes appear in full detail only.

use jiff::Timestamp;
use mortise_apis::k8s::{Node, ObjectCondition};
use mortise_apis::values::since;
use mortise_apis::{Condition, NodeClaim, NodePool};
use prometheus_client::metrics::histogram::Histogram;

use super::bounded::{Counters, Histograms};
use super::families::Families;
use super::labels;
use super::numbers::seconds;

/// API group of Karpenter's kinds.
pub(crate) const GROUP: &str = "karpenter.sh";

/// A kind with conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditionedKind {
    Claim,
    Pool,
    Node,
}

impl ConditionedKind {
    /// As the API spells it.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Claim => "NodeClaim",
            Self::Pool => "NodePool",
            Self::Node => "Node",
        }
    }
}

/// A subset of Karpenter's buckets for conditions.
fn long_duration() -> Histogram {
    Histogram::new([2.0, 32.0, 512.0, 4096.0])
}

/// Karpenter's buckets for conditions: from half a second, doubling.
fn fine_long_duration() -> Histogram {
    let bounds = std::iter::successors(Some(0.5), |bound| Some(bound * 2.0));
    Histogram::new(bounds.take(15))
}

/// Metrics of the conditions of every kind.
#[derive(Debug)]
pub(crate) struct ConditionMetrics {
    claims: KindFamilies,
    pools: KindFamilies,
    nodes: Option<KindFamilies>,
    transitions: Counters<labels::TransitionOfKind>,
    times: Histograms<labels::Duration>,
    ended: Histograms<labels::GroupKind>,
}

/// Metrics of one kind.
#[derive(Debug)]
struct KindFamilies {
    transitions: Counters<labels::Transition>,
    /// Metrics with a set of series for each status of each condition.
    times: Option<(Histograms<labels::TypeStatus>, Histogram)>,
}

impl KindFamilies {
    fn register(families: &mut Families<'_>, kind: &str, most: usize) -> Self {
        let transitions = families.counters(
            &format!("operator_{kind}_status_condition_transitions"),
            "Status changes of conditions of this kind",
            most,
        );
        let times = families.is_full().then(|| {
            let times = families.histograms(
                &format!("operator_{kind}_status_condition_transition_seconds"),
                "Time that conditions had a status before it changed",
                0,
                fine_long_duration,
            );
            let ended = families.histogram(
                &format!("operator_{kind}_termination_duration_seconds"),
                "Time from the deletion timestamp of an object until it was removed",
                fine_long_duration,
            );
            (times, ended)
        });
        Self { transitions, times }
    }
}

impl ConditionMetrics {
    pub(super) fn register(families: &mut Families<'_>) -> Self {
        let is_full = families.is_full();
        let bounds = if is_full {
            fine_long_duration
        } else {
            long_duration
        };
        Self {
            claims: KindFamilies::register(families, "nodeclaim", 24),
            pools: KindFamilies::register(families, "nodepool", 8),
            nodes: is_full.then(|| KindFamilies::register(families, "node", 0)),
            transitions: families.counters(
                "operator_status_condition_transitions",
                "Status changes of conditions",
                28,
            ),
            times: families.histograms(
                "operator_status_condition_transition_seconds",
                "Time that conditions had a status before it changed",
                8,
                bounds,
            ),
            ended: families.histograms(
                "operator_termination_duration_seconds",
                "Time from the deletion timestamp of an object until it was removed",
                2,
                bounds,
            ),
        }
    }

    const fn family(&self, kind: ConditionedKind) -> Option<&KindFamilies> {
        match kind {
            ConditionedKind::Claim => Some(&self.claims),
            ConditionedKind::Pool => Some(&self.pools),
            ConditionedKind::Node => self.nodes.as_ref(),
        }
    }

    /// Records a created or changed managed NodeClaim.
    pub(crate) fn claim_changed(&self, before: Option<&NodeClaim>, now: &NodeClaim) {
        let Some(before) = before else { return };
        let before = condition_states(&before.status.conditions);
        self.changed(
            ConditionedKind::Claim,
            &before,
            &condition_states(&now.status.conditions),
        );
    }

    /// Records a created or changed managed NodePool.
    pub(crate) fn pool_changed(&self, before: Option<&NodePool>, now: &NodePool) {
        let Some(before) = before else { return };
        let before = condition_states(&before.status.conditions);
        self.changed(
            ConditionedKind::Pool,
            &before,
            &condition_states(&now.status.conditions),
        );
    }

    /// Records a created or changed managed Node.
    pub(crate) fn node_changed(&self, before: Option<&Node>, now: &Node) {
        let Some(before) = before else { return };
        let before = condition_states(&before.status.conditions);
        self.changed(
            ConditionedKind::Node,
            &before,
            &condition_states(&now.status.conditions),
        );
    }

    /// Counts transitions. An object that is observed for the first time is no transition: a restart would count all of them.
    fn changed(&self, kind: ConditionedKind, before: &[Seen<'_>], now: &[Seen<'_>]) {
        let Some(own) = self.family(kind) else { return };
        // Karpenter's metric of all kinds together covers NodeClaims and NodePools.
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
            own.transitions.count(&labels);
            if is_shared {
                let shared = labels::TransitionOfKind {
                    r#type: condition.type_.to_owned(),
                    status,
                    reason: condition.reason.to_owned(),
                    group: GROUP,
                    kind: kind.kind(),
                };
                self.transitions.count(&shared);
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
                self.times.observe(&labels, took);
            }
            if let Some((times, _)) = &own.times {
                let labels = labels::TypeStatus {
                    r#type: condition.type_.to_owned(),
                    status: left,
                };
                times.observe(&labels, took);
            }
        }
    }

    /// Records the end of an object that was being deleted since then.
    pub(super) fn terminated(&self, kind: ConditionedKind, since_ms: i64) {
        if let Some((_, ended)) = self.family(kind).and_then(|own| own.times.as_ref()) {
            ended.observe(seconds(since_ms));
        }
        if kind != ConditionedKind::Node {
            let labels = labels::GroupKind {
                group: GROUP,
                kind: kind.kind(),
            };
            self.ended.observe(&labels, seconds(since_ms));
        }
    }
}

/// A condition of any kind of object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) type_: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) since: Option<Timestamp>,
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

/// The conditions of an object.
pub(crate) fn condition_states<'a, C>(all: &'a [C]) -> Vec<Seen<'a>>
where
    Seen<'a>: From<&'a C>,
{
    all.iter().map(Seen::from).collect()
}

fn status(word: &str) -> &'static str {
    match word {
        "True" => "True",
        "False" => "False",
        _ => "Unknown",
    }
}
