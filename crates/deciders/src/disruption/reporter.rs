//! What people are told: events on objects, and records. Everything once, until it changes or a while has passed.

use std::collections::BTreeSet;

use crate::tracking::event_throttle::EventThrottle;
use mortise_apis::names::{ClaimName, ObjectRef, PoolName};
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Event;
use mortise_engine::metric_event::MetricEvent;
use mortise_engine::record::Verdict;
use mortise_planning::disruption::candidate::{Candidate, CandidateBlocker};
use mortise_planning::disruption::command::{DisruptedNode, DisruptionCommand, DisruptionReason};
use mortise_planning::disruption::cost::BalancedScore;
use mortise_planning::disruption::simulation::DisruptionRejection;
use mortise_planning::reason::Reason;
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

/// A sentence without the names in brackets at its end.
fn kind_of(text: &str) -> &str {
    text.split_once(" (").map_or(text, |(kind, _)| kind)
}

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

    fn is_news(&mut self, subject: &ObjectRef, topic: &'static str, text: &str, ms: i64) -> bool {
        self.told.is_news(subject, topic, text, self.input.now, ms)
    }

    /// Reasons with the same facts are recorded again after `every_ms`, the same reasons with other facts (another pod is
    /// promised the node, a price has moved) after [`FACTS_EVERY_MS`], other reasons at once.
    fn is_recorded(
        &mut self,
        subject: &ObjectRef,
        topic: &'static str,
        (text, reasons): (&str, &[Reason]),
        every_ms: i64,
    ) -> bool {
        let kinds: Vec<_> = reasons.iter().map(std::mem::discriminant).collect();
        let now = self.input.now;
        self.told.is_news_of(
            subject,
            topic,
            (&kinds, text),
            now,
            (FACTS_EVERY_MS, every_ms),
        )
    }

    /// One event on Node and claim. The first message of a kind wins for the whole period: which pod is in the way changes
    /// from second to second.
    fn both(
        &mut self,
        node: &StateNode,
        reason: &'static str,
        (kind, text): (&str, &str),
        every_ms: i64,
    ) {
        let objects = [
            node.node_name().map(ObjectRef::Node),
            node.claim_name().map(ObjectRef::Claim),
        ];
        for object in objects.into_iter().flatten() {
            if self.step.effects.len() < MOST_EVENTS
                && self.told.is_news_of(
                    &object,
                    reason,
                    (&kind, ""),
                    self.input.now,
                    (every_ms, every_ms),
                )
            {
                self.step.event(Event {
                    dedupe_key: Some(kind.to_owned()),
                    ..Event::normal(object, reason, text).every(every_ms)
                });
            }
        }
    }

    /// A machine that cannot be disrupted.
    pub(super) fn blocked(&mut self, node: &StateNode, blocker: &CandidateBlocker) {
        if blocker.is_reported() {
            self.stays(node, &blocker.to_string(), vec![blocker.reason()]);
        }
    }

    /// A machine that should go and cannot.
    pub(super) fn stays(&mut self, node: &StateNode, text: &str, reasons: Vec<Reason>) {
        let subject = subject(node);
        if self.is_recorded(&subject, "blocked", (text, &reasons), FACTS_EVERY_MS) {
            self.record(subject, Verdict::Blocked, reasons);
        }
        // What is in the way for other causes than before is not kept back.
        let kind = kind_of(text);
        self.both(node, "DisruptionBlocked", (kind, text), BLOCKED_EVERY_MS);
    }

    /// A machine that is not worth consolidating, or must not be.
    pub(super) fn unconsolidatable(
        &mut self,
        candidate: &Candidate,
        refusal: &DisruptionRejection,
    ) {
        if let Some((pool, percent)) = refusal.scored.clone() {
            self.scored(pool, false, percent);
        }
        let subject = subject(&candidate.node);
        let text = &refusal.text.to_string();
        let facts = (text.as_str(), refusal.reasons.as_slice());
        let every_ms = UNCONSOLIDATABLE_EVERY_MS;
        if self.is_recorded(&subject, "unconsolidatable", facts, every_ms) {
            self.record(subject, Verdict::Refused, refusal.reasons.clone());
        }
        self.both(&candidate.node, "Unconsolidatable", ("", text), every_ms);
    }

    /// A machine that rests after a move.
    pub(super) fn rests(&mut self, candidate: &Candidate, until: jiff::Timestamp) {
        let subject = subject(&candidate.node);
        if self.is_news(
            &subject,
            "resting",
            &until.to_string(),
            UNCONSOLIDATABLE_EVERY_MS,
        ) {
            self.record(
                subject,
                Verdict::Refused,
                vec![Reason::CooldownActive { until }],
            );
        }
    }

    /// A pool whose budgets allow nothing.
    pub(super) fn no_budget(&mut self, pool: &PoolName, reason: DisruptionReason) {
        let text = format!(
            "No allowed disruptions for disruption reason {} due to blocking budget",
            reason.as_str()
        );
        let subject = ObjectRef::Pool(pool.clone());
        let topic = match reason {
            DisruptionReason::Empty => "budget-empty",
            DisruptionReason::Drifted => "budget-drifted",
            DisruptionReason::Underutilized => "budget-underutilized",
        };
        if self.is_news(&subject, topic, &text, POOL_EVERY_MS) {
            let why = Reason::Budget {
                pool: pool.clone(),
                allowed: 0,
            };
            let what = Reason::Note {
                text: format!("for disruption reason {}", reason.as_str()),
            };
            self.record(subject.clone(), Verdict::Refused, vec![why, what]);
            let event = Event::normal(subject, "DisruptionBlocked", text).every(POOL_EVERY_MS);
            self.step.event(event);
        }
    }

    /// A command was found and is held.
    pub(super) fn considered(&mut self, command: &DisruptionCommand) {
        if command.moves.claims.is_empty() || !command.method.is_consolidation() {
            return;
        }
        for target in &command.targets {
            let text = format!(
                "Consolidation candidate: {}{}",
                command.text_for(target),
                savings(command)
            );
            self.on_target(target, "ConsolidationCandidate", &text);
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
        let text = &score.approval();
        if let [target] = command.targets.as_slice() {
            self.on_target(target, "ConsolidationApproved", text);
        } else {
            let pool = ObjectRef::Pool(pool.clone());
            self.step
                .event(Event::normal(pool, "ConsolidationApproved", text.clone()));
        }
    }

    fn scored(&mut self, pool: PoolName, approved: bool, percent: i64) {
        self.step.tallies.push(MetricEvent::Scored {
            pool,
            approved,
            percent,
        });
    }

    /// So many machines could go for a reason.
    pub(super) fn eligible(&mut self, reason: &'static str, nodes: usize) {
        self.step
            .tallies
            .push(MetricEvent::Eligible { reason, nodes });
    }

    /// A command is carried out.
    pub(super) fn carried_out(&mut self, command: &DisruptionCommand) {
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
            reasons.push(Reason::Note {
                text: format!("{command}, decided at {}", command.decided),
            });
            let subject = ObjectRef::Node(target.node.clone());
            self.record(subject, Verdict::Disrupted, reasons);
        }
    }

    /// A command is given up. `word` is one of upstream's words for why.
    pub(super) fn abandoned(
        &mut self,
        command: &DisruptionCommand,
        word: &str,
        reasons: &[Reason],
    ) {
        let kind = command.kind();
        self.step.tallies.push(if command.phase.is_marked() {
            MetricEvent::QueueFailure(kind)
        } else {
            MetricEvent::FailedValidation(kind)
        });
        for target in &command.targets {
            let subject = ObjectRef::Node(target.node.clone());
            self.record(subject, Verdict::Abandoned, reasons.to_vec());
            if command.method.is_consolidation() {
                let text = format!(
                    "Consolidation rejected: {}, reason: {word}{}",
                    command.text_for(target),
                    savings(command)
                );
                self.on_target(target, "ConsolidationRejected", &text);
            }
        }
    }

    /// A replacement was asked for.
    pub(super) fn launching(&mut self, claim: &ClaimName, reason: DisruptionReason) {
        let text = format!("Launching NodeClaim: {}", reason.as_str());
        let claim = ObjectRef::Claim(claim.clone());
        self.step
            .event(Event::normal(claim, "DisruptionLaunching", text));
    }

    /// A replacement is there and not ready.
    pub(super) fn waits(&mut self, claim: &ClaimName) {
        let text = "Waiting on readiness to continue disruption";
        let subject = ObjectRef::Claim(claim.clone());
        if self.is_news(&subject, "waiting", text, BLOCKED_EVERY_MS) {
            self.step
                .event(Event::normal(subject, "DisruptionWaitingReadiness", text));
        }
    }

    /// A machine is deleted.
    pub(super) fn terminating(&mut self, target: &DisruptedNode, reason: DisruptionReason) {
        let reason = reason.as_str();
        let node = ObjectRef::Node(target.node.clone());
        let claim = ObjectRef::Claim(target.claim.clone());
        let text = format!("Disrupting Node: {reason}");
        self.step
            .event(Event::normal(node, "DisruptionTerminating", text));
        let text = format!("Disrupting NodeClaim: {reason}");
        self.step
            .event(Event::normal(claim, "DisruptionTerminating", text));
    }

    fn on_target(&mut self, target: &DisruptedNode, reason: &'static str, text: &str) {
        let objects = [
            ObjectRef::Node(target.node.clone()),
            ObjectRef::Claim(target.claim.clone()),
        ];
        for object in objects {
            self.step.event(Event::normal(object, reason, text));
        }
    }
}

fn subject(node: &StateNode) -> ObjectRef {
    match (node.node_name(), node.claim_name()) {
        (Some(node), _) => ObjectRef::Node(node),
        (None, Some(claim)) => ObjectRef::Claim(claim),
        (None, None) => ObjectRef::Node(node.name().into()),
    }
}

fn savings(command: &DisruptionCommand) -> String {
    command.moves.savings().map_or_else(String::new, |savings| {
        format!(" (savings: ${:.2})", savings.dollars())
    })
}
