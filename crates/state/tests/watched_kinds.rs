//! The table of watched kinds agrees with the API and with itself.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;

use jiff::Timestamp;
use mortise_apis::labels::WellKnown;
use mortise_apis::node_class::NodeClassKind;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, ObjectEvent, ResourceKind, WatchCondition};
use serde_json::json;

const CLASS: NodeClassKind = NodeClassKind {
    group: "karpenter.example.com",
    version: "v1alpha1",
    kind: "ExampleNodeClass",
    plural: "examplenodeclasses",
};

#[test]
fn every_kind_is_served_at_its_own_path() {
    let kinds = ResourceKind::all(&[CLASS]);
    let lines = |condition: WatchCondition| -> Vec<String> {
        let of_condition = kinds.iter().filter(|kind| kind.condition == condition);
        of_condition
            .map(|kind| kind.api.path(kind.api.namespaced.then_some("ns")))
            .collect()
    };
    assert_eq!(
        lines(WatchCondition::Always),
        [
            "/apis/karpenter.example.com/v1alpha1/examplenodeclasses",
            "/api/v1/namespaces",
            "/apis/storage.k8s.io/v1/volumeattachments",
            "/apis/storage.k8s.io/v1/csinodes",
            "/apis/storage.k8s.io/v1/storageclasses",
            "/api/v1/persistentvolumes",
            "/api/v1/namespaces/ns/persistentvolumeclaims",
            "/apis/apps/v1/namespaces/ns/daemonsets",
            "/apis/policy/v1/namespaces/ns/poddisruptionbudgets",
            "/apis/karpenter.sh/v1/nodepools",
            "/apis/karpenter.sh/v1/nodeclaims",
            "/api/v1/nodes",
            "/api/v1/namespaces/ns/pods",
        ]
    );
    let conditional = [
        WatchCondition::NodeOverlays,
        WatchCondition::Policies,
        WatchCondition::Devices,
        WatchCondition::PodGroups,
        WatchCondition::SpreadDefaults,
        WatchCondition::Buffers,
        WatchCondition::SpreadDefaultsOrBuffers,
        WatchCondition::Requests,
        WatchCondition::BuffersOrRequests,
        WatchCondition::BuffersOrHandOver,
    ]
    .map(|condition| lines(condition).len());
    assert_eq!(conditional, [1, 1, 4, 3, 2, 1, 2, 1, 1, 1]);
    let paths: BTreeSet<String> = kinds.iter().map(|kind| kind.api.path(None)).collect();
    assert_eq!(paths.len(), kinds.len());
    let custom: Vec<&str> = kinds
        .iter()
        .filter(|kind| kind.api.is_custom())
        .map(|kind| kind.api.kind)
        .collect();
    assert_eq!(
        custom,
        [
            "ExampleNodeClass",
            "CapacityBuffer",
            "ProvisioningRequest",
            "PodGroup",
            "PodGroup",
            "NodePoolPolicy",
            "NodeOverlay",
            "NodePool",
            "NodeClaim"
        ]
    );
}

#[test]
fn keys_of_a_kind_and_of_its_objects_agree() {
    for kind in ResourceKind::all(&[CLASS]) {
        let (name, index) = (kind.api.unique_name(), &kind.index);
        assert_eq!(index.to_string(), name);
        let key = index.key("ns", "n");
        assert_eq!(key.kind(), *index, "{name}");
        let is_in_key = key != index.key("other", "n");
        assert_eq!(is_in_key, kind.api.namespaced, "{name}");
        let mut value = json!({ "metadata": {
            "name": "n", "resourceVersion": "7", "managedFields": [{ "manager": "m" }],
        } });
        if kind.api.namespaced {
            value["metadata"]["namespace"] = json!("ns");
        }
        let object = index.parse(&value.to_string()).unwrap();
        assert_eq!(object.key(), key, "{name}");
        assert_eq!(object.version(), Some(7), "{name}");
        assert!(!format!("{object:?}").contains(r#""m""#), "{name}");
        assert!(index.parse(&format!("{value} more")).is_err(), "{name}");
        assert!(index.parse("[").is_err(), "{name}");
    }
}

#[test]
fn the_index_takes_every_kind() {
    for kind in ResourceKind::all(&[CLASS]) {
        let mut index = Index::new(WellKnown::core(), true, Timestamp::UNIX_EPOCH);
        index.set_synced();
        index.freeze(Timestamp::UNIX_EPOCH);
        index.take_changes();
        let name = kind.api.kind;
        let value =
            json!({ "metadata": { "name": "n", "namespace": "ns", "resourceVersion": "7" } });
        let object = kind.index.deserialize(value).unwrap();
        let key = object.key();
        let before = index.freeze(Timestamp::UNIX_EPOCH).generation;
        let mut generations = vec![before];
        for event in [
            ObjectEvent::Applied(object, EventSource::Watch),
            ObjectEvent::Deleted(key, None),
        ] {
            assert_eq!(index.apply(event).len(), 1, "{name}");
            generations.push(index.freeze(Timestamp::UNIX_EPOCH).generation);
            assert!(!index.take_changes().is_empty(), "{name}");
        }
        assert_eq!(generations, [before, before + 1, before + 2], "{name}");
    }
}
