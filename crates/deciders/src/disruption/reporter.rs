//! What is recorded, and what of it users see. Everything once, until it changes or a while has passed.

use std::collections::BTreeSet;
use std::hash::Hash;

use crate::tracking::event_throttle::EventThrottle;
use mortise_apis::names::{ClaimName, ObjectRef, PoolName};
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::metric_event::MetricEvent;
use mortise_engine::record::Verdict;
use mortise_planning::disruption::candidate::{Candidate, CandidateBlocker};
use mortise_planning::disruption::command::{DisruptedNode, DisruptionCommand, DisruptionReason};
use mortise_planning::disruption::simulation::DisruptionRejection;
use mortise_planning::reason::{BalancedScore, Reason};
use mortise_state::snapshot::StateNode;
use mortise_state::watch_age::OldWatch;

/// `DisruptionBlocked` is repeated after this.
const BLOCKED_EVERY_MS: i64 = 2 * 60_000;
/// `DisruptionBlocked` of a pool is repeated after this.
const POOL_EVERY_MS: i64 = 60_000;
/// `Unconsolidatable` is repeated after this.
const UNCONSOLIDATABLE_EVERY_MS: i64 = 15 * 60_000;

/// The same reasons with other facts are recorded again after this.
const FACTS_EVERY_MS: i64 = 5 * 60_000;

/// Most events about refusals in one step; all of them have records. 5,000 nodes that are not worth consolidating would
/// otherwise be 10,000 events at once.
const MOST_EVENTS: usize = 200;

/// Where words go.
pub(super) struct DisruptionReporter<'a, 'b> {
    /// What was said.
    pub(super) told: &'a mut EventThrottle,
    /// The step's question.
    pub(super) input: &'a StepInput<'b>,
    /// The step's answer.
    pub(super) step: &'a mut Step,
}

impl DisruptionReporter<'_, '_> {
    /// Nothing begins and nothing goes on as long as a watch is old.
    pub(super) fn outdated(&mut self, old: &OldWatch) {
        let pools: Vec<PoolName> = self.input.snapshot.pools.keys().cloned().collect();
        for pool in pools {
            let told = (self.input, DeciderId::Disruption);
            let pool = ObjectRef::Pool(pool);
            self.told.outdated(told, &pool, old.clone(), self.step);
        }
    }

    fn record(&mut self, subject: ObjectRef, verdict: Verdict, reasons: Vec<Reason>) {
        self.step
            .record(self.input, DeciderId::Disruption, subject, verdict, reasons);
    }

    fn announce(
        &mut self,
        objects: impl IntoIterator<Item = ObjectRef>,
        verdict: Verdict,
        reasons: Vec<Reason>,
    ) {
        let by = DeciderId::Disruption;
        self.step
            .announce(self.input, by, objects, verdict, reasons);
    }

    fn is_news(
        &mut self,
        subject: &ObjectRef,
        topic: &'static str,
        facts: &impl Hash,
        ms: i64,
    ) -> bool {
        self.told.is_news(subject, topic, facts, self.input.now, ms)
    }

    /// Reasons with the same facts are recorded again after `every_ms`, the same reasons with other facts (another pod
    /// is nominated to the node, a price has moved) after [`FACTS_EVERY_MS`], other reasons at once.
    fn is_recorded(
        &mut self,
        subject: &ObjectRef,
        topic: &'static str,
        reasons: &[Reason],
        every_ms: i64,
    ) -> bool {
        let periods = (FACTS_EVERY_MS, every_ms);
        let facts = (&kinds(reasons), reasons);
        let now = self.input.now;
        self.told.is_news_of(subject, topic, facts, now, periods)
    }

    /// Node and claim on which an event is due. The first message of a kind wins for the whole period: which
    /// pod blocks it changes from second to second.
    fn due(
        &mut self,
        node: &StateNode,
        reason: &'static str,
        kind: &impl Hash,
        every_ms: i64,
    ) -> Vec<ObjectRef> {
        let objects = [
            node.node_name().map(ObjectRef::Node),
            node.claim_name().map(ObjectRef::Claim),
        ];
        let mut due = Vec::new();
        for object in objects.into_iter().flatten() {
            let periods = (every_ms, every_ms);
            if self.step.size() + due.len() < MOST_EVENTS
                && self
                    .told
                    .is_news_of(&object, reason, (kind, &()), self.input.now, periods)
            {
                due.push(object);
            }
        }
        due
    }

