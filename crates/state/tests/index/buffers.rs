//! What capacity buffers ask for.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::names::NamespacedName;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey};
use mortise_state::snapshot::{BufferDemand, TemplateKind};
use serde_json::{Value, json};

use super::index;

fn apply(index: &mut Index, object: Object) {
    index.apply(ObjectEvent::Applied(object, EventSource::Watch));
}

fn put_buffer(index: &mut Index, spec: &Value) {
    let value = json!({
        "metadata": { "name": "room", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": spec,
    });
    apply(
        index,
        Object::Buffer(Box::new(serde_json::from_value(value).unwrap())),
    );
}

fn pods(cpu: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": {
            "priority": 1_000, "priorityClassName": "system-cluster-critical",
            "containers": [{ "name": "c", "resources": { "limits": { "cpu": cpu } } }],
            "volumes": [
                { "name": "a", "persistentVolumeClaim": { "claimName": "data" } },
                { "name": "b", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } },
            ],
        },
    })
}

fn put_workload(index: &mut Index, kind: TemplateKind, replicas: Option<i32>, cpu: &str) {
    let mut value = json!({
        "metadata": { "name": "web", "namespace": "ns", "generation": 4 },
        "spec": { "replicas": replicas, "template": pods(cpu) },
    });
    if kind == TemplateKind::PodTemplate {
        value["template"] = pods(cpu);
    }
    let object = match kind {
        TemplateKind::PodTemplate => {
            Object::PodTemplate(Box::new(serde_json::from_value(value).unwrap()))
        }
        TemplateKind::Deployment => {
            Object::Deployment(Box::new(serde_json::from_value(value).unwrap()))
        }
        TemplateKind::ReplicaSet => {
            Object::ReplicaSet(Box::new(serde_json::from_value(value).unwrap()))
        }
        TemplateKind::StatefulSet => {
            Object::StatefulSet(Box::new(serde_json::from_value(value).unwrap()))
        }
    };
    apply(index, object);
}

fn demand(index: &mut Index) -> Option<Arc<BufferDemand>> {
    let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
    snapshot
        .demand
        .get(&NamespacedName::new("ns", "room"))
        .cloned()
}

/// The number of virtual pods, or reason and message of the failure.
fn resolved(index: &mut Index) -> Result<usize, String> {
    let demand = demand(index).unwrap();
    match &demand.resolution {
        Ok(resolved) => {
            assert_eq!(resolved.replicas, demand.pods.len());
            Ok(resolved.replicas)
        }
        Err(failure) => Err(format!("{}: {failure}", failure.reason())),
    }
}

#[test]
fn every_kind_of_reference_is_resolved_when_it_is_there() {
    let of = |kind: TemplateKind| match kind {
        TemplateKind::PodTemplate => json!({ "podTemplateRef": { "name": "web" }, "replicas": 2 }),
        _ => {
            json!({ "scalableRef": { "apiGroup": "apps", "kind": kind.as_str(), "name": "web" }, "percentage": 50 })
        }
    };
    for (kind, missing) in [
        (
            TemplateKind::PodTemplate,
            "PodTemplateNotFound: PodTemplate",
        ),
        (TemplateKind::Deployment, "ScalableRefNotFound: Deployment"),
        (TemplateKind::ReplicaSet, "ScalableRefNotFound: ReplicaSet"),
        (
            TemplateKind::StatefulSet,
            "ScalableRefNotFound: StatefulSet",
        ),
    ] {
        let mut index = index();
        put_buffer(&mut index, &of(kind));
        let message = format!("{missing} \"web\" not found in namespace \"ns\"");
        assert_eq!(resolved(&mut index), Err(message));
        put_workload(&mut index, kind, Some(4), "2");
        assert_eq!(resolved(&mut index), Ok(2), "{kind}");
        let key = kind_key(kind);
        index.apply(ObjectEvent::Deleted(key, None));
        assert!(resolved(&mut index).is_err(), "{kind}");
    }
}

