//! What was refused to a machine, so that it is not asked for again at every look.
//!
//! A machine that has drifted and whose pods have no other place is refused with every what-if that it gets. A thousand of
//! them would take all the work that a look may do, again and again. So each waits, longer from time to time, unless it
//! changes itself, or what machines are made from does.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::candidate::Candidate;
use mortise_apis::names::{ClaimName, Uid};
use mortise_apis::values::after;

/// The first wait. Looks are as far apart.
const FIRST_MS: i64 = 10_000;

/// The longest wait, for what nobody tells about: room that became free, a time that has come.
const LONGEST_MS: i64 = 5 * 60_000;

/// Refusals of one method.
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
    /// The machine is what it was.
    fn is_about(&self, candidate: &Candidate) -> bool {
        let pods = candidate.pods.iter().map(|pod| &pod.uid);
        self.claim == candidate.claim.uid() && self.pods.iter().eq(pods)
    }
}

impl Refusals {
    /// Until when the machine waits; `None` when it may be looked at.
    pub fn waits_until(&self, candidate: &Candidate, now: Timestamp) -> Option<Timestamp> {
        let known = self.all.get(&candidate.claim_name)?;
        (known.until > now && known.is_about(candidate)).then_some(known.until)
    }

    /// When the machine was to be looked at again; those that were never refused are before all others.
    pub fn rank(&self, candidate: &Candidate) -> Option<Timestamp> {
        let known = self.all.get(&candidate.claim_name);
        known.map(|known| known.until)
    }

    /// The machine was refused just now.
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

    /// What machines are made from changed: everything may be asked for again.
    pub fn forget(&mut self) {
        self.all.clear();
    }

    /// Forgets machines that are no candidates any more. Cost: refusals.
    pub fn keep(&mut self, candidates: &[Candidate]) {
        if self.all.is_empty() {
            return;
        }
        let names: std::collections::BTreeSet<&ClaimName> =
            candidates.iter().map(|each| &each.claim_name).collect();
        self.all.retain(|name, _| names.contains(name));
    }
}
