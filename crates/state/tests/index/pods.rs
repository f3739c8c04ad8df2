//! Which pods are pending.

use jiff::Timestamp;
use mortise_state::resource_kinds::{EventSource, ObjectEvent};
use serde_json::json;

use super::{index, pod};

#[test]
fn pods_that_need_no_node_are_not_pending() {
    let cases = [
        ("plain", json!({}), true),
        ("bound", json!({ "spec": { "nodeName": "n" } }), false),
        (
            "preempting",
            json!({ "status": { "nominatedNodeName": "n" } }),
            false,
        ),
        (
            "gated",
            json!({ "spec": { "schedulingGates": [{ "name": "g" }] } }),
            false,
        ),
        (
            "terminal",
            json!({ "status": { "phase": "Succeeded" } }),
            false,
        ),
        (
            "daemon",
            json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true }] } }),
            false,
        ),
        (
            "deleting",
            json!({ "metadata": { "deletionTimestamp": "1970-01-01T00:00:00Z" } }),
            false,
        ),
    ];
    for (name, more, pending) in cases {
        let mut index = index();
        index.apply(ObjectEvent::Applied(pod(name, 1, more), EventSource::Watch));
        assert_eq!(
            index.freeze(Timestamp::UNIX_EPOCH).pending.len() == 1,
            pending,
            "{name}"
        );
    }
}
