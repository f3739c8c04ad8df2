//! Policies of NodePools hold at every second, whatever the workloads ask for, while processes are killed and spot instances
//! interrupted. That they do is an invariant of the simulation, see `invariants/policies.rs`.

use crate::world::options;
use mortise_apis::node_pool_policy::SpendingStatus;
use mortise_apis::values::after;
use mortise_sim::{Fault, FaultTarget, SimOptions, Simulation};
use mortise_state::resource_kinds::ObjectKey;
use serde_json::{Value, json};

const NOTHING: Vec<String> = Vec::new();

/// A simulation with a policy of this spec.
fn with_policy(mut options: SimOptions, spec: &Value) -> Simulation {
    let policy = json!({
        "apiVersion": "mortise.sh/v1alpha1", "kind": "NodePoolPolicy", "metadata": { "name": "team", "generation": 1 },
        "spec": spec,
    });
    let key = ObjectKey::Policy("team".into());
    options.others.push((key, policy));
    Simulation::new(options, mortise_deciders::all())
}

/// Runs an hour with a policy; returns the largest sum of prices in millionths of a dollar per hour, and of new NodeClaims.
fn run(seed: u64, price: &str, nodes: u32) -> (i64, i64) {
    let policy = json!({
        "nodePools": ["general"],
        "limits": { "hourlyPrice": price },
        "scaling": { "maxNewNodesPerWindow": { "nodes": nodes, "window": "5m" } },
    });
    let mut simulation = with_policy(options(seed), &policy);
    let (mut most, mut new) = (0, 0);
    for minute in 0..60_i64 {
        if minute % 20 == 7 {
            let fault = if minute % 40 == 7 {
                Fault::CrashAfter
            } else {
                Fault::Twice
            };
            let target = FaultTarget::Kind("create_claim");
            simulation.disturb(target, 1, fault, mortise_deciders::all());
        }
        simulation.run_until(after(simulation.now(), 60_000));
        let snapshot = simulation.snapshot();
        if let Some(policy) = snapshot.policy_of("general") {
            most = most.max(policy.price.as_ref().unwrap().used.0);
            new = new.max(policy.rate.as_ref().unwrap().recent);
        }
    }
    assert_eq!(simulation.stats().violations, NOTHING, "seed {seed}");
    (most, new)
}

#[test]
fn a_limit_on_the_price_holds_and_is_used() {
    for seed in 0..4 {
        let (most, _) = run(seed, "1.5", 100);
        assert!(
            (1_000_000..=1_500_000).contains(&most),
            "seed {seed}: {most}"
        );
    }
}

#[test]
fn a_limit_on_new_nodes_holds_and_is_reached() {
    for seed in 6..8 {
        let (_, new) = run(seed, "100", 2);
        assert_eq!(new, 2, "seed {seed}");
    }
}

/// Runs a morning with few nodes in the first hour, more in the second, and few again; returns the most nodes of the first two.
fn run_by_calendar(seed: u64) -> [usize; 2] {
    let mut options = options(seed);
    let second = json!({ "schedule": "0 1 * * *", "duration": "1h", "limits": { "nodes": 8 }, "name": "second" });
    let policy =
        json!({ "nodePools": ["general"], "limits": { "nodes": 3 }, "calendar": [second] });
    // Nodes are small, so that the limit matters.
    let few = json!({ "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["t4", "t8"] });
    let requirements = &mut options.pools[0]["spec"]["template"]["spec"]["requirements"];
    requirements.as_array_mut().unwrap().push(few);
    let mut simulation = with_policy(options, &policy);
    let mut most = [0; 2];
    for minute in 1..180_usize {
        if minute % 50 == 7 {
            let target = FaultTarget::Kind("create_claim");
            simulation.disturb(target, 1, Fault::CrashAfter, mortise_deciders::all());
        }
        simulation.run_until(after(simulation.now(), 60_000));
        // In the third hour the nodes of the second stay while they are needed, which is what the invariant is about.
        if let Some(most) = most.get_mut(minute / 60) {
            *most = simulation.snapshot().claims.len().max(*most);
        }
    }
    assert_eq!(simulation.stats().violations, NOTHING, "seed {seed}");
    most
}

#[test]
fn limits_of_the_calendar_hold_while_they_are_in_force() {
    for seed in 10..12 {
        assert_eq!(run_by_calendar(seed), [3, 8], "seed {seed}");
    }
}

/// Runs the last two hours of a month and the first two of the next one; returns the highest price per hour of both, and what the
/// status shows at the end.
fn run_by_month(seed: u64, limit: &str) -> ([i64; 2], SpendingStatus) {
    let mut options = options(seed);
    options.start = "2026-01-31T22:00:00Z".parse().unwrap();
    let policy = json!({ "nodePools": ["general"], "spending": { "perMonth": limit } });
    let mut simulation = with_policy(options, &policy);
    let mut most = [0; 2];
    for minute in 1..240_usize {
        if minute % 40 == 7 {
            let target = FaultTarget::Kind("create_claim");
            simulation.disturb(target, 1, Fault::CrashAfter, mortise_deciders::all());
        }
        simulation.run_until(after(simulation.now(), 60_000));
        let snapshot = simulation.snapshot();
        let policy = snapshot.policy_of("general").unwrap();
        let used = policy.price.as_ref().unwrap().used.0;
        most[minute / 120] = used.max(most[minute / 120]);
    }
    assert_eq!(simulation.stats().violations, NOTHING, "seed {seed}");
    let policy = simulation.snapshot().policies.get("team").unwrap().clone();
    (most, policy.status.spending.clone().unwrap())
}

#[test]
fn a_limit_per_month_holds_and_is_used() {
    for seed in 20..22 {
        // In the last week of January it leaves $1.50 an hour, in the 28 days of February $0.375.
        let ([january, february], shown) = run_by_month(seed, "252");
        let found = format!("seed {seed}: {january} {february} {shown:?}");
        assert!((1_000_000..=1_500_000).contains(&january), "{found}");
        assert!(february <= january, "{found}");
        assert_eq!(shown.month, "2026-02", "{found}");
    }
}
