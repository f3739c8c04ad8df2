//! NodePoolPolicies: whether they are in force, and what their nodes have cost in this month.
//!
//! May: write the condition `ValidationSucceeded` and with it `Ready` of policies, and their spending.
//!
//! Must never: decide which of two policies counts, or keep their limits. The first is done where they are read
//! ([`mortise_state::snapshot::Snapshot::policies_in_force`]), the second where NodeClaims are planned and created.

mod spending_meter;

use std::sync::Arc;

use jiff::Timestamp;

use crate::tracking::status_reports::{StatusReports, StatusWriter};
use mortise_apis::names::{ObjectRef, PoolName};
use mortise_apis::nearest::nearest;
use mortise_apis::node_pool_policy::{NodePoolPolicy as Policy, NodePoolPolicyStatus};
use mortise_apis::schema::conditions::{self, Conditions};
use mortise_apis::validation::{in_words, policy_faults};
use mortise_engine::condition_edits::edited;
use mortise_engine::decider::{Decider, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::write::ObjectWrite;
use mortise_state::index::Changes;
use spending_meter::SpendingMeter;

const VALIDATION: &str = "ValidationSucceeded";

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct NodePoolPolicyDecider {
    statuses: StatusReports<Arc<str>>,
    spending: SpendingMeter,
}

impl Default for NodePoolPolicyDecider {
    fn default() -> Self {
        Self {
            statuses: StatusReports::new(DeciderId::NodePoolPolicy),
            spending: SpendingMeter::default(),
        }
    }
}

fn look(
    writer: &mut StatusWriter,
    input: &StepInput<'_>,
    name: &Arc<str>,
    (meter, step): (&SpendingMeter, &mut Step),
) -> Option<Timestamp> {
    let policy = input.snapshot.policies.get(name)?;
    if policy.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let judged = edited(
        conditions::NODE_POOL_POLICY,
        &policy.metadata,
        &policy.status.conditions,
        input.now,
        |conditions| judge(conditions, input, policy),
    );
    let shown = &policy.status.spending;
    let (spending, again) = match meter.status(policy) {
        Some(Ok(status)) => (Some(status), None),
        Some(Err(again)) => (shown.clone(), Some(again)),
        None => (None, None),
    };
    if judged.is_none() && spending == *shown {
        return again;
    }
    let types: &[&str] = if judged.is_some() { &[VALIDATION] } else { &[] };
    let conditions = judged.unwrap_or_else(|| policy.status.conditions.clone());
    let status = NodePoolPolicyStatus {
        conditions: conditions.clone(),
        spending,
    };
    let write = ObjectWrite::policy_status(policy, status);
    writer
        .write(input, write, (&conditions, types), step)
        .or(again)
}

/// Sets the conditions of a policy from its spec, the other policies and the NodePools.
fn judge(conditions: &mut Conditions<'_>, input: &StepInput<'_>, policy: &Policy) {
    let faults = policy_faults(policy, &input.snapshot.well_known);
    if !faults.is_empty() {
        conditions.set_false(VALIDATION, "RuntimeValidation", &in_words(&faults));
        return;
    }
    let in_force = input.snapshot.policies_in_force();
    let is_for_all = policy.is_of_commitments_alone();
    let mut held: Vec<String> = Vec::new();
    let mut missing: Vec<String> = Vec::new();
    for name in &policy.spec.node_pools {
        let pool = PoolName::from(name.as_str());
        let older = in_force.get(&pool).filter(|by| by.name() != policy.name());
        if let Some(older) = older.filter(|_| !is_for_all) {
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

/// Whether the conditions of policies may be others.
fn concerns_policies(changes: &Changes) -> bool {
    // Policies are among the surroundings.
    changes.everything || changes.cluster_objects || !changes.pools.is_empty()
}

impl Decider for NodePoolPolicyDecider {
    fn id(&self) -> DeciderId {
        DeciderId::NodePoolPolicy
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        let is_priced = !(changes.claims.is_empty() && changes.nodes.is_empty());
        concerns_policies(changes) || (is_priced && self.spending.is_running())
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        self.spending.read(input.snapshot, input.now);
        let meter = &self.spending;
        let all = input.snapshot.policies.keys().cloned();
        let changed: Vec<Arc<str>> = if concerns_policies(input.changes) {
            all.collect()
        } else {
            meter.policies().collect()
        };
        let key_of = |target: &ObjectRef| match target {
            ObjectRef::Policy(key) => Some(key.clone()),
            _ => None,
        };
        self.statuses.step(
            input,
            key_of,
            changed.into_iter(),
            |writer, input, name, step| look(writer, input, name, (meter, step)),
        )
    }
}

#[cfg(test)]
mod tests {
    use mortise_apis::node_pool_policy::Month;
    use mortise_apis::values::money::{MicroUsd, Spent};
    use mortise_apis::values::since;
    use mortise_sim::test_cluster::TestCluster;
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
    fn a_policy_that_says_what_is_paid_for_holds_next_to_an_older_one_and_before_a_newer_one() {
        let mut world = cluster();
        let mut paid = policy("paid", 1, &["default"], "1");
        paid["spec"] =
            json!({ "nodePools": ["default"], "commitments": [{ "name": "ri", "instances": 1 }] });
        world.put(&paid);
        world.put(&policy("limits", 2, &["default"], "2"));
        world.settle();
        for name in ["NodePoolPolicy/paid", "NodePoolPolicy/limits"] {
            assert_eq!(validation(&world, name), GOOD);
        }
    }

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

    /// What the status shows: millionths of a dollar that were spent, and per hour.
    fn spending(world: &mut TestCluster) -> (i64, i64) {
        let snapshot = world.snapshot();
        let shown = snapshot.policies.get("team").unwrap().monthly_spending();
        let shown = shown.unwrap();
        (shown.spent.over(3_600_000).0, shown.price.0)
    }

    fn with_monthly_limit(dollars: &str) -> TestCluster {
        let mut world = cluster();
        let mut policy = policy("team", 1, &["default"], "100");
        policy["spec"]["spending"] = json!({ "perMonth": dollars });
        world.put(&policy);
        world.settle();
        world
    }

    #[test]
    fn spending_is_metered_across_restarts_until_the_nodes_are_gone() {
        let mut world = with_monthly_limit("100");
        assert_eq!(spending(&mut world), (0, 0));
        world.up("a", &json!({}));
        let bill = world.bill();
        world.pass(30 * 60_000);
        let (spent, price) = spending(&mut world);
        assert_eq!(price, bill);
        let minutes = spent * 60 / bill;
        assert!((20..=31).contains(&minutes), "{minutes}");
        // A process that begins goes on where the status is, and one that is killed forgets nothing.
        world.pass(7 * 60_000);
        world.restart();
        world.pass(5 * 60_000);
        let minutes = spending(&mut world).0 * 60 / bill;
        assert!((40..=42).contains(&minutes), "{minutes}");
        world.erase("NodeClaim/a");
        world.pass(11 * 60_000);
        let (spent, price) = spending(&mut world);
        assert_eq!(price, 0);
        let written = |world: &TestCluster| {
            let done = world.done.iter();
            done.filter(|each| each.contains("team")).count()
        };
        let before = written(&world);
        world.pass(60 * 60_000);
        assert_eq!(spending(&mut world).0, spent, "nothing runs");
        assert_eq!(written(&world) - before, 6, "one in ten minutes");
        world.edit(
            "NodePoolPolicy/team",
            &json!({ "spec": { "spending": null } }),
        );
        world.settle();
        assert!(world.get("NodePoolPolicy/team")["status"]["spending"].is_null());
    }

    #[test]
    fn what_a_month_leaves_is_divided_by_the_time_that_is_left() {
        let mut world = with_monthly_limit("100");
        let month = |world: &mut TestCluster| {
            let snapshot = world.snapshot();
            let policy = snapshot.policy_of("default").unwrap();
            policy.price.as_ref().unwrap().month.unwrap()
        };
        let now = world.now();
        let left = since(Month::of(now).end(), now).max(7 * 24 * 3_600_000);
        let found = month(&mut world);
        assert_eq!(found.spent, Spent::default());
        assert_eq!(
            found.leaves,
            Spent::parse_dollars("100").unwrap().over(left)
        );
        // What the status shows is spent, and what nodes cost since then.
        world.up("a", &json!({}));
        let bill = MicroUsd(world.bill());
        world.pass(60 * 60_000);
        // It is computed every ten minutes.
        let [least, most] = [50, 61].map(|minutes| Spent::at_price(bill, minutes * 60_000));
        let found = month(&mut world).spent;
        assert!(least <= found && found <= most, "{found}");
        // All of it is spent.
        let status = json!({ "spending": { "month": Month::of(now).to_string(), "dollars": "100.5", "hourlyPrice": "0", "at": world.now().to_string() } });
        world.restart();
        world.edit("NodePoolPolicy/team", &json!({ "status": status }));
        world.settle();
        let snapshot = world.snapshot();
        let said = snapshot
            .policy_of("default")
            .unwrap()
            .admits(MicroUsd(10_000));
        let text = said.unwrap_err().to_string();
        assert!(
            text.starts_with("spending.perMonth of NodePoolPolicy team is $100.00 and $100.5")
                && text.contains("which leaves $0.0000/h"),
            "{text}"
        );
    }
}
