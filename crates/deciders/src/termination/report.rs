//! Saying what is in the way of machines that go.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::TerminationDecider;
use mortise_apis::names::ObjectRef;
use mortise_apis::values::{after, since};
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Event;
use mortise_engine::record::Verdict;
use mortise_planning::drain::blockers::obstacles;
use mortise_planning::drain::going_since;
use mortise_planning::drain::volumes::Attached;
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
pub(super) struct BlockerReport {
    next: Timestamp,
    seen: BTreeMap<(DrainBlockerKind, String), Timestamp>,
}

impl TerminationDecider {
    /// Looks at what is in the way, if it is time, and tells what has been for a while. Returns when to look again.
    pub(super) fn report(
        &mut self,
        input: &StepInput<'_>,
        key: &NodeKey,
        attached: &mut Attached,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let now = input.now;
        let machine = input.snapshot.nodes.get(key)?;
        let Some(start) = going_since(input.snapshot, machine) else {
            self.reports.remove(key);
            return None;
        };
        let report = self
            .reports
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
        let found = obstacles(input.snapshot, now, machine, &self.hints, attached);
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
        let facts = (&kind, "");
        if !self.told.is_news_of(
            subject,
            "in the way",
            facts,
            input.now,
            (EVERY_MS, EVERY_MS),
        ) {
            return;
        }
        let text = obstacle.text(input.now);
        let (reason, text) = match obstacle.kind.event() {
            reason @ "FailedDraining" => (reason, format!("Failed to drain node, {text}")),
            reason @ "AwaitingVolumeDetachment" => {
                (reason, format!("Awaiting volume detachment, {text}"))
            }
            reason => (reason, text),
        };
        let event = Event {
            dedupe_key: Some(format!("{} {}", obstacle.kind.label(), obstacle.what)),
            ..Event::warning(subject.clone(), reason, text)
        };
        step.event(event);
        step.record(
            input,
            DeciderId::Termination,
            subject.clone(),
            Verdict::Blocked,
            vec![Reason::DrainBlocked(obstacle.clone())],
        );
    }
}
