//! Nominations: restored, shortened and ended.

use jiff::Timestamp;
use mortise_apis::names::PodKey;
use mortise_apis::resources::Resources;
use mortise_kwok_class::labels::well_known;
use mortise_state::index::Index;
use mortise_state::ledger::{FenceReason, LedgerOp, Nomination, NominationTarget};
use mortise_state::resource_kinds::{EventSource, ObjectEvent, ObjectKey};
use serde_json::json;

use super::{claim, index, pod};

#[test]
fn nominations_end_when_the_pod_is_bound_and_survive_a_restart() {
    let place = NominationTarget::Claim("c1".into());
    let mut index = index();
    index.apply(ObjectEvent::Applied(
        pod("p", 1, json!({})),
        EventSource::Watch,
    ));
    index.change_ledger(LedgerOp::Nominate(Nomination {
        pod: PodKey::new("default", "p"),
        uid: "uid-p".into(),
        place: place.clone(),
        requests: Resources::new(500, 0),
        priority: 0,
        from: Timestamp::UNIX_EPOCH,
        until: Timestamp::MAX,
    }));
    assert_eq!(
        index
            .freeze(Timestamp::UNIX_EPOCH)
            .ledger
            .nominations_to(&place)
            .count(),
        1
    );
    index.apply(ObjectEvent::Applied(
        pod("p", 2, json!({ "spec": { "nodeName": "n" } })),
        EventSource::Watch,
    ));
    assert_eq!(
        index
            .freeze(Timestamp::UNIX_EPOCH)
            .ledger
            .nominations_to(&place)
            .count(),
        0
    );

    let mut fresh = Index::new(well_known(), true, Timestamp::UNIX_EPOCH);
    fresh.apply(ObjectEvent::Applied(claim("c1", 1, json!({ "metadata": { "annotations": { "mortise.sh/nominated-pods": "uid-p,uid-gone", "mortise.sh/fence": "disruption" } } })), EventSource::Watch));
    fresh.apply(ObjectEvent::Applied(
        pod("p", 1, json!({})),
        EventSource::Watch,
    ));
    fresh.set_synced();
    let snapshot = fresh.freeze(Timestamp::UNIX_EPOCH);
    assert_eq!(
        snapshot
            .ledger
            .nominations_to(&place)
            .map(|each| each.pod.to_string())
            .collect::<Vec<_>>(),
        ["default/p"]
    );
    assert_eq!(
        snapshot.ledger.fence("c1").map(|fence| fence.reason),
        Some(FenceReason::Disruption)
    );
    fresh.apply(ObjectEvent::Applied(
        claim("c1", 2, json!({})),
        EventSource::Watch,
    ));
    assert!(
        fresh
            .freeze(Timestamp::UNIX_EPOCH)
            .ledger
            .fence("c1")
            .is_none(),
        "without the annotation there is no fence"
    );
    fresh.apply(ObjectEvent::Deleted(ObjectKey::Claim("c1".into()), None));
    assert_eq!(
        fresh
            .freeze(Timestamp::UNIX_EPOCH)
            .ledger
            .nominations()
            .count(),
        0
    );
}

#[test]
fn nominations_to_a_ready_node_last_until_its_pods_were_tried() {
    let mut index = index();
    let until = |index: &mut Index, uid: &str| {
        let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
        let nomination = snapshot.ledger.nomination(uid);
        nomination.map(|each| each.until.as_second())
    };
    let minutes = |count: i64| Some(count * 60);
    for name in ["tried", "queued"] {
        index.apply(ObjectEvent::Applied(
            pod(name, 1, json!({})),
            EventSource::Watch,
        ));
    }
    let nominated = json!({ "metadata": { "annotations": { "mortise.sh/nominated-pods": "uid-tried,uid-queued" } } });
    index.apply(ObjectEvent::Applied(
        claim("c1", 1, nominated),
        EventSource::Watch,
    ));
    let rejected = |name, version, message: &str| {
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message });
        let pod = pod(
            name,
            version,
            json!({ "status": { "conditions": [condition] } }),
        );
        ObjectEvent::Applied(pod, EventSource::Watch)
    };
    index.apply(rejected("tried", 2, "0/0 nodes are available"));
    assert_eq!(
        until(&mut index, "uid-tried"),
        minutes(15),
        "it was tried too early"
    );

    let ready = json!({ "status": { "providerID": "kwok://c1", "conditions": [
        { "type": "Initialized", "status": "True", "reason": "Initialized", "lastTransitionTime": "1970-01-01T00:01:00Z" },
    ] } });
    index.apply(ObjectEvent::Applied(
        claim("c1", 3, ready),
        EventSource::Watch,
    ));
    assert_eq!(until(&mut index, "uid-tried"), minutes(1 + 5));
    index.set_time(Timestamp::from_second(70).unwrap());
    index.apply(rejected("tried", 4, "0/0 nodes are available"));
    assert_eq!(
        until(&mut index, "uid-tried"),
        minutes(1 + 5),
        "the message is the same"
    );
    index.apply(rejected("tried", 5, "0/1 nodes are available"));
    assert_eq!(until(&mut index, "uid-tried"), minutes(2));
    index.set_time(Timestamp::from_second(100).unwrap());
    index.apply(rejected("tried", 6, "0/2 nodes are available"));
    assert_eq!(
        until(&mut index, "uid-tried"),
        minutes(2),
        "the first rejection counts"
    );
    assert_eq!(until(&mut index, "uid-queued"), minutes(1 + 5));
    let at = |second| Timestamp::from_second(second).unwrap();
    for (now, next) in [(119, 120), (120, 360)] {
        index.expire_nominations(at(now));
        assert_eq!(index.next_nomination_expiry(), Some(at(next)));
    }
    assert_eq!(until(&mut index, "uid-tried"), None);
    // The NodeClaim still names the pod, and so does every update of it.
    let label = json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "mortise.sh/nominated-pods": "uid-tried,uid-queued" } } });
    index.apply(ObjectEvent::Applied(
        claim("c1", 7, label),
        EventSource::Watch,
    ));
    assert_eq!(until(&mut index, "uid-tried"), None, "it is not restored");
}
