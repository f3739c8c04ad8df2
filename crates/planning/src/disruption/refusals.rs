//! Backoff of rejected nodes, so that they are not simulated in every evaluation.
//!
//! A drifted node whose pods fit nowhere else is rejected by every simulation. A thousand of them would use all
//! simulations of a step, again and again. Each rejected node therefore waits, with a growing delay, unless it changes, or
//! the inputs of new nodes do.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::candidate::Candidate;
use mortise_apis::names::{ClaimName, Uid};
use mortise_apis::values::after;

/// The first delay: the interval of evaluations.
const FIRST_MS: i64 = 10_000;

/// The longest delay, for changes without an event: free capacity, elapsed time.
const LONGEST_MS: i64 = 5 * 60_000;

/// Rejected nodes of one method.
#[derive(Debug, Default)]
pub struct Refusals {
    all: BTreeMap<ClaimName, Refused>,
}

#[derive(Debug)]
struct Refused {
    claim: Option<Uid>,
    pods: Vec<Uid>,
    wait_ms: i64,
    until: Timestamp,
}

impl Refused {
    /// Whether the node is unchanged.
    fn is_about(&self, candidate: &Candidate) -> bool {
        let pods = candidate.pods.iter().map(|pod| &pod.uid);
        self.claim == candidate.claim.uid() && self.pods.iter().eq(pods)
    }
}

impl Refusals {
    /// Until when the node waits; `None` when it may be evaluated.
    pub fn waits_until(&self, candidate: &Candidate, now: Timestamp) -> Option<Timestamp> {
        let known = self.all.get(&candidate.claim_name)?;
        (known.until > now && known.is_about(candidate)).then_some(known.until)
    }

    /// When the node is due again; nodes that were never rejected are before all others.
    pub fn rank(&self, candidate: &Candidate) -> Option<Timestamp> {
        let known = self.all.get(&candidate.claim_name);
        known.map(|known| known.until)
    }

    /// Records that the node was rejected now.
    pub fn refused(&mut self, candidate: &Candidate, now: Timestamp) {
        let known = self.all.get(&candidate.claim_name);
        let known = known.filter(|known| known.is_about(candidate));
        let wait_ms = known.map_or(FIRST_MS, |known| (known.wait_ms * 2).min(LONGEST_MS));
        let refused = Refused {
            claim: candidate.claim.uid(),
            pods: candidate.pods.iter().map(|pod| pod.uid.clone()).collect(),
            wait_ms,
            until: after(now, wait_ms),
        };
        self.all.insert(candidate.claim_name.clone(), refused);
    }

    /// The inputs of new nodes changed: everything may be evaluated again.
    pub fn forget(&mut self) {
        self.all.clear();
    }

    /// Removes nodes that are no longer candidates. Cost: number of rejected nodes.
    pub fn retain(&mut self, candidates: &[Candidate]) {
        if self.all.is_empty() {
            return;
        }
        let names: std::collections::BTreeSet<&ClaimName> =
            candidates.iter().map(|each| &each.claim_name).collect();
        self.all.retain(|name, _| names.contains(name));
    }
}
