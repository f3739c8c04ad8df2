//! NodePools.

use serde_json::{Value, json};

use super::shared;
use crate::DurationText;
use crate::node_class::NodeClassRegistry;
use crate::schema::json_fields::{WrongType, filled, list_in, object_at, taken, text_in};

const TEMPLATE: [&str; 3] = ["spec", "template", "spec"];
const DISRUPTION: [&str; 2] = ["spec", "disruption"];

pub(super) fn up(classes: &NodeClassRegistry, mut object: Value) -> Result<Value, WrongType> {
    shared::up(classes, &mut object, &TEMPLATE)?;
    let Some(disruption) = object_at(&mut object, &DISRUPTION)? else {
        return Ok(object);
    };
    let policy = text_in(disruption, "consolidationPolicy", "spec.disruption")?;
    if policy == Some("WhenUnderutilized") {
        disruption.insert(
            "consolidationPolicy".to_owned(),
            json!("WhenEmptyOrUnderutilized"),
        );
    }
    // No delay: nodes were evaluated as soon as possible. A `Never` that disables consolidation stays.
    filled(disruption, "consolidateAfter", || json!("0s"));
    if let Some(expire) = taken(disruption, "expireAfter")
        && let Some(template) = object_at(&mut object, &TEMPLATE)?
    {
        template.insert("expireAfter".to_owned(), expire);
    }
    Ok(object)
}

pub(super) fn down(classes: &NodeClassRegistry, mut object: Value) -> Result<Value, WrongType> {
    shared::down(classes, &mut object, &TEMPLATE)?;
    let expire = object_at(&mut object, &TEMPLATE)?.and_then(|spec| taken(spec, "expireAfter"));
    let Some(spec) = object_at(&mut object, &["spec"])? else {
        return Ok(object);
    };
    spec.remove("replicas");
    if let Some(expire) = expire
        && let Some(disruption) = filled(spec, "disruption", || json!({})).as_object_mut()
    {
        disruption.insert("expireAfter".to_owned(), expire);
    }
    let Some(disruption) = object_at(&mut object, &DISRUPTION)? else {
        return Ok(object);
    };
    let policy = text_in(disruption, "consolidationPolicy", "spec.disruption")?;
    let empty_only = policy == Some("WhenEmpty");
    if matches!(policy, Some("WhenEmptyOrUnderutilized" | "Balanced")) {
        disruption.insert("consolidationPolicy".to_owned(), json!("WhenUnderutilized"));
    }
    // The older version allows a duration with WhenEmpty only; with the other policy just the value that disables it.
    let never =
        disruption.get("consolidateAfter").and_then(Value::as_str) == Some(DurationText::NEVER);
    if !empty_only && !never {
        disruption.remove("consolidateAfter");
    }
    for budget in list_in(disruption, "budgets", "spec.disruption")?
        .into_iter()
        .flatten()
    {
        if let Some(budget) = budget.as_object_mut() {
            budget.remove("reasons");
        }
    }
    Ok(object)
}
