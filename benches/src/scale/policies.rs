//! What NodePoolPolicies cost a pass of the solver, next to the same pass without them.

use std::collections::BTreeMap;

use anyhow::Result;
use mortise_apis::labels;
use mortise_apis::node_pool_policy::NodePoolPolicy;
use mortise_planning::scheduling::LaunchPlan;
use mortise_state::resource_kinds::{Object, ObjectEvent, ObjectKey};
use mortise_state::snapshot::Snapshot;
use serde_json::{Value, json};

use super::world::{Mix, World, read};
use super::{Clock, Row, plan, spread_of};
use crate::test_host::{peak_mib, resident_mib};

/// Pending pods.
const PODS: usize = 2_000;
/// NodePools; each has a policy of its own.
const POOLS: usize = 20;
/// More than a pass without policies, in per cent.
const WANTED_PERCENT: f64 = 1.0;

/// A kind of policy, and what one of its objects says.
type PolicyKind = (&'static str, fn() -> Value);

const KINDS: [PolicyKind; 3] = [
    ("limits of nodes, prices, rates, months", limits),
    ("a share of on-demand capacity", share),
    ("commitments: 5 of each NodePool", commitments),
];

/// Limits that are never reached, so that the plan is that of a pass without policies.
fn limits() -> Value {
    json!({
        "limits": { "nodes": 100_000, "hourlyPrice": "100000" },
        "spending": { "perMonth": "100000000" },
        "scaling": { "maxNewNodesPerWindow": { "nodes": 100_000, "window": "10m" } },
    })
}

fn share() -> Value {
    json!({ "scaling": { "onDemand": { "baseCPU": 0, "percentageAboveBase": 20 } } })
}

/// Each with room for some of the nodes.
fn commitments() -> Value {
    let one = |at: usize| {
        json!({
            "name": format!("plan-{at}"), "instances": 5,
            "requirements": [{ "key": labels::INSTANCE_TYPE, "operator": "NotIn", "values": [format!("m{at}.8x")] }],
        })
    };
    json!({ "commitments": (0..5).map(one).collect::<Vec<_>>() })
}

/// One row for each kind of policy, and one for the pass without any.
pub(super) fn rows(seed: u64, runs: usize) -> Result<Vec<Row>> {
    let mut world = World::new(seed, POOLS, 400)?.with_on_demand_nodes();
    world.add_nodes(2_000, POOLS, 10)?;
    world.add_pods(PODS, 50, Mix::Diverse)?;
    world.start();
    let mut snapshots = vec![("no policy", world.engine.snapshot(world.now))];
    for (kind, spec) in KINDS {
        for at in 0..POOLS {
            world.put(Object::Policy(Box::new(policy(at, spec())?)));
        }
        snapshots.push((kind, world.engine.snapshot(world.now)));
        for at in 0..POOLS {
            let key = ObjectKey::Policy(policy_name(at).as_str().into());
            world.take(ObjectEvent::Deleted(key, None));
        }
    }
    // Kinds take turns, so that what else the test host does is shared by all of them.
    let mut times: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut last = vec![LaunchPlan::default(); snapshots.len()];
    for _ in 0..runs.max(1) * 4 {
        for (at, (_, snapshot)) in snapshots.iter().enumerate() {
            // A copy has nothing computed that policies are asked for.
            let fresh = Snapshot::clone(snapshot);
            let clock = Clock::start();
            last[at] = plan(&world, &fresh);
            times.entry(at).or_default().push(clock.ms());
        }
    }
    let spreads = times.into_values().map(spread_of).collect::<Vec<_>>();
    // Medians: one run that is interrupted counts for as much as all others together.
    let without = spreads.first().map_or(f64::NAN, |(_, median, _)| *median);
    let rows = snapshots.iter().zip(&last).zip(spreads);
    let rows = rows.map(|(((what, _), plan), ms)| {
        let (_, median, _) = ms;
        let percent = (median / without - 1.0) * 100.0;
        let is_compared = *what != "no policy";
        let wanted = format!("{percent:+.1} % (medians), wanted <= {WANTED_PERCENT:.0} %");
        Row {
            case: "policies".to_owned(),
            what: (*what).to_owned(),
            pods: PODS,
            placed: plan.placed(),
            nodes: plan.claims.len(),
            ms,
            peak_mib: peak_mib(),
            resident_mib: resident_mib(),
            wanted: if is_compared { wanted } else { String::new() },
            met: !is_compared || percent <= WANTED_PERCENT,
        }
    });
    Ok(rows.collect())
}

fn policy_name(at: usize) -> String {
    format!("policy-{at:02}")
}

fn policy(at: usize, mut spec: Value) -> Result<NodePoolPolicy> {
    spec["nodePools"] = json!([format!("pool-{at:02}")]);
    let name = policy_name(at);
    read(json!({
        "metadata": { "name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z" }, "spec": spec,
    }))
}
