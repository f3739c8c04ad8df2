//! What is said about a NodePoolPolicy that contradicts the cluster.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod test_cluster;

use mortise_apis::NodePoolPolicy;
use serde_json::{Value, json};
use test_cluster::{TestCluster, WARNING_MAX, good, merged, pool, warned};

fn policy(name: &str, pools: &[&str], price: &str) -> Value {
    merged(
        good("NodePoolPolicy"),
        &json!({
            "metadata": { "name": name },
            "spec": { "nodePools": pools, "limits": { "hourlyPrice": price } },
        }),
    )
}

#[test]
fn a_policy_is_compared_with_pools_other_policies_and_what_is_in_use() {
    let mut cluster = TestCluster::new();
    cluster.pool(&pool("default", &json!({})));
    let answer = cluster.admit("CREATE", &policy("team", &["default"], "25"), None);
    assert_eq!(answer.warnings, Vec::<String>::new());
    let answer = cluster.admit(
        "CREATE",
        &policy("team", &["defualt", "default"], "25"),
        None,
    );
    assert_eq!(
        warned(&answer),
        ["there is no NodePool \"defualt\"; did you mean \"default\"?"]
    );

    let mut older = policy("older", &["default"], "25");
    older["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    let older = serde_json::from_value::<NodePoolPolicy>(older).unwrap();
    cluster.apply(older.into());
    let answer = cluster.admit("CREATE", &policy("team", &["default"], "25"), None);
    assert_eq!(
        warned(&answer),
        [
            "older NodePoolPolicy \"older\" holds for \"default\", this one does not; a NodePool has one policy"
        ]
    );

    cluster.node("default", "m5.large", 1, 1);
    let before = policy("older", &["default"], "25");
    let answer = cluster.admit("UPDATE", &policy("older", &["default"], "0"), Some(&before));
    let [text] = warned(&answer) else {
        panic!("{answer:?}");
    };
    assert!(
        text.starts_with("$0.0000/h is below the $") && text.len() <= WARNING_MAX,
        "{text}"
    );
}

#[test]
fn fewer_nodes_than_there_are_is_said_with_the_entry_of_the_calendar() {
    let mut cluster = TestCluster::new();
    cluster.pool(&pool("default", &json!({})));
    cluster.node("default", "m5.large", 1, 1);
    let of = |nodes: u8| {
        let mut policy = policy("team", &["default"], "25");
        let always = json!({ "name": "always", "schedule": "0 * * * *", "duration": "1h", "limits": { "nodes": nodes } });
        policy["spec"]["calendar"] = json!([always]);
        policy
    };
    let answer = cluster.admit("CREATE", &of(1), None);
    assert_eq!(answer.warnings, Vec::<String>::new());
    let answer = cluster.admit("CREATE", &of(0), None);
    assert_eq!(
        warned(&answer),
        [
            "0 is below the 1 nodes that are there: none is launched until others are gone; none is removed"
        ]
    );
}

#[test]
fn a_pause_that_has_ended_is_said() {
    let mut cluster = TestCluster::new();
    cluster.pool(&pool("default", &json!({})));
    let paused = |until: &str| {
        let mut policy = policy("team", &["default"], "25");
        let pause = json!({ "reason": "release of the shop", "until": until });
        policy["spec"]["disruption"] = json!({ "pause": pause });
        policy
    };
    let answer = cluster.admit("CREATE", &paused("2100-01-01T00:00:00Z"), None);
    assert_eq!(answer.warnings, Vec::<String>::new());
    let answer = cluster.admit("CREATE", &paused("2020-01-01T00:00:00Z"), None);
    assert_eq!(
        warned(&answer),
        [
            "2020-01-01T00:00:00Z has passed, so nothing is paused; write a later time, or take the pause out"
        ]
    );
}

#[test]
fn a_commitment_that_pays_for_nothing_is_said() {
    let mut cluster = TestCluster::new();
    let spot = json!({ "spec": { "template": { "spec": { "requirements": [
        { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"] },
    ] } } } });
    cluster.pool(&pool("default", &json!({})));
    cluster.pool(&pool("batch", &spot));
    let mut older = policy("older", &["default"], "25");
    older["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    let older = serde_json::from_value::<NodePoolPolicy>(older).unwrap();
    cluster.apply(older.into());
    let mut said = |pools: &[&str], commitment: Value| {
        let mut paid = policy("paid", pools, "25");
        let own = merged(json!({ "name": "ri", "instances": 2 }), &commitment);
        paid["spec"] = json!({ "nodePools": pools, "commitments": [own] });
        warned(&cluster.admit("CREATE", &paid, None)).to_vec()
    };
    // Next to a policy with limits.
    assert_eq!(said(&["default"], json!({})), Vec::<String>::new());
    let family = |of: &str| {
        json!({ "requirements": [
            { "key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": [of] },
        ] })
    };
    assert_eq!(said(&["default"], family("m5")), Vec::<String>::new());
    let none = "no NodePool of the policy may launch on-demand nodes that meet them; correct them, or allow such nodes in a NodePool";
    assert_eq!(said(&["default"], family("x99")), [none]);
    assert_eq!(said(&["batch"], family("m5")), [none]);
    assert_eq!(
        said(&["batch", "default"], family("m5")),
        Vec::<String>::new()
    );
    let ended = "2020-01-01T00:00:00Z has passed, so it pays for nothing; write a later time, or take the commitment out";
    assert_eq!(
        said(&["default"], json!({ "until": "2020-01-01T00:00:00Z" })),
        [ended]
    );
}

#[test]
fn zones_that_cannot_be_balanced_are_said() {
    let mut cluster = TestCluster::new();
    let of = |operator: &str, zones: &[&str]| {
        json!({ "spec": { "template": { "spec": { "requirements": [
            { "key": "topology.kubernetes.io/zone", "operator": operator, "values": zones },
        ] } } } })
    };
    cluster.pool(&pool("default", &json!({})));
    cluster.pool(&pool("two", &of("In", &["zone-1", "zone-2"])));
    cluster.pool(&pool("one", &of("In", &["zone-1"])));
    cluster.pool(&pool("not-one", &of("NotIn", &["zone-1"])));
    let mut asked = policy("team", &["default", "two", "one", "not-one"], "25");
    let mut said = |balance: Value| {
        asked["spec"]["scaling"] = json!({ "zoneBalance": balance });
        cluster.admit("CREATE", &asked, None)
    };
    let text = "NodePool \"one\" allows one zone alone: zoneBalance changes none of its nodes";
    assert_eq!(warned(&said(json!({}))), [text]);
    assert_eq!(warned(&said(json!({ "maxPriceIncrease": "10%" }))), [text]);
    for odd in ["10", "100%", "-1%", "ten percent"] {
        let answer = said(json!({ "maxPriceIncrease": odd }));
        let shown = format!("{answer:?}");
        assert!(
            shown.contains("spec.scaling.zoneBalance.maxPriceIncrease"),
            "{shown}"
        );
    }
}

#[test]
fn a_share_of_on_demand_capacity_that_is_missing_or_cannot_be_is_said() {
    let mut cluster = TestCluster::new();
    let of = |types: &[&str]| {
        json!({ "spec": { "template": { "spec": { "requirements": [
            { "key": "karpenter.sh/capacity-type", "operator": "In", "values": types },
        ] } } } })
    };
    cluster.pool(&pool("default", &of(&["spot", "on-demand"])));
    cluster.pool(&pool("batch", &of(&["spot"])));
    let asked = |pools: &[&str], on_demand: Value| {
        let mut policy = policy("team", pools, "25");
        policy["spec"]["scaling"] = json!({ "onDemand": on_demand });
        policy
    };
    let half = || json!({ "percentageAboveBase": 50 });
    let answer = cluster.admit("CREATE", &asked(&["default"], half()), None);
    assert_eq!(answer.warnings, Vec::<String>::new());
    let answer = cluster.admit("CREATE", &asked(&["default", "batch"], half()), None);
    assert_eq!(
        warned(&answer),
        ["NodePool \"batch\" allows no on-demand capacity: onDemand changes none of its nodes"]
    );
    let answer = cluster.admit("CREATE", &asked(&["default"], json!({})), None);
    let [text] = warned(&answer) else {
        panic!("{answer:?}");
    };
    assert!(text.contains("asks for no on-demand capacity"), "{text}");
    for (on_demand, field) in [
        (json!({ "baseCPU": -1 }), "spec.scaling.onDemand.baseCPU"),
        (
            json!({ "percentageAboveBase": 101 }),
            "spec.scaling.onDemand.percentageAboveBase",
        ),
    ] {
        let answer = cluster.admit("CREATE", &asked(&["default"], on_demand), None);
        assert!(format!("{answer:?}").contains(field), "{answer:?}");
    }
}
