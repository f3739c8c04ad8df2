//! A NodePoolPolicy keeps a share of the capacity on-demand: through growth, a shortage of spot, consolidation and shrinking.

use crate::world::scenarios::{long, nodes_by_capacity_type as nodes, played_with, pool, spread};
use mortise_sim::scenario::ScenarioReport;
use serde_json::{Value, json};

fn policy(on_demand: &Value) -> Value {
    json!({
        "apiVersion": "mortise.sh/v1alpha1", "kind": "NodePoolPolicy", "metadata": { "name": "team", "generation": 1 },
        "spec": { "nodePools": ["general"], "scaling": { "onDemand": on_demand } },
    })
}

fn play(minutes: u32, timeline: &Value, policy: Option<Value>) -> ScenarioReport {
    let manifests: Vec<Value> = [pool(), spread(40)].into_iter().chain(policy).collect();
    let report = played_with(&long(&format!("{minutes}m"), timeline), &manifests).unwrap();
    assert_eq!(report.totals.violations, Vec::<String>::new());
    report
}

#[test]
fn new_nodes_keep_the_share() {
    let nothing = json!([]);
    // 40 nodes of two CPUs each.
    assert_eq!(nodes(&play(10, &nothing, None)), (0, 40));
    let table = [
        (json!({ "baseCPU": 8 }), 4),
        (json!({ "percentageAboveBase": 50 }), 20),
        // 8, and 21.6 of the other 72.
        (json!({ "baseCPU": 8, "percentageAboveBase": 30 }), 15),
        (json!({ "percentageAboveBase": 100 }), 40),
    ];
    for (asked, expected) in table {
        let report = play(10, &nothing, Some(policy(&asked)));
        assert_eq!(nodes(&report), (expected, 40 - expected), "{asked}");
    }
}

#[test]
fn growth_shortage_and_shrinking_keep_the_share() {
    let third = json!({ "percentageAboveBase": 33 });
    let scale = |at: &str, replicas: u32| json!({ "at": at, "scale": { "deployment": "web", "replicas": replicas } });
    let grown = json!([scale("10m", 60)]);
    assert_eq!(nodes(&play(20, &grown, Some(policy(&third)))), (20, 40));

    // While there is no spot capacity, everything new is on-demand. Once there is, consolidation exchanges what is too much.
    let shortage = json!({ "at": "9m", "shortage": { "capacityType": "spot", "for": "30m" } });
    let short = json!([shortage, scale("10m", 60)]);
    assert_eq!(nodes(&play(20, &short, Some(policy(&third)))).1, 26);
    assert_eq!(nodes(&play(240, &short, Some(policy(&third)))), (20, 40));

    // Spot nodes that are interrupted come back as spot nodes.
    let interrupted = json!([scale("10m", 60), { "at": "20m", "interrupt": { "count": 15 } }]);
    assert_eq!(
        nodes(&play(60, &interrupted, Some(policy(&third)))),
        (20, 40)
    );

    // Which pods go is not for the policy to say: nodes without pods go, and the next ones make up for it.
    let shrunk = json!([scale("10m", 60), scale("30m", 15), scale("60m", 60)]);
    let (on_demand, spot) = nodes(&play(90, &shrunk, Some(policy(&third))));
    assert!(
        on_demand >= 20 && on_demand + spot == 60,
        "{on_demand} {spot}"
    );
}

/// Nodes that are there when the policy comes stay: a bill does not rise by itself.
#[test]
fn consolidation_leaves_no_less_on_demand_capacity_than_is_asked() {
    let mut on_demand = pool();
    on_demand["spec"]["template"]["spec"]["requirements"][0]["values"] = json!(["on-demand"]);
    // From 20 minutes on the NodePool allows spot as well.
    let allow = json!({ "spec": { "template": { "spec": { "requirements": [
        { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"] }] } } } });
    let timeline = json!([{ "at": "20m", "edit": { "nodePool": "general", "patch": allow } }]);
    let half = policy(&json!({ "percentageAboveBase": 50 }));
    let manifests = [on_demand, spread(20), half];
    let report = played_with(&long("6h", &timeline), &manifests).unwrap();
    assert_eq!(report.totals.violations, Vec::<String>::new());
    assert_eq!(nodes(&report), (10, 10));
}
