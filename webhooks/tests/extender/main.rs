//! Responses of the extender: invariants for every body, and tables of the effect of each rule.
//!
//! Numbers in names and comments are those of the acceptance criteria in `docs/design/extender.md`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod stage;
#[path = "../test_cluster/mod.rs"]
mod test_cluster;

use jiff::SignedDuration;
use mortise_apis::names::NodeName;
use mortise_state::ledger::{FenceReason, LedgerOp};
use mortise_webhooks::Counters;
use mortise_webhooks::extender::{Denial, STALE_MS, preempt};
use serde_json::{Value, json};
use stage::*;
use test_cluster::now;

#[test]
fn nominated_capacity_is_denied_to_pods_of_equal_priority() {
    let mut stage = Stage::new();
    stage.nominate("owner", "web-0", 2_500, 0);
    // Three CPUs are free: half a CPU is left next to the nomination.
    let (kept, failed) = stage.filter(&pod("other", "1"));
    assert_eq!(kept, names(&["web-1", "web-2"]));
    assert_eq!(failed["web-0"], Denial::Nominated.message());
    let (kept, _) = stage.filter(&pod("small", "500m"));
    assert_eq!(kept.len(), 3, "what is left over may be had");
    // The first small pod is assumed there before its binding is visible, so a second one is denied; the first may
    // call again.
    let (kept, _) = stage.filter(&pod("second", "500m"));
    assert_eq!(kept, names(&["web-1", "web-2"]));
    assert_eq!(stage.filter(&pod("small", "500m")).0.len(), 3, "idempotent");
    stage.later = SignedDuration::from_secs(3);
    assert_eq!(
        stage.filter(&pod("second", "500m")).0.len(),
        3,
        "charges are short"
    );
    stage.later = SignedDuration::from_secs(31);
    assert_eq!(
        stage.filter(&pod("other", "1")).0.len(),
        3,
        "the nomination has expired"
    );
}

#[test]
fn a_nomination_never_blocks_a_pod_of_higher_priority() {
    let mut stage = Stage::new();
    stage.nominate("owner", "web-0", 3_000, 10);
    let of = |priority: i32| {
        with(
            pod("other", "2"),
            json!({ "spec": { "priority": priority } }),
        )
    };
    assert_eq!(stage.filter(&of(10)).0.len(), 2);
    assert_eq!(stage.filter(&of(11)).0.len(), 3);
}

#[test]
fn a_pod_is_restricted_to_its_nominated_node() {
    let mut stage = Stage::new();
    stage.nominate("owner", "web-1", 2_000, 0);
    let (kept, failed) = stage.filter(&pod("owner", "2"));
    assert_eq!(kept, names(&["web-1"]));
    assert_eq!(failed["web-0"], Denial::NominatedElsewhere.message());
    let (kept, failed) = stage.filter_of(&pod("owner", "2"), &["web-0", "web-2"]);
    assert!(
        kept.len() == 2 && failed.is_empty(),
        "the scheduler does not offer it: anywhere"
    );
    let counted = |stage: &Stage| {
        let Counters {
            sent_to_nominated_node: sent,
            nominated_node_absent: absent,
            ..
        } = &stage.counters;
        (sent.get(), absent.get())
    };
    assert_eq!(counted(&stage), (1, 1), "and that is counted");
    stage.filter(&pod("other", "1"));
    assert_eq!(counted(&stage), (1, 1), "nothing is kept for it");
    assert_eq!(stage.scores(&pod("owner", "2"))["web-1"], 10);
}

