//! NodePoolPolicies: whether they are in force.
//!
//! May: write the condition `ValidationSucceeded` and with it `Ready` of policies.
//!
//! Must never: decide which of two policies counts, or keep their limits. The first is done where they are read
//! ([`mortise_state::snapshot::Snapshot::policies_in_force`]), the second where NodeClaims are planned and created.

use std::sync::Arc;

use jiff::Timestamp;

use crate::tracking::status_reports::{StatusReports, StatusWriter};
use mortise_apis::names::{ObjectRef, PoolName};
use mortise_apis::nearest::nearest;
use mortise_apis::node_pool_policy::NodePoolPolicy as Policy;
use mortise_apis::schema::conditions::{self, Conditions};
use mortise_apis::validation::{in_words, policy_faults};
use mortise_engine::condition_edits::edited;
use mortise_engine::decider::{Decider, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::write::ObjectWrite;
use mortise_state::index::Changes;

const VALIDATION: &str = "ValidationSucceeded";

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct NodePoolPolicyDecider {
    statuses: StatusReports<Arc<str>>,
}

impl Default for NodePoolPolicyDecider {
    fn default() -> Self {
        Self {
            statuses: StatusReports::new(DeciderId::NodePoolPolicy),
        }
    }
}

fn look(
    writer: &mut StatusWriter,
    input: &StepInput<'_>,
    name: &Arc<str>,
    step: &mut Step,
) -> Option<Timestamp> {
    let policy = input.snapshot.policies.get(name)?;
    if policy.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let list = edited(
        conditions::NODE_POOL_POLICY,
        &policy.metadata,
        &policy.status.conditions,
        input.now,
        |conditions| judge(conditions, input, policy),
    )?;
    let write = ObjectWrite::policy_status(policy, list.clone());
    writer.write(input, write, (&list, &[VALIDATION]), step)
}

/// Sets the conditions of a policy from its spec, the other policies and the NodePools.
fn judge(conditions: &mut Conditions<'_>, input: &StepInput<'_>, policy: &Policy) {
    let faults = policy_faults(policy, &input.snapshot.well_known);
    if !faults.is_empty() {
        conditions.set_false(VALIDATION, "RuntimeValidation", &in_words(&faults));
        return;
    }
    let in_force = input.snapshot.policies_in_force();
    let mut held: Vec<String> = Vec::new();
    let mut missing: Vec<String> = Vec::new();
    for name in &policy.spec.node_pools {
        let pool = PoolName::from(name.as_str());
        let older = in_force.get(&pool).filter(|by| by.name() != policy.name());
        if let Some(older) = older {
            held.push(format!(
                "NodePool {name} by NodePoolPolicy {}",
                older.name()
            ));
        } else if !input.snapshot.pools.contains_key(&pool) {
            let known = input.snapshot.pools.keys().map(|known| known.as_str());
            let meant = nearest(name, known).map(|near| format!(" (did you mean {near}?)"));
            missing.push(format!("{name}{}", meant.unwrap_or_default()));
        }
    }
    if !held.is_empty() {
        let text = format!(
            "an older policy holds for {}; a NodePool has one policy",
            held.join(", ")
        );
        conditions.set_false(VALIDATION, "Conflict", &text);
    } else if !missing.is_empty() {
        let text = format!("there is no NodePool {}", missing.join(", "));
        conditions.set_false(VALIDATION, "NodePoolNotFound", &text);
    } else {
        conditions.set_true(VALIDATION);
    }
}

impl Decider for NodePoolPolicyDecider {
    fn id(&self) -> DeciderId {
        DeciderId::NodePoolPolicy
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        // Policies are among the surroundings.
        changes.everything || changes.cluster_objects || !changes.pools.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let all = &input.snapshot.policies;
        let changed = self
            .is_interested(input.changes)
            .then(|| all.keys().cloned());
        let key_of = |target: &ObjectRef| match target {
            ObjectRef::Policy(key) => Some(key.clone()),
            _ => None,
        };
        self.statuses
            .step(input, key_of, changed.into_iter().flatten(), look)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::tests::{cluster, validation};

    fn policy(name: &str, minute: u8, pools: &[&str], price: &str) -> Value {
        let created = format!("2025-01-01T00:{minute:02}:00Z");
        json!({
            "kind": "NodePoolPolicy",
            "metadata": { "name": name, "generation": 1, "creationTimestamp": created },
            "spec": { "nodePools": pools, "limits": { "hourlyPrice": price } },
        })
    }

    const GOOD: [&str; 4] = ["True", "ValidationSucceeded", "", "True"];

    #[test]
    fn of_two_policies_of_a_pool_the_older_one_holds_until_it_goes() {
        let mut world = cluster();
        world.put(&policy("b-old", 1, &["default"], "1"));
        world.put(&policy("a-new", 2, &["default"], "2"));
        world.settle();
        assert_eq!(validation(&world, "NodePoolPolicy/b-old"), GOOD);
        let message = "an older policy holds for NodePool default by NodePoolPolicy b-old; a NodePool has one policy";
        assert_eq!(
            validation(&world, "NodePoolPolicy/a-new"),
            ["False", "Conflict", message, "False"]
        );
        let writes = world.done.len();
        world.pass(60_000);
        assert_eq!(world.done.len(), writes, "nothing is written twice");
        world.delete("NodePoolPolicy/b-old");
        world.settle();
        assert_eq!(validation(&world, "NodePoolPolicy/a-new"), GOOD);
    }

    #[test]
    fn a_pool_that_is_not_there_is_named_with_the_nearest_one() {
        let mut world = cluster();
        world.put(&policy("team", 1, &["defualt", "default"], "1"));
        world.settle();
        let message = "there is no NodePool defualt (did you mean default?)";
        assert_eq!(
            validation(&world, "NodePoolPolicy/team"),
            ["False", "NodePoolNotFound", message, "False"]
        );
    }

    #[test]
    fn a_price_that_cannot_be_read_is_named() {
        let mut world = cluster();
        world.put(&policy("odd", 1, &["default"], "ten dollars"));
        world.settle();
        let [status, reason, message, ready] = validation(&world, "NodePoolPolicy/odd");
        assert_eq!(
            (&*status, &*reason, &*ready),
            ("False", "RuntimeValidation", "False")
        );
        assert!(
            message.contains(
                "spec.limits.hourlyPrice: \"ten dollars\" is not a price in dollars per hour"
            ),
            "{message}"
        );
    }
}
