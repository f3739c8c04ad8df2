//! A NodePoolPolicy balances zones: through growth, a shortage in one of them, prices that rise, and consolidation.

use crate::world::scenarios::{long, played_with, pool, spread};
use mortise_sim::scenario::ScenarioReport;
use serde_json::{Value, json};

fn balanced(zones: &Value) -> Value {
    json!({
        "apiVersion": "mortise.sh/v1alpha1", "kind": "NodePoolPolicy", "metadata": { "name": "team", "generation": 1 },
        "spec": { "nodePools": ["general"], "scaling": { "zoneBalance": zones } },
    })
}

/// Nodes in each of the two zones at the end, for 40 pods that have a node each.
fn nodes(minutes: u32, timeline: &Value, policy: Option<Value>) -> (usize, usize) {
    let manifests: Vec<Value> = [pool(), spread(40)].into_iter().chain(policy).collect();
    let report = played_with(&long(&format!("{minutes}m"), timeline), &manifests).unwrap();
    assert_eq!(report.totals.violations, Vec::<String>::new());
    let of = |report: &ScenarioReport, zone: &str| {
        let nodes = report.nodes.iter();
        nodes.filter(|node| node.zone == zone).count()
    };
    (of(&report, "a"), of(&report, "b"))
}

fn scale(at: &str, replicas: u32) -> Value {
    json!({ "at": at, "scale": { "deployment": "web", "replicas": replicas } })
}

/// Spot and on-demand capacity of zone `b` costs more from the start.
fn higher_by(factor: f64) -> Value {
    json!({ "at": "0s", "price": { "zones": ["b"], "factor": factor } })
}

#[test]
fn new_nodes_go_to_the_zone_with_the_fewest() {
    let (a, b) = nodes(10, &json!([higher_by(1.05)]), None);
    assert_eq!(
        (a, b),
        (40, 0),
        "without a policy all are where it is cheapest"
    );
    let table = [
        // The same price.
        (1.0, json!({}), (20, 20)),
        // 5 % more.
        (1.05, json!({}), (40, 0)),
        (1.05, json!({ "maxPriceIncrease": "4%" }), (40, 0)),
        (1.05, json!({ "maxPriceIncrease": "5%" }), (20, 20)),
        (1.05, json!({ "maxPriceIncrease": "90%" }), (20, 20)),
    ];
    for (factor, zones, expected) in table {
        let policy = Some(balanced(&zones));
        assert_eq!(
            nodes(10, &json!([higher_by(factor)]), policy),
            expected,
            "{factor} {zones}"
        );
    }
}

#[test]
fn growth_shrinking_and_hours_of_consolidation_keep_the_balance() {
    let policy = || Some(balanced(&json!({ "maxPriceIncrease": "10%" })));
    let grown = json!([higher_by(1.05), scale("10m", 60)]);
    assert_eq!(nodes(20, &grown, policy()), (30, 30));
    assert_eq!(nodes(6 * 60, &grown, policy()), (30, 30));
    let shrunk = json!([
        higher_by(1.05),
        scale("10m", 60),
        scale("30m", 15),
        scale("60m", 60)
    ]);
    assert_eq!(nodes(240, &shrunk, policy()), (30, 30));
    // One after the other, each before the one before is launched.
    let slowly: Vec<Value> = (1..=20)
        .map(|n| scale(&format!("{}s", 600 + n), 40 + n))
        .collect();
    assert_eq!(nodes(20, &json!(slowly), policy()), (30, 30));
}

#[test]
fn a_shortage_in_a_zone_is_made_good_by_what_comes_later() {
    let policy = || Some(balanced(&json!({ "maxPriceIncrease": "10%" })));
    let shortage = json!({ "at": "9m", "shortage": { "zones": ["b"], "for": "30m" } });
    let short = json!([shortage, scale("10m", 60)]);
    assert_eq!(nodes(20, &short, policy()), (40, 20));
    let grown = json!([shortage, scale("10m", 60), scale("60m", 90)]);
    assert_eq!(nodes(90, &grown, policy()), (45, 45));
}