fn kind_key(kind: TemplateKind) -> ObjectKey {
    let name = NamespacedName::new("ns", "web");
    match kind {
        TemplateKind::PodTemplate => ObjectKey::PodTemplate(name),
        TemplateKind::Deployment => ObjectKey::Deployment(name),
        TemplateKind::ReplicaSet => ObjectKey::ReplicaSet(name),
        TemplateKind::StatefulSet => ObjectKey::StatefulSet(name),
    }
}

#[test]
fn virtual_pods_are_those_of_the_template_without_volumes_and_priority() {
    let mut index = index();
    put_buffer(
        &mut index,
        &json!({ "podTemplateRef": { "name": "web" }, "replicas": 2 }),
    );
    put_workload(&mut index, TemplateKind::PodTemplate, None, "2");
    let demand = demand(&mut index).unwrap();
    let [first, second] = &*demand.pods else {
        panic!("{:?}", demand.pods.len())
    };
    assert_eq!(first.key.to_string(), "ns/capacity-buffer-room-1");
    assert_eq!(&*second.uid, "u-2");
    assert!(first.is_virtual() && first.unschedulable);
    assert!(Arc::ptr_eq(&first.class, &second.class), "one class");
    assert!(Arc::ptr_eq(&first.labels, &second.labels), "one label set");
    assert_eq!(first.class.requests.cpu, 2_000, "limits are requests");
    assert!(first.class.volumes.is_empty());
    assert!(!first.class.critical && first.class.priority == i32::MIN);
    assert_eq!(first.label("app").map(|app| &**app), Some("web"));
    let template = &demand.resolution.as_ref().unwrap().template;
    assert_eq!((template.generation, template.replicas), (4, None));
}

#[test]
fn what_cannot_be_resolved_names_the_field_and_the_nearest_match() {
    let mut index = index();
    put_workload(&mut index, TemplateKind::Deployment, Some(1), "1");
    let mut text = |spec: Value| {
        put_buffer(&mut index, &spec);
        resolved(&mut index).unwrap_err()
    };
    let of = |group: &str, kind: &str, name: &str| json!({ "scalableRef": { "apiGroup": group, "kind": kind, "name": name }, "replicas": 1 });
    assert_eq!(
        text(json!({ "replicas": 1 })),
        "ResolutionFailed: Neither podTemplateRef nor scalableRef is set"
    );
    assert_eq!(
        text(of("apps", "Deployment", "wbe")),
        "ScalableRefNotFound: Deployment \"wbe\" not found in namespace \"ns\"; did you mean \"web\"?"
    );
    assert_eq!(
        text(of("apps", "Deploymnet", "web")),
        "ResolutionFailed: spec.scalableRef: \"Deploymnet\" of API group \"apps\" is not served; Deployment, ReplicaSet, StatefulSet of apps are; did you mean Deployment?"
    );
    assert_eq!(
        text(of("", "Deployment", "web")),
        "ResolutionFailed: spec.scalableRef: \"Deployment\" of API group \"\" is not served; Deployment, ReplicaSet, StatefulSet of apps are; write apiGroup: apps"
    );
    let mut strategy = of("apps", "Deployment", "web");
    strategy["provisioningStrategy"] = json!("buffer.x-k8s.io/active-capcity");
    assert_eq!(
        text(strategy),
        "ResolutionFailed: spec.provisioningStrategy \"buffer.x-k8s.io/active-capcity\" is not served; buffer.x-k8s.io/active-capacity is, and is the default; did you mean buffer.x-k8s.io/active-capacity?"
    );
}

