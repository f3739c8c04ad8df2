//! What NodePoolPolicies ask of new NodeClaims: one zone, or on-demand capacity, unless that leaves too few values for minValues.

use crate::automatic_cluster::automatic_cluster;
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::instance_type;
use serde_json::{Value, json};

const ZONE: &str = "topology.kubernetes.io/zone";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";

/// What the NodeClaim for one pod requires of this label, of a NodePool that requires `own`, with a policy that asks this.
fn required(key: &str, own: Option<Value>, scaling: &Value) -> Option<Value> {
    let types = vec![instance_type(
        "small",
        2,
        &[("spot", 40), ("on-demand", 100)],
    )];
    let mut world = automatic_cluster(types, Settings::default());
    if let Some(own) = own {
        world.edit(
            "NodePool/default",
            &json!({ "spec": { "template": { "spec": { "requirements": [own] } } } }),
        );
    }
    world.put(&json!({
        "kind": "NodePoolPolicy",
        "metadata": { "name": "team", "generation": 1, "creationTimestamp": "2025-01-01T00:00:00Z" },
        "spec": { "nodePools": ["default"], "scaling": scaling },
    }));
    world.pods("web", 1, 500, &json!({}));
    world.pass(5_000);
    let names = world.names("NodeClaim");
    assert_eq!(names.len(), 1, "{names:?}");
    let claim = world.get(&format!("NodeClaim/{}", names[0]));
    let all = claim["spec"]["requirements"].as_array().unwrap();
    all.iter()
        .find(|requirement| requirement["key"] == key)
        .cloned()
}

#[test]
fn a_node_claim_is_pinned_unless_it_needs_more_than_one_value() {
    let balanced = json!({ "zoneBalance": { "maxPriceIncrease": "50%" } });
    let on_demand = json!({ "onDemand": { "percentageAboveBase": 100 } });
    for (key, scaling, pinned) in [
        (ZONE, &balanced, "a"),
        (CAPACITY_TYPE, &on_demand, "on-demand"),
    ] {
        let one = Some(json!({ "key": key, "operator": "In", "values": [pinned] }));
        assert_eq!(required(key, None, scaling), one, "{key}");
        let asked = |least: u32| json!({ "key": key, "operator": "Exists", "minValues": least });
        let with_one = required(key, Some(asked(1)), scaling).unwrap();
        assert_eq!(with_one["values"], json!([pinned]), "{key}");
        // An API server refuses one value where two are the least.
        let Some(with_two) = required(key, Some(asked(2)), scaling) else {
            continue;
        };
        assert_ne!(with_two["values"], json!([pinned]), "{key}");
    }
}