#[test]
fn fences_apply_to_all_pods_except_exempt_ones() {
    for (reason, denial) in [
        (FenceReason::Disruption, Denial::Disrupting),
        (FenceReason::Interruption, Denial::Interrupted),
        (FenceReason::Draining, Denial::Draining),
    ] {
        let mut stage = Stage::new();
        stage.fence("web-2", reason);
        let (kept, failed) = stage.filter(&pod("other", "1"));
        assert_eq!(kept, names(&["web-0", "web-1"]));
        assert_eq!(failed["web-2"], denial.message());
        assert_eq!(stage.scores(&pod("other", "1"))["web-2"], 0);

        let owned = |kind: &str| {
            let owner = json!([{ "apiVersion": "v1", "kind": kind, "name": "o", "uid": "o", "controller": true }]);
            with(
                pod("exempt", "1"),
                json!({ "metadata": { "ownerReferences": owner } }),
            )
        };
        let class = json!({ "spec": { "priorityClassName": "system-node-critical" } });
        let number = json!({ "spec": { "priority": 2_000_000_001 } });
        let ours = json!({ "metadata": { "namespace": "kube-system", "labels": { "app.kubernetes.io/name": "mortise" } } });
        let mirror =
            json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "x" } } });
        for exempt in [
            owned("DaemonSet"),
            owned("Node"),
            with(pod("exempt", "1"), class),
            with(pod("exempt", "1"), number),
            with(pod("exempt", "1"), ours.clone()),
            with(pod("exempt", "1"), mirror),
        ] {
            assert_eq!(stage.filter(&exempt).0.len(), 3, "{exempt}");
        }
        let elsewhere = json!({ "metadata": { "namespace": "default" } });
        let like_ours = with(with(pod("exempt", "1"), ours), elsewhere);
        assert_eq!(stage.filter(&like_ours).0.len(), 2, "not in our namespace");
    }
}

#[test]
fn a_preemptor_passes_a_disruption_fence_but_no_interruption() {
    let nominated = with(
        pod("preemptor", "4"),
        json!({ "status": { "nominatedNodeName": "web-0" } }),
    );
    let mut stage = Stage::new();
    stage.nominate("owner", "web-0", 3_000, 0);
    stage.fence("web-0", FenceReason::Disruption);
    assert_eq!(stage.filter_of(&nominated, &["web-0"]).0, names(&["web-0"]));
    let mut stage = Stage::new();
    stage.fence("web-0", FenceReason::Interruption);
    assert!(stage.filter_of(&nominated, &["web-0"]).0.is_empty());
}

#[test]
fn drifted_nodes_get_pods_last_and_then_none_while_there_are_others() {
    let mut stage = Stage::new();
    stage.cluster.drifted("web-0", now());
    let other = pod("other", "1");
    assert_eq!(stage.filter(&other).0.len(), 3, "at first by score only");
    let scores = stage.scores(&other);
    assert_eq!(scores["web-0"], 1);
    assert!(scores["web-1"] > 1, "{scores:?}");
    stage.later = SignedDuration::from_mins(3);
    let (kept, failed) = stage.filter(&other);
    assert_eq!(kept, names(&["web-1", "web-2"]));
    assert_eq!(failed["web-0"], Denial::Drifted.message());
    // Soft rules never leave a pod without a node.
    let (kept, failed) = stage.filter_of(&other, &["web-0"]);
    assert!(kept == names(&["web-0"]) && failed.is_empty(), "{failed:?}");
    assert_eq!(stage.counters.soft_denials_dropped.get(), 1);
    // Other denials may.
    stage.fence("web-1", FenceReason::Draining);
    stage.fence("web-2", FenceReason::Draining);
    assert_eq!(stage.filter(&other).0, names(&["web-0"]));
    stage.fence("web-0", FenceReason::Draining);
    assert!(stage.filter(&other).0.is_empty());
}