#[test]
fn what_stays_the_same_is_resolved_once() {
    let mut index = index();
    let spec = json!({ "scalableRef": { "apiGroup": "apps", "kind": "Deployment", "name": "web" }, "percentage": 50 });
    put_buffer(&mut index, &spec);
    put_workload(&mut index, TemplateKind::Deployment, None, "1");
    let first = demand(&mut index).unwrap();
    assert_eq!(first.pods.len(), 1, "one replica by default");
    index.take_changes();
    put_workload(&mut index, TemplateKind::Deployment, None, "1");
    assert!(!index.take_changes().demand, "a change of its status");
    put_buffer(&mut index, &spec);
    assert!(
        index.take_changes().demand,
        "a change of the buffer's status"
    );
    let again = demand(&mut index).unwrap();
    assert!(Arc::ptr_eq(&first, &again), "the same virtual pods");
    put_workload(&mut index, TemplateKind::Deployment, None, "2");
    let changed = demand(&mut index).unwrap();
    assert!(changed.revision > first.revision);
    put_buffer(
        &mut index,
        &json!({ "podTemplateRef": { "name": "x" }, "replicas": 1 }),
    );
    index.freeze(Timestamp::UNIX_EPOCH);
    let before = demand(&mut index).unwrap();
    put_workload(&mut index, TemplateKind::Deployment, None, "1");
    let after = demand(&mut index).unwrap();
    assert!(
        Arc::ptr_eq(&before, &after),
        "nothing refers to it any more"
    );
}

/// Nothing changes but the time.
#[test]
fn a_buffer_with_a_schedule_keeps_room_while_it_holds() {
    let mut index = index();
    put_workload(&mut index, TemplateKind::PodTemplate, None, "1");
    let put = |index: &mut Index, schedule: &str| {
        let value = json!({
            "metadata": { "name": "room", "namespace": "ns", "uid": "u", "annotations": {
                "mortise.sh/buffer-schedule": schedule, "mortise.sh/buffer-duration": "2h",
            } },
            "spec": { "podTemplateRef": { "name": "web" }, "replicas": 3 },
        });
        let buffer = serde_json::from_value(value).unwrap();
        apply(index, Object::Buffer(Box::new(buffer)));
    };
    put(&mut index, "30 1 * * *");
    let hour = |hour: i64| Timestamp::from_second(hour * 3_600).unwrap();
    let minute = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
    // Pods, when its schedule keeps room next, and when the index is to be asked again.
    let look = |index: &mut Index, now: Timestamp| {
        index.expire(now);
        let snapshot = index.freeze(now);
        let demand = &snapshot.demand[&NamespacedName::new("ns", "room")];
        let resolved = demand.resolution.as_ref().unwrap();
        assert_eq!(resolved.replicas, demand.pods.len());
        (
            resolved.replicas,
            resolved.closed_until,
            index.next_expiry(),
        )
    };
    let (begin, end, tomorrow) = (minute(90), minute(210), minute(25 * 60 + 30));
    assert_eq!(look(&mut index, hour(1)), (0, Some(begin), Some(begin)));
    index.take_changes();
    assert_eq!(look(&mut index, minute(89)), (0, Some(begin), Some(begin)));
    assert!(!index.take_changes().demand);
    assert_eq!(look(&mut index, begin), (3, None, Some(end)));
    assert!(index.take_changes().demand);
    assert_eq!(look(&mut index, hour(3)), (3, None, Some(end)));
    let closed = (0, Some(tomorrow), Some(tomorrow));
    assert_eq!(look(&mut index, end), closed);
    // One that cannot be read keeps no room, and says so.
    put(&mut index, "at noon");
    index.freeze(end);
    let text = resolved(&mut index).unwrap_err();
    assert!(
        text.starts_with("ResolutionFailed: annotation mortise.sh/buffer-schedule: "),
        "{text}"
    );
    assert_eq!(index.next_expiry(), None);
}

/// Ten replicas at eight in the last two weeks, and two in other hours.
fn peaks(first: &str) -> String {
    let week = "2*8 10 2*15 ".repeat(7);
    format!("{first} {week}{week}")
}

/// A buffer that learns, at four replicas of its workload.
fn put_learning(index: &mut Index, annotations: &Value) {
    put_workload(index, TemplateKind::Deployment, Some(4), "1");
    let value = json!({
        "metadata": { "name": "room", "namespace": "ns", "uid": "u", "annotations": annotations },
        "spec": { "scalableRef": { "apiGroup": "apps", "kind": "Deployment", "name": "web" } },
    });
    let buffer = serde_json::from_value(value).unwrap();
    apply(index, Object::Buffer(Box::new(buffer)));
}

