//! A NodePool, explained.

use serde_json::Value;

use super::answer::{Pool, WrittenBudget};
use super::{condition, decisions, section, word};
use crate::cli::layout::{aligned, amounts, facts, in_time, wrapped};

/// The explanation, a line each.
pub(super) fn lines(pool: &Pool, width: usize) -> Vec<String> {
    let ready = if pool.ready { "ready" } else { "not ready" };
    let mut lines = vec![
        format!("NodePool {}: {ready}", pool.nodepool),
        String::new(),
    ];
    let class = if pool.node_class_found {
        ""
    } else {
        ", which does not exist"
    };
    let limit = pool
        .nodes_limit
        .as_ref()
        .filter(|limit| !limit.is_null())
        .map_or_else(String::new, |limit| format!(" of {}", word(limit)));
    let mut known = vec![
        ("node class", format!("{}{class}", pool.node_class)),
        (
            "instance types",
            pool.instance_types_offered.map_or_else(
                || "not known yet".to_owned(),
                |count| format!("{count} are sold in its zones and capacity types"),
            ),
        ),
        ("nodes", format!("{}{limit}", pool.nodes)),
        ("capacity", amounts(&pool.capacity)),
    ];
    if !pool.limits.is_empty() {
        known.push(("limits", amounts(&pool.limits)));
    }
    if let Some(pause) = &pool.pause {
        let policy = pause.scope.get("policy").and_then(Value::as_str);
        let until = pause.until.map_or_else(
            || match policy {
                Some(name) => format!("until it is removed from NodePoolPolicy {name}"),
                None => "until mortise resume".to_owned(),
            },
            |until| format!("ends {}", in_time(pool.stamp.at, until)),
        );
        known.push(("disruption", format!("paused ({}), {until}", pause.reason)));
    }
    if let Some(policy) = &pool.policy {
        let limits = policy.limits.join("; ");
        known.push(("policy", format!("{}: {limits}", policy.name)));
    }
    let commitments = pool.commitments.iter();
    known.extend(commitments.map(|each| ("paid for", each.text.clone())));
    lines.extend(facts(&known, width));
    let waits = pool.conditions.iter().filter(|each| each.status != "True");
    let waits = waits.flat_map(|each| wrapped(&condition(each), 2, width));
    section(&mut lines, "What it waits for", waits.collect());
    section(&mut lines, "Budgets", budgets(pool, width));
    decisions(&mut lines, &pool.stamp, &pool.decisions, width);
    lines
}

/// What budgets allow now, and when that changes.
pub(super) fn budgets(pool: &Pool, width: usize) -> Vec<String> {
    let mut rows = vec![
        ["REASON", "ALLOWED", "USED", "LEFT"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(pool.budgets.now.iter().map(|each| {
        let or_any =
            |count: Option<i64>| count.map_or_else(|| "any".to_owned(), |count| count.to_string());
        vec![
            each.reason.clone(),
            or_any(each.allowed),
            each.disrupted.to_string(),
            or_any(each.left),
        ]
    }));
    let mut lines = aligned(&rows);
    for each in &pool.budgets.written {
        lines.extend(wrapped(&written(each, pool), 2, width));
    }
    lines
}

fn written(each: &WrittenBudget, pool: &Pool) -> String {
    let about = match each.reasons.as_deref() {
        None => "every reason".to_owned(),
        Some(reasons) => reasons.join(", "),
    };
    let mut text = format!("{} nodes for {about}", each.nodes);
    if let Some(schedule) = &each.schedule {
        let duration = each.duration.as_deref().unwrap_or("0s");
        text.push_str(&format!(", from {schedule:?} (UTC) for {duration}"));
    }
    text.push_str(match (each.active, &each.schedule) {
        (true, None) => ": always",
        (true, Some(_)) => ": active",
        (false, _) => ": not active",
    });
    match each.changes_at {
        Some(at) if each.active => text.push_str(&format!(", ends {}", in_time(pool.stamp.at, at))),
        Some(at) => text.push_str(&format!(", begins {} ({at})", in_time(pool.stamp.at, at))),
        None => {}
    }
    if let Some(error) = &each.error {
        text.push_str(&format!("; {error}"));
    }
    text
}
