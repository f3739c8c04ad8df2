//! A pod, explained.

use super::answer::{HandOver, Pod, PoolBlocker};
use super::{decisions, section};
use crate::cli::layout::{ago, amounts, facts, in_time, wrapped};

/// What to do about each blocker of a NodePool; the words are those of docs/tasks/why-is-my-pod-pending.md.
const REMEDIES: [(&str, &str); 22] = [
    (
        "resources",
        "lower the request, or allow larger instance types",
    ),
    (
        "daemon_sets",
        "allow larger instance types, or shrink the DaemonSets",
    ),
    ("taint", "add a toleration, or another NodePool"),
    (
        "labels",
        "add the label to the NodePool's template, or correct the pod",
    ),
    (
        "types",
        "correct the value; the detail lists those that exist",
    ),
    ("host_name", "do not select a node by its name"),
    ("host_ports", "change one of the host ports"),
    ("volumes", "allow the zone of the volume in a NodePool"),
    (
        "spread",
        "correct the topology key, or relax the constraint",
    ),
    ("pod_affinity", "create the pods, or correct the selector"),
    ("pod_anti_affinity", "allow more domains"),
    (
        "limit",
        "raise spec.limits of the NodePool, or limits.hourlyPrice or spending.perMonth of its NodePoolPolicy if the detail names it",
    ),
    (
        "policy",
        "wait until nodes go, earlier ones leave the window or the calendar allows more, or change the NodePoolPolicy that the detail names",
    ),
    ("node_limit", "raise spec.limits.nodes of the NodePool"),
    ("min_values", "lower minValues"),
    ("offerings", "allow another capacity type"),
    ("sold_out", "wait, or allow more instance types and zones"),
    (
        "reserved",
        "wait for a later pass: other nodes hold the reserved capacity",
    ),
    ("no_types", "correct the requirements of the NodePool"),
    (
        "not_ready",
        "fix the node class; mortise explain nodepool says what it lacks",
    ),
    (
        "launches_paused",
        "find out why earlier instances did not register",
    ),
    (
        "devices",
        "correct the device request, or allow instance types that have the devices",
    ),
];

/// What to do about a blocker, by its word.
pub(super) fn remedy(blocker: &str) -> Option<&'static str> {
    let found = REMEDIES.iter().find(|(word, _)| *word == blocker);
    found.map(|(_, remedy)| *remedy)
}

/// The explanation, a line each.
pub(super) fn lines(pod: &Pod, width: usize) -> Vec<String> {
    let now = pod.stamp.at;
    let mut lines = wrapped(&format!("Pod {}: {}", pod.pod, pod.verdict), 0, width);
    lines.push(String::new());
    let mut known = vec![
        ("age", ago(now, pod.created)),
        ("requests", amounts(&pod.requests)),
        ("priority", pod.priority.to_string()),
        ("scheduler", pod.scheduler.clone()),
    ];
    if let Some(node) = &pod.node {
        known.push(("node", node.clone()));
    }
    if let Some(target) = &pod.nominated_to {
        let until = pod.nominated_until.map(|until| in_time(now, until));
        let until = until.map_or_else(String::new, |until| {
            format!("; the nomination ends {until} at the latest")
        });
        known.push(("expected on", format!("{target}{until}")));
    }
    if let Some(value) = &pod.do_not_disrupt {
        known.push((
            "protected by",
            format!("karpenter.sh/do-not-disrupt: {value:?}"),
        ));
    }
    if !pod.disruption_budgets.is_empty() {
        known.push(("disruption budgets", pod.disruption_budgets.join(", ")));
    }
    if let Some(place) = &pod.deletion_cost {
        let whose = if place.own { "mortise" } else { "its user" };
        known.push((
            "deletion cost",
            format!(
                "{} of {whose}: {} of {} pods of its owner go first",
                place.cost, place.earlier_pods, place.pods
            ),
        ));
    }
    match &pod.hand_over {
        None => {}
        Some(HandOver::Possible {
            deployment,
            wait_seconds,
        }) => known.push((
            "hand-over",
            format!("a drain restarts deployment {deployment} and waits {wait_seconds} s"),
        )),
        Some(HandOver::NotPossible { not_possible }) => {
            known.push(("hand-over", format!("not possible: {not_possible}")));
        }
    }
    lines.extend(facts(&known, width));
    let blockers = pod.blockers.iter().flat_map(|each| blocker(each, width));
    section(&mut lines, "Why it gets no node", blockers.collect());
    if let Some(said) = pod.scheduler_says.as_ref().filter(|said| !said.is_empty()) {
        section(
            &mut lines,
            "What kube-scheduler says",
            wrapped(said, 2, width),
        );
    }
    if let Some(why) = pod.why.as_ref().filter(|_| pod.blockers.is_empty()) {
        section(&mut lines, "Last decision", wrapped(why, 2, width));
    }
    decisions(&mut lines, &pod.stamp, &pod.decisions, width);
    lines
}

fn blocker(each: &PoolBlocker, width: usize) -> Vec<String> {
    let Some(pool) = &each.pool else {
        return wrapped(&each.detail, 2, width);
    };
    // The constraint is the long text of Karpenter's event; the detail is what decides.
    let why = match each.detail.as_str() {
        "" => each.constraint.as_deref().unwrap_or_default(),
        detail => detail,
    };
    let mut lines = wrapped(&format!("NodePool {pool}: {why}"), 2, width);
    if let (Some(nearest), Some(lacks)) = (&each.nearest_type, &each.lacks) {
        let text = format!(
            "nearest instance type: {nearest}, which lacks {}",
            amounts(lacks)
        );
        lines.extend(wrapped(&text, 4, width));
    }
    if let Some(remedy) = each.blocker.as_deref().and_then(remedy) {
        lines.extend(wrapped(&format!("to free it: {remedy}"), 4, width));
    }
    lines
}