#[test]
fn nodes_that_expire_before_the_pod_completes_are_denied() {
    let mut stage = Stage::new();
    // Created at `now()`, so each has its full lifetime left.
    stage.cluster.expires("web-0", "2h");
    stage.cluster.expires("web-1", "30m");
    stage.cluster.expires("web-2", "Never");
    let said = |time: &str| {
        with(
            pod("job", "1"),
            json!({ "metadata": { "annotations": { "mortise.sh/expected-duration": time } } }),
        )
    };
    let deadline = with(
        pod("job", "1"),
        json!({ "spec": { "activeDeadlineSeconds": 3_600 } }),
    );
    let protected = with(
        pod("job", "1"),
        json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } }),
    );
    for (pod, kept) in [
        (pod("service", "1"), vec!["web-0", "web-1", "web-2"]),
        (said("20m"), vec!["web-0", "web-1", "web-2"]),
        (said("1h"), vec!["web-0", "web-2"]),
        (said("3h"), vec!["web-2"]),
        (said("soon"), vec!["web-0", "web-1", "web-2"]),
        (deadline, vec!["web-0", "web-2"]),
        (protected, vec!["web-0", "web-2"]),
    ] {
        assert_eq!(stage.filter(&pod).0, names(&kept), "{pod}");
    }
    let (kept, failed) = stage.filter_of(&said("3h"), &["web-0", "web-1"]);
    assert!(
        kept.len() == 2 && failed.is_empty(),
        "only while there are others"
    );
    let scores = stage.scores(&said("3h"));
    assert_eq!((scores["web-0"], scores["web-1"]), (1, 1));
}

#[test]
fn jobs_score_nodes_with_jobs_higher() {
    let mut stage = Stage::new();
    let job = |name: &str| {
        json!({ "metadata": { "name": name, "ownerReferences": [
            { "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true } ] } })
    };
    // web-1 has two jobs and a pod of a service, the others have pods of services only.
    stage.cluster.pod("a", "web-1", job("a"));
    stage.cluster.pod("b", "web-1", job("b"));
    for node in ["web-0", "web-2"] {
        stage.cluster.pod(&format!("{node}-x"), node, json!({}));
        stage.cluster.pod(&format!("{node}-y"), node, json!({}));
    }
    let of_job = stage.scores(&with(pod("c", "1"), job("c")));
    assert!(of_job["web-1"] > of_job["web-0"], "{of_job:?}");
    let of_service = stage.scores(&pod("d", "1"));
    assert!(of_service["web-1"] < of_service["web-0"], "{of_service:?}");
}

#[test]
fn fuller_nodes_and_retained_nodes_score_higher() {
    let mut stage = Stage::new();
    let before = stage.scores(&pod("x", "1"));
    assert_eq!(before["unknown"], 0, "not in the snapshot");
    stage.cluster.pod("more", "web-1", json!({}));
    stage.cluster.pod(
        "stays",
        "web-2",
        json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } }),
    );
    let after = stage.scores(&pod("x", "1"));
    assert!(after["web-1"] > before["web-1"], "fuller: {after:?}");
    assert!(
        after["web-2"] > after["web-1"],
        "and it cannot go: {after:?}"
    );
    assert!(after.values().all(|score| (0..=10).contains(score)));
}

#[test]
fn pods_that_need_no_accelerator_leave_nodes_with_accelerators_free() {
    let mut stage = Stage::new();
    // The fuller one, which would win otherwise.
    stage.cluster.pod("more", "web-1", json!({}));
    let before = stage.scores(&pod("x", "1"));
    stage.cluster.device("web-1", "nvidia.com/gpu");
    stage.cluster.device("web-2", "example.com/pod-eni");
    let none = stage.scores(&pod("x", "1"));
    assert_eq!(none["web-1"], 2, "{none:?}");
    assert_eq!(none["web-0"], before["web-0"]);
    assert_eq!(none["web-2"], before["web-2"], "no accelerator");
    let one = json!({ "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": "1", "nvidia.com/gpu": "1" } } }] } });
    let one = stage.scores(&with(pod("x", "1"), one));
    assert_eq!(one["web-1"], before["web-1"], "{one:?}");
}

