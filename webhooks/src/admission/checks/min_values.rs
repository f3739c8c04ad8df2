//! `minValues` out of reach.

use super::super::text::{count, without_domain};
use super::catalog::{catalog_of, field_path};
use super::{AdmissionContext, AdmissionResult, Check, PoolRequest};

/// Compares `minValues` with the values that the requirements leave.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    request: &PoolRequest<'_>,
    answer: &mut AdmissionResult,
) {
    let pool = request.pool;
    let requirements = pool.requirements();
    if !requirements.has_min_values() {
        return;
    }
    let Some(catalog) = catalog_of(context.snapshot, pool) else {
        return;
    };
    // Nothing is left at all: that is said by its own check.
    if catalog.eliminating_requirement(&requirements).is_some() {
        return;
    }
    for requirement in requirements.iter() {
        let Some(least) = requirement
            .min_values()
            .and_then(|least| usize::try_from(least).ok())
        else {
            continue;
        };
        let Some(left) = catalog.values_left(requirement.key(), &requirements) else {
            continue;
        };
        if left < least {
            answer.warn(
                Check::MinValues,
                field_path(pool, requirement.key()),
                format!(
                    "minValues {least} of {}: the requirements leave {}, so nothing is launched",
                    without_domain(requirement.key()),
                    count(left, "value")
                ),
                format!("lower it to {left}"),
            );
        }
    }
}
