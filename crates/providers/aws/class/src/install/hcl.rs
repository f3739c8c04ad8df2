//! A writer for the part of Terraform's language that an installation needs, laid out as `terraform fmt` lays it out.

use std::fmt::Write as _;

use serde_json::Value;

use super::template::{Placeholder, fill};

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    /// A reference or call, written as it is.
    Raw(String),
    /// A value; its texts may have placeholders.
    Value(Value),
    /// A value as JSON text.
    Json(Value),
}

/// A block: its type and labels, and what is in it.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) head: Vec<String>,
    pub(super) attributes: Vec<(String, Expression)>,
}

/// A text as an expression.
pub(super) fn text(template: &str) -> Expression {
    Expression::Value(Value::String(template.to_owned()))
}

/// A reference.
pub(super) fn raw(reference: impl Into<String>) -> Expression {
    Expression::Raw(reference.into())
}

impl Block {
    /// A block without attributes.
    pub(super) fn new(kind: &str, labels: &[&str]) -> Self {
        let labels = labels.iter().map(|&label| label.to_owned());
        Self {
            head: std::iter::once(kind.to_owned()).chain(labels).collect(),
            attributes: Vec::new(),
        }
    }

    /// Adds an attribute.
    #[must_use]
    pub(super) fn with(mut self, name: &str, value: Expression) -> Self {
        self.attributes.push((name.to_owned(), value));
        self
    }

    fn write(&self, out: &mut String) {
        for (number, part) in self.head.iter().enumerate() {
            if number == 0 {
                out.push_str(part);
            } else {
                out.push_str(" \"");
                out.push_str(part);
                out.push('"');
            }
        }
        if self.attributes.is_empty() {
            out.push_str(" {}\n");
            return;
        }
        out.push_str(" {\n");
        let lines: Vec<(String, String)> = self
            .attributes
            .iter()
            .map(|(name, value)| (name.clone(), expression(value, 1)))
            .collect();
        assignments(&lines, 1, out);
        out.push_str("}\n");
    }
}

/// Blocks as a file.
pub(super) fn file(comment: &str, blocks: &[Block]) -> String {
    let mut out = format!("# {comment}\n");
    for block in blocks {
        out.push('\n');
        block.write(&mut out);
    }
    out
}

/// Lines `name = value`. Neighbours on one line each have their signs below each other.
fn assignments(lines: &[(String, String)], depth: usize, out: &mut String) {
    let is_long = |line: &(String, String)| line.1.contains('\n');
    for group in lines.chunk_by(|left, right| !is_long(left) && !is_long(right)) {
        let width = group
            .iter()
            .map(|(name, _)| name.chars().count())
            .max()
            .unwrap_or_default();
        for (name, value) in group {
            indent(depth, out);
            out.push_str(name);
            for _ in name.chars().count()..width {
                out.push(' ');
            }
            out.push_str(" = ");
            out.push_str(value);
            out.push('\n');
        }
    }
}

fn indent(depth: usize, out: &mut String) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn expression(value: &Expression, depth: usize) -> String {
    match value {
        Expression::Raw(text) => text.clone(),
        Expression::Value(value) => literal(value, depth),
        Expression::Json(value) => format!("jsonencode({})", literal(value, depth)),
    }
}

fn reference(each: Placeholder) -> &'static str {
    match each {
        Placeholder::Partition => "data.aws_partition.current.partition",
        Placeholder::Region => "data.aws_region.current.id",
        Placeholder::Account => "data.aws_caller_identity.current.account_id",
        Placeholder::UrlSuffix => "data.aws_partition.current.dns_suffix",
        Placeholder::ClusterName => "var.cluster_name",
        Placeholder::OidcProvider => "var.oidc_provider",
    }
}

/// A text in quotes, with references for placeholders.
pub(super) fn quoted(template: &str) -> String {
    let mut out = String::from("\"");
    for letter in template.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
    out.push('"');
    fill(&out, |each| format!("${{{}}}", reference(each)))
}

/// A key of an object: a name alone, anything else in quotes.
fn key(name: &str) -> String {
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if is_name {
        name.to_owned()
    } else {
        quoted(name)
    }
}

fn literal(value: &Value, depth: usize) -> String {
    let mut out = String::new();
    match value {
        Value::String(text) => {
            let alone = Placeholder::ALL
                .into_iter()
                .find(|each| each.mark() == text);
            return alone.map_or_else(|| quoted(text), |each| reference(each).to_owned());
        }
        Value::Array(items)
            if items
                .iter()
                .all(|each| !each.is_object() && !each.is_array())
                && items.len() < 2 =>
        {
            let items: Vec<String> = items.iter().map(|each| literal(each, depth)).collect();
            return format!("[{}]", items.join(", "));
        }
        Value::Array(items) => {
            out.push_str("[\n");
            for item in items {
                indent(depth + 1, &mut out);
                out.push_str(&literal(item, depth + 1));
                out.push_str(",\n");
            }
            indent(depth, &mut out);
            out.push(']');
        }
        Value::Object(fields) if fields.is_empty() => out.push_str("{}"),
        Value::Object(fields) => {
            out.push_str("{\n");
            let lines: Vec<(String, String)> = fields
                .iter()
                .map(|(name, value)| (key(name), literal(value, depth + 1)))
                .collect();
            assignments(&lines, depth + 1, &mut out);
            indent(depth, &mut out);
            out.push('}');
        }
        other => {
            // Writing to a text cannot fail.
            write!(out, "{other}").unwrap_or_default();
        }
    }
    out
}
