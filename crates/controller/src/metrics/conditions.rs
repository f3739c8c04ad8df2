//! Transitions of conditions, and terminations, of NodeClaims, NodePools, CapacityBuffers and Nodes, under the names of operatorpkg, Karpenter's
//! controller library. Nodes appear in full detail only.

use jiff::Timestamp;
use mortise_apis::k8s::{Node, ObjectCondition};
use mortise_apis::schema::groups::AUTOSCALING_GROUP;
use mortise_apis::values::since;
use mortise_apis::{CapacityBuffer, Condition, NodeClaim, NodePool};
use prometheus_client::metrics::histogram::Histogram;

use super::bounded::{Counters, Histograms};
use super::families::Buckets;
use super::labels;
use super::numbers::seconds;
use super::series::series;

/// API group of Karpenter's kinds.
pub(crate) const GROUP: &str = "karpenter.sh";

/// A kind with conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditionedKind {
    Claim,
    Pool,
    Node,
    Buffer,
}

impl ConditionedKind {
    /// As the API spells it.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Claim => "NodeClaim",
            Self::Pool => "NodePool",
            Self::Node => "Node",
            Self::Buffer => "CapacityBuffer",
        }
    }

    /// Its API group.
    pub(crate) const fn group(self) -> &'static str {
        match self {
            Self::Claim | Self::Pool => GROUP,
            Self::Node => "",
            Self::Buffer => AUTOSCALING_GROUP,
        }
    }
}

series! {
    /// Metrics of the conditions of every kind.
    ConditionMetrics {
        claim_transitions: always counter[labels::Transition; 24] "operator_nodeclaim_status_condition_transitions" "Status changes of conditions of this kind";
        claim_times: full histogram[labels::TypeStatus; 0; Buckets::LONG] "operator_nodeclaim_status_condition_transition_seconds" "Time that conditions had a status before it changed";
        claim_ended: full histogram[Buckets::LONG] "operator_nodeclaim_termination_duration_seconds" "Time from the deletion timestamp of an object until it was removed";
        pool_transitions: always counter[labels::Transition; 8] "operator_nodepool_status_condition_transitions" "Status changes of conditions of this kind";
        pool_times: full histogram[labels::TypeStatus; 0; Buckets::LONG] "operator_nodepool_status_condition_transition_seconds" "Time that conditions had a status before it changed";
        pool_ended: full histogram[Buckets::LONG] "operator_nodepool_termination_duration_seconds" "Time from the deletion timestamp of an object until it was removed";
        node_transitions: full counter[labels::Transition; 0] "operator_node_status_condition_transitions" "Status changes of conditions of this kind";
        node_times: full histogram[labels::TypeStatus; 0; Buckets::LONG] "operator_node_status_condition_transition_seconds" "Time that conditions had a status before it changed";
        node_ended: full histogram[Buckets::LONG] "operator_node_termination_duration_seconds" "Time from the deletion timestamp of an object until it was removed";
        buffer_transitions: always counter[labels::Transition; 8] "operator_capacitybuffer_status_condition_transitions" "Status changes of conditions of this kind";
        buffer_times: full histogram[labels::TypeStatus; 0; Buckets::LONG] "operator_capacitybuffer_status_condition_transition_seconds" "Time that conditions had a status before it changed";
        buffer_ended: full histogram[Buckets::LONG] "operator_capacitybuffer_termination_duration_seconds" "Time from the deletion timestamp of an object until it was removed";
        transitions: always counter[labels::TransitionOfKind; 28] "operator_status_condition_transitions" "Status changes of conditions";
        times: always histogram[labels::Duration; 8; Buckets::LONG] "operator_status_condition_transition_seconds" "Time that conditions had a status before it changed";
        ended: always histogram[labels::GroupKind; 2; Buckets::LONG] "operator_termination_duration_seconds" "Time from the deletion timestamp of an object until it was removed";
    }
}

/// Metrics of one kind.
struct KindFamilies<'a> {
    transitions: &'a Counters<labels::Transition>,
    /// With a set of series for each status of each condition.
    times: &'a Histograms<labels::TypeStatus>,
    ended: &'a Histogram,
}

impl ConditionMetrics {
    const fn family(&self, kind: ConditionedKind) -> KindFamilies<'_> {
        let (transitions, times, ended) = match kind {
            ConditionedKind::Claim => (
                &self.claim_transitions,
                &self.claim_times,
                &self.claim_ended,
            ),
            ConditionedKind::Pool => (&self.pool_transitions, &self.pool_times, &self.pool_ended),
            ConditionedKind::Node => (&self.node_transitions, &self.node_times, &self.node_ended),
            ConditionedKind::Buffer => (
                &self.buffer_transitions,
                &self.buffer_times,
                &self.buffer_ended,
            ),
        };
        KindFamilies {
            transitions,
            times,
            ended,
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

    /// Records a created or changed CapacityBuffer.
    pub(crate) fn buffer_changed(&self, before: Option<&CapacityBuffer>, now: &CapacityBuffer) {
        let Some(before) = before else { return };
        let before = condition_states(&before.status.conditions);
        self.changed(
            ConditionedKind::Buffer,
            &before,
            &condition_states(&now.status.conditions),
        );
    }

    /// Counts transitions. An object that is observed for the first time is no transition: a restart would count all of them.
    fn changed(&self, kind: ConditionedKind, before: &[Seen<'_>], now: &[Seen<'_>]) {
        let own = self.family(kind);
        // Karpenter's metric of all kinds together covers NodeClaims, NodePools and CapacityBuffers.
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
                    group: kind.group(),
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
                    group: kind.group(),
                    kind: kind.kind(),
                };
                self.times.observe(&labels, took);
            }
            let labels = labels::TypeStatus {
                r#type: condition.type_.to_owned(),
                status: left,
            };
            own.times.observe(&labels, took);
        }
    }

    /// Records the end of an object that was being deleted since then.
    pub(super) fn terminated(&self, kind: ConditionedKind, since_ms: i64) {
        self.family(kind).ended.observe(seconds(since_ms));
        if kind != ConditionedKind::Node {
            let labels = labels::GroupKind {
                group: kind.group(),
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
