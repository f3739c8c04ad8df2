//! Turning a planned claim into effects: its name, its annotations, and the nominations that hold before it exists.

use std::collections::BTreeSet;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::fast::FixedState;
use serde_json::json;

use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::names::{ClaimName, ObjectRef, PodKey};
use mortise_apis::values::{GoDuration, NillableDuration, SplitMix64, after};
use mortise_apis::{DurationText, labels};
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::effect::Effect;
use mortise_planning::disruption::rest::next_in_a_row;
use mortise_planning::reason::Reason;
use mortise_planning::scheduling::PlannedClaim;
use mortise_state::ledger::{LedgerOp, NominationTarget};
use mortise_state::overlays;
use mortise_state::snapshot::Snapshot;

/// Letters of the random part of a name: no vowels (no words), and none that are taken for one another.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Most characters of the pool's name in a claim's name. Node names may become host names, which end at 63 characters.
const PREFIX: usize = 57;

/// Most pods that the annotation of a claim lists: 300 UIDs are 11 kB. Pods beyond are nominated in memory only.
const MAX_ANNOTATED: usize = 300;

/// Most pods that a record lists.
const MAX_RECORDED: usize = 20;

/// Chooses names that no claim has.
#[derive(Clone, Debug)]
pub(crate) struct NameGenerator {
    random: SplitMix64,
    used: BTreeSet<ClaimName>,
}

impl NameGenerator {
    /// Names that follow from the seed of a step.
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            random: SplitMix64::new(seed),
            used: BTreeSet::new(),
        }
    }

    /// A name that begins with the pool's.
    pub(crate) fn claim(&mut self, pool: &str, snapshot: &Snapshot) -> ClaimName {
        let prefix: String = pool.chars().take(PREFIX).collect();
        loop {
            let mut rest = self.random.next_u64();
            let suffix: String = (0..5)
                .map(|_| {
                    let letters = LETTERS.len() as u64;
                    let at = usize::try_from(rest % letters).unwrap_or(0);
                    rest /= letters;
                    LETTERS.get(at).map_or('b', |letter| char::from(*letter))
                })
                .collect();
            let name = ClaimName::from(format!("{prefix}-{suffix}"));
            let taken = snapshot.claims.contains(&*name)
                || snapshot
                    .foreign
                    .contains_key(&ObjectRef::Claim(name.clone()))
                || snapshot.ledger.expected_claims().contains_key(&name)
                || !self.used.insert(name.clone());
            if !taken {
                return name;
            }
        }
    }
}

/// A claim about to be made.
pub(crate) struct NodeClaimRequest<'a> {
    /// Its plan.
    pub(crate) planned: &'a PlannedClaim,
    /// Its pool.
    pub(crate) pool: &'a NodePool,
    /// Its name.
    pub(crate) name: ClaimName,
    /// Claims that it replaces. May be empty.
    pub(crate) replaces: &'a [ClaimName],
}

