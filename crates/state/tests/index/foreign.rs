//! Objects of another autoscaler.

use jiff::Timestamp;
use mortise_apis::node_class::NodeClassKind;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKind};
use mortise_state::snapshot::Snapshot;
use serde_json::json;

use super::{claim, index, listed};

#[test]
fn objects_of_other_node_classes_are_known_by_name_only() {
    let kind = NodeClassKind {
        group: "karpenter.kwok.sh",
        version: "v1alpha1",
        kind: "KWOKNodeClass",
        plural: "kwoknodeclasses",
    };
    let mut index = index().serving(ServedNodeClasses::only([kind]));
    let class = |group: &str| json!({ "group": group, "kind": "KWOKNodeClass", "name": "default" });
    let theirs = || json!({ "spec": { "nodeClassRef": class("other.test") } });
    let pool = |version: &str, group: &str| {
        let value = json!({
            "metadata": { "name": "p", "resourceVersion": version },
            "spec": { "template": { "spec": { "nodeClassRef": class(group) } } },
        });
        Object::Pool(Box::new(serde_json::from_value(value).unwrap()))
    };
    for object in [claim("ours", 1, json!({})), claim("theirs", 1, theirs())] {
        index.apply(ObjectEvent::Applied(object, EventSource::Watch));
    }
    index.apply(ObjectEvent::Applied(
        pool("1", "other.test"),
        EventSource::Watch,
    ));
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    let names = |snapshot: &Snapshot| -> Vec<String> {
        let claims = snapshot.claims.sorted().into_iter();
        claims.map(|(name, _)| name.to_string()).collect()
    };
    assert_eq!(names(&snapshot), ["ours"]);
    assert_eq!(snapshot.nodes.len(), 1, "its node is ignored too");
    assert!(snapshot.pools.is_empty());
    assert_eq!(
        snapshot
            .foreign_claims()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["theirs"]
    );
    assert_eq!(
        snapshot
            .foreign_pools()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["p"]
    );

    // Replaced by objects of a served class, and the reverse.
    index.apply(ObjectEvent::Applied(
        pool("2", "karpenter.kwok.sh"),
        EventSource::Watch,
    ));
    index.apply(ObjectEvent::Applied(
        claim("ours", 2, theirs()),
        EventSource::Watch,
    ));
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    assert_eq!(names(&snapshot), [""; 0]);
    assert_eq!(snapshot.nodes.len(), 0);
    assert!(snapshot.pools.contains_key("p"));
    assert_eq!(
        snapshot
            .foreign_claims()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["ours", "theirs"]
    );

    index.apply(listed(ObjectKind::Claim, &[], 9));
    assert!(index.freeze(Timestamp::UNIX_EPOCH).foreign.is_empty());
}
