//! Requirements against what can be bought.

use std::collections::BTreeSet;

use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_state::catalog::{Catalog, EliminatingRequirement};

use super::super::text::{count, did_you_mean, first_of, without_domain};
use super::{AdmissionContext, AdmissionResult, Check};

/// Resource names without a domain that a node can have.
const RESOURCES: [&str; 5] = ["cpu", "memory", "ephemeral-storage", "pods", "nodes"];

/// Most values of a requirement that are said to be unknown: the rest is as wrong, and each is compared with all known ones.
const MOST_UNKNOWN: usize = 20;

/// Values that no type has, keys that no type has but one nearly, requirements that leave nothing, minValues out of reach.
pub(super) fn check_requirements(
    context: &AdmissionContext<'_>,
    pool: &NodePool,
    answer: &mut AdmissionResult,
) {
    for name in pool.spec.limits.iter().flatten().map(|(name, _)| name) {
        if answer.is_full() {
            return;
        }
        let known = RESOURCES.contains(&name.as_str());
        if !known && !name.contains('/') && !name.starts_with("hugepages-") {
            answer.warn(
                Check::Limits,
                format!("spec.limits.{name}"),
                format!(
                    "limits.{name}: no node has this resource, so it has no effect{}",
                    did_you_mean(name, RESOURCES)
                ),
            );
        }
    }
    let snapshot = context.snapshot;
    let key = pool.node_class_key();
    // A class that does not exist yet has no catalogue; one of its kind tells the same names.
    let same_kind = || {
        let mut of_kind = snapshot
            .catalogs
            .iter()
            .filter(|(known, _)| known.kind == key.kind && known.group == key.group);
        of_kind.next().map(|(_, catalog)| catalog)
    };
    let Some(catalog) = snapshot.catalog_of(pool).or_else(same_kind) else {
        return;
    };
    let requirements = pool.requirements();
    for requirement in requirements.iter() {
        for text in unknown_values(catalog, &snapshot.well_known, requirement) {
            answer.warn(Check::Catalog, field_path(pool, requirement.key()), text);
        }
    }
    match catalog.eliminating_requirement(&requirements) {
        Some(blame) => {
            let (path, text) = (
                field_path(pool, blame.requirement.key()),
                unsatisfiable_text(&blame),
            );
            if context.rules.deny_unsatisfiable {
                answer.deny(Check::Unsatisfiable, path, text);
            } else {
                answer.warn(Check::Unsatisfiable, path, text);
            }
        }
        None => check_min_values(catalog, pool, &requirements, answer),
    }
}

/// Where a pool asks for a label: in a requirement, or as a label of the template.
fn field_path(pool: &NodePool, key: &str) -> String {
    let template = &pool.spec.template;
    let asked = template.spec.requirements.iter();
    let found = asked
        .enumerate()
        .find(|(_, each)| labels::normalize(&each.key) == key);
    match found {
        Some((n, _)) => format!("spec.template.spec.requirements[{n}]"),
        None if template
            .labels()
            .is_some_and(|labels| labels.contains_key(key)) =>
        {
            format!("spec.template.metadata.labels[{key:?}]")
        }
        None => "spec.template.spec.requirements".to_owned(),
    }
}

/// What no instance type has, of one requirement.
pub(super) fn unknown_values(
    catalog: &Catalog,
    well_known: &WellKnown,
    requirement: &Requirement,
) -> Vec<String> {
    let key = requirement.key();
    if key == labels::NODEPOOL {
        return Vec::new();
    }
    if !well_known.contains(key) {
        let known: Vec<&str> = well_known.keys().map(|known| &**known).collect();
        let hint = did_you_mean(key, known);
        if hint.is_empty() {
            return Vec::new(); // a label of the user's own
        }
        return vec![format!("\"{key}\" is no label of instance types{hint}")];
    }
    let listed = match requirement.operator() {
        Operator::In => "no instance type has",
        // Bounds and Exists report NotIn too when values are excluded.
        Operator::NotIn => "nothing to exclude: no instance type has",
        _ => return Vec::new(),
    };
    if catalog.values_of(key).next().is_none() {
        return Vec::new();
    }
    let known: BTreeSet<&str> = catalog.values_of(key).map(AsRef::as_ref).collect();
    requirement
        .values()
        .iter()
        .filter(|value| !known.contains(AsRef::<str>::as_ref(value)))
        .take(MOST_UNKNOWN)
        .map(|value| {
            let hint = did_you_mean(value, catalog.values_of(key));
            let hint = if hint.is_empty() {
                known_values_text(catalog, key)
            } else {
                hint
            };
            format!("{}: {listed} \"{value}\"{hint}", without_domain(key))
        })
        .collect()
}

/// The values themselves, where they are few.
fn known_values_text(catalog: &Catalog, key: &str) -> String {
    if catalog.values_of(key).nth(5).is_some() {
        return String::new();
    }
    format!("; there is {}", first_of(catalog.values_of(key), 5))
}

/// `arch In [arm64]`, with the first values only.
fn requirement_text(requirement: &Requirement) -> String {
    let key = without_domain(requirement.key());
    let bounds = [
        (requirement.at_least(), ">="),
        (requirement.at_most(), "<="),
    ];
    let bounds: Vec<String> = bounds
        .iter()
        .filter_map(|(bound, sign)| bound.map(|bound| format!("{sign}{bound}")))
        .collect();
    if !bounds.is_empty() {
        return format!("{key} {}", bounds.join(" "));
    }
    let operator = requirement.operator().as_str();
    if requirement.values().is_empty() {
        return format!("{key} {operator}");
    }
    format!("{key} {operator} [{}]", first_of(requirement.values(), 2))
}

fn unsatisfiable_text(blame: &EliminatingRequirement) -> String {
    let EliminatingRequirement {
        requirement,
        before,
        total,
        only_together,
        back,
    } = blame;
    let back: Vec<String> = back
        .iter()
        .map(|(value, types)| format!("\"{value}\" ({types})"))
        .collect();
    let back = match back.as_slice() {
        [] => String::new(),
        [only] => format!("; {only} would allow some"),
        several => format!("; {} would allow some", several.join(" or ")),
    };
    let requirement = requirement_text(requirement);
    if *only_together {
        return format!(
            "no instance type is left: {} offered, but none with {requirement} and the other requirements{back}",
            count(*before, "type")
        );
    }
    format!("no instance type is left: {requirement} removes the last {before} of {total}{back}")
}

fn check_min_values(
    catalog: &Catalog,
    pool: &NodePool,
    requirements: &Requirements,
    answer: &mut AdmissionResult,
) {
    if !requirements.has_min_values() {
        return;
    }
    for requirement in requirements.iter() {
        let Some(least) = requirement
            .min_values()
            .and_then(|least| usize::try_from(least).ok())
        else {
            continue;
        };
        let Some(left) = catalog.values_left(requirement.key(), requirements) else {
            continue;
        };
        if left < least {
            answer.warn(Check::MinValues, field_path(pool, requirement.key()), format!(
                "minValues {least} of {}: the requirements leave {}, so nothing is launched; lower it to {left}",
                without_domain(requirement.key()),
                count(left, "value")
            ));
        }
    }
}
