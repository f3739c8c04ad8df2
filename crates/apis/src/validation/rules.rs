//! The CEL rules of the definitions, answered with what was written and what to write instead.
//!
//! A rule is known by its message, which is Karpenter's and part of the contract. The API server has the last word: a
//! rule that is not known here is left to it. A test sees to it that all rules of the definitions are known.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::issues::{Found, RuleCheck, RuleContext, empty, has, meant, quoted};
use crate::node_class::NodeClassRegistry;

/// Asks one rule about a value.
pub(super) fn check(
    classes: &NodeClassRegistry,
    rule: &Value,
    path: &str,
    value: &Value,
    old: Option<&Value>,
    found: &mut Found,
) {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut context = RuleContext {
        path,
        value,
        old,
        rule: text("rule"),
        found,
    };
    let message = text("message");
    if let Some(example) = reference_example(classes, message) {
        empty(&mut context, example);
    } else if let Some(answer) = native_check(classes, message) {
        answer(&mut context);
    }
}

/// Whether a rule is answered for here.
pub(super) fn is_answered(classes: &NodeClassRegistry, message: &str) -> bool {
    reference_example(classes, message).is_some() || native_check(classes, message).is_some()
}

/// What to write into an empty field of a reference to a node class; `None` for rules about anything else.
fn reference_example(classes: &NodeClassRegistry, message: &str) -> Option<&'static str> {
    let class = classes.default_kind();
    match message {
        "group may not be empty" => {
            Some(class.map_or("the group of the node class", |class| class.group))
        }
        "kind may not be empty" => {
            Some(class.map_or("the kind of the node class", |class| class.kind))
        }
        "name may not be empty" => Some("default"),
        _ => None,
    }
}

/// Who answers for a rule.
fn native_check(classes: &NodeClassRegistry, message: &str) -> Option<RuleCheck> {
    Some(match message {
        "spec is immutable" => immutable_claim,
        "nodeClassRef.group is immutable" => |at| immutable(at, "group"),
        "nodeClassRef.kind is immutable" => |at| immutable(at, "kind"),
        "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes" => {
            mode
        }
        "only 'limits.nodes' is supported on static NodePools" => static_limits,
        "'weight' is not supported on static NodePools" => static_weight,
        "'schedule' must be set with 'duration'" => schedule_and_duration,
        "requirements with operator 'In' must have a value defined" => |at| listed(at, "In"),
        "requirements with operator 'NotIn' must have a value defined" => |at| listed(at, "NotIn"),
        "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value"
        | "requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value" => {
            compared
        }
        "requirements with 'minValues' must have at least that many values specified in the 'values' field" => {
            min_values
        }
        "cannot set both 'price' and 'priceAdjustment'" => two_prices,
        "exactly one of 'hourlyCommitment' and 'instances' must be set" => commitment_amount,
        "invalid resource restricted" => overlaid_resource,
        "If podTemplateRef is set, replicas or limits must also be set" => buffer_size,
        "You must define either PodTemplateRef or ScalableRef, but not both" => buffer_shape,
        _ if message.starts_with("label domain ") => domain,
        _ if message.starts_with("label \"") => key,
        _ => return classes.iter().find_map(|class| class.rule_check(message)),
    })
}

fn immutable_claim(at: &mut RuleContext<'_>) {
    let (Some(old), new) = (at.old, at.value) else {
        return;
    };
    if old == new {
        return;
    }
    let empty = Map::new();
    let (before, now) = (
        old.as_object().unwrap_or(&empty),
        new.as_object().unwrap_or(&empty),
    );
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let changed = names
        .into_iter()
        .find(|name| before.get(*name) != now.get(*name));
    let Some(name) = changed else { return };
    let value = now.get(name).unwrap_or(&Value::Null);
    let was = before.get(name).map_or_else(|| "absent".to_owned(), quoted);
    at.fault(
        &format!(".{name}"),
        value,
        format!("changes the spec, which never changes (it was {was})"),
        "delete the NodeClaim: its pool makes another one from the pool's template",
    );
}

fn immutable(at: &mut RuleContext<'_>, name: &str) {
    let Some(old) = at.old else { return };
    let was = old.get(name).unwrap_or(&Value::Null);
    let now = at.field(name);
    if was != now {
        at.fault(
            &format!(".{name}"),
            now,
            format!("is another than {was}, and it never changes"),
            "make a new NodePool with it, and delete this one when its nodes are replaced",
        );
    }
}

