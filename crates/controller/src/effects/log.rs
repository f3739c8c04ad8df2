//! One log line per effect: what was changed at info, what was tried at debug; facts in fields, never objects.

use std::time::Duration;

use mortise_cloudprovider::LaunchError;
use mortise_engine::effect::{Effect, EffectError, EffectOutput};
use mortise_engine::engine::EffectRequest;

pub(super) fn effect(
    order: &EffectRequest,
    result: &Result<EffectOutput, EffectError>,
    took: Duration,
) {
    let by = super::by(order.decider);
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    match (&*order.effect, result) {
        (Effect::CreateClaim(claim), Ok(_)) => {
            let pool = claim
                .pool()
                .map(|pool| pool.to_string())
                .unwrap_or_default();
            let requests = claim.spec.requests().map(|requests| {
                requests
                    .iter()
                    .map(|(name, amount)| format!("{name}={}", amount.0))
                    .collect::<Vec<_>>()
                    .join(",")
            });
            let types = claim
                .spec
                .requirements
                .iter()
                .find(|each| each.key == mortise_apis::labels::INSTANCE_TYPE)
                .map_or(0, |each| each.values().len());
            tracing::info!(by, nodeclaim = %claim.name(), nodepool = pool, requests, instance_types = types, ms, "created nodeclaim");
        }
        (Effect::Launch(request), Ok(EffectOutput::Launched(launched))) => {
            let label = |key: &str| launched.labels.get(key).map_or("", String::as_str);
            tracing::info!(
                by,
                nodeclaim = %request.claim.name(),
                provider_id = %launched.provider_id,
                instance_type = label(mortise_apis::labels::INSTANCE_TYPE),
                zone = label(mortise_apis::labels::TOPOLOGY_ZONE),
                capacity_type = label(mortise_apis::labels::CAPACITY_TYPE),
                ms,
                "launched"
            );
        }
        (
            Effect::Launch(request),
            Err(EffectError::Launch(LaunchError::InsufficientCapacity {
                message,
                unavailable,
                ..
            })),
        ) => {
            tracing::warn!(by, nodeclaim = %request.claim.name(), offerings = unavailable.len(), error = message, ms, "no capacity to launch");
        }
        (
            Effect::Terminate {
                provider_id, claim, ..
            },
            Ok(EffectOutput::Terminated(state)),
        ) => {
            tracing::info!(by, nodeclaim = %claim, %provider_id, state = ?state, ms, "terminated");
        }
        (Effect::Delete { target, .. }, Ok(_)) => {
            tracing::info!(by, kind = target.kind(), object = %target, ms, "deleted")
        }
        (Effect::Evict { pod, .. }, Ok(_)) => tracing::info!(by, %pod, ms, "evicted"),
        // A budget that says "not now" is the normal course of a drain.
        (Effect::Evict { pod, .. }, Err(EffectError::Blocked(_))) => {
            tracing::debug!(by, %pod, ms, "eviction blocked by PodDisruptionBudget")
        }
        (Effect::Write(write), Ok(_)) => {
            tracing::debug!(by, object = %write.target, edit = write.edit.kind().label(), ms, "patched")
        }
        (effect, Ok(_)) => tracing::debug!(by, effect = effect.label(), ms, "effect completed"),
        (effect, Err(error @ (EffectError::Conflict(_) | EffectError::NotFound(_)))) => {
            tracing::debug!(by, effect = effect.label(), object = object(effect), %error, ms, "effect failed, will be retried by the next step");
        }
        (effect, Err(error)) => {
            tracing::warn!(by, effect = effect.label(), object = object(effect), %error, ms, "effect failed")
        }
    }
}

fn object(effect: &Effect) -> String {
    effect
        .target()
        .map(|target| target.to_string())
        .unwrap_or_default()
}
