//! The order in which the ReplicaSet controller deletes pods of a workload that shrinks.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels::POD_DELETION_COST;
use mortise_apis::names::PodKey;
use mortise_apis::values::fnv1a;
use serde_json::Value;

use super::pod_index::PodFacts;
use super::workload_controllers::is_running;

/// What a pod is ranked by, besides its node.
#[derive(Clone, Debug, Default)]
pub(super) struct DeletionFacts {
    is_running: bool,
    cost: i32,
    /// When its condition `Ready` became what it is.
    ready_since: Option<Timestamp>,
    created: Option<Timestamp>,
}

impl DeletionFacts {
    pub(super) fn of(pod: &Value) -> Self {
        let time = |value: Option<&Value>| value?.as_str()?.parse().ok();
        let metadata = pod.get("metadata");
        let annotation = |key: &str| metadata?.get("annotations")?.get(key)?.as_str();
        let conditions = pod
            .get("status")
            .and_then(|status| status.get("conditions"));
        let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
        let ready = conditions.find(|each| each["type"] == "Ready");
        Self {
            is_running: is_running(pod),
            cost: annotation(POD_DELETION_COST).map_or(0, |text| text.parse().unwrap_or(0)),
            ready_since: time(ready.and_then(|ready| ready.get("lastTransitionTime"))),
            created: time(metadata.and_then(|metadata| metadata.get("creationTimestamp"))),
        }
    }
}

/// Pods of one workload, first what is deleted first: pods without a node, pods that do not run or are not ready, pods with
/// a low deletion cost, pods on the node that has most of them, and young ones. Ages are compared by their powers of two;
/// pods of about the same age go in the order of their UIDs, which are random.
pub(super) fn in_deletion_order<'p>(
    pods: impl Iterator<Item = (&'p PodKey, &'p PodFacts)>,
    now: Timestamp,
) -> Vec<(&'p PodKey, &'p PodFacts)> {
    let mut pods: Vec<_> = pods.collect();
    let mut neighbours: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for node in pods.iter().filter_map(|(_, pod)| pod.node()) {
        *neighbours.entry(node).or_default() += 1;
    }
    let age = |since: Option<Timestamp>| {
        let nanoseconds = since.map_or(0, |since| {
            (now.as_nanosecond() - since.as_nanosecond()).max(0)
        });
        nanoseconds.checked_ilog2()
    };
    pods.sort_by_cached_key(|(key, pod)| {
        let facts = &pod.deletion;
        let on_node = pod.node().and_then(|node| neighbours.get(node));
        (
            (pod.is_bound(), facts.is_running, pod.is_healthy),
            facts.cost,
            Reverse(on_node.copied().unwrap_or(0)),
            (age(facts.ready_since), age(facts.created)),
            fnv1a(key.name.bytes()),
        )
    });
    pods
}

#[cfg(test)]
mod tests {
    use mortise_apis::values::after;
    use serde_json::json;

    use super::*;

    /// A name, a node, a deletion cost, and for how many seconds it has been ready.
    type Example = (
        &'static str,
        Option<&'static str>,
        Option<&'static str>,
        Option<i64>,
    );

    /// Names of pods in the order in which they are deleted.
    fn order(pods: &[Example]) -> Vec<String> {
        let now = Timestamp::from_second(1_000_000).expect("a time");
        let fact = |(name, node, cost, ready): &Example| {
            let since = after(now, -1000 * ready.unwrap_or(0)).to_string();
            let status = if ready.is_some() { "True" } else { "False" };
            let pod = json!({
                "metadata": { "annotations": cost.map(|cost| json!({ POD_DELETION_COST: cost })) },
                "spec": { "nodeName": node },
                "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": status, "lastTransitionTime": since }] },
            });
            (PodKey::new("default", *name), PodFacts::of(&pod))
        };
        let pods: Vec<(PodKey, PodFacts)> = pods.iter().map(fact).collect();
        let ordered = in_deletion_order(pods.iter().map(|(key, pod)| (key, pod)), now);
        let names = ordered.iter().map(|(key, _)| key.name.to_string());
        names.collect()
    }

    #[test]
    fn the_rank_is_that_of_kubernetes() {
        let long = Some(100_000);
        let pods = [
            ("old", Some("a"), None, long),
            ("young", Some("b"), None, Some(10)),
            ("one-of-two", Some("c"), None, long),
            ("two-of-two", Some("c"), None, Some(10)),
            ("cheap", Some("d"), Some("-1"), long),
            ("costly", Some("e"), Some("7"), Some(10)),
            ("unready", Some("f"), Some("9"), None),
            ("unbound", None, Some("9"), None),
            ("malformed", Some("g"), Some("0.5"), Some(1_000)),
        ];
        let expected = [
            "unbound",
            "unready",
            "cheap",
            "two-of-two",
            "one-of-two",
            "young",
            "malformed",
            "old",
            "costly",
        ];
        assert_eq!(order(&pods), expected);
    }
}
