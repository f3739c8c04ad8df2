//! Labels and values of requirements that no instance type has.

use std::collections::BTreeSet;

use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Operator, Requirement};
use mortise_state::catalog::Catalog;
use mortise_state::snapshot::Snapshot;

use super::super::text::{did_you_mean, first_of, without_domain};
use super::{AdmissionContext, AdmissionResult, Check, PoolRequest};

/// Most values of a requirement that are said to be unknown: the rest is as wrong, and each is compared with all known ones.
const MOST_UNKNOWN: usize = 20;

/// Values that no type has, and keys that no type has but one nearly.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    request: &PoolRequest<'_>,
    answer: &mut AdmissionResult,
) {
    let pool = request.pool;
    let Some(catalog) = catalog_of(context.snapshot, pool) else {
        return;
    };
    for requirement in pool.requirements().iter() {
        for unknown in unknown_values(catalog, &context.snapshot.well_known, requirement) {
            let field = field_path(pool, requirement.key());
            answer.warn(Check::Catalog, field, unknown.problem, unknown.hint);
        }
    }
}

/// The instance types that a pool can use. A class that does not exist yet has no catalog; one of its kind tells the same
/// names.
pub(super) fn catalog_of<'a>(snapshot: &'a Snapshot, pool: &NodePool) -> Option<&'a Catalog> {
    let key = pool.node_class_key();
    let same_kind = || {
        let mut of_kind = snapshot
            .catalogs
            .iter()
            .filter(|(known, _)| known.kind == key.kind && known.group == key.group);
        of_kind.next().map(|(_, catalog)| catalog)
    };
    snapshot
        .catalog_of(pool)
        .or_else(same_kind)
        .map(|found| &**found)
}

/// Where a pool asks for a label: in a requirement, or as a label of the template.
pub(super) fn field_path(pool: &NodePool, key: &str) -> String {
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

/// A label or value that no instance type has, and the nearest one that exists.
pub(super) struct UnknownValue {
    pub(super) problem: String,
    pub(super) hint: String,
}

/// What no instance type has, of one requirement.
pub(super) fn unknown_values(
    catalog: &Catalog,
    well_known: &WellKnown,
    requirement: &Requirement,
) -> Vec<UnknownValue> {
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
        return vec![UnknownValue {
            problem: format!("\"{key}\" is no label of instance types"),
            hint,
        }];
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
            UnknownValue {
                problem: format!("{}: {listed} \"{value}\"", without_domain(key)),
                hint,
            }
        })
        .collect()
}

/// The values themselves, where they are few.
fn known_values_text(catalog: &Catalog, key: &str) -> String {
    if catalog.values_of(key).nth(5).is_some() {
        return String::new();
    }
    format!("there is {}", first_of(catalog.values_of(key), 5))
}
