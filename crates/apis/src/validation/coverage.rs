//! Which patterns and rules of the definitions are answered for here.

use serde_json::Value;

use super::{patterns, rules, schema};
use crate::crds::CrdSet;

/// Patterns and rules of a set of definitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Number of schemas: one for each field, item and value.
    pub schemas: usize,
    /// Number of rules.
    pub rules: usize,
    /// Those that nothing here answers for, so that only the API server checks them: place and text.
    pub unanswered: Vec<String>,
}

/// What the validation of this set answers for. A test of every node class expects that nothing is left out.
#[must_use]
pub fn coverage(set: &CrdSet) -> Coverage {
    let mut coverage = Coverage::default();
    for manifest in set.manifests() {
        let kind = manifest
            .definition
            .pointer("/spec/names/kind")
            .and_then(Value::as_str);
        if let Some((kind, definition)) =
            kind.and_then(|kind| Some((kind, schema::definition(set, kind)?)))
        {
            visit(set, definition.of_spec, kind, &mut coverage);
        }
    }
    coverage
}

fn visit(set: &CrdSet, schema: &Value, path: &str, coverage: &mut Coverage) {
    coverage.schemas += 1;
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && patterns::description(set.known(), pattern).is_none()
    {
        coverage
            .unanswered
            .push(format!("{path}: pattern {pattern}"));
    }
    let checks = schema
        .get("x-kubernetes-validations")
        .and_then(Value::as_array);
    for rule in checks.into_iter().flatten() {
        let message = rule.get("message").and_then(Value::as_str);
        coverage.rules += 1;
        if !message.is_some_and(|message| rules::is_answered(set.known(), message)) {
            coverage.unanswered.push(format!("{path}: rule {rule}"));
        }
    }
    let fields = schema.get("properties").and_then(Value::as_object);
    for (name, property) in fields.into_iter().flatten() {
        visit(set, property, &format!("{path}.{name}"), coverage);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(inner).filter(|inner| inner.is_object()) {
            visit(set, inner, &format!("{path}[]"), coverage);
        }
    }
}
