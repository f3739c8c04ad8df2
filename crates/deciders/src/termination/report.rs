//! Saying what is in the way of machines that go.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::tracking::event_throttle::EventThrottle;
use mortise_apis::names::ObjectRef;
use mortise_apis::values::{after, since};
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::record::Verdict;
use mortise_planning::drain::blockers::obstacles;
use mortise_planning::drain::volumes::Attached;
use mortise_planning::drain::{DrainErrors, going_since};
use mortise_planning::drain_blocker::{DrainBlocker, DrainBlockerKind};
use mortise_planning::reason::Reason;
use mortise_state::snapshot::NodeKey;

/// How often a machine that goes is looked at for what is in its way.
const SAMPLE_MS: i64 = 15_000;
/// What has been in the way for so long is told. With the samples that is 45 s after it came at the latest.
const PATIENCE_MS: i64 = 30_000;
/// It is told again after this.
const EVERY_MS: i64 = 2 * 60_000;

/// What was seen to be in the way of one machine.
#[derive(Clone, Debug)]
struct BlockerReport {
    next: Timestamp,
    seen: BTreeMap<(DrainBlockerKind, String), Timestamp>,
}

/// What was seen to be in the way of machines, when to look at that again, and what was told of it.
#[derive(Debug, Default)]
pub(super) struct BlockerReports {
    by_node: BTreeMap<NodeKey, BlockerReport>,
    told: EventThrottle,
}

impl BlockerReports {
    /// Forgets a machine.
    pub(super) fn forget(&mut self, key: &NodeKey) {
        self.by_node.remove(key);
    }

    /// Drops what was told long ago.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.told.sweep(now);
    }

    /// Looks at what is in the way, if it is time, and tells what has been for a while. Returns when to look again.
    pub(super) fn report(
        &mut self,
        input: &StepInput<'_>,
        key: &NodeKey,
        (hints, attached): (&DrainErrors, &mut Attached),
        step: &mut Step,
    ) -> Option<Timestamp> {
        let now = input.now;
        let machine = input.snapshot.nodes.get(key)?;
        let Some(start) = going_since(input.snapshot, machine) else {
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
        let found = obstacles(input.snapshot, now, machine, hints, attached);
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
        let node = machine.node_name().map(ObjectRef::Node);
        let subject = node.or_else(|| machine.claim_name().map(ObjectRef::Claim))?;
        for obstacle in &found {
            let first = seen.get(&(obstacle.kind, obstacle.what.clone()));
            if first.is_some_and(|first| since(now, *first) >= PATIENCE_MS) {
                self.tell(input, &subject, obstacle, step);
            }
        }
        Some(next)
    }

    fn tell(
        &mut self,
        input: &StepInput<'_>,
        subject: &ObjectRef,
        obstacle: &DrainBlocker,
        step: &mut Step,
    ) {
        let kind = (obstacle.kind, &obstacle.what);
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
        let reasons = vec![Reason::DrainBlocked(obstacle.clone())];
        step.announce(input, by, [subject.clone()], verdict, reasons);
    }
}
