use mortise_planning::reason::PoolBlocker;
use serde_json::json;

use super::*;

fn stamped(mut value: Value, leading: bool) -> Value {
    value["at"] = json!("2026-05-01T12:00:00Z");
    value["leading"] = json!(leading);
    value
}

#[test]
fn a_pending_pod_has_its_blockers_and_what_frees_it() {
    let pod = stamped(
        json!({
            "pod": "shop/big", "verdict": "pending; no NodePool can run it (see why)", "node": null,
            "created": "2026-05-01T11:55:00Z", "requests": { "cpu": 64.0, "memory": 2_147_483_648_u64 }, "priority": 0,
            "scheduler": "default-scheduler", "scheduler_says": "0/2 nodes are available", "nominated_to": null,
            "nominated_until": null, "do_not_disrupt": null, "disruption_budgets": ["shop/web"], "why": "x",
            "blockers": [{ "pool": "general", "blocker": "resources", "constraint": "no instance type has enough cpu",
                "detail": "amd64-16 has 15900m of cpu", "nearest_type": "amd64-16", "lacks": { "cpu": "48100m" } }],
            "decisions": [{ "at": "2026-05-01T11:59:00Z", "decider": "provisioning", "subject": "pod/shop/big",
                "verdict": "unschedulable", "text": "pool general: no instance type has enough cpu" }],
        }),
        true,
    );
    let lines = pod_text::lines(&read(&pod, "it").unwrap(), 60);
    assert_eq!(
        lines.join("\n"),
        "\
Pod shop/big: pending; no NodePool can run it (see why)

  age                 5m0s
  requests            cpu 64.0, memory 2.0Gi
  priority            0
  scheduler           default-scheduler
  disruption budgets  shop/web

Why it gets no node
  NodePool general: amd64-16 has 15900m of cpu
    nearest instance type: amd64-16, which lacks cpu 48100m
    to free it: lower the request, or allow larger instance
    types

What kube-scheduler says
  0/2 nodes are available

Decisions, newest first
  60s ago: provisioning unschedulable pod/shop/big
    pool general: no instance type has enough cpu"
    );
}

fn node(over: Value) -> Value {
    let mut times = json!({
        "consolidation_policy": "WhenEmptyOrUnderutilized", "consolidate_after": "30s", "consolidatable": false,
        "consolidatable_at": "2026-05-01T12:00:12Z", "drifted": null, "expires_at": "2026-05-04T12:00:00Z",
        "termination_grace_period": null, "deleting_since": null, "terminates_by": null, "fence": null,
    });
    if let (Value::Object(times), Value::Object(over)) = (&mut times, over) {
        times.extend(over);
    }
    stamped(
        json!({
            "name": "n1", "claim": "general-x", "pool": "general", "instance_type": "c-4x", "zone": "a", "capacity_type": "spot",
            "phase": "ready", "created": "2026-05-01T11:00:00Z", "price": 0.05, "pods": 2, "daemon_pods": 1, "nominations": 0,
            "allocatable": { "cpu": 4.0 }, "used": { "cpu": 1.0 }, "conditions": [], "times": times,
            "disruption_blockers": [{ "text": "disruption of the cluster is paused", "clears": "mortise resume cluster", "until": "2026-05-01T13:00:00Z" }],
            "drain_blockers": [{ "what": "pod shop/web-1", "owner": "ReplicaSet web", "since": "2026-05-01T11:58:00Z", "detail": "PodDisruptionBudget", "unblocks": "a further replica" }],
            "decisions": [],
        }),
        false,
    )
}

#[test]
fn a_node_has_its_countdowns_blockers_and_who_said_it() {
    let text = |over| node_text::lines(&read(&node(over), "it").unwrap(), None, 100).join("\n");
    let still = text(json!({}));
    for part in [
        "Node n1: ready",
        "  offering   c-4x a spot",
        "  price      $0.0500 per hour",
        "  used       cpu 1.0 of 4.0 (25%)",
        "not before 12s from now: consolidateAfter is 30s",
        "in 3d0h (2026-05-04T12:00:00Z)",
        "disruption of the cluster is paused\n    to free it: mortise resume cluster, or it ends in 60m0s",
        "pod shop/web-1 of ReplicaSet web: PodDisruptionBudget, for 2m0s\n    to free it: a further replica",
        "This replica does not lead",
    ] {
        assert!(still.contains(part), "{part} is not in\n{still}");
    }
    let going = text(
        json!({ "deleting_since": "2026-05-01T11:59:00Z", "terminates_by": "2026-05-01T12:10:00Z" }),
    );
    assert!(
        going.contains("it has been going for 60s; it is terminated in 10m0s whatever blocks"),
        "{going}"
    );
    assert!(!going.contains("voluntary"), "{going}");
    let never = text(
        json!({ "consolidate_after": "Never", "consolidatable_at": null, "expires_at": null }),
    );
    assert!(
        never.contains("never (consolidateAfter: Never)")
            && never.contains("expiry             never"),
        "{never}"
    );
}

#[test]
fn budgets_have_what_is_left_and_their_next_window() {
    let pool = stamped(
        json!({
            "nodepool": "general", "ready": true, "node_class": "KWOKNodeClass/default", "node_class_found": true,
            "instance_types_offered": 3, "nodes": 2, "nodes_limit": 10, "capacity": { "cpu": 8.0 }, "limits": { "cpu": "100" },
            "conditions": [], "pause": null, "decisions": [],
            "budgets": {
                "now": [{ "reason": "Empty", "allowed": 1, "disrupted": 1, "left": 0 }],
                "written": [
                    { "nodes": "10%", "reasons": null, "schedule": null, "duration": null, "active": true, "changes_at": null, "error": null },
                    { "nodes": "0", "reasons": ["Drifted"], "schedule": "0 9 * * *", "duration": "8h", "active": false, "changes_at": "2026-05-02T09:00:00Z", "error": null },
                ],
            },
        }),
        true,
    );
    let text = pool_text::lines(&read(&pool, "it").unwrap(), 120).join("\n");
    for part in [
        "NodePool general: ready",
        "  nodes           2 of 10",
        "  REASON  ALLOWED  USED  LEFT\n  Empty   1        1     0",
        "10% nodes for every reason: always",
        "0 nodes for Drifted, from \"0 9 * * *\" (UTC) for 8h: not active, begins in 21h0m (2026-05-02T09:00:00Z)",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn every_blocker_of_a_node_pool_has_a_remedy() {
    for blocker in [
        PoolBlocker::NotReady,
        PoolBlocker::LaunchesPaused,
        PoolBlocker::Policy,
        PoolBlocker::NoTypes,
        PoolBlocker::NodeLimit,
        PoolBlocker::Limit,
        PoolBlocker::Taint,
        PoolBlocker::Labels,
        PoolBlocker::HostName,
        PoolBlocker::Volumes,
        PoolBlocker::Spread,
        PoolBlocker::PodAffinity,
        PoolBlocker::PodAntiAffinity,
        PoolBlocker::Types,
        PoolBlocker::Resources,
        PoolBlocker::DaemonSets,
        PoolBlocker::HostPorts,
        PoolBlocker::Offerings,
        PoolBlocker::SoldOut,
        PoolBlocker::MinValues,
        PoolBlocker::Reserved,
        PoolBlocker::Devices,
    ] {
        assert!(
            pod_text::remedy(blocker.label()).is_some(),
            "{}",
            blocker.label()
        );
    }
}
