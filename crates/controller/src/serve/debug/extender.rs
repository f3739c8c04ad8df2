//! Recent calls of the scheduler to the extender, and their results.

use std::collections::BTreeMap;

use http::Uri;
use jiff::Timestamp;
use mortise_apis::values::{since, span_text};
use mortise_webhooks::extender::{CallsSeen, ExtenderCall, SchedulerCalls};
use serde::Deserialize;
use serde_json::json;

use super::DebugView;
use super::routes::{DebugRefusal, DebugState, query};
use super::table::TextTable;
use crate::service_state::handshakes::HandshakeFailures;

/// Maximum calls per response; no more are kept.
const MOST_CALLS: usize = 1_000;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallsQuery {
    limit: Option<usize>,
}

/// `/debug/extender`.
pub(super) fn view(state: &DebugState, uri: &Uri) -> Result<DebugView, DebugRefusal> {
    let CallsQuery { limit } = query(uri).map_err(|error| {
        DebugRefusal::BadRequest(format!(
            "limit must be a number of calls, at most {MOST_CALLS}: {error}"
        ))
    })?;
    let DebugState {
        shared,
        extender: memory,
        counters,
    } = state;
    let limit = limit.unwrap_or(100).min(MOST_CALLS);
    let calls = memory.call_log.newest(limit);
    let now = shared.now();
    let mut table = TextTable::new(&[
        "AGO",
        "CALL",
        "POD",
        "NODES",
        "NOMINATED NODE",
        "DENIED",
        "BEST",
        "US",
    ]);
    for call in &calls {
        table.row(vec![
            span_text(since(now, call.at)),
            call.call.to_owned(),
            call.pod.clone(),
            call.nodes.to_string(),
            nominated_node(call).to_owned(),
            denied(call),
            call.best
                .map_or_else(|| "-".to_owned(), |best| best.to_string()),
            call.micros.to_string(),
        ]);
    }
    let nominations = shared.snapshot().ledger.nomination_outcomes();
    let counts: BTreeMap<&str, u64> = counters.snapshot();
    let (seen, failed) = (memory.schedulers.calls_seen(), shared.handshakes.all());
    let leader = shared.leader_address();
    let mut text = schedulers(&seen, now);
    text.extend(leader.map(|leader| {
        format!(
            "this replica does not lead; calls that reach it are answered by the leader, {leader}"
        )
    }));
    text.extend(failed.iter().map(|each| handshake(each, now)));
    text.push(table.render("no calls yet"));
    Ok(DebugView {
        json: json!({
            "asked_by": seen, "leader": leader, "failed_handshakes": failed,
            "calls": calls, "counts": counts, "nominations": nominations, "denied_pods": memory.denied_pods.len(),
            "assumed_pods": memory.assumed_pods.len(), "whole_nodes": counters.full_nodes.get() > 0,
        }),
        text: text.join("\n"),
    })
}

/// Which schedulers call, and whether pods are bound without an extender call.
fn schedulers(seen: &CallsSeen, now: Timestamp) -> Vec<String> {
    let mut lines: Vec<String> = seen
        .schedulers
        .iter()
        .map(
            |SchedulerCalls {
                 scheduler,
                 last,
                 calls,
             }| {
                format!(
                    "{scheduler}: {calls} calls, the last {} ago",
                    span_text(since(now, *last))
                )
            },
        )
        .collect();
    if lines.is_empty() {
        lines.push("no scheduler has sent calls to this process".to_owned());
    }
    if let (1.., Some(silent)) = (seen.unasked_binds, seen.silent_since) {
        lines.push(format!(
            "WARNING: {} pods were bound without a call, the last call was {}; run: mortise check scheduler FILE --live",
            seen.unasked_binds,
            if seen.schedulers.is_empty() {
                "never".to_owned()
            } else {
                format!("{} ago", span_text(since(now, silent)))
            },
        ));
    }
    lines
}

fn handshake(failed: &HandshakeFailures, now: Timestamp) -> String {
    let HandshakeFailures {
        cause,
        count,
        last,
        peer,
        asked_for,
        certificate_names,
        advice,
        ..
    } = failed;
    let asked = asked_for
        .as_ref()
        .map_or_else(String::new, |name| format!(" that expects {name}"));
    format!(
        "failed TLS handshakes, {}: {count}, the last {} ago from {peer}{asked}; the certificate is for {}; {advice}",
        cause.label(),
        span_text(since(now, *last)),
        certificate_names.join(", "),
    )
}

fn nominated_node(call: &ExtenderCall) -> &'static str {
    match call.nominated_node {
        Some(true) => "listed",
        Some(false) => "absent",
        None => "-",
    }
}

fn denied(call: &ExtenderCall) -> String {
    if call.denied.is_empty() {
        return "-".to_owned();
    }
    let all = call.denied.iter();
    let parts: Vec<String> = all
        .map(|(message, count)| format!("{count} {message}"))
        .collect();
    parts.join("; ")
}
