//! Versions, deletions, lists and generations.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_state::index::{Diff, Index, ObjectChange};
use mortise_state::resource_kinds::{EventSource, ObjectEvent, ObjectKey, ObjectKind, Watched};
use mortise_state::snapshot::Pod;
use serde_json::json;

use super::{claim, index, listed, node, pod};

fn is_changed(index: &mut Index, event: ObjectEvent) -> bool {
    !index.apply(event).is_empty()
}

#[test]
fn outdated_events_and_late_responses_change_nothing() {
    let mut index = index();
    assert!(is_changed(
        &mut index,
        ObjectEvent::Applied(node("n1", 5, json!({})), EventSource::Watch)
    ));
    assert!(
        !is_changed(
            &mut index,
            ObjectEvent::Applied(node("n1", 4, json!({})), EventSource::Write)
        ),
        "an older response"
    );
    assert!(
        !is_changed(
            &mut index,
            ObjectEvent::Applied(node("n1", 5, json!({})), EventSource::Watch)
        ),
        "the same again"
    );
    assert!(
        is_changed(
            &mut index,
            ObjectEvent::Applied(node("n1", 6, json!({})), EventSource::Write)
        ),
        "our own write, before the watch shows it"
    );
    assert!(is_changed(
        &mut index,
        ObjectEvent::Deleted(ObjectKey::Node("n1".into()), None)
    ));
    assert!(
        !is_changed(
            &mut index,
            ObjectEvent::Applied(node("n1", 6, json!({})), EventSource::Write)
        ),
        "a response after the deletion"
    );
    assert!(
        is_changed(
            &mut index,
            ObjectEvent::Applied(node("n1", 9, json!({})), EventSource::Watch)
        ),
        "a new node of the same name"
    );
    assert_eq!(index.freeze(Timestamp::UNIX_EPOCH).nodes.len(), 1);
}

#[test]
fn a_list_removes_objects_that_it_omits() {
    let mut index = index();
    for name in ["a", "b", "c"] {
        index.apply(ObjectEvent::Applied(
            pod(name, 1, json!({})),
            EventSource::Watch,
        ));
    }
    index.apply(ObjectEvent::Applied(
        pod("b", 1, json!({})),
        EventSource::Watch,
    ));
    index.apply(listed(ObjectKind::Pod, &[pod("b", 1, json!({}))], 9));
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    let names: Vec<_> = snapshot
        .pods
        .sorted()
        .into_iter()
        .map(|(key, _)| key.to_string())
        .collect();
    assert_eq!(names, ["default/b"]);
    assert_eq!(snapshot.pending.len(), 1);
}

/// Kind, and what the object was and is: its version, or the node of a pod.
fn text_of(change: &ObjectChange) -> String {
    fn versions<T: Watched>(diff: &Diff<T>) -> String {
        let version = |object: &Option<Arc<T>>| {
            let object = object.as_deref();
            let version = object.and_then(Watched::resource_version);
            version.unwrap_or("-").to_owned()
        };
        format!("{} to {}", version(&diff.before), version(&diff.after))
    }
    let node_of = |pod: &Option<Arc<Pod>>| {
        let pod = pod.as_deref();
        let node = pod.map(|pod| pod.node.as_deref().unwrap_or("pending").to_owned());
        node.unwrap_or_else(|| "-".to_owned())
    };
    match change {
        ObjectChange::Node(diff) => format!("node {}", versions(diff)),
        ObjectChange::Claim(diff) => format!("claim {}", versions(diff)),
        ObjectChange::Pool(diff) => format!("pool {}", versions(diff)),
        ObjectChange::Buffer(diff) => format!("buffer {}", versions(diff)),
        ObjectChange::Pod(diff) => {
            format!("pod {} to {}", node_of(&diff.before), node_of(&diff.after))
        }
        ObjectChange::Other(key) => format!("{key:?}"),
    }
}

#[test]
fn an_event_returns_each_object_before_and_after() {
    let mut index = index();
    let mut texts = |event| -> Vec<String> { index.apply(event).iter().map(text_of).collect() };
    let applied = |object| ObjectEvent::Applied(object, EventSource::Watch);
    let bound = json!({ "spec": { "nodeName": "n1" } });
    let finished = json!({ "status": { "phase": "Succeeded" } });
    let unreadable = ObjectKey::Node("odd".into());
    let parse = |kind: ObjectKind, text| kind.parse(text).unwrap();
    let namespace = parse(ObjectKind::Namespace, r#"{"metadata":{"name":"a"}}"#);
    let pool = parse(
        ObjectKind::Pool,
        r#"{"metadata":{"name":"p","resourceVersion":"3"}}"#,
    );
    let cases = [
        (applied(node("n1", 5, json!({}))), vec!["node - to 5"]),
        (applied(node("n1", 4, json!({}))), vec![]),
        (applied(node("n1", 7, json!({}))), vec!["node 5 to 7"]),
        (applied(node("n2", 8, json!({}))), vec!["node - to 8"]),
        (applied(node("n3", 12, json!({}))), vec!["node - to 12"]),
        (applied(claim("c", 3, json!({}))), vec!["claim - to 3"]),
        (applied(pool), vec!["pool - to 3"]),
        (applied(pod("a", 1, json!({}))), vec!["pod - to pending"]),
        (applied(pod("a", 2, bound)), vec!["pod pending to n1"]),
        (applied(pod("a", 3, finished)), vec!["pod n1 to -"]),
        (applied(namespace), vec!["Namespace(\"a\")"]),
        (
            ObjectEvent::Unreadable(unreadable.clone()),
            vec!["Node(\"odd\")"],
        ),
        (ObjectEvent::Unreadable(unreadable), vec![]),
        (
            listed(ObjectKind::Node, &[], 9),
            vec!["node 7 to -", "node 8 to -", "Node(\"odd\")"],
        ),
        (
            ObjectEvent::Deleted(ObjectKey::Node("n3".into()), Some(11)),
            vec![],
        ),
        (
            ObjectEvent::Deleted(ObjectKey::Node("n3".into()), None),
            vec!["node 12 to -"],
        ),
    ];
    for (event, want) in cases {
        assert_eq!(texts(event.clone()), want, "{event:?}");
    }
}

#[test]
fn freezing_twice_without_events_gives_the_same_generation() {
    let mut index = index();
    index.apply(ObjectEvent::Applied(
        node("n", 1, json!({})),
        EventSource::Watch,
    ));
    let first = index.freeze(Timestamp::UNIX_EPOCH);
    let second = index.freeze(Timestamp::UNIX_EPOCH);
    assert_eq!(first.generation, second.generation);
    assert!(Arc::ptr_eq(
        first.nodes.values().next().unwrap(),
        second.nodes.values().next().unwrap()
    ));
    index.take_changes();
    index.apply(ObjectEvent::Applied(
        node("n", 2, json!({})),
        EventSource::Watch,
    ));
    assert_eq!(
        index.freeze(Timestamp::UNIX_EPOCH).generation,
        first.generation + 1
    );
    assert_eq!(index.take_changes().nodes.len(), 1);
}
