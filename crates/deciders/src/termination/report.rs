//! Reporting what blocks the deletion of nodes.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::tracking::event_throttle::EventThrottle;
use mortise_apis::names::ObjectRef;
use mortise_apis::values::{after, since};
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::record::Verdict;
use mortise_planning::drain::blockers::obstacles;
use mortise_planning::drain::pdb::Pdbs;
use mortise_planning::drain::volumes::Attached;
use mortise_planning::drain::{DrainErrors, going_since};
use mortise_planning::drain_blocker::{DrainBlocker, DrainBlockerKind};
use mortise_planning::reason::Reason;
use mortise_state::snapshot::NodeKey;

/// How often a node that is being deleted is checked for blockers.
const SAMPLE_MS: i64 = 15_000;
/// A blocker is reported after this. With the samples that is 45 s after it came at the latest.
const PATIENCE_MS: i64 = 30_000;
/// It is told again after this.
const EVERY_MS: i64 = 2 * 60_000;

/// The blockers of one node.
#[derive(Clone, Debug)]
struct BlockerReport {
    next: Timestamp,
    seen: BTreeMap<(DrainBlockerKind, String), Timestamp>,
}

/// The blockers of nodes, when to check them again, and what was reported of them.
#[derive(Debug, Default)]
pub(super) struct BlockerReports {
    by_node: BTreeMap<NodeKey, BlockerReport>,
    told: EventThrottle,
}

impl BlockerReports {
    /// Forgets a node.
    pub(super) fn forget(&mut self, key: &NodeKey) {
        self.by_node.remove(key);
    }

    /// Drops what was reported long ago.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.told.sweep(now);
    }

    /// Checks for blockers, if it is time, and reports those that have been there for a while. Returns when to look
    /// again.
    pub(super) fn report(
        &mut self,
        input: &StepInput<'_>,
        key: &NodeKey,
        (hints, attached): (&DrainErrors, &mut Attached),
        step: &mut Step,
    ) -> Option<Timestamp> {
        let now = input.now;
        let state_node = input.snapshot.nodes.get(key)?;
        let Some(start) = going_since(input.snapshot, state_node) else {
            self.forget(key);
            return None;
        };
        let report = self
            .by_node
            .entry(key.clone())
            .or_insert_with(|| BlockerReport {
                next: after(start, SAMPLE_MS),
                seen: BTreeMap::new(),
            });
        if report.next > now {
            return Some(report.next);
        }
        report.next = after(now, SAMPLE_MS);
        let next = report.next;
        let pdbs = Pdbs::new(input.snapshot);
        let found = obstacles((input.snapshot, &pdbs), now, state_node, hints, attached);
        let before = std::mem::take(&mut report.seen);
        report.seen = found
            .iter()
            .map(|each| {
                let key = (each.kind, each.what.clone());
                let first = before.get(&key).copied().unwrap_or(now);
                (key, first)
            })
            .collect();
        let seen = report.seen.clone();
        let node = state_node.node_name().map(ObjectRef::Node);
        let subject = node.or_else(|| state_node.claim_name().map(ObjectRef::Claim))?;
        for blocker in &found {
            let first = seen.get(&(blocker.kind, blocker.what.clone()));
            if first.is_some_and(|first| since(now, *first) >= PATIENCE_MS) {
                self.tell(input, &subject, blocker, step);
            }
        }
        Some(next)
    }

    fn tell(
        &mut self,
        input: &StepInput<'_>,
        subject: &ObjectRef,
        blocker: &DrainBlocker,
        step: &mut Step,
    ) {
        let kind = (blocker.kind, &blocker.what);
        let facts = (&kind, &());
        if !self.told.is_news_of(
            subject,
            "in the way",
            facts,
            input.now,
            (EVERY_MS, EVERY_MS),
        ) {
            return;
        }
        let (by, verdict) = (DeciderId::Termination, Verdict::Blocked);
        let reasons = vec![Reason::DrainBlocked(blocker.clone())];
        step.announce(input, by, [subject.clone()], verdict, reasons);
    }
}
