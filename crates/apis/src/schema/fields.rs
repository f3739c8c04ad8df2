//! Pieces of OpenAPI schema that several kinds share.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// An optional DNS prefix, a slash, and a name: keys of labels and taints.
pub const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
/// A label value; empty is allowed.
pub const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// A Kubernetes quantity.
pub const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// A duration of whole seconds, minutes and hours.
pub const DURATION: &str = "^([0-9]+(s|m|h))+$";
/// The same, or `Never`.
pub const DURATION_OR_NEVER: &str = "^(([0-9]+(s|m|h))+|Never)$";
/// When budgets and calendars begin. The macros need only stand at the beginning, and the fields only at the end.
pub const CRON: &str =
    r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$";
/// How long budgets and entries of calendars hold.
pub const HOURS_AND_MINUTES: &str = "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$";
/// Operators of a requirement.
pub const OPERATORS: [&str; 8] = [
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "Gt",
    "Lt",
    "Gte",
    "Lte",
];
/// Effects of a taint.
const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// One entry of `x-kubernetes-validations`.
#[must_use]
pub fn rule(rule: &str, message: &str) -> Value {
    json!({ "message": message, "rule": rule })
}

/// A map from resource name to quantity.
pub fn resource_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": true,
        },
    })
}

/// A moment in RFC 3339.
pub fn date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// An atomic list of taints.
pub fn taints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "description": "Taint. Pods that do not tolerate it are not scheduled to the node.",
            "required": ["effect", "key"],
            "properties": {
                "key": {
                    "type": "string",
                    "description": "Key of the taint.",
                    "minLength": 1,
                    "pattern": QUALIFIED_NAME,
                },
                "value": { "type": "string", "description": "Value of the taint.", "pattern": QUALIFIED_NAME },
                "effect": {
                    "type": "string",
                    "description": "Effect on pods that do not tolerate the taint.",
                    "enum": TAINT_EFFECTS,
                },
                "timeAdded": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the taint was added.",
                },
            },
        },
    })
}

/// Rules on a whole list of requirements, in the order in which they are reported.
pub fn requirement_rules() -> Value {
    json!([
        requires_values("In"),
        comparison_rule(
            "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value"
        ),
        rule(
            "self.all(x, (x.operator == 'In' && has(x.minValues)) ? x.values.size() >= x.minValues : true)",
            "requirements with 'minValues' must have at least that many values specified in the 'values' field",
        ),
    ])
}

/// Rules on the requirements of an overlay, which have no minValues.
pub fn overlay_requirement_rules() -> Value {
    json!([
        requires_values("NotIn"),
        requires_values("In"),
        comparison_rule(
            "requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value"
        ),
    ])
}

fn requires_values(operator: &str) -> Value {
    rule(
        &format!("self.all(x, x.operator == '{operator}' ? x.values.size() != 0 : true)"),
        &format!("requirements with operator '{operator}' must have a value defined"),
    )
}

fn comparison_rule(message: &str) -> Value {
    rule(
        "self.all(x, (x.operator == 'Gt' || x.operator == 'Lt' || x.operator == 'Gte' || x.operator == 'Lte') ? (x.values.size() == 1 && int(x.values[0]) >= 0) : true)",
        message,
    )
}
