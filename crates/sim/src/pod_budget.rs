//! Arithmetic of PodDisruptionBudgets, as the disruption controller does it.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use mortise_apis::k8s::PodDisruptionBudget;

/// How many of the expected pods must be healthy; may be negative.
pub(crate) fn desired_healthy(budget: &PodDisruptionBudget, expected: i32) -> i32 {
    let spec = &budget.spec;
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => expected - scaled(most, expected),
        (None, Some(least)) => scaled(least, expected),
        (None, None) => expected,
    }
}

/// A number, or a percentage of all pods, rounded up.
fn scaled(amount: &IntOrString, all: i32) -> i32 {
    match amount {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(0);
            (all.saturating_mul(percent).saturating_add(99)) / 100
        }
    }
}
