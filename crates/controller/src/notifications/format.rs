//! What receivers read: plain JSON, and the messages of chat programs.
//!
//! Names and texts come from the cluster, so whatever a chat program would take as its own is escaped: no event may mention
//! a channel or show a link.

use serde_json::{Value, json};

use super::batch::{Batch, Notice};
use crate::config::NotificationFormat;

/// Longest message of Discord, in UTF-16 units.
const DISCORD: usize = 2_000;

/// How a chat program marks texts.
struct Markup {
    /// Around bold texts.
    bold: &'static str,
    /// Around names of objects.
    object: &'static str,
    /// What it shows as a text is.
    plain: fn(&str) -> String,
}

const SLACK: Markup = Markup {
    bold: "*",
    object: "`",
    plain: of_slack,
};
const MARKDOWN: Markup = Markup {
    bold: "**",
    object: "",
    plain: of_markdown,
};

impl Markup {
    fn bold(&self, text: &str) -> String {
        format!("{0}{1}{0}", self.bold, (self.plain)(text))
    }

    /// An event for each line.
    fn lines(&self, batch: &Batch) -> Vec<String> {
        let lines = batch.written.iter().map(|notice| {
            let (sign, reason) = (sign(notice), self.bold(&notice.reason));
            let [object, message] =
                [&notice.object(), &notice.message].map(|text| (self.plain)(text));
            format!("{sign} {reason} {0}{object}{0}: {message}", self.object)
        });
        lines.chain(more(batch)).collect()
    }

    /// The whole message.
    fn text(&self, batch: &Batch, cluster: &str) -> String {
        let head = self.bold(&title(batch, cluster));
        let all: Vec<String> = std::iter::once(head).chain(self.lines(batch)).collect();
        all.join("\n")
    }
}

impl NotificationFormat {
    /// The body of a message.
    pub(super) fn body(self, batch: &Batch, cluster: &str) -> Value {
        match self {
            Self::Json => json(batch, cluster),
            Self::Slack => json!({ "text": SLACK.text(batch, cluster) }),
            Self::Teams => teams(batch, cluster),
            Self::Discord => {
                let text = cut(&MARKDOWN.text(batch, cluster), DISCORD);
                json!({ "content": text, "allowed_mentions": { "parse": [] } })
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
    let title = of_markdown(&title(batch, cluster));
    let head = json!({ "type": "TextBlock", "text": title, "wrap": true, "weight": "Bolder", "size": "Medium" });
    let lines = MARKDOWN.lines(batch).into_iter();
    let lines = lines.map(|line| json!({ "type": "TextBlock", "text": line, "wrap": true }));
    let body: Vec<Value> = std::iter::once(head).chain(lines).collect();
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