#[test]
fn a_workload_gets_its_preferred_percentage_of_spot() {
    let mut stage = Stage::new();
    stage.cluster.spot("web-0");
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "rs", "controller": true }]);
    let preference = |percent: &str, base: &str| {
        let annotations = json!({ "mortise.sh/spot-percent": percent, "mortise.sh/on-demand-base-capacity": base });
        with(
            pod("x", "1"),
            json!({ "metadata": { "annotations": annotations, "ownerReferences": owner } }),
        )
    };
    // One of its three pods is on spot capacity.
    let all_spot = stage.scores(&preference("100", "0"));
    assert!(all_spot["web-0"] > all_spot["web-1"], "{all_spot:?}");
    let none = stage.scores(&preference("0", "0"));
    assert!(none["web-0"] < none["web-1"], "{none:?}");
    let enough = stage.scores(&preference("50", "3"));
    assert!(
        enough["web-0"] < enough["web-1"],
        "one beyond the base, half of one: {enough:?}"
    );
}

#[test]
fn recently_created_nodes_reserve_capacity_for_daemon_sets() {
    let mut stage = Stage::new();
    stage.cluster.daemon_set("logs", "2500m");
    // Three CPUs are free, of which the DaemonSet pod needs two and a half.
    let (kept, failed) = stage.filter(&pod("other", "1"));
    assert!(kept.is_empty(), "{kept:?}");
    assert_eq!(failed["web-0"], Denial::DaemonSetReserved.message());
    assert_eq!(stage.filter(&pod("small", "500m")).0.len(), 3);
    // On one node the pod is running, so nothing is reserved. (Two more CPUs are used.)
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "logs", "controller": true }]);
    let there = json!({ "metadata": { "ownerReferences": owner },
        "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": "2500m" } } }] } });
    stage.cluster.pod("logs-0", "web-0", there);
    assert!(!stage.filter(&pod("tiny", "400m")).1.contains_key("web-0"));
    // An older node reserves nothing: a DaemonSet pod that is still missing has another cause.
    stage.later = SignedDuration::from_mins(16);
    assert_eq!(stage.filter(&pod("other", "1")).0.len(), 3);
}

#[test]
fn nominated_pods_keep_their_volume_slots() {
    let mut stage = Stage::new();
    stage.cluster.volume_slots("web-0", 1);
    stage.cluster.claimed_volume("data-owner");
    stage.cluster.claimed_volume("data-other");
    let volume = |claim: &str| json!({ "spec": { "volumes": [{ "name": "d", "persistentVolumeClaim": { "claimName": claim } }] } });
    let waiting = json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending" } });
    stage
        .cluster
        .pod("owner", "", with(volume("data-owner"), waiting));
    stage.nominate("owner", "web-0", 100, 0);
    let other = with(pod("other", "100m"), volume("data-other"));
    let (kept, failed) = stage.filter(&other);
    assert_eq!(kept, names(&["web-1", "web-2"]), "{failed:?}");
    assert_eq!(failed["web-0"], Denial::Nominated.message());
    assert_eq!(
        stage.filter(&pod("dry", "100m")).0.len(),
        3,
        "a pod without volumes takes no slot"
    );
}

#[test]
fn a_stale_or_incomplete_snapshot_denies_nothing_and_scores_all_equally() {
    let mut stage = Stage::new();
    stage.fence("web-0", FenceReason::Draining);
    stage.age_ms = STALE_MS + 1;
    assert_eq!(stage.filter(&pod("other", "1")).0.len(), 3);
    assert!(
        stage
            .scores(&pod("other", "1"))
            .values()
            .all(|score| *score == 0)
    );
    assert_eq!(stage.counters.passed_stale.get(), 2);
    stage.age_ms = STALE_MS;
    assert_eq!(stage.filter(&pod("other", "1")).0.len(), 2);
}

#[test]
fn full_nodes_are_returned_as_full_nodes() {
    let mut stage = Stage::new();
    stage.fence("web-1", FenceReason::Draining);
    let node = |name: &str| json!({ "metadata": { "name": name, "labels": { "a": "b" } }, "spec": { "x": [1] }, "status": {} });
    let items = ["web-0", "web-1", "stranger"].map(node);
    let body = json!({ "Pod": pod("other", "1"), "Nodes": { "metadata": {}, "items": items }, "NodeNames": null });
    let answer = stage.call_filter(&body, true);
    assert_eq!(
        answer["Nodes"]["items"],
        json!([node("web-0"), node("stranger")]),
        "as they came"
    );
    assert_eq!(answer["NodeNames"], Value::Null);
    assert_eq!(
        answer["FailedAndUnresolvableNodes"],
        json!({ "web-1": Denial::Draining.message() })
    );
    assert_eq!(
        stage.counters.full_nodes.get(),
        1,
        "and it is counted, for the warning of the service"
    );
}

