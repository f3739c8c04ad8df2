//! Creating the NodeClaim of a plan.

use std::sync::Arc;

use serde_json::json;

use mortise_apis::labels;
use mortise_apis::names::{ClaimName, ObjectRef};
use mortise_apis::values::{SplitMix64, fnv1a};
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Effect;
use mortise_engine::record::Verdict;
use mortise_planning::reason::Reason;
use mortise_planning::scheduling::PlannedClaim;

/// Names of NodeClaims, drawn from the seed of a step.
pub(super) struct ClaimNames(SplitMix64);

impl ClaimNames {
    pub(super) const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    fn next(&mut self, pool: &str, input: &StepInput<'_>) -> ClaimName {
        loop {
            let suffix = self.0.next_u64() & 0xf_ffff;
            let name = ClaimName::from(format!("{pool}-{suffix:05x}"));
            let is_expected = input.snapshot.ledger.expected_claims().contains_key(&name);
            if !input.snapshot.claims.contains(&*name) && !is_expected {
                return name;
            }
        }
    }
}

/// Creates the NodeClaim; `None` if its NodePool is gone.
pub(super) fn create(
    planned: &PlannedClaim,
    names: &mut ClaimNames,
    by: DeciderId,
    input: &StepInput<'_>,
    step: &mut Step,
) -> Option<ClaimName> {
    let pool = input.snapshot.pools.get(&planned.pool)?;
    let name = names.next(&planned.pool, input);
    let mut claim = planned.to_claim(&name, pool, input.now);
    let annotations = claim.metadata.annotations.get_or_insert_default();
    let intent = fnv1a(format!("{name} {} {}", input.now, input.seed).bytes());
    annotations.insert(labels::INTENT.to_owned(), format!("{intent:016x}"));
    let most = json!(planned.most.to_api()).to_string();
    annotations.insert(labels::PLANNED_CAPACITY.to_owned(), most);
    step.record(
        input,
        by,
        ObjectRef::Claim(name.clone()),
        Verdict::NodePlanned,
        vec![Reason::FromPool {
            pool: planned.pool.clone(),
        }],
    );
    step.effect(Effect::CreateClaim(Arc::new(claim)));
    Some(name)
}
