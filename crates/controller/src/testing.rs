//! A small cluster for tests: two nodes, a NodePool, bound and pending pods, nominations and decisions.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::{ObjectRef, PodKey};
use mortise_apis::resources::Resources;
use mortise_apis::values::after;
use mortise_apis::{CapacityBuffer, NodePool, k8s};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::record::{Record, Verdict, Visibility};
use mortise_planning::reason::{PoolBlocker, Reason};
use mortise_state::index::Index;
use mortise_state::ledger::{Fence, FenceReason, LedgerOp, Nomination, NominationTarget};
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use serde_json::json;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::service_state::ServiceState;

/// A clock that never advances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped(pub(crate) Timestamp);

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// The time of the test cluster.
pub(crate) fn noon() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

fn objects() -> Vec<Object> {
    let created = "2026-05-01T11:55:00Z";
    let node = |name: &str, version: &str| -> k8s::Node {
        serde_json::from_value(json!({
            "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": version, "creationTimestamp": created, "labels": {
                "karpenter.sh/nodepool": "general", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
                "node.kubernetes.io/instance-type": "c-4x", "topology.kubernetes.io/zone": "zone-a", "karpenter.sh/capacity-type": "spot",
            } },
            "spec": { "providerID": format!("kwok://{name}") },
            "status": { "capacity": { "cpu": "4", "memory": "8Gi", "pods": "110" }, "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" },
                "conditions": [{ "type": "Ready", "status": "True" }] },
        }))
        .unwrap()
    };
    let pod = |name: &str, version: &str, on: Option<&str>, cpu: &str| -> k8s::Pod {
        serde_json::from_value(json!({
            "metadata": { "namespace": "shop", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version, "creationTimestamp": created,
                "labels": { "app": "web" }, "annotations": { "secret-note": "never shown" } },
            "spec": { "nodeName": on, "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } }, "env": [{ "name": "PASSWORD", "value": "hunter2" }] }] },
            "status": { "phase": if on.is_some() { "Running" } else { "Pending" } },
        }))
        .unwrap()
    };
    let pool: NodePool = serde_json::from_value(json!({
        "metadata": { "name": "general", "uid": "uid-general", "resourceVersion": "5" },
        "spec": { "limits": { "cpu": "100", "nodes": "10" }, "template": { "spec": { "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" }, "requirements": [] } } },
        "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "NodeClassReady", "message": "not yet", "lastTransitionTime": created }] },
    }))
    .unwrap();
    let pdb: k8s::PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": { "namespace": "shop", "name": "web", "resourceVersion": "6" },
        "spec": { "selector": { "matchLabels": { "app": "web" } } },
        "status": { "disruptionsAllowed": 0 },
    }))
    .unwrap();
    vec![
        Object::Pool(Box::new(pool)),
        Object::Pdb(Box::new(pdb)),
        Object::Node(Box::new(node("n1", "7"))),
        Object::Node(Box::new(node("n2", "8"))),
        Object::Pod(Box::new(pod("web-1", "9", Some("n1"), "1"))),
        Object::Pod(Box::new(pod("web-2", "10", None, "1500m"))),
        Object::Pod(Box::new(pod("big", "11", None, "64"))),
    ]
}

/// The test cluster, published and confirmed, with a loaded certificate and one turn of the event loop.
pub(crate) fn shared() -> Arc<ServiceState> {
    let now = noon();
    let shared = ServiceState::new(
        Arc::new(Stopped(now)),
        WellKnown::core(),
        "9.9.9",
        json!({ "batch_idle": "1s", "seed": 7 }),
    );
    let mut index = Index::new(WellKnown::core(), true, now);
    for object in objects() {
        index.apply(ObjectEvent::Applied(object, EventSource::Watch));
    }
    index.set_synced();
    let nomination = Nomination {
        pod: PodKey::new("shop", "web-2"),
        uid: "uid-web-2".into(),
        place: NominationTarget::Node("n2".into()),
        requests: Resources::new(1500, 0).with("pods", 1),
        priority: 0,
        from: now,
        until: after(now, 90_000),
    };
    index.change_ledger(LedgerOp::Nominate(nomination));
    index.change_ledger(LedgerOp::Fence(Fence {
        claim: "general-x".into(),
        reason: FenceReason::Disruption,
        from: now,
    }));
    shared.publish(Arc::new(index.freeze(now)));
    shared.confirm(std::time::Duration::ZERO);
    shared.health.set_certificate(true);
    shared.health.record_turn();
    let record = |subject, verdict, reasons| Record {
        at: now,
        decider: DeciderId::Provisioning,
        subject,
        verdict,
        reasons,
        visibility: Visibility::DecisionLog,
        related: Vec::new(),
        generation: 1,
    };
    shared.record(vec![
        record(
            ObjectRef::Pod(PodKey::new("shop", "web-2")),
            Verdict::Nominated,
            vec![Reason::OnNode {
                node: "n2".into(),
                claim: None,
            }],
        ),
        record(
            ObjectRef::Pod(PodKey::new("shop", "big")),
            Verdict::Unschedulable,
            vec![Reason::PoolRefused {
                pool: "general".into(),
                blocker: PoolBlocker::Resources,
                constraint: "no instance type has enough cpu".to_owned(),
                detail: String::new(),
                is_tried: true,
            }],
        ),
    ]);
    shared
}

/// A CapacityBuffer that is being deleted, after its transitions and its end were counted.
pub(crate) fn counted_buffer(metrics: &Metrics, now: Timestamp) -> CapacityBuffer {
    let with = |status: &str| -> CapacityBuffer {
        serde_json::from_value(json!({
            "metadata": {
                "name": "b", "namespace": "ns", "resourceVersion": "1", "deletionTimestamp": "2026-05-01T11:00:00Z",
            },
            "status": { "conditions": [{
                "type": "Provisioning", "status": status, "reason": "Why", "message": "",
                "lastTransitionTime": "2026-05-01T10:00:00Z",
            }] },
        }))
        .unwrap()
    };
    let (before, after) = (with("False"), with("True"));
    metrics.conditions.buffer_changed(Some(&before), &after);
    metrics.buffer_gone(&after, now);
    after
}
