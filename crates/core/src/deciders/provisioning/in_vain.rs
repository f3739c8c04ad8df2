//! Machines on which a pod was expected, that could not take it, and that nobody else uses.
//!
//! # Rule
//! A promise that breaks is normally followed by another one at once, on a new machine if need be: other pods have taken the
//! room, so what was bought is used. A machine that stands there for nobody instead says that we do not know why the pod is
//! not on it, and that the next one may be no better. One further machine is tried at once; after two in vain the next is
//! bought a minute later, then after two minutes, four, and so on up to half an hour. So a fault of ours, of a driver or of a
//! catalogue costs some eight machines an hour and pod, not one a second, and what mends itself is still found.
//!
//! A new leader begins to count anew.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{Provisioning, after, since};
use crate::deciders::StepInput;
use crate::names::PodKey;
use crate::record::Reason;
use crate::scheduling::{LaunchPlan, SolveReport, Unkept};
use crate::snapshot::{NodeKey, Snapshot, StateNode};

/// What is longer ago does not count.
const MEMORY_MS: i64 = 4 * 60 * 60_000;
/// So many are followed by another one at once, and one more.
const FREE: usize = 2;
/// The first pause, which doubles.
const PAUSE_MS: i64 = 60_000;
/// The longest pause.
const LONGEST_MS: i64 = 30 * 60_000;

/// The machines on which a pod was expected in vain, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct InVain(Vec<Attempt>);

/// A machine that did not take the pod.
#[derive(Clone, Debug)]
struct Attempt {
    machine: String,
    why: Unkept,
    at: Timestamp,
}

impl InVain {
    /// A promise on this machine broke.
    pub(super) fn note(&mut self, machine: &StateNode, why: &Unkept, now: Timestamp) {
        self.0.retain(|attempt| since(now, attempt.at) < MEMORY_MS);
        self.0.push(Attempt {
            machine: machine.name().to_owned(),
            why: why.clone(),
            at: now,
        });
    }

    /// Until when nothing is bought for the pod; `None` if something may be.
    pub(super) fn pauses_until(&self, now: Timestamp) -> Option<Timestamp> {
        let recent = self.recent(now).count();
        let last = self.0.last()?;
        let doublings = u32::try_from(recent.checked_sub(FREE)?).unwrap_or(u32::MAX);
        let pause = 2_i64.saturating_pow(doublings).saturating_mul(PAUSE_MS);
        let until = after(last.at, pause.min(LONGEST_MS));
        (until > now).then_some(until)
    }

    /// Why nothing is bought for the pod, while nothing is.
    pub(super) fn reason(&self, now: Timestamp) -> Option<Reason> {
        let until = self.pauses_until(now)?;
        Some(Reason::InVain {
            nodes: self.recent(now).map(|own| own.machine.clone()).collect(),
            why: self.0.last()?.why.clone(),
            until,
        })
    }

    fn recent(&self, now: Timestamp) -> impl Iterator<Item = &Attempt> {
        let all = self.0.iter();
        all.filter(move |attempt| since(now, attempt.at) < MEMORY_MS)
    }
}

impl Provisioning {
    /// Remembers promises that broke on machines that nobody uses.
    pub(super) fn note_in_vain(
        &mut self,
        plan: &LaunchPlan,
        report: &SolveReport,
        input: &StepInput<'_>,
    ) {
        if report.broken.is_empty() {
            return;
        }
        let used: BTreeSet<&NodeKey> = plan.placements.iter().map(|own| &own.node).collect();
        let ledger = &input.snapshot.ledger;
        for (uid, why) in &report.broken {
            let Some(promise) = ledger.nomination(uid) else {
                continue;
            };
            let machine = input.snapshot.machine_at(&promise.place);
            let Some(machine) = machine.filter(|on| stays_empty(on, input.snapshot)) else {
                continue;
            };
            let waiting = self.waiting.get_mut(&promise.pod);
            if let Some(waiting) = waiting.filter(|_| !used.contains(&machine.key)) {
                waiting.in_vain.note(machine, why, input.now);
            }
        }
    }

    /// Pods for which a machine would be bought although enough were bought in vain for now.
    pub(super) fn paused(&self, plan: &LaunchPlan, now: Timestamp) -> Vec<PodKey> {
        let bought = plan.claims.iter().flat_map(|claim| &claim.pods);
        let paused = bought.filter(|pod| {
            let waiting = self.waiting.get(&pod.key);
            waiting.is_some_and(|waiting| waiting.in_vain.pauses_until(now).is_some())
        });
        paused.map(|pod| pod.key.clone()).collect()
    }
}

/// Whether a machine is there, or coming, stays, and has no pod but those of DaemonSets.
fn stays_empty(machine: &StateNode, snapshot: &Snapshot) -> bool {
    let fence = machine
        .claim_name()
        .and_then(|claim| snapshot.ledger.fence(&claim));
    !machine.deleting && fence.is_none() && machine.reschedulable().next().is_none()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::apis::nodeclaim::NodeClaim;

    #[test]
    fn pauses_double_and_are_forgotten() {
        let machine = StateNode::coming(&Arc::new(NodeClaim::default()));
        let start = Timestamp::UNIX_EPOCH;
        let mut in_vain = InVain::default();
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            in_vain.note(&machine, &Unkept::OtherPods, now);
            let until = in_vain.pauses_until(now);
            pauses.push(until.map_or(0, |until| since(until, now) / 60_000));
            now = until.unwrap_or(now);
            assert_eq!(in_vain.pauses_until(now), None, "the end is not part of it");
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(in_vain.pauses_until(after(now, MEMORY_MS)), None);
    }
}
