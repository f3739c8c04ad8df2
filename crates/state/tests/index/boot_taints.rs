//! Taints that young nodes lose are learned, and left out of what counts on the next ones.

use jiff::Timestamp;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, ObjectEvent, ObjectKey};
use serde_json::{Value, json};

use super::{claim, index, json_patch_merge, node};

const AGENT: &str = "example.com/agent-not-ready";

/// The index, and the version of the last object.
struct Cluster(Index, u64);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn taints(keys: &[&str]) -> Value {
    let taint = |key: &&str| json!({ "key": key, "effect": "NoSchedule" });
    keys.iter().map(taint).collect()
}

impl Cluster {
    fn new() -> Self {
        Self(index(), 0)
    }

    /// The NodeClaim of a node, with this in its spec.
    fn claim(&mut self, name: &str, spec: &Value) {
        self.1 += 1;
        let mut all = json!({ "status": { "providerID": format!("kwok://{name}") } });
        json_patch_merge(&mut all, &json!({ "spec": spec }));
        let claim = claim(name, self.1, all);
        self.0
            .apply(ObjectEvent::Applied(claim, EventSource::Watch));
    }

    /// The registered Node, created at a second, has these taints at another.
    fn node(&mut self, name: &str, created: i64, now: i64, keys: &[&str]) {
        self.1 += 1;
        let labels =
            json!({ "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true" });
        let all = json!({
            "metadata": { "labels": labels, "creationTimestamp": at(created).to_string() }, "spec": { "taints": taints(keys) },
        });
        let node = node(name, self.1, all);
        self.0.set_time(at(now));
        self.0.apply(ObjectEvent::Applied(node, EventSource::Watch));
    }

    /// Keys of the taints that count on a node.
    fn counting(&mut self, name: &str, now: i64) -> Vec<String> {
        self.0.expire(at(now));
        let snapshot = self.0.freeze(at(now));
        let node = snapshot.node(name).unwrap();
        node.taints.iter().map(|taint| taint.key.clone()).collect()
    }

    fn learned(&mut self) -> Vec<(String, i64)> {
        let snapshot = self.0.freeze(at(0));
        let pool = "default".into();
        let all = snapshot.boot_taints.of_pool(&pool);
        all.map(|(taint, ms)| (format!("{}:{}", taint.key, taint.effect), ms))
            .collect()
    }
}

#[test]
fn what_the_first_node_loses_does_not_count_on_the_next_until_it_stays_too_long() {
    let mut cluster = Cluster::new();
    for name in ["a", "b", "c"] {
        cluster.claim(name, &json!({}));
    }
    cluster.node("a", 0, 1, &[AGENT, "dedicated"]);
    cluster.node("b", 10, 11, &[AGENT, "dedicated"]);
    assert_eq!(cluster.counting("a", 12), [AGENT, "dedicated"]);
    assert!(cluster.learned().is_empty());

    cluster.node("a", 0, 40, &["dedicated"]);
    assert_eq!(cluster.learned(), [(format!("{AGENT}:NoSchedule"), 40_000)]);
    assert_eq!(cluster.counting("a", 40), ["dedicated"]);
    // One that boots at the same time.
    assert_eq!(cluster.counting("b", 40), ["dedicated"]);
    assert_eq!(cluster.0.next_expiry(), Some(at(10 + 140)));

    // A later one: twice 40 s and a minute after its creation the taint counts again.
    cluster.node("c", 1_000, 1_001, &[AGENT]);
    assert!(cluster.counting("c", 1_001).is_empty());
    assert!(cluster.counting("c", 1_139).is_empty());
    assert_eq!(cluster.0.next_expiry(), Some(at(1_140)));
    assert_eq!(cluster.counting("c", 1_140), [AGENT]);
    assert_eq!(cluster.0.next_expiry(), None);

    // One that gets the taint later, has it for another reason.
    cluster.claim("d", &json!({}));
    cluster.node("d", 1_100, 1_101, &[]);
    cluster.node("d", 1_100, 1_110, &[AGENT]);
    assert_eq!(cluster.counting("d", 1_111), [AGENT]);
    cluster.node("d", 1_100, 1_119, &[]);

    // It went after all: the next one gets as long.
    cluster.node("c", 1_000, 1_200, &[]);
    assert_eq!(cluster.learned()[0].1, 200_000);
}

#[test]
fn nothing_is_learned_when_it_is_switched_off() {
    let mut cluster = Cluster(index().learning_boot_taints(false), 0);
    cluster.claim("a", &json!({}));
    cluster.node("a", 0, 1, &[AGENT]);
    cluster.node("a", 0, 40, &[]);
    assert!(cluster.learned().is_empty());
}

#[test]
fn what_is_declared_or_says_something_else_or_comes_later_is_not_learned() {
    let declared = json!([{ "key": AGENT, "effect": "NoSchedule" }]);
    for (spec, first, then) in [
        (json!({ "startupTaints": declared }), vec![AGENT], vec![]),
        (json!({ "taints": declared }), vec![AGENT], vec![]),
        (json!({}), vec!["node.kubernetes.io/disk-pressure"], vec![]),
        (json!({}), vec!["karpenter.sh/disrupted"], vec![]),
        (json!({}), vec![], vec![AGENT]),
    ] {
        let mut cluster = Cluster::new();
        cluster.claim("a", &spec);
        cluster.node("a", 0, 1, &first);
        cluster.node("a", 0, 20, &then);
        cluster.node("a", 0, 40, &[]);
        assert!(cluster.learned().is_empty(), "{spec} {first:?} {then:?}");
    }
    let mut cluster = Cluster::new();
    cluster.claim("a", &json!({}));
    cluster.node("a", 0, 1, &[AGENT]);
    cluster.node("a", 0, 901, &[]);
    assert!(cluster.learned().is_empty(), "after 15 minutes");
    // A node that is first seen when it is there for a while, as after a restart.
    cluster.claim("b", &json!({}));
    cluster.node("b", 900, 1_000, &[AGENT]);
    cluster.node("b", 900, 1_010, &[]);
    assert!(cluster.learned().is_empty());
    // Another node takes the name.
    cluster
        .0
        .apply(ObjectEvent::Deleted(ObjectKey::Node("a".into()), None));
    cluster.node("a", 2_000, 2_001, &[]);
    cluster.node("a", 2_000, 2_002, &[AGENT]);
    cluster.node("a", 2_000, 2_003, &[]);
    assert!(cluster.learned().is_empty(), "it did not join with it");
}
