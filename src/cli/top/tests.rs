use serde_json::json;

use super::cluster::{Disruption, State};
use super::*;

fn node(name: &str, price: f64, cpu: f64, created: &str) -> serde_json::Value {
    json!({
        "key": format!("kwok://{name}"), "name": name, "pool": "general", "instance_type": "c-4x", "zone": "a",
        "capacity_type": "spot", "phase": "ready", "fence": null, "created": created, "price": price, "pods": 2,
        "allocatable": { "cpu": 4.0, "memory": 8_000 }, "used": { "cpu": cpu, "memory": 2_000 },
    })
}

fn cluster() -> (State, Disruption) {
    let state = json!({
        "totals": { "at": "2026-05-01T12:00:00Z", "leading": true, "nodes": 2, "pods": 5, "pending": 1, "price": 0.3, "price_unknown": 0 },
        "pools": [{ "name": "general", "ready": true }],
        "nodes": [node("a", 0.1, 3.0, "2026-05-01T11:00:00Z"), node("b", 0.2, 1.0, "2026-05-01T11:59:00Z")],
        "pending": [{ "pod": "shop/big", "created": "2026-05-01T11:59:00Z", "nominated_to": null, "stalled": "no_node", "scheduler_says": "0/2 nodes" }],
    });
    let disruption = json!({
        "nodes": [
            { "key": "kwok://a", "blockers": [{ "text": "PDB" }, { "text": "x" }], "drifted": null, "expires_at": "2026-05-01T14:00:00Z", "deleting_since": null },
            { "key": "kwok://b", "blockers": [], "drifted": null, "expires_at": null, "deleting_since": "2026-05-01T11:59:30Z" },
        ],
        "undrainable": [{ "node": "a", "blockers": [
            { "what": "pod shop/web-1", "owner": "ReplicaSet web", "since": "2026-05-01T11:00:00Z", "detail": "a budget requires 1 of 1 pods", "unblocks": "run more than 1 pods" },
            { "what": "pod shop/web-2", "owner": null, "since": "2026-05-01T11:00:00Z", "detail": "x", "unblocks": "y" },
        ] }],
        "pools": [{ "name": "general", "now": [{ "reason": "Empty", "allowed": 1, "disrupted": 1 }, { "reason": "Drifted", "allowed": null, "disrupted": 1 }] }],
    });
    (
        serde_json::from_value(state).unwrap(),
        serde_json::from_value(disruption).unwrap(),
    )
}

#[test]
fn the_screen_has_pools_nodes_and_pending_pods() {
    let (state, disruption) = cluster();
    let screen = text::lines(&state, &disruption, NodeOrder::Cost, None).join("\n");
    assert_eq!(
        screen,
        "\
2026-05-01 12:00:00Z: 2 nodes, $0.3000/h, 5 pods, 1 pending; said by the leader

  NODEPOOL  NODES  CPU  MEMORY  $/H     READY  DISRUPTED OF ALLOWED
  general   2      50%  25%     0.3000  yes    Empty 1/1, Drifted 1/any

  NODE  NODEPOOL  TYPE  ZONE  CAPACITY  CPU  MEMORY  PODS  $/H     AGE   STATE
  b     general   c-4x  a     spot      25%  25%     2     0.2000  60s   ready for 30s
  a     general   c-4x  a     spot      75%  25%     2     0.1000  60m0s  ready; expires in 2h0m; held: PDB (and 1 more)

  NEVER DRAINS BY ITSELF
  a: pod shop/web-1 of ReplicaSet web: a budget requires 1 of 1 pods (and 1 more)
      to free it: run more than 1 pods

  PENDING POD  AGE  EXPECTED ON  STALLED  KUBE-SCHEDULER SAYS
  shop/big     60s  -            no_node  0/2 nodes"
            .replace("60s   ready for", "60s    ready for")
            .replace("AGE   STATE", "AGE    STATE")
    );
}

#[test]
fn nodes_are_sorted_as_asked_and_lines_cut_to_the_width() {
    let (state, disruption) = cluster();
    for (order, first) in [
        (NodeOrder::Cost, "b"),
        (NodeOrder::Fill, "a"),
        (NodeOrder::Age, "a"),
        (NodeOrder::Name, "a"),
    ] {
        let lines = text::lines(&state, &disruption, order, Some(60));
        let at = lines.iter().position(|line| line.starts_with("  NODE "));
        let next = &lines[at.unwrap() + 1];
        assert!(next.trim_start().starts_with(first), "{order:?}: {next}");
        assert!(lines.iter().all(|line| line.chars().count() <= 60));
        let text = lines.join("\n");
        assert!(
            text.contains("\n      ready; expires in 2h0m; held: PDB (and 1 more)"),
            "{text}"
        );
    }
}
