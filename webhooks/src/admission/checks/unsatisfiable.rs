//! Requirements that leave no instance type.

use mortise_apis::requirements::Requirement;
use mortise_state::catalog::EliminatingRequirement;

use super::super::text::{WARNING_MAX, count, first_of, without_domain};
use super::catalog::{catalog_of, field_path};
use super::{AdmissionContext, AdmissionResult, Check, PoolRequest};

/// Names the requirement that removes the last instance types.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    request: &PoolRequest<'_>,
    answer: &mut AdmissionResult,
) {
    let pool = request.pool;
    let Some(blame) = catalog_of(context.snapshot, pool)
        .and_then(|catalog| catalog.eliminating_requirement(&pool.requirements()))
    else {
        return;
    };
    let field = field_path(pool, blame.requirement.key());
    let (problem, fix) = unsatisfiable_text(&blame);
    if context.rules.deny_unsatisfiable {
        answer.deny(Check::Unsatisfiable, field, problem, fix);
    } else {
        answer.warn(Check::Unsatisfiable, field, problem, fix);
    }
}

/// What is wrong, and what to do.
fn unsatisfiable_text(blame: &EliminatingRequirement) -> (String, String) {
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
    let requirement = requirement_text(requirement);
    let problem = if *only_together {
        format!(
            "no instance type is left: {} offered, but none with {requirement} and the other requirements",
            count(*before, "type")
        )
    } else {
        format!("no instance type is left: {requirement} removes the last {before} of {total}")
    };
    let alternatives = |back: &[String]| match back {
        [] => String::new(),
        some => format!("{} would allow some", some.join(" or ")),
    };
    let fix = alternatives(&back);
    if problem.chars().count() + "; ".len() + fix.chars().count() <= WARNING_MAX {
        return (problem, fix);
    }
    let first = back.get(..1).unwrap_or_default();
    (problem, alternatives(first))
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