fn mode(at: &mut RuleContext<'_>) {
    let Some(old) = at.old else { return };
    let now = at.field("replicas");
    if has(old, "replicas") != at.has("replicas") {
        let (was, fix) = if has(old, "replicas") {
            ("set", "keep replicas")
        } else {
            ("absent", "take replicas out")
        };
        at.fault(
            ".replicas",
            now,
            format!("may not be added or removed: it was {was}"),
            format!("{fix}, or make a new NodePool"),
        );
    }
}

fn static_limits(at: &mut RuleContext<'_>) {
    let limits = at.field("limits");
    let other = limits
        .as_object()
        .into_iter()
        .flatten()
        .find(|(name, _)| *name != "nodes");
    if at.has("replicas")
        && let Some((name, limit)) = other
    {
        at.fault(
            &format!(".limits.{name}"),
            limit,
            "has no effect with replicas: only limits.nodes is allowed",
            "take it out, or write limits.nodes instead",
        );
    }
}

fn static_weight(at: &mut RuleContext<'_>) {
    let weight = at.field("weight");
    if at.has("replicas") && at.has("weight") {
        at.fault(
            ".weight",
            weight,
            "has no effect when replicas is set",
            "take weight out, or replicas",
        );
    }
}

fn schedule_and_duration(at: &mut RuleContext<'_>) {
    for (n, budget) in at.items() {
        let both = ["schedule", "duration"];
        let [schedule, duration] = both.map(|name| has(budget, name));
        if schedule == duration {
            continue;
        }
        let (missing, example, given) = if schedule {
            ("duration", "8h, for how long it holds", "schedule")
        } else {
            (
                "schedule",
                "\"0 9 * * 1-5\", when it begins (UTC)",
                "duration",
            )
        };
        at.fault(
            &format!("[{n}].{missing}"),
            &Value::Null,
            format!(
                "but {given} {} is there: both are allowed, or neither",
                budget.get(given).map_or_else(String::new, quoted)
            ),
            format!("add {missing}: {example}; or take {given} out for a budget that always holds"),
        );
    }
}