    /// Announces a refusal on the objects where that is `due`. Where none is due on its subject it is recorded if it is
    /// news there. A record that is announced is news no longer: the decision log gets each refusal once per period.
    fn refuse(
        &mut self,
        subject: ObjectRef,
        (topic, every_ms): (&'static str, i64),
        due: Vec<ObjectRef>,
        verdict: Verdict,
        reasons: Vec<Reason>,
    ) {
        if due.contains(&subject) {
            let facts = (&kinds(&reasons), &reasons);
            let now = self.input.now;
            self.told.count_as_said(&subject, topic, facts, now);
        } else if self.is_recorded(&subject, topic, &reasons, every_ms) {
            self.record(subject, verdict, reasons.clone());
        }
        self.announce(due, verdict, reasons);
    }

    /// A node that cannot be disrupted.
    pub(super) fn blocked(&mut self, node: &StateNode, blocker: &CandidateBlocker) {
        if blocker.is_reported() {
            self.stays(node, vec![blocker.reason()]);
        }
    }

    /// A node that should go and cannot.
    pub(super) fn stays(&mut self, node: &StateNode, reasons: Vec<Reason>) {
        let subject = subject(node);
        // A blocker with other causes than before is not kept back.
        let kind = reasons.first().map(Reason::summary);
        let due = self.due(node, "DisruptionBlocked", &kind, BLOCKED_EVERY_MS);
        let topic = ("blocked", FACTS_EVERY_MS);
        self.refuse(subject, topic, due, Verdict::Blocked, reasons);
    }

    /// A node that is not worth consolidating, or must not be.
    pub(super) fn unconsolidatable(
        &mut self,
        candidate: &Candidate,
        refusal: &DisruptionRejection,
    ) {
        if let Some((pool, percent)) = refusal.scored.clone() {
            self.scored(pool, false, percent);
        }
        let subject = subject(&candidate.node);
        let reasons = refusal.reasons.clone();
        let every_ms = UNCONSOLIDATABLE_EVERY_MS;
        let due = self.due(&candidate.node, "Unconsolidatable", &"", every_ms);
        let topic = ("unconsolidatable", every_ms);
        self.refuse(subject, topic, due, Verdict::Refused, reasons);
    }

    /// A node that rests after a move.
    pub(super) fn rests(&mut self, candidate: &Candidate, until: jiff::Timestamp) {
        self.postponed(candidate, "resting", Reason::CooldownActive { until });
    }

    /// A node that is not replaced before others are consolidatable.
    pub(super) fn waits_for_others(&mut self, candidate: &Candidate, until: jiff::Timestamp) {
        let why = Reason::OthersConsolidatableSoon { until };
        self.postponed(candidate, "waits-for-others", why);
    }

    fn postponed(&mut self, candidate: &Candidate, topic: &'static str, why: Reason) {
        let subject = subject(&candidate.node);
        if self.is_news(&subject, topic, &why, UNCONSOLIDATABLE_EVERY_MS) {
            self.record(subject, Verdict::Refused, vec![why]);
        }
    }

    /// A pool whose budgets allow nothing.
    pub(super) fn no_budget(&mut self, pool: &PoolName, reason: DisruptionReason) {
        let subject = ObjectRef::Pool(pool.clone());
        let topic = match reason {
            DisruptionReason::Empty => "budget-empty",
            DisruptionReason::Drifted => "budget-drifted",
            DisruptionReason::Underutilized => "budget-underutilized",
        };
        if self.is_news(&subject, topic, &(), POOL_EVERY_MS) {
            let why = Reason::Budget {
                pool: pool.clone(),
                allowed: 0,
            };
            self.announce([subject], Verdict::Refused, vec![why, cause(reason)]);
        }
    }

    /// A command was found and is held.
    pub(super) fn considered(&mut self, command: &DisruptionCommand) {
        if command.moves.claims.is_empty() || !command.method.is_consolidation() {
            return;
        }
        for target in &command.targets {
            let reasons = vec![command.reason_for(target)];
            self.announce(objects(target), Verdict::Considered, reasons);
        }
    }

    /// A pool with the policy `Balanced` approved of a command.
    pub(super) fn approved(
        &mut self,
        command: &DisruptionCommand,
        pool: &PoolName,
        score: BalancedScore,
    ) {
        self.scored(pool.clone(), true, score.score_percent());
        let reasons = vec![Reason::Approved { score }];
        if let [target] = command.targets.as_slice() {
            self.announce(objects(target), Verdict::Approved, reasons);
        } else {
            let pool = ObjectRef::Pool(pool.clone());
            self.announce([pool], Verdict::Approved, reasons);
        }
    }

    fn scored(&mut self, pool: PoolName, approved: bool, percent: i64) {
        self.step.tallies.push(MetricEvent::Scored {
            pool,
            approved,
            percent,
        });
    }

    /// How many nodes could be deleted for a reason.
    pub(super) fn eligible(&mut self, reason: &'static str, nodes: usize) {
        self.step
            .tallies
            .push(MetricEvent::Eligible { reason, nodes });
    }

    /// A command is executed.
    pub(super) fn executed(&mut self, command: &DisruptionCommand) {
        let pools: BTreeSet<_> = command.targets.iter().map(|each| &each.pool).collect();
        self.step.tallies.push(MetricEvent::Commanded {
            kind: command.kind(),
            pools: pools.into_iter().cloned().collect(),
        });
        for target in &command.targets {
            let mut reasons = vec![match command.reason() {
                DisruptionReason::Empty => Reason::Empty,
                DisruptionReason::Underutilized => Reason::Underutilized,
                DisruptionReason::Drifted => Reason::Drifted {
                    why: target.detail.clone().unwrap_or_default(),
                },
            }];
            if command.reason() != DisruptionReason::Empty {
                reasons.push(Reason::Price {
                    old: command.moves.old,
                    new: command.moves.new,
                });
            }
            reasons.push(Reason::FromPool {
                pool: target.pool.clone(),
            });
            reasons.push(command.as_reason());
            let subject = ObjectRef::Node(target.node.clone());
            self.record(subject, Verdict::Disrupted, reasons);
        }
    }

    /// A command is abandoned. `word` is one of Karpenter's words for why.
    pub(super) fn abandoned(
        &mut self,
        command: &DisruptionCommand,
        word: &'static str,
        reasons: &[Reason],
    ) {
        let kind = command.kind();
        self.step.tallies.push(if command.phase.is_marked() {
            MetricEvent::QueueFailure(kind)
        } else {
            MetricEvent::FailedValidation(kind)
        });
        for target in &command.targets {
            if command.method.is_consolidation() {
                let command = [command.reason_for(target), Reason::RejectedFor { word }];
                let reasons = reasons.iter().cloned().chain(command).collect();
                self.announce(objects(target), Verdict::Abandoned, reasons);
            } else {
                let subject = ObjectRef::Node(target.node.clone());
                self.record(subject, Verdict::Abandoned, reasons.to_vec());
            }
        }
    }

    /// A replacement was launched and is not ready.
    pub(super) fn waits(&mut self, claim: &ClaimName) {
        let subject = ObjectRef::Claim(claim.clone());
        if self.is_news(&subject, "waiting", &(), BLOCKED_EVERY_MS) {
            let reasons = vec![Reason::ReplacementNotReady];
            self.announce([subject], Verdict::Waiting, reasons);
        }
    }

    /// A node is deleted.
    pub(super) fn terminating(&mut self, target: &DisruptedNode, reason: DisruptionReason) {
        self.announce(objects(target), Verdict::Terminating, vec![cause(reason)]);
    }
}

/// The Node and the NodeClaim of a target.
fn objects(target: &DisruptedNode) -> [ObjectRef; 2] {
    [
        ObjectRef::Node(target.node.clone()),
        ObjectRef::Claim(target.claim.clone()),
    ]
}

/// What a disruption is for.
pub(super) const fn cause(reason: DisruptionReason) -> Reason {
    Reason::ForDisruption {
        disruption: reason.as_str(),
    }
}

fn kinds(reasons: &[Reason]) -> Vec<std::mem::Discriminant<Reason>> {
    reasons.iter().map(std::mem::discriminant).collect()
}

fn subject(node: &StateNode) -> ObjectRef {
    match (node.node_name(), node.claim_name()) {
        (Some(node), _) => ObjectRef::Node(node),
        (None, Some(claim)) => ObjectRef::Claim(claim),
        (None, None) => ObjectRef::Node(node.name().into()),
    }
}
