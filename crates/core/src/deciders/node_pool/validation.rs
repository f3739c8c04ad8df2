//! What a pool's template must satisfy beyond the schema. Objects that were stored before a rule existed, or past a
//! webhook that was down, are found here; admission asks the same question.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Taint;

use crate::apis::nodepool::NodePool;
use crate::apis::requirement::RequirementSpec;
use crate::labels::{self, WellKnown};
use crate::nearest::nearest;
use crate::requirements::Operator;
use crate::taints;

/// Longest prefix of a label key, and longest name or value.
const MAX_PREFIX: usize = 253;
const MAX_NAME: usize = 63;

/// Everything that is wrong with a pool's template: each text names the field, the value and what is allowed. Empty for
/// a valid pool.
#[must_use]
pub fn faults_of_pool(pool: &NodePool, well_known: &WellKnown) -> Vec<String> {
    let mut faults = Vec::new();
    let template = &pool.spec.template;
    for (key, value) in template.labels().into_iter().flatten() {
        let field = format!("spec.template.metadata.labels[{key:?}]");
        faults.extend(key_fault(key, well_known).map(|fault| format!("{field}: {fault}")));
        if !is_label_value(value) {
            faults.push(format!("{field}: value {value:?} is not a label value"));
        }
    }
    let mut seen = BTreeSet::new();
    for (field, list) in [
        ("taints", template.spec.taints()),
        ("startupTaints", template.spec.startup_taints()),
    ] {
        for (at, taint) in list.iter().enumerate() {
            let field = format!("spec.template.spec.{field}[{at}]");
            faults.extend(
                taint_faults(taint)
                    .into_iter()
                    .map(|fault| format!("{field}: {fault}")),
            );
            if !seen.insert((&taint.key, &taint.effect)) {
                faults.push(format!(
                    "{field}: taint {} is there twice, in taints and startupTaints together",
                    taints::text(taint)
                ));
            }
        }
    }
    for (at, requirement) in template.spec.requirements.iter().enumerate() {
        let field = format!("spec.template.spec.requirements[{at}]");
        faults.extend(
            requirement_faults(requirement, well_known)
                .into_iter()
                .map(|fault| format!("{field}: {fault}")),
        );
    }
    faults
}

fn key_fault(key: &str, well_known: &WellKnown) -> Option<String> {
    if key == labels::NODEPOOL {
        return Some(format!("key {key} is set by the autoscaler"));
    }
    if !is_qualified_name(key) {
        return Some(format!(
            "key {key:?} is not a qualified name (prefix/name of letters, digits, '-', '_' and '.')"
        ));
    }
    if well_known.is_restricted(key) {
        let allowed: Vec<&str> = well_known.keys().map(|known| &**known).collect();
        let meant = nearest(key, allowed)
            .map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        return Some(format!("key {key} is reserved{meant}"));
    }
    None
}

fn taint_faults(taint: &Taint) -> Vec<String> {
    let mut faults = Vec::new();
    if !is_qualified_name(&taint.key) {
        faults.push(format!("key {:?} is not a qualified name", taint.key));
    }
    if let Some(value) = taint.value.as_ref().filter(|value| !is_label_value(value)) {
        faults.push(format!("value {value:?} is not a label value"));
    }
    let effects = [
        taints::NO_SCHEDULE,
        taints::PREFER_NO_SCHEDULE,
        taints::NO_EXECUTE,
    ];
    if !taint.effect.is_empty() && !effects.contains(&taint.effect.as_str()) {
        let meant = nearest(&taint.effect, effects)
            .map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        faults.push(format!(
            "effect {:?} is not one of {}{meant}",
            taint.effect,
            effects.join(", ")
        ));
    }
    faults
}

fn requirement_faults(requirement: &RequirementSpec, well_known: &WellKnown) -> Vec<String> {
    let RequirementSpec {
        key,
        operator,
        min_values,
        ..
    } = requirement;
    let values = requirement.values();
    let mut faults: Vec<String> = key_fault(labels::normalize(key), well_known)
        .into_iter()
        .collect();
    for value in values.iter().filter(|value| !is_label_value(value)) {
        faults.push(format!("value {value:?} of {key} is not a label value"));
    }
    let Ok(operator) = operator.parse::<Operator>() else {
        let all = Operator::ALL.map(Operator::as_str);
        let meant = nearest(operator, all)
            .map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        faults.push(format!(
            "operator {operator:?} of {key} is not one of {}{meant}",
            all.join(", ")
        ));
        return faults;
    };
    match operator {
        Operator::In if values.is_empty() => {
            faults.push(format!("operator In of {key} needs at least one value"))
        }
        Operator::In => {
            if let Some(min) =
                min_values.filter(|min| usize::try_from(*min).is_ok_and(|min| values.len() < min))
            {
                faults.push(format!(
                    "minValues {min} of {key} is more than its {} values",
                    values.len()
                ));
            }
            let bought = [
                labels::CAPACITY_TYPE_ON_DEMAND,
                labels::CAPACITY_TYPE_SPOT,
                labels::CAPACITY_TYPE_RESERVED,
            ];
            if key == labels::CAPACITY_TYPE
                && !values.iter().any(|value| bought.contains(&value.as_str()))
            {
                faults.push(format!(
                    "values {values:?} of {key} have none of {}",
                    bought.join(", ")
                ));
            }
        }
        Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
            if !matches!(values, [one] if one.parse::<i64>().is_ok_and(|bound| bound >= 0)) {
                faults.push(format!(
                    "operator {} of {key} needs exactly one integer of 0 or more, not {values:?}",
                    operator.as_str()
                ));
            }
        }
        Operator::NotIn | Operator::Exists | Operator::DoesNotExist => {}
    }
    faults
}

/// Letters and digits at both ends, `-`, `_` and `.` between, 1 to 63 characters.
fn is_name(text: &str) -> bool {
    let ends = |at: Option<char>| at.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= MAX_NAME
        && ends(text.chars().next())
        && ends(text.chars().last())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// A label value: empty, or a name.
fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// A label key: a name, with a DNS domain and a slash before it or not.
fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_domain(domain) && is_name(name),
        None => is_name(key),
    }
}

/// Lower-case DNS labels joined by dots.
fn is_domain(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(inner)
    };
    text.len() <= MAX_PREFIX && text.split('.').all(label)
}
