//! Metrics that concern several subjects: decisions, and deleted objects.

use std::borrow::Cow;

use mortise_apis::k8s::Node;
use mortise_apis::names::ObjectRef;
use mortise_apis::values::{GoDuration, since};
use mortise_apis::{CapacityBuffer, NodeClaim, NodePool};
use mortise_engine::record::{Record, Verdict};
use mortise_planning::reason::Reason;
use mortise_state::snapshot::Snapshot;

use super::conditions::ConditionedKind;
use super::disruption::consolidation_policy;
use super::{Metrics, labels};

impl Metrics {
    /// Counts a decision.
    pub(crate) fn on_record(&self, record: &Record, snapshot: &Snapshot) {
        if record.visibility.is_logged() {
            self.engine.decided(record);
        }
        let place = || SubjectLabels::from_subject(&record.subject, snapshot);
        match record.verdict {
            Verdict::Registered => {
                let place = place();
                if !place.priced {
                    let nodepool = place.pool.clone();
                    let labels = labels::Pool { nodepool };
                    self.nodes.unpriced.count(&labels);
                }
                self.nodes.nodes_created.count(&labels::PoolZone {
                    nodepool: place.pool,
                    zone: place.zone,
                });
            }
            Verdict::Nominated => {
                if let ObjectRef::Pod(key) = &record.subject
                    && let Some(pod) = snapshot.pods.get(key)
                {
                    self.pods.nominated(pod, record.at);
                }
            }
            Verdict::Evicted => {
                let why = record.reasons.iter().find_map(Reason::karpenter_label);
                let why = why.unwrap_or("forceful_termination");
                let is_handed_over = |reason: &Reason| matches!(reason, Reason::HandedOver { .. });
                if record.reasons.iter().any(is_handed_over) {
                    self.pods.handed_over(why);
                } else {
                    self.pods.drained(why);
                }
            }
            Verdict::Disrupted | Verdict::Notified | Verdict::LaunchFailed => {
                let of_disruption = |each: &&Reason| each.karpenter_label().is_some();
                let Some(why) = record.reasons.iter().find(of_disruption) else {
                    return;
                };
                let place = place();
                if let Reason::Unhealthy { condition, .. } = why {
                    let labels = labels::Unhealthy {
                        condition: condition.clone(),
                        nodepool: place.pool.clone(),
                        capacity_type: place.capacity_type.clone(),
                        image_id: image_id(&record.subject, snapshot),
                    };
                    self.nodes.unhealthy.count(&labels);
                }
                let policy = if why.is_consolidation() {
                    consolidation_policy(snapshot, &place.pool.as_str().into())
                } else {
                    String::new()
                };
                let labels = labels::Disrupted {
                    reason: why.karpenter_label().unwrap_or_default(),
                    nodepool: place.pool,
                    capacity_type: place.capacity_type,
                    consolidation_policy: policy,
                    termination_mode: place.termination_mode,
                };
                self.nodes.disrupted.count(&labels);
                self.pods.initiated(&labels, place.pods);
            }
            Verdict::Condition if record.reasons.iter().any(is_drained) => {
                self.nodes.nodes_drained.count(&labels::Pool {
                    nodepool: place().pool,
                });
            }
            _ => {}
        }
    }

    /// Counts the deletion of this NodeClaim.
    pub(crate) fn claim_gone(&self, claim: &NodeClaim, now: jiff::Timestamp) {
        self.nodes.claim_gone(claim, now);
        if let Some(deleted) = &claim.metadata.deletion_timestamp {
            self.conditions
                .terminated(ConditionedKind::Claim, since(now, deleted.0));
        }
    }

    /// Counts the deletion of this NodePool.
    pub(crate) fn pool_gone(&self, pool: &NodePool, now: jiff::Timestamp) {
        if let Some(deleted) = &pool.metadata.deletion_timestamp {
            self.conditions
                .terminated(ConditionedKind::Pool, since(now, deleted.0));
        }
    }

    /// Counts the deletion of this CapacityBuffer.
    pub(crate) fn buffer_gone(&self, buffer: &CapacityBuffer, now: jiff::Timestamp) {
        if let Some(deleted) = &buffer.metadata.deletion_timestamp {
            self.conditions
                .terminated(ConditionedKind::Buffer, since(now, deleted.0));
        }
    }

    /// Counts the deletion of this Node. Nodes without a NodePool are ignored.
    pub(crate) fn node_gone(&self, node: &Node, now: jiff::Timestamp) {
        let Some(pool) = node.label(mortise_apis::labels::NODEPOOL) else {
            return;
        };
        if !self.nodes.node_gone(node, pool, now) {
            self.limit.drop_one();
        }
        if let Some(deleted) = &node.metadata.deletion_timestamp {
            self.conditions
                .terminated(ConditionedKind::Node, since(now, deleted.0));
        }
    }
}

/// Whether all pods of a node have been drained.
fn is_drained(reason: &Reason) -> bool {
    matches!(reason, Reason::ConditionIs { condition, status, .. } if condition == "Drained" && status == "True")
}

/// The image of a NodeClaim's instance; empty if images have no IDs.
fn image_id(subject: &ObjectRef, snapshot: &Snapshot) -> String {
    let claim = match subject {
        ObjectRef::Claim(name) => snapshot.claims.get(name),
        _ => None,
    };
    claim
        .and_then(|claim| claim.status.image_id.clone())
        .unwrap_or_default()
}

/// NodePool, zone and capacity type of the subject of a record or an object; empty if unknown.
#[derive(Debug, Default)]
struct SubjectLabels {
    pool: String,
    zone: String,
    capacity_type: String,
    /// Whether the price of the node is known.
    priced: bool,
    /// Pods on it that would have to be rescheduled.
    pods: usize,
    /// Termination mode by its grace period, in Karpenter's words.
    termination_mode: &'static str,
}

impl SubjectLabels {
    fn from_subject(subject: &ObjectRef, snapshot: &Snapshot) -> Self {
        let node = match subject {
            ObjectRef::Claim(name) => snapshot.node_of_claim(name),
            ObjectRef::Node(name) => snapshot.node(name),
            ObjectRef::Pool(name) => {
                return Self {
                    pool: name.to_string(),
                    ..Self::default()
                };
            }
            ObjectRef::NodeClass(_)
            | ObjectRef::Overlay(_)
            | ObjectRef::Policy(_)
            | ObjectRef::Pod(_)
            | ObjectRef::Buffer(_)
            | ObjectRef::Request(_)
            | ObjectRef::Deployment(_) => None,
        };
        let Some(node) = node else {
            return Self::default();
        };
        let label = |key: &str| {
            node.label(key)
                .map(Cow::from)
                .unwrap_or_default()
                .into_owned()
        };
        Self {
            pool: node.pool().map(|pool| pool.to_string()).unwrap_or_default(),
            zone: label(mortise_apis::labels::TOPOLOGY_ZONE),
            capacity_type: label(mortise_apis::labels::CAPACITY_TYPE),
            priced: node.price.is_some(),
            pods: node.reschedulable().count(),
            termination_mode: termination_mode(node.claim.as_deref()),
        }
    }
}

/// `graceful` without a termination grace period, `forceful` with one of zero, `eventual` otherwise.
fn termination_mode(claim: Option<&NodeClaim>) -> &'static str {
    let period = claim.and_then(|claim| claim.spec.termination_grace_period.as_ref());
    match period.map(|text| GoDuration::parse(text.as_str())) {
        None => "graceful",
        Some(Ok(period)) if period.as_nanos() <= 0 => "forceful",
        Some(_) => "eventual",
    }
}
