//! What receivers read: plain JSON, and the messages of chat programs.
//!
//! Names and texts come from the cluster, so whatever a chat program would take as its own is escaped: no event may mention
//! a channel or show a link.

use serde_json::{Value, json};

use super::batch::{Batch, Notice};
use crate::config::NotificationFormat;

/// Longest message of Discord, in UTF-16 units.
const DISCORD: usize = 2_000;

impl NotificationFormat {
    /// The body of a message.
    pub(super) fn body(self, batch: &Batch, cluster: &str) -> Value {
        match self {
            Self::Json => json(batch, cluster),
            Self::Slack => {
                let lines = batch.written.iter().map(|notice| {
                    let sign = sign(notice);
                    let [reason, object, message] =
                        [&notice.reason, &notice.object(), &notice.message]
                            .map(|text| of_slack(text));
                    format!("{sign} *{reason}* `{object}`: {message}")
                });
                let head = format!("*{}*", of_slack(&title(batch, cluster)));
                json!({ "text": joined(head, lines, batch) })
            }
            Self::Teams => teams(batch, cluster),
            Self::Discord => {
                let lines = batch.written.iter().map(|notice| {
                    let sign = sign(notice);
                    let [reason, object, message] =
                        [&notice.reason, &notice.object(), &notice.message]
                            .map(|text| of_markdown(text));
                    format!("{sign} **{reason}** {object}: {message}")
                });
                let head = format!("**{}**", of_markdown(&title(batch, cluster)));
                let text = joined(head, lines, batch);
                json!({ "content": cut(&text, DISCORD), "allowed_mentions": { "parse": [] } })
            }
        }
    }
}

/// What a message is about.
fn title(batch: &Batch, cluster: &str) -> String {
    let count = batch.len();
    let events = if count == 1 { "event" } else { "events" };
    let of = if cluster.is_empty() {
        String::new()
    } else {
        format!(" in {cluster}")
    };
    format!("mortise: {count} {events}{of}")
}

const fn sign(notice: &Notice) -> &'static str {
    if notice.warning { "⚠️" } else { "ℹ️" }
}

fn joined(head: String, lines: impl Iterator<Item = String>, batch: &Batch) -> String {
    let mut all = vec![head];
    all.extend(lines);
    all.extend(more(batch));
    all.join("\n")
}

fn more(batch: &Batch) -> Option<String> {
    let omitted = batch.omitted;
    (omitted > 0).then(|| format!("… and {omitted} more: kubectl get events -A"))
}

fn json(batch: &Batch, cluster: &str) -> Value {
    let events = batch.written.iter().map(|notice| {
        json!({
            "time": notice.at,
            "type": if notice.warning { "Warning" } else { "Normal" },
            "reason": notice.reason,
            "object": { "kind": notice.kind, "namespace": notice.namespace, "name": notice.name },
            "message": notice.message,
        })
    });
    json!({
        "source": "mortise",
        "cluster": cluster,
        "events": events.collect::<Vec<_>>(),
        "omitted": batch.omitted,
    })
}

fn teams(batch: &Batch, cluster: &str) -> Value {
    let block = |text: String| json!({ "type": "TextBlock", "text": text, "wrap": true });
    let head = json!({
        "type": "TextBlock", "text": of_markdown(&title(batch, cluster)), "wrap": true, "weight": "Bolder", "size": "Medium",
    });
    let lines = batch.written.iter().map(|notice| {
        let sign = sign(notice);
        let [reason, object, message] =
            [&notice.reason, &notice.object(), &notice.message].map(|text| of_markdown(text));
        block(format!("{sign} **{reason}** {object}: {message}"))
    });
    let body: Vec<Value> = std::iter::once(head)
        .chain(lines)
        .chain(more(batch).map(block))
        .collect();
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": body,
            },
        }],
    })
}

/// What Slack shows as it is: three characters are its own, and a backquote ends a code span.
fn of_slack(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('`', "'")
}

/// What Markdown shows as it is.
fn of_markdown(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for each in text.chars() {
        if matches!(
            each,
            '\\' | '*' | '_' | '`' | '~' | '[' | ']' | '<' | '>' | '|' | '#'
        ) {
            plain.push('\\');
        }
        plain.push(each);
    }
    plain
}

/// At most this number of UTF-16 units, whole lines as long as there is one.
fn cut(text: &str, most: usize) -> String {
    let mut short = String::new();
    let mut left = most - 2;
    for line in text.lines() {
        let units = line.encode_utf16().count() + 1;
        if units > left {
            short.push('…');
            return short;
        }
        left -= units;
        short.push_str(line);
        short.push('\n');
    }
    short.truncate(short.trim_end().len());
    short
}