#[test]
fn preemption_drops_fenced_nodes() {
    let mut stage = Stage::new();
    stage.fence("web-1", FenceReason::Disruption);
    let at = stage.at();
    let victims = json!({ "Pods": [{ "UID": "v" }], "NumPDBViolations": 2 });
    let none = json!({ "Pods": null, "NumPDBViolations": 0 });
    let body = json!({ "Pod": pod("other", "4"), "NodeNameToVictims": null,
        "NodeNameToMetaVictims": { "web-0": victims, "web-1": victims, "web-2": none, "stranger": null } });
    let args = serde_json::from_value(body).unwrap();
    let answer = serde_json::to_value(preempt(&at, &stage.state, &stage.counters, args)).unwrap();
    assert_eq!(
        answer,
        json!({ "NodeNameToMetaVictims": { "web-0": victims, "web-2": none, "stranger": none } })
    );
    let whole = json!({ "Pods": [{ "metadata": { "uid": "v", "name": "x" }, "spec": {} }], "NumPDBViolations": 2 });
    let body = json!({ "Pod": pod("other", "4"), "NodeNameToVictims": { "web-0": whole, "web-1": whole } });
    let args = serde_json::from_value(body).unwrap();
    let answer = serde_json::to_value(preempt(&at, &stage.state, &stage.counters, args)).unwrap();
    assert_eq!(
        answer,
        json!({ "NodeNameToMetaVictims": { "web-0": victims } }),
        "by UID in both modes"
    );
}

/// Criterion 11, the part of mortise: a pod that was denied everywhere is recorded, and `allowed_node` names a node as
/// soon as one is no longer denied.
#[test]
fn criterion_11_an_allowed_node_is_found_for_a_pod_that_was_denied_everywhere() {
    let mut stage = Stage::new();
    let waiting = json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending" } });
    stage.cluster.pod("other", "", waiting);
    for node in ["web-0", "web-1", "web-2"] {
        stage.nominate(&format!("owner-of-{node}"), node, 3_000, 0);
    }
    let freed = |stage: &mut Stage| {
        let at = stage.at();
        stage.state.allowed_node(&at.snapshot, at.now)
    };
    assert!(stage.filter(&pod("other", "1")).0.is_empty());
    assert_eq!(stage.state.denied_pods.len(), 1);
    assert_eq!(freed(&mut stage), None, "nothing has changed");
    stage
        .cluster
        .ledger(LedgerOp::Withdraw("owner-of-web-1".into()));
    assert_eq!(freed(&mut stage), Some(NodeName::from("web-1")));
    assert_eq!(freed(&mut stage), None, "once is enough");
    assert!(stage.state.denied_pods.is_empty());
    // An expired nomination is no cluster event either.
    stage.nominate("owner-of-web-1", "web-1", 3_000, 0);
    assert!(stage.filter(&pod("other", "1")).0.is_empty());
    stage.later = SignedDuration::from_secs(31);
    assert!(freed(&mut stage).is_some());
    // A bound or deleted pod is removed, and so is one that passes.
    stage.later = SignedDuration::ZERO;
    assert!(stage.filter(&pod("other", "1")).0.is_empty());
    stage.cluster.pod("other", "web-0", json!({}));
    assert_eq!(freed(&mut stage), None);
    assert!(stage.state.denied_pods.is_empty());
    // A simulated call changes nothing.
    let body = json!({ "Pod": pod("third", "1"), "NodeNames": ["web-0", "web-2"] });
    stage.call_filter(&body, false);
    assert!(stage.state.denied_pods.is_empty());
}

