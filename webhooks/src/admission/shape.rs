//! What the schema refuses too, said so that one knows what to write instead.

use mortise_core::nearest::nearest;
use mortise_core::requirements::Operator;
use serde_json::Value;

const OPERATORS: [Operator; 8] = [
    Operator::In,
    Operator::NotIn,
    Operator::Exists,
    Operator::DoesNotExist,
    Operator::Gt,
    Operator::Lt,
    Operator::Gte,
    Operator::Lte,
];

/// Problems of a requirement list: unknown operators, operators with the wrong number of values.
pub(super) fn requirements(object: &Value, at: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (index, entry) in object
        .pointer(at)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let key = entry.get("key").and_then(Value::as_str).unwrap_or_default();
        let Some(operator) = entry.get("operator").and_then(Value::as_str) else {
            continue;
        };
        let path = format!("{}[{index}]", at.trim_start_matches('/').replace('/', "."));
        let allowed: Vec<&str> = OPERATORS.iter().map(|operator| operator.as_str()).collect();
        if !allowed.contains(&operator) {
            let hint = nearest(operator, allowed.iter().copied())
                .map(|word| format!("; did you mean \"{word}\"?"))
                .unwrap_or_default();
            problems.push(format!(
                "{path}.operator: \"{operator}\" on key \"{key}\" is not one of {}{hint}",
                allowed.join(", ")
            ));
        }
    }
    problems
}
