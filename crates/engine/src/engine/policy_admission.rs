//! The limits of NodePoolPolicies, as the NodeClaims of one step use them up.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_state::snapshot::{PolicyUse, Snapshot, highest_price_of};

/// The policies that NodeClaims of the step belong to, by name, with what is used of them.
#[derive(Debug, Default)]
pub(super) struct PolicyAdmission(BTreeMap<Arc<str>, PolicyUse>);

impl PolicyAdmission {
    /// Counts a NodeClaim if its policy allows it, or says which limit it would exceed. `before` is the state before the step.
    pub(super) fn admit(&mut self, claim: &NodeClaim, before: &Snapshot) -> Result<(), String> {
        let policy = claim.pool().and_then(|pool| before.policy_of(&pool));
        let Some(policy) = policy.filter(|policy| policy.limits_launches()) else {
            return Ok(());
        };
        let used = self
            .0
            .entry(Arc::clone(&policy.name))
            .or_insert_with(|| PolicyUse::clone(policy));
        let price = highest_price_of(claim, before);
        used.admits(price).map_err(|refused| refused.to_string())?;
        used.count(price);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use jiff::Timestamp;
    use mortise_apis::karpenter::nodepool::NodePool;
    use mortise_apis::labels::WellKnown;
    use mortise_apis::node_pool_policy::NodePoolPolicy;
    use mortise_apis::values::{after, since};
    use mortise_planning::settings::Settings;
    use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
    use serde_json::json;

    use super::*;
    use crate::engine::{Engine, EngineInput};

    /// An engine with a NodePool, a policy for it and a NodeClaim.
    fn engine(start: Timestamp, asked: &serde_json::Value) -> Engine {
        let mut engine = Engine::new(Vec::new(), Settings::default(), WellKnown::none(), 0, start);
        let mut apply = |object: Object| {
            let event = ObjectEvent::Applied(object, EventSource::Watch);
            engine.apply(EngineInput::News(event), start);
        };
        let class = json!({ "group": "g", "kind": "K", "name": "n" });
        let pool: NodePool = serde_json::from_value(json!({
            "metadata": { "name": "p", "uid": "1", "resourceVersion": "1" },
            "spec": { "template": { "spec": { "nodeClassRef": class, "requirements": [] } } },
        }))
        .unwrap();
        apply(pool.into());
        let policy: NodePoolPolicy = serde_json::from_value(json!({
            "metadata": { "name": "team", "uid": "2", "resourceVersion": "2" },
            "spec": asked,
        }))
        .unwrap();
        apply(policy.into());
        let claim: NodeClaim = serde_json::from_value(json!({
            "metadata": {
                "name": "c", "uid": "3", "resourceVersion": "3", "creationTimestamp": "1970-01-01T00:00:00Z",
                "labels": { "karpenter.sh/nodepool": "p" },
            },
            "spec": { "nodeClassRef": class, "requirements": [] },
        }))
        .unwrap();
        apply(claim.into());
        engine.apply(EngineInput::Synced, start);
        engine
    }

    /// Nothing happens in the cluster while the window passes.
    #[test]
    fn a_window_ends_without_a_change_of_any_object() {
        let start = Timestamp::UNIX_EPOCH;
        let slow = json!({ "nodePools": ["p"], "scaling": { "maxNewNodesPerWindow": { "nodes": 1, "window": "10m" } } });
        let mut engine = engine(start, &slow);
        let mut recent = |ms| {
            let snapshot = engine.snapshot(after(start, ms));
            let used = snapshot
                .policy_of("p")
                .and_then(|policy| policy.rate.clone());
            (snapshot.generation, used.unwrap().recent)
        };
        let (first, used) = recent(1_000);
        assert_eq!(used, 1);
        assert_eq!(recent(9 * 60_000), (first, 1), "the window has not ended");
        let (second, used) = recent(10 * 60_000);
        assert_eq!((used, second > first), (0, true));
        assert_eq!(
            recent(60 * 60_000),
            (second, 0),
            "nothing is left to wait for"
        );
    }

    #[test]
    fn an_entry_of_the_calendar_begins_and_ends_without_a_change_of_any_object() {
        let start = Timestamp::UNIX_EPOCH;
        let day = json!({ "schedule": "30 0 * * *", "duration": "1h", "limits": { "nodes": 5 } });
        let by_day = json!({ "nodePools": ["p"], "limits": { "nodes": 1 }, "calendar": [day] });
        let mut engine = engine(start, &by_day);
        let mut limit = |minute: i64| {
            let snapshot = engine.snapshot(after(start, minute * 60_000));
            let nodes = snapshot
                .policy_of("p")
                .and_then(|policy| policy.nodes.clone())
                .unwrap();
            let changes = snapshot.outlived_at().map(|at| since(at, start) / 60_000);
            (snapshot.generation, nodes.limit, nodes.used, changes)
        };
        let (first, of, used, changes) = limit(1);
        assert_eq!((of, used, changes), (1, 1, Some(30)));
        assert_eq!(limit(29).0, first);
        let (second, of, _, changes) = limit(30);
        assert_eq!((of, changes, second > first), (5, Some(90), true));
        let (third, of, _, changes) = limit(90);
        assert_eq!((of, changes, third > second), (1, Some(24 * 60 + 30), true));
    }
}
