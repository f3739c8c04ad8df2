//! What became of NodeClaims, in the order in which it happened: from their objects alone, so that a simulated cluster and a
//! real one are described in the same words.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::labels;
use serde::Serialize;
use serde_json::Value;

use crate::cluster::is_deleting;

/// A step in the life of a NodeClaim, in the order of such a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum NodeClaimStage {
    /// The object exists.
    Created,
    /// Its instance exists.
    Launched,
    /// Its Node has joined.
    Registered,
    /// Its Node takes pods.
    Initialized,
    /// Disruption or an interruption chose it; the reason is that of the condition `DisruptionReason`.
    Disrupted,
    /// It is being deleted.
    Deleting,
    /// The object is gone.
    Deleted,
}

/// That a NodeClaim came to a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimStep {
    /// When.
    pub at: Timestamp,
    /// Its NodePool.
    pub node_pool: String,
    /// Its name.
    pub node_claim: String,
    /// What.
    pub stage: NodeClaimStage,
    /// Why, of `Disrupted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Steps of all NodeClaims.
#[derive(Clone, Debug, Default)]
pub struct NodeClaimHistory {
    steps: Vec<NodeClaimStep>,
    /// NodePool and stages of those that exist.
    living: BTreeMap<String, (String, Vec<NodeClaimStage>)>,
}

impl NodeClaimHistory {
    /// A watch delivers a NodeClaim; `None`: it was deleted. A stage that the object shows again is no step.
    pub fn observe(&mut self, at: Timestamp, name: &str, claim: Option<&Value>) {
        let Some(claim) = claim else {
            if let Some((pool, stages)) = self.living.remove(name) {
                if !stages.contains(&NodeClaimStage::Deleting) {
                    self.add(at, &pool, name, NodeClaimStage::Deleting, None);
                }
                self.add(at, &pool, name, NodeClaimStage::Deleted, None);
            }
            return;
        };
        let pool = claim
            .pointer("/metadata/labels")
            .and_then(|all| all.get(labels::NODEPOOL))
            .and_then(Value::as_str)
            .unwrap_or_default();
        let first = || (pool.to_owned(), Vec::new());
        let known = self.living.entry(name.to_owned()).or_insert_with(first);
        let mut new = Vec::new();
        for (stage, reason) in shown(claim) {
            if !known.1.contains(&stage) {
                known.1.push(stage);
                new.push((stage, reason));
            }
        }
        for (stage, reason) in new {
            self.add(at, pool, name, stage, reason);
        }
    }

    /// All steps so far.
    #[must_use]
    pub fn steps(&self) -> &[NodeClaimStep] {
        &self.steps
    }

    fn add(
        &mut self,
        at: Timestamp,
        pool: &str,
        name: &str,
        stage: NodeClaimStage,
        reason: Option<String>,
    ) {
        self.steps.push(NodeClaimStep {
            at,
            node_pool: pool.to_owned(),
            node_claim: name.to_owned(),
            stage,
            reason,
        });
    }
}

/// Stages that an object shows, with their reasons.
fn shown(claim: &Value) -> Vec<(NodeClaimStage, Option<String>)> {
    let conditions = claim.pointer("/status/conditions");
    let conditions = conditions.and_then(Value::as_array);
    let condition = |type_: &str| {
        let mut all = conditions.into_iter().flatten();
        all.find(|each| each["type"] == type_ && each["status"] == "True")
    };
    let mut shown = vec![(NodeClaimStage::Created, None)];
    for (stage, type_) in [
        (NodeClaimStage::Launched, "Launched"),
        (NodeClaimStage::Registered, "Registered"),
        (NodeClaimStage::Initialized, "Initialized"),
    ] {
        if condition(type_).is_some() {
            shown.push((stage, None));
        }
    }
    if let Some(found) = condition("DisruptionReason") {
        let reason = found["reason"].as_str().map(str::to_owned);
        shown.push((NodeClaimStage::Disrupted, reason));
    }
    if is_deleting(claim) {
        shown.push((NodeClaimStage::Deleting, None));
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(conditions: &[(&str, &str)], is_deleted: bool) -> Value {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, reason)| json!({ "type": type_, "status": "True", "reason": reason }))
            .collect();
        let at = is_deleted.then_some("2026-01-01T00:00:00Z");
        json!({
            "metadata": { "labels": { "karpenter.sh/nodepool": "web" }, "deletionTimestamp": at },
            "status": { "conditions": conditions },
        })
    }

    #[test]
    fn each_stage_is_one_step() {
        use NodeClaimStage::{
            Created, Deleted, Deleting, Disrupted, Initialized, Launched, Registered,
        };
        let launched = ("Launched", "Launched");
        let chosen = ("DisruptionReason", "Drifted");
        let mut history = NodeClaimHistory::default();
        let at = Timestamp::UNIX_EPOCH;
        history.observe(at, "web-a", Some(&claim(&[], false)));
        history.observe(at, "web-a", Some(&claim(&[launched], false)));
        history.observe(at, "web-a", Some(&claim(&[launched], false)));
        let joined = [launched, ("Initialized", ""), ("Registered", "")];
        history.observe(at, "web-a", Some(&claim(&joined, false)));
        history.observe(at, "web-a", Some(&claim(&[launched, chosen], false)));
        history.observe(at, "web-b", Some(&claim(&[], false)));
        history.observe(at, "web-a", Some(&claim(&[launched, chosen], true)));
        history.observe(at, "web-a", None);
        history.observe(at, "web-b", None);
        history.observe(at, "unknown", None);
        let steps = history.steps();
        let of = |name: &str| {
            let own = steps.iter().filter(|step| step.node_claim == name);
            own.map(|step| step.stage).collect::<Vec<_>>()
        };
        let whole = [
            Created,
            Launched,
            Registered,
            Initialized,
            Disrupted,
            Deleting,
            Deleted,
        ];
        assert_eq!(of("web-a"), whole);
        assert_eq!(of("web-b"), [Created, Deleting, Deleted]);
        assert_eq!(of("unknown"), []);
        let reasons = steps.iter().filter_map(|step| step.reason.as_deref());
        assert_eq!(reasons.collect::<Vec<_>>(), ["Drifted"]);
        assert!(steps.iter().all(|step| step.node_pool == "web"));
    }
}
