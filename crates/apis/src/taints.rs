//! Taints and tolerations.

use k8s_openapi::api::core::v1::{Taint, Toleration};

use crate::labels;

/// Effect: new pods are not scheduled.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// Effect: new pods go elsewhere if they can.
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
/// Effect: new pods are not scheduled and running ones are evicted.
pub const NO_EXECUTE: &str = "NoExecute";

fn value(text: Option<&String>) -> &str {
    text.map_or("", String::as_str)
}

/// Whether the toleration covers the taint. Unknown operators cover nothing.
///
/// # Source
/// Kubernetes 1.36, with the numeric operators `Gt` and `Lt`.
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    if toleration
        .effect
        .as_ref()
        .is_some_and(|effect| !effect.is_empty() && *effect != taint.effect)
    {
        return false;
    }
    if toleration
        .key
        .as_ref()
        .is_some_and(|key| !key.is_empty() && *key != taint.key)
    {
        return false;
    }
    let (ours, theirs) = (
        value(toleration.value.as_ref()),
        value(taint.value.as_ref()),
    );
    match value(toleration.operator.as_ref()) {
        "" | "Equal" => ours == theirs,
        "Exists" => true,
        "Gt" => integer(theirs)
            .zip(integer(ours))
            .is_some_and(|(taint, bound)| taint > bound),
        "Lt" => integer(theirs)
            .zip(integer(ours))
            .is_some_and(|(taint, bound)| taint < bound),
        _ => false,
    }
}

/// A decimal integer without plus sign or leading zeros, as the API requires for comparisons.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let tidy = digits == "0" || digits.starts_with(|c: char| matches!(c, '1'..='9'));
    if tidy { text.parse().ok() } else { None }
}

/// The taints that keep a pod away: those with effect NoSchedule or NoExecute (and PreferNoSchedule, which the caller may
/// add a toleration for) that no toleration covers, in the order of the taints.
pub fn untolerated<'a>(
    taints: impl IntoIterator<Item = &'a Taint>,
    tolerations: &[Toleration],
) -> impl Iterator<Item = &'a Taint> {
    taints.into_iter().filter(move |taint| {
        !tolerations
            .iter()
            .any(|toleration| tolerates(toleration, taint))
    })
}

/// The text in which events name a taint: `key=value:effect`.
#[must_use]
pub fn text(taint: &Taint) -> String {
    match value(taint.value.as_ref()) {
        "" => format!("{}:{}", taint.key, taint.effect),
        value => format!("{}={value}:{}", taint.key, taint.effect),
    }
}

/// Text of events about a taint that is not tolerated.
#[must_use]
pub fn not_tolerated(taint: &Taint) -> String {
    format!("did not tolerate taint (taint={})", text(taint))
}

/// Whether two taints are the same to the scheduler: key and effect.
#[must_use]
pub fn matches(a: &Taint, b: &Taint) -> bool {
    a.key == b.key && a.effect == b.effect
}

/// All of `taints`, and those of `more` that match none of them, in order.
#[must_use]
pub fn merge(taints: &[Taint], more: &[Taint]) -> Vec<Taint> {
    let mut merged = taints.to_vec();
    for taint in more {
        if !merged.iter().any(|there| matches(there, taint)) {
            merged.push(taint.clone());
        }
    }
    merged
}

/// Whether a starting node has the taint for a while by itself, so that it does not count against pods before Initialized.
#[must_use]
pub fn is_ephemeral(taint: &Taint) -> bool {
    matches!(
        (taint.key.as_str(), taint.effect.as_str()),
        (labels::NOT_READY_TAINT, NO_SCHEDULE | NO_EXECUTE)
            | (
                labels::UNREACHABLE_TAINT | labels::CLOUD_UNINITIALIZED_TAINT,
                NO_SCHEDULE
            )
            | (labels::UNREGISTERED_TAINT, NO_EXECUTE)
    ) || taint.key.starts_with(labels::READINESS_TAINT_PREFIX)
}

/// The taint on a node that was chosen for disruption or is terminating.
#[must_use]
pub fn disrupted() -> Taint {
    Taint {
        key: labels::DISRUPTED_TAINT.to_owned(),
        effect: NO_SCHEDULE.to_owned(),
        ..Taint::default()
    }
}

/// Whether the taint of disrupted nodes is among these.
#[must_use]
pub fn has_disrupted(taints: &[Taint]) -> bool {
    let mut all = taints.iter();
    all.any(|taint| taint.key == labels::DISRUPTED_TAINT)
}

/// The taint that a node is born with and loses at registration.
#[must_use]
pub fn unregistered() -> Taint {
    Taint {
        key: labels::UNREGISTERED_TAINT.to_owned(),
        effect: NO_EXECUTE.to_owned(),
        ..Taint::default()
    }
}
