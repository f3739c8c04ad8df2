//! A number of pods, or a share of them.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A number, or a percentage of all pods, rounded up, as the disruption controller does.
pub(crate) fn scaled(amount: &IntOrString, all: i32) -> i32 {
    match amount {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(0);
            (all.saturating_mul(percent).saturating_add(99)) / 100
        }
    }
}