#[test]
fn a_buffer_that_learned_has_room_for_what_is_expected_and_not_there() {
    let mut index = index();
    let two_weeks = peaks("1970-01-01T00:00:00Z");
    put_learning(
        &mut index,
        &json!({ "mortise.sh/buffer-learning": "apply", "mortise.sh/replica-peaks": two_weeks }),
    );
    let hour = |hour: i64| Timestamp::from_second(hour * 3_600).unwrap();
    let then = |after: i64| hour(14 * 24 + after);
    let look = |index: &mut Index, now: Timestamp| {
        index.expire(now);
        let snapshot = index.freeze(now);
        let demand = Arc::clone(&snapshot.demand[&NamespacedName::new("ns", "room")]);
        let learned = demand.learned.as_ref().unwrap();
        assert_eq!(index.next_expiry(), Some(learned.until));
        let expected = learned
            .expected
            .map(|expected| (expected.replicas, expected.weeks));
        (demand.pods.len(), expected, demand)
    };
    // From an hour before the rush to its end.
    let pods = [6, 7, 8, 9].map(|hour| look(&mut index, then(hour)).0);
    assert_eq!(pods, [0, 6, 6, 0]);
    let (_, expected, before) = look(&mut index, then(31));
    assert_eq!(expected, Some((10, 2)));
    // What is recorded meanwhile is the same room.
    index.take_changes();
    put_learning(
        &mut index,
        &json!({ "mortise.sh/buffer-learning": "apply", "mortise.sh/replica-peaks": format!("{two_weeks} 4") }),
    );
    let (pods, _, after) = look(&mut index, then(31));
    assert_eq!((pods, after.revision), (6, before.revision));
    assert!(Arc::ptr_eq(&before.pods, &after.pods));
    assert_ne!(before.learned, after.learned);
    // Who only observes keeps the size of the spec, which is none.
    put_learning(
        &mut index,
        &json!({ "mortise.sh/buffer-learning": "observe", "mortise.sh/replica-peaks": two_weeks }),
    );
    let (pods, expected, demand) = look(&mut index, then(31));
    assert_eq!((pods, expected), (0, Some((10, 2))));
    assert_eq!(demand.learned.as_ref().unwrap().missing(), Some(6));
    // Until a week is recorded nothing is expected.
    put_learning(
        &mut index,
        &json!({ "mortise.sh/buffer-learning": "apply", "mortise.sh/replica-peaks": peaks("1970-01-12T00:00:00Z") }),
    );
    assert_eq!(look(&mut index, then(7)).1, None);
    let unreadable =
        json!({ "mortise.sh/buffer-learning": "apply", "mortise.sh/replica-peaks": "many" });
    put_learning(&mut index, &unreadable);
    let (pods, expected, demand) = look(&mut index, then(7));
    assert_eq!((pods, expected), (0, None));
    assert!(demand.learned.as_ref().unwrap().peaks.is_err());
    // One whose annotations cannot be used has no room, and says so.
    put_learning(
        &mut index,
        &json!({ "mortise.sh/buffer-learning": "maybe" }),
    );
    index.freeze(then(7));
    let text = resolved(&mut index).unwrap_err();
    assert!(
        text.starts_with("ResolutionFailed: annotation mortise.sh/buffer-learning is \"maybe\""),
        "{text}"
    );
    assert_eq!(index.next_expiry(), None);
}

#[test]
fn buffers_of_another_controller_and_those_that_go_ask_for_nothing() {
    let mut index = index();
    put_workload(&mut index, TemplateKind::PodTemplate, None, "1");
    let mut spec = json!({ "podTemplateRef": { "name": "web" }, "replicas": 2 });
    put_buffer(&mut index, &spec);
    assert_eq!(resolved(&mut index), Ok(2));
    spec["provisioningStrategy"] = json!("example.com/standby");
    put_buffer(&mut index, &spec);
    assert!(demand(&mut index).is_none());
    spec["provisioningStrategy"] = json!("");
    put_buffer(&mut index, &spec);
    assert_eq!(resolved(&mut index), Ok(2));
    let key = ObjectKey::Buffer(NamespacedName::new("ns", "room"));
    index.apply(ObjectEvent::Deleted(key, None));
    assert!(demand(&mut index).is_none());
}
