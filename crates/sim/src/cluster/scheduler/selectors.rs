//! Label selectors and node selectors, as documented by Kubernetes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels by key.
pub(in super::super) type Labels = BTreeMap<String, String>;

/// Whether labels match a selector. An absent selector matches nothing, an empty one everything.
pub(super) fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else {
        return false;
    };
    let mut exact = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    exact.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|each| {
            let values = each.values.as_deref().unwrap_or_default();
            holds(&each.operator, labels.get(&each.key), values)
        })
}

/// Whether a value satisfies an operator. `NotIn` and `DoesNotExist` are satisfied by a missing label.
fn holds(operator: &str, value: Option<&String>, values: &[String]) -> bool {
    let number = |text: &String| text.parse::<i64>().ok();
    let compared = |is_right: fn(i64, i64) -> bool| {
        let bound = values.first().and_then(number);
        let sides = value.and_then(number).zip(bound);
        sides.is_some_and(|(value, bound)| is_right(value, bound))
    };
    match operator {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared(|value, bound| value > bound),
        "Lt" => compared(|value, bound| value < bound),
        _ => false,
    }
}

/// Whether a node matches one of the terms of a node selector.
pub(super) fn node_selects(selector: &NodeSelector, name: &str, labels: &Labels) -> bool {
    let mut terms = selector.node_selector_terms.iter();
    terms.any(|term| node_term(term, name, labels))
}

/// Whether a node matches a term: all of its expressions and fields. A term without any matches nothing.
pub(super) fn node_term(term: &NodeSelectorTerm, name: &str, labels: &Labels) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let values = |each: &NodeSelectorRequirement| each.values.clone().unwrap_or_default();
    let name = name.to_owned();
    !(expressions.is_empty() && fields.is_empty())
        && expressions
            .iter()
            .all(|each| holds(&each.operator, labels.get(&each.key), &values(each)))
        && fields.iter().all(|each| {
            each.key == "metadata.name" && holds(&each.operator, Some(&name), &values(each))
        })
}
