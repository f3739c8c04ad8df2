//! When the provider is asked whether a node drifted: spread over time, a limited number at once.

use std::sync::Arc;

use jiff::Timestamp;

use super::{ClaimConditionsDecider, DRIFT_CHECK_MS, MAX_CHECKS, spread};
use crate::tracking::timer_queue::attempt;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::values::after;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::effect::Effect;

impl ClaimConditionsDecider {
    /// Queues the provider's check if it is due; returns when it will be.
    pub(super) fn check_later(&mut self, now: Timestamp, claim: &NodeClaim) -> Option<Timestamp> {
        let name = claim.name();
        if self.running.contains(&name) {
            return None;
        }
        let due = match self.checked.get(&name) {
            Some(checked) => checked.next,
            None => *self
                .first_checks
                .entry(name.clone())
                .or_insert_with(|| after(now, spread(&name))),
        };
        let due = self.checks.waits_until(&name).map_or(due, |at| at.max(due));
        if due > now {
            return Some(due);
        }
        self.waiting.insert(name);
        None
    }

    /// Sends as many due checks as may run at once.
    pub(super) fn send_checks(&mut self, input: &StepInput<'_>, step: &mut Step) {
        while self.running.len() < MAX_CHECKS
            && let Some(name) = self.waiting.pop_first()
        {
            let Some(claim) = input.snapshot.claims.get(&name) else {
                continue;
            };
            // Without its class, or with one that is about to go, nothing can be compared.
            let class = input.snapshot.node_classes.get(&claim.node_class_key());
            let Some(class) = class.filter(|class| !class.is_being_deleted()) else {
                self.agenda.sooner(&name, after(input.now, DRIFT_CHECK_MS));
                continue;
            };
            match attempt(&mut self.checks, &name, input.now) {
                Ok(()) => {
                    self.running.insert(name);
                    step.effect(Effect::CheckDrift {
                        claim: Arc::clone(claim),
                        class: class.clone(),
                    });
                }
                Err(Some(at)) => self.agenda.sooner(&name, at),
                Err(None) => {}
            }
        }
    }
}
