//! NodeClaims that differ in nothing a launch depends on, and the tokens of calls that launch them together.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hash};
use std::sync::Arc;

use foldhash::fast::FixedState;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_cloudprovider::LaunchWindow;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::effect::Effect;
use mortise_planning::settings::Settings;

/// All that a launch depends on, as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaunchShape(Arc<str>);

impl LaunchShape {
    pub(crate) fn of(claim: &NodeClaim) -> Self {
        let spec = &claim.spec;
        let parts = (
            claim.metadata.labels.as_ref(),
            &spec.node_class_ref,
            &spec.requirements,
            spec.resources.as_ref(),
            spec.taints(),
            spec.startup_taints(),
            claim.annotation(labels::PRICE_OVERLAY_APPLIED),
            claim.annotation(labels::MIN_VALUES_RELAXED),
        );
        // One that cannot be written down is like no other.
        let text = serde_json::to_string(&parts).unwrap_or_else(|_| claim.name().to_string());
        Self(text.into())
    }
}

/// How long launches of a NodeClaim's class wait for others; `None`: its provider makes each by a call of its own.
pub(crate) fn window(settings: &Settings, claim: &NodeClaim) -> Option<LaunchWindow> {
    let class = claim.node_class_key();
    let mut all = settings.launch_batching.iter();
    all.find(|each| each.serves.covers(&class))
        .map(|each| each.window)
}

/// A token that no other call has, if nothing else is made of the same parts.
pub(crate) fn token(parts: impl Hash) -> Arc<str> {
    let half = |seed: u64| FixedState::with_seed(seed).hash_one(&parts);
    format!("batch-{:016x}{:016x}", half(5), half(6)).into()
}

/// Gives the NodeClaims of one shape that a step creates a common token, so that they are launched by one call. One that is alone in
/// its shape gets none.
pub(crate) fn batch_new_claims(input: &StepInput<'_>, step: &mut Step) {
    if input.settings.launch_batching.is_empty() {
        return;
    }
    let mut by_shape: BTreeMap<LaunchShape, Vec<&mut Arc<NodeClaim>>> = BTreeMap::new();
    for effect in &mut step.effects {
        if let Effect::CreateClaim(claim) = effect
            && window(input.settings, claim).is_some()
        {
            by_shape
                .entry(LaunchShape::of(claim))
                .or_default()
                .push(claim);
        }
    }
    for claims in by_shape.into_values() {
        let most = claims
            .first()
            .and_then(|claim| window(input.settings, claim));
        let most = most.map_or(1, |window| window.most.max(1));
        let mut rest = claims;
        while rest.len() > 1 {
            let later = rest.split_off(rest.len().min(most));
            let names: Vec<_> = rest.iter().map(|claim| claim.name()).collect();
            let token = token((input.seed, input.now.as_nanosecond(), names));
            for claim in rest {
                let claim = Arc::make_mut(claim);
                let annotations = claim.metadata.annotations.get_or_insert_default();
                annotations.insert(labels::LAUNCH_BATCH.to_owned(), token.to_string());
            }
            rest = later;
        }
    }
}