impl NodeClaimRequest<'_> {
    /// Asks for the claim: nominates its pods to it, and creates it with that and with what it may use written on it,
    /// so that every replica and a restarted process know.
    pub(crate) fn order(&self, input: &StepInput<'_>, step: &mut Step) {
        let Self {
            planned,
            pool,
            name,
            replaces,
        } = self;
        let now = input.now;
        let mut claim = planned.to_claim(name, pool, now);
        let percent = input.settings.expiration_jitter_percent;
        if let Some(own) = claim.spec.expire_after.as_mut() {
            *own = spread(own, name, percent);
        }
        let annotations = claim.metadata.annotations.get_or_insert_default();
        // Virtual pods are nominated nowhere: nothing waits for them, and room for them never keeps a pod out.
        let uids: Vec<&str> = planned
            .real_pods()
            .take(MAX_ANNOTATED)
            .map(|pod| pod.uid.as_str())
            .collect();
        if !uids.is_empty() {
            annotations.insert(labels::NOMINATED_PODS.to_owned(), uids.join(","));
        }
        for key in overlays::annotations(input.snapshot, pool, &planned.instance_types) {
            annotations.insert(key.to_owned(), "true".to_owned());
        }
        if !replaces.is_empty() {
            let names: Vec<&str> = replaces.iter().map(ClaimName::as_str).collect();
            annotations.insert(labels::REPLACES.to_owned(), names.join(","));
            let replaced = replaces
                .iter()
                .filter_map(|name| input.snapshot.claims.get(name));
            let in_a_row = next_in_a_row(replaced.map(|claim| &**claim), now);
            if in_a_row > 1 {
                annotations.insert(
                    labels::REPLACEMENTS_IN_A_ROW.to_owned(),
                    in_a_row.to_string(),
                );
            }
        }
        let intent = (name, now.as_nanosecond(), &uids);
        let intent = FixedState::with_seed(input.seed).hash_one(intent);
        annotations.insert(labels::INTENT.to_owned(), format!("{intent:016x}"));
        // What counts against limits from the moment at which the engine lets the claim pass.
        let most = json!(planned.most.to_api()).to_string();
        annotations.insert(labels::PLANNED_CAPACITY.to_owned(), most);
        let until = after(now, input.settings.registration_timeout_ms);
        for pod in planned.real_pods() {
            let target = NominationTarget::Claim(name.clone());
            let nomination = pod.nomination(target, now, until);
            step.ledger.push(LedgerOp::Nominate(nomination));
        }
        step.effect(Effect::CreateClaim(Arc::new(claim)));
    }

    /// Why it is made, for its record.
    pub(crate) fn reasons(&self) -> Vec<Reason> {
        let mut reasons = vec![
            for_pods(self.planned.pods.iter().map(|pod| &pod.key)),
            Reason::FromPool {
                pool: self.planned.pool.clone(),
            },
        ];
        if let Some(cheapest) = &self.planned.cheapest {
            reasons.push(Reason::Offering {
                instance_type: cheapest.instance_type.to_string(),
                zone: cheapest.zone.to_string(),
                capacity_type: cheapest.capacity_type.to_string(),
                price: cheapest.price,
            });
            if let Some(by) = &self.planned.paid_by {
                reasons.push(Reason::PaidInAdvance {
                    policy: Arc::clone(&by.policy),
                    commitment: Arc::clone(&by.name),
                });
            }
            reasons.push(Reason::Price {
                old: None,
                new: cheapest.price,
            });
        }
        reasons
    }
}

/// A claim's own `expireAfter`: the pool's less up to `percent` of it, in whole seconds, so that nodes that were made
/// together do not end together. It is the same for the same name. What is `Never` or cannot be read stays as it is.
fn spread(of_pool: &DurationText, name: &ClaimName, percent: u32) -> DurationText {
    let parsed = NillableDuration::parse(of_pool.as_str()).ok();
    let Some(most) = parsed
        .and_then(|all| all.duration())
        .map(GoDuration::as_secs)
    else {
        return of_pool.clone();
    };
    let widest = i128::from(most) * i128::from(percent) / 100;
    // The upper half of the hash as a part of the whole.
    let part = i128::from(FixedState::default().hash_one(name.as_str()) >> 32);
    let sooner = i64::try_from(((widest + 1) * part) >> 32).unwrap_or(0);
    if sooner <= 0 {
        return of_pool.clone();
    }
    DurationText(GoDuration::from_secs(most - sooner).to_string())
}

/// Pods of a record, cut to a readable number.
pub(crate) fn for_pods<'a>(pods: impl Iterator<Item = &'a PodKey>) -> Reason {
    let all: Vec<&PodKey> = pods.collect();
    Reason::ForPods {
        more: all.len().saturating_sub(MAX_RECORDED),
        pods: all.into_iter().take(MAX_RECORDED).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::cluster;

    fn ends(of_pool: &str, percent: u32) -> Vec<String> {
        let mut namer = NameGenerator::new(1);
        let snapshot = cluster().snapshot();
        let names = (0..1_000).map(|_| namer.claim("general", &snapshot));
        names
            .map(|name| spread(&of_pool.into(), &name, percent).0)
            .collect()
    }

    #[test]
    fn claims_of_one_pool_end_at_different_times_and_never_late() {
        let ends = ends("720h", 10);
        let hours: Vec<i64> = ends
            .iter()
            .map(|text| GoDuration::parse(text).unwrap().as_secs() / 3_600)
            .collect();
        assert!(hours.iter().all(|hours| (648..=720).contains(hours)));
        // Of 72 hours each has its part: a fleet that was made together goes a few in an hour.
        for hour in 648..720 {
            let count = hours.iter().filter(|each| **each == hour).count();
            assert!((2..=35).contains(&count), "{count} of 1000 at {hour} h");
        }
        let form = |text: &String| text.ends_with('s') && !text.contains('.');
        assert!(ends.iter().all(form), "{:?}", ends.first());
    }

    #[test]
    fn what_has_no_end_or_is_to_be_exact_stays_as_written() {
        for (of_pool, percent) in [
            ("Never", 10),
            ("1h0m", 0),
            ("0s", 10),
            ("a while", 10),
            ("5s", 10),
        ] {
            assert!(
                ends(of_pool, percent).iter().all(|each| each == of_pool),
                "{of_pool}"
            );
        }
    }
}