/// A pod with an allowed node will be bound: it is signalled to the deciders, and no other.
#[test]
fn schedulable_pods_are_signalled_to_the_deciders() {
    let mut stage = Stage::new();
    let signalled = |stage: &Stage| -> Vec<String> {
        let signals = stage.state.feasibility_signals.drain();
        signals.iter().map(|(uid, _)| uid.to_string()).collect()
    };
    stage.filter(&pod("first", "1"));
    stage.filter(&pod("second", "1"));
    assert_eq!(signalled(&stage), ["first", "second"]);
    assert!(signalled(&stage).is_empty(), "taken once");
    for call in 0..5_000 {
        stage.filter_of(&pod(&format!("of-{call}"), "1m"), &["web-0"]);
    }
    let left = signalled(&stage);
    assert_eq!((left.len(), left[0].as_str()), (4_096, "of-904"));
    for node in ["web-0", "web-1", "web-2"] {
        stage.nominate(&format!("owner-of-{node}"), node, 3_000, 0);
    }
    stage.filter(&pod("third", "1"));
    stage.call_filter(
        &json!({ "Pod": pod("fourth", "10m"), "NodeNames": ["web-0"] }),
        false,
    );
    assert!(
        signalled(&stage).is_empty(),
        "denied everything, or a question of people"
    );
}

/// Criterion 8: output ⊆ input, in its order; the same response twice; DaemonSet pods never denied; messages from the
/// list.
#[test]
fn criterion_8_invariants_of_the_filter() {
    let messages: Vec<&str> = Denial::ALL.iter().map(|denial| denial.message()).collect();
    let mut dice = 0x2545_F491_4F6C_DD1D_u64;
    let mut roll = |below: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % below
    };
    for round in 0..400 {
        let mut stage = Stage::new();
        for number in 0..roll(4) {
            let (node, cpu) = (
                format!("web-{}", roll(3)),
                i64::try_from(roll(4_000)).unwrap(),
            );
            stage.nominate(
                &format!("owner-{number}"),
                &node,
                cpu,
                i32::try_from(roll(3)).unwrap(),
            );
        }
        for node in 0..3 {
            let name = format!("web-{node}");
            match roll(6) {
                0 => stage.fence(&name, FenceReason::Disruption),
                1 => stage.fence(&name, FenceReason::Draining),
                2 => stage
                    .cluster
                    .drifted(&name, now() - SignedDuration::from_hours(1)),
                3 => stage.cluster.expires(&name, "10m"),
                _ => {}
            }
        }
        let cpu = format!("{}m", roll(4_000));
        let uid = ["owner-0", "owner-1", "other"][usize::try_from(roll(3)).unwrap()];
        let change = json!({ "spec": { "priority": roll(3) },
            "metadata": { "annotations": { "mortise.sh/expected-duration": "1h" } } });
        let asked = with(pod(uid, &cpu), change);
        let mut offered: Vec<&str> = ["web-2", "stranger", "web-0", "web-1"]
            .into_iter()
            .filter(|_| roll(4) > 0)
            .collect();
        if roll(2) == 0 {
            offered.reverse();
        }
        let (kept, failed) = stage.filter_of(&asked, &offered);
        let mut left = offered.iter();
        assert!(
            kept.iter().all(|name| left.any(|offered| offered == name)),
            "{round}: {kept:?} of {offered:?}"
        );
        for name in &offered {
            assert!(
                kept.iter().any(|kept| kept == name) != failed.contains_key(*name),
                "{round}: {name}"
            );
        }
        assert!(
            failed
                .values()
                .all(|message| messages.contains(&&**message)),
            "{round}: {failed:?}"
        );
        assert_eq!(
            stage.filter_of(&asked, &offered),
            (kept, failed),
            "{round}: idempotent"
        );
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true }]);
        let daemon = with(
            pod("daemon", &cpu),
            json!({ "metadata": { "ownerReferences": owner } }),
        );
        assert_eq!(stage.filter_of(&daemon, &offered).0, offered, "{round}");
        assert_eq!(stage.counters.passed_daemon.get(), 1);
    }
}