fn named(value: &Value, name: &str) -> String {
    value
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn values(requirement: &Value) -> Option<&Vec<Value>> {
    requirement.get("values").and_then(Value::as_array)
}

fn listed(at: &mut RuleContext<'_>, operator: &str) {
    for (n, requirement) in at.items() {
        if named(requirement, "operator") == operator
            && values(requirement).is_none_or(Vec::is_empty)
        {
            let key = named(requirement, "key");
            let instead = if operator == "In" {
                "Exists"
            } else {
                "take the requirement out"
            };
            at.fault(
                &format!("[{n}].values"),
                requirement.get("values").unwrap_or(&Value::Null),
                format!("but operator {operator} on {key} needs at least one value"),
                format!("add values: [...]; to allow any value: {instead}"),
            );
        }
    }
}

fn compared(at: &mut RuleContext<'_>) {
    for (n, requirement) in at.items() {
        let operator = named(requirement, "operator");
        if !matches!(operator.as_str(), "Gt" | "Lt" | "Gte" | "Lte") {
            continue;
        }
        let one = match values(requirement).map(Vec::as_slice) {
            Some([Value::String(one)]) => one.parse::<i64>().ok(),
            _ => None,
        };
        if one.is_none_or(|bound| bound < 0) {
            let key = named(requirement, "key");
            at.fault(
                &format!("[{n}].values"),
                requirement.get("values").unwrap_or(&Value::Null),
                format!("is not what operator {operator} on {key} takes: one whole number from 0, in quotes"),
                format!("write values: [\"4\"] with operator {operator}, or use In with a list"),
            );
        }
    }
}

fn min_values(at: &mut RuleContext<'_>) {
    for (n, requirement) in at.items() {
        let Some(least) = requirement
            .get("minValues")
            .and_then(Value::as_u64)
            .filter(|_| named(requirement, "operator") == "In")
        else {
            continue;
        };
        let count = values(requirement).map_or(0, Vec::len) as u64;
        if count < least {
            let key = named(requirement, "key");
            at.fault(
                &format!("[{n}].minValues"),
                requirement.get("minValues").unwrap_or(&Value::Null),
                format!(
                    "is more than the {count} values listed for {key}: at most {count} is allowed"
                ),
                format!("list {least} values, lower minValues to {count}, or use operator Exists"),
            );
        }
    }
}

/// The keys that a domain rule leaves open are listed in the rule itself.
fn domain(at: &mut RuleContext<'_>) {
    let open: Vec<String> = at
        .rule
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .and_then(|(list, _)| serde_json::from_str(&format!("[{list}]")).ok())
        .unwrap_or_default();
    let Some(domain) = at
        .rule
        .split_once("endsWith(\"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(domain, _)| domain.to_owned())
    else {
        return;
    };
    for key in at.keys() {
        let first = key.split('/').next().unwrap_or_default();
        if !first.ends_with(&domain) || open.iter().any(|open| open == key) {
            continue;
        }
        let name = key.rsplit('/').next().unwrap_or_default().to_owned();
        let near = crate::nearest::nearest(key, &open).or_else(|| {
            let of_name = |open: &&String| open.rsplit('/').next() == Some(name.as_str());
            open.iter().find(of_name).cloned()
        });
        let fix = near.map_or_else(
            || format!("use a domain of your own, such as example.com/{name}"),
            |near| format!("did you mean \"{near}\"?"),
        );
        at.fault(
            &at.below(key),
            &Value::from(key),
            format!(
                "is in the domain {domain}, which is not yours; allowed in it: {}",
                open.join(", ")
            ),
            fix,
        );
    }
}

fn key(at: &mut RuleContext<'_>) {
    let Some(restricted) = at
        .rule
        .split_once('"')
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(key, _)| key.to_owned())
    else {
        return;
    };
    for key in at.keys() {
        if key != restricted {
            continue;
        }
        let fix = if key == crate::labels::HOSTNAME {
            "to assign pods to one node, use the pod's nodeName or a custom label"
        } else {
            "take it out: each node gets it with the name of its pool"
        };
        at.fault(
            &at.below(key),
            &Value::from(key),
            "is set for each node; any other label is allowed",
            fix,
        );
    }
}

fn two_prices(at: &mut RuleContext<'_>) {
    if at.has("price") && at.has("priceAdjustment") {
        let price = at.field("price");
        at.fault(
            ".price",
            price,
            format!(
                "and priceAdjustment {} exclude each other: one of them is allowed",
                quoted(at.field("priceAdjustment"))
            ),
            "keep price for an absolute price, priceAdjustment for a change of the provider's",
        );
    }
}

fn commitment_amount(at: &mut RuleContext<'_>) {
    let (is_plan, is_counted) = (at.has("hourlyCommitment"), at.has("instances"));
    if is_plan && is_counted {
        let instances = at.field("instances");
        at.fault(
            ".instances",
            instances,
            format!(
                "and hourlyCommitment {} exclude each other: one of them is allowed",
                quoted(at.field("hourlyCommitment"))
            ),
            "keep instances for Reserved Instances, hourlyCommitment for a Savings Plan",
        );
    } else if !is_plan && !is_counted {
        at.fault(
            ".hourlyCommitment",
            &Value::Null,
            "but hourlyCommitment or instances is required",
            "add hourlyCommitment: \"10.00\" for a Savings Plan, or instances: 20 for Reserved Instances",
        );
    }
}

fn overlaid_resource(at: &mut RuleContext<'_>) {
    for name in at.keys() {
        if matches!(name, "cpu" | "memory" | "ephemeral-storage" | "pods") {
            let amount = at.field(name);
            at.fault(
                &at.below(name),
                amount,
                format!("overrides {name}, which the cloud provider determines; only extended resources are allowed"),
                meant(name, [] as [&str; 0], || {
                    "name an extended resource, such as smarter-devices/fuse".to_owned()
                }),
            );
        }
    }
}

fn buffer_size(at: &mut RuleContext<'_>) {
    if at.has("podTemplateRef") && !at.has("replicas") && !at.has("limits") {
        at.fault(
            ".replicas",
            &Value::Null,
            "but replicas or limits is required when podTemplateRef is set",
            "add replicas: 3, or limits with the most that the buffer may take",
        );
    }
}

fn buffer_shape(at: &mut RuleContext<'_>) {
    if at.has("podTemplateRef") && at.has("scalableRef") {
        let value = at.field("scalableRef");
        at.fault(
            ".scalableRef",
            value,
            "and podTemplateRef exclude each other: one of them is allowed",
            "keep scalableRef to follow a workload, or podTemplateRef for a fixed pod template",
        );
    }
}
