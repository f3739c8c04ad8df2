//! Versions, deletions, lists and generations.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_state::resource_kinds::{EventSource, ObjectEvent, ObjectKey, ObjectKind};
use serde_json::json;

use super::{index, listed, node, pod};

#[test]
fn outdated_events_and_late_responses_change_nothing() {
    let mut index = index();
    assert!(index.apply(ObjectEvent::Applied(
        node("n1", 5, json!({})),
        EventSource::Watch
    )));
    assert!(
        !index.apply(ObjectEvent::Applied(
            node("n1", 4, json!({})),
            EventSource::Write
        )),
        "an older response"
    );
    assert!(
        !index.apply(ObjectEvent::Applied(
            node("n1", 5, json!({})),
            EventSource::Watch
        )),
        "the same again"
    );
    assert!(
        index.apply(ObjectEvent::Applied(
            node("n1", 6, json!({})),
            EventSource::Write
        )),
        "our own write, before the watch shows it"
    );
    assert!(index.apply(ObjectEvent::Deleted(ObjectKey::Node("n1".into()), None)));
    assert!(
        !index.apply(ObjectEvent::Applied(
            node("n1", 6, json!({})),
            EventSource::Write
        )),
        "a response after the deletion"
    );
    assert!(
        index.apply(ObjectEvent::Applied(
            node("n1", 9, json!({})),
            EventSource::Watch
        )),
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
