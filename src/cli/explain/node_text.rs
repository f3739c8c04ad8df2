//! A node, explained.

use jiff::Timestamp;
use serde_json::Value;

use super::answer::{Node, Pool, Since};
use super::{condition, decisions, pool_text, section};
use crate::cli::drain_blocker::DrainBlocker;
use crate::cli::layout::{ago, amount, facts, in_time, wrapped};
use mortise_apis::values::{since, span_text};

/// The explanation, a line each.
pub(super) fn lines(node: &Node, pool: Option<&Pool>, width: usize) -> Vec<String> {
    let now = node.stamp.at;
    let phase = node.phase.replace('_', " ");
    let mut lines = wrapped(&format!("Node {}: {phase}", node.name), 0, width);
    lines.push(String::new());
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let price = node.price.map_or_else(
        || "unknown".to_owned(),
        |price| format!("${price:.4} per hour"),
    );
    let known = [
        ("NodeClaim", or_dash(&node.claim)),
        ("NodePool", or_dash(&node.pool)),
        (
            "offering",
            [&node.instance_type, &node.zone, &node.capacity_type]
                .map(or_dash)
                .join(" "),
        ),
        ("price", price),
        (
            "age",
            node.created
                .map_or_else(|| "-".to_owned(), |created| ago(now, created)),
        ),
        ("used", used(node)),
        (
            "pods",
            format!(
                "{}, of which {} of DaemonSets; {} more are expected",
                node.pods, node.daemon_pods, node.nominations
            ),
        ),
    ];
    lines.extend(facts(&known, width));
    section(
        &mut lines,
        "What is going to happen",
        facts(&outlook(node), width),
    );
    let waits = node.conditions.iter().filter(|each| {
        each.status != "True" && !["Drifted", "Consolidatable"].contains(&each.kind.as_str())
    });
    let waits = waits.flat_map(|each| wrapped(&condition(each), 2, width));
    section(&mut lines, "What it waits for", waits.collect());
    let blocks = drain(&node.drain_blockers, node.stamp.at, width);
    section(&mut lines, "What blocks its drain", blocks);
    let never = drain(&node.never_drains_because, node.stamp.at, width);
    section(&mut lines, "Why its drain would never end by itself", never);
    section(
        &mut lines,
        "What keeps it from voluntary disruption",
        blockers(node, width),
    );
    if let Some(pool) = pool {
        section(
            &mut lines,
            &format!("Budgets of NodePool {}", pool.nodepool),
            pool_text::budgets(pool, width),
        );
    }
    decisions(&mut lines, &node.stamp, &node.decisions, width);
    lines
}

/// `cpu 1.5 of 4 (37%), memory 1.0Gi of 8.0Gi (12%)`.
fn used(node: &Node) -> String {
    let nothing = Value::from(0);
    let parts: Vec<String> = ["cpu", "memory", "pods"]
        .into_iter()
        .filter_map(|name| {
            let all = node.allocatable.get(name)?;
            let used = node.used.get(name).unwrap_or(&nothing);
            let share = 100.0 * used.as_f64()? / all.as_f64().filter(|all| *all > 0.0)?;
            Some(format!(
                "{name} {} of {} ({share:.0}%)",
                amount(name, used),
                amount(name, all)
            ))
        })
        .collect();
    parts.join(", ")
}

/// Each way in which a node can go, and when.
fn outlook(node: &Node) -> Vec<(&'static str, String)> {
    let (now, times) = (node.stamp.at, &node.times);
    let mut all = Vec::new();
    if let Some(begun) = times.deleting_since {
        let deadline = match times.terminates_by {
            Some(by) => format!("it is terminated {} whatever blocks", in_time(now, by)),
            None => {
                "it has no terminationGracePeriod, so blockers may hold it without end".to_owned()
            }
        };
        all.push((
            "removal",
            format!("it has been going for {}; {deadline}", ago(now, begun)),
        ));
        return all;
    }
    if let Some(Since { reason, since: at }) = &times.fence {
        let held = at.map_or_else(String::new, |at| format!(" for {}", ago(now, at)));
        all.push((
            "command",
            format!("{reason} has planned its removal{held}; no new pods are placed on it"),
        ));
    }
    all.push(("consolidation", consolidation(node)));
    if let Some(Since { reason, since: at }) = &times.drifted {
        let held = at.map_or_else(String::new, |at| format!(" for {}", ago(now, at)));
        all.push((
            "drift",
            format!("drifted{held} ({reason}): it is replaced as budgets allow"),
        ));
    }
    let expiry = match times.expires_at {
        Some(at) if at <= now => "expired: it is replaced now".to_owned(),
        Some(at) => format!("{} ({at})", in_time(now, at)),
        None => "never".to_owned(),
    };
    all.push(("expiry", expiry));
    let period = times.termination_grace_period.as_ref().map_or_else(
        || "without a limit (no terminationGracePeriod)".to_owned(),
        |period| format!("at most {period} (terminationGracePeriod)"),
    );
    all.push(("drain, once begun", period));
    all
}

fn consolidation(node: &Node) -> String {
    let (now, times) = (node.stamp.at, &node.times);
    if node.pool.is_none() {
        return "never: it belongs to no NodePool".to_owned();
    }
    let policy = times
        .consolidation_policy
        .as_deref()
        .unwrap_or("WhenEmptyOrUnderutilized");
    let after = times.consolidate_after.as_deref().unwrap_or("0s");
    match times.consolidatable_at {
        _ if times.consolidatable => format!("possible now, if it saves something ({policy})"),
        _ if after == "Never" => "never (consolidateAfter: Never)".to_owned(),
        Some(at) if at > now => format!(
            "not before {} from now: consolidateAfter is {after} after the last change of its pods ({policy})",
            span_text(since(at, now))
        ),
        Some(_) => format!("possible soon: consolidateAfter {after} has passed ({policy})"),
        None => "not before it is initialized, and never for a static NodePool".to_owned(),
    }
}

fn drain(blockers: &[DrainBlocker], now: Timestamp, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for each in blockers {
        let text = format!("{each}, for {}", ago(now, each.since));
        lines.extend(wrapped(&text, 2, width));
        lines.extend(wrapped(&format!("to free it: {}", each.unblocks), 4, width));
    }
    lines
}

fn blockers(node: &Node, width: usize) -> Vec<String> {
    if node.times.deleting_since.is_some() {
        return Vec::new();
    }
    if node.disruption_blockers.is_empty() {
        return vec!["  nothing but budgets, and whether it saves something".to_owned()];
    }
    let mut lines = Vec::new();
    for each in &node.disruption_blockers {
        lines.extend(wrapped(&each.text, 2, width));
        let until = each.until.map_or_else(String::new, |until| {
            format!(", or it ends {}", in_time(node.stamp.at, until))
        });
        lines.extend(wrapped(
            &format!("to free it: {}{until}", each.clears),
            4,
            width,
        ));
    }
    lines
}
