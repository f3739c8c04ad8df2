//! What the cloud announces about instances, turned into graceful replacement.
//!
//! May: fence the instance of a claim and delete the claim when the cloud will reclaim the instance, maintains it, or
//! stopped it; send events; acknowledge a message once what it asks for has been decided and written.
//!
//! Must never: acknowledge a message whose claim is not deleted yet (a killed process gets it again); act on instances
//! that are not ours; take a rebalance recommendation for an order. That an offering is empty is the provider's to
//! note.
//!
//! The pods of a deleted claim are planned by provisioning as pods of a node that is being deleted, so replacements
//! start while the drain is under way. Everything is idempotent: a message that comes twice finds the claim deleted.
//!
//! Implements karpenter-aws 6.2 and 6.3.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::tracking::write_tracker::WriteTracker;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, ObjectRef, Uid};
use mortise_cloudprovider::{InterruptionKind, InterruptionNotice};
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectError};
use mortise_engine::record::Verdict;
use mortise_engine::write::ObjectWrite;
use mortise_planning::reason::Reason;
use mortise_state::index::Changes;
use mortise_state::ledger::{Fence, FenceReason, LedgerOp};

/// A message: which provider's, and its handle.
type MessageKey = (Arc<str>, Arc<str>);

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct InterruptionDecider {
    /// Claims by the last part of their provider id; and that part by claim, to remove it.
    instances: BTreeMap<Arc<str>, ClaimName>,
    ids: BTreeMap<ClaimName, Arc<str>>,
    /// Claims that must be deleted before the message may go.
    open: BTreeMap<MessageKey, BTreeSet<Uid>>,
    /// Claims to be deleted.
    claims_to_delete: BTreeMap<Uid, ClaimName>,
    outbox: WriteTracker,
}

impl Default for InterruptionDecider {
    fn default() -> Self {
        Self::new()
    }
}

impl InterruptionDecider {
    /// A decider that knows nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            instances: BTreeMap::new(),
            ids: BTreeMap::new(),
            open: BTreeMap::new(),
            claims_to_delete: BTreeMap::new(),
            outbox: WriteTracker::new(),
        }
    }

    fn index(&mut self, input: &StepInput<'_>) {
        let mut changed: BTreeSet<ClaimName> = input.changes.claims.clone();
        if input.changes.everything {
            changed.extend(input.snapshot.claims.iter().map(|(name, _)| name.clone()));
            changed.extend(self.ids.keys().cloned());
        }
        for name in changed {
            let id = input
                .snapshot
                .claims
                .get(&name)
                .and_then(|claim| last_part(claim.instance_id()?));
            if let Some(old) = self.ids.remove(&name)
                && self.instances.get(&old) == Some(&name)
            {
                self.instances.remove(&old);
            }
            if let Some(id) = id {
                self.instances.insert(Arc::clone(&id), name.clone());
                self.ids.insert(name, id);
            }
        }
    }

    fn notice(
        &mut self,
        input: &StepInput<'_>,
        provider: &Arc<str>,
        notice: &InterruptionNotice,
        step: &mut Step,
    ) {
        let key: MessageKey = (Arc::clone(provider), Arc::clone(&notice.id));
        let mut waits = BTreeSet::new();
        for instance in &notice.instances {
            let Some(claim) = self
                .instances
                .get(instance)
                .and_then(|name| input.snapshot.claims.get(name))
            else {
                continue;
            };
            if let Some(uid) = self.announced(input, notice.kind, claim, step) {
                waits.insert(uid);
            }
        }
        if waits.is_empty() {
            acknowledge(&key, step);
        } else {
            self.open.insert(key, waits);
        }
    }

    /// Says what was announced. Returns the claim's UID if it must be deleted.
    fn announced(
        &mut self,
        input: &StepInput<'_>,
        kind: InterruptionKind,
        claim: &NodeClaim,
        step: &mut Step,
    ) -> Option<Uid> {
        let name = claim.name();
        let target = ObjectRef::Claim(name.clone());
        let node = input
            .snapshot
            .node_of_claim(&name)
            .and_then(|state_node| state_node.node_name())
            .map(ObjectRef::Node);
        if kind == InterruptionKind::Other {
            return None; // it asks for nothing
        }
        let objects = std::iter::once(target).chain(node);
        let is_order = kind != InterruptionKind::RebalanceRecommendation;
        let uid = claim
            .uid()
            .filter(|_| is_order && claim.metadata.deletion_timestamp.is_none());
        let interrupted = uid.is_some().then_some(Reason::Interrupted);
        let reasons = interrupted
            .into_iter()
            .chain([Reason::Notice { kind }])
            .collect();
        let (by, verdict) = (DeciderId::Interruption, Verdict::Notified);
        step.announce(input, by, objects, verdict, reasons);
        let uid = uid?;
        self.claims_to_delete.insert(uid.clone(), name);
        Some(uid)
    }

    /// Fences and deletes what must go, and asks again where that failed.
    fn delete(&mut self, input: &StepInput<'_>, step: &mut Step) {
        for (uid, name) in self.claims_to_delete.clone() {
            let claim = input.snapshot.claims.get(&name).filter(|claim| {
                claim.uid().as_ref() == Some(&uid) && claim.metadata.deletion_timestamp.is_none()
            });
            let Some(claim) = claim else {
                self.done(&uid, step);
                continue;
            };
            step.ledger.push(LedgerOp::Fence(Fence {
                claim: name.clone(),
                reason: FenceReason::Interruption,
                from: input.now,
            }));
            // The deletion does not wait for the fence: writes to one object are executed in order.
            for write in [
                ObjectWrite::set_fence(name, Some(FenceReason::Interruption)).into(),
                Effect::delete_claim(claim),
            ] {
                if let Err(Some(at)) = self.outbox.send(input.now, write, step) {
                    step.wake_at(at);
                }
            }
        }
    }

    /// The claim is deleted: messages that waited for it, and for nothing else, may go.
    fn done(&mut self, uid: &Uid, step: &mut Step) {
        self.claims_to_delete.remove(uid);
        for waits in self.open.values_mut() {
            waits.remove(uid);
        }
        let over: Vec<MessageKey> = self
            .open
            .iter()
            .filter(|(_, waits)| waits.is_empty())
            .map(|(key, _)| key.clone())
            .collect();
        for key in over {
            self.open.remove(&key);
            acknowledge(&key, step);
        }
    }
}

fn acknowledge((provider, notice): &MessageKey, step: &mut Step) {
    step.effect(Effect::Acknowledge {
        provider: Arc::clone(provider),
        notice: Arc::clone(notice),
    });
}

/// `i-0123` of `aws:///us-east-1a/i-0123`.
fn last_part(id: &str) -> Option<Arc<str>> {
    id.rsplit('/')
        .next()
        .filter(|last| !last.is_empty())
        .map(Arc::from)
}

impl Decider for InterruptionDecider {
    fn id(&self) -> DeciderId {
        DeciderId::Interruption
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        changes.everything || !changes.claims.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        self.index(input);
        for delivery in input.inbox {
            match delivery {
                InboxMessage::Notice { provider, notice } => {
                    self.notice(input, provider, notice, &mut step)
                }
                InboxMessage::Outcome(outcome) => {
                    self.outbox
                        .answered(input.now, &outcome.effect, &outcome.result);
                    if let Effect::Delete { uid: Some(uid), .. } = &*outcome.effect
                        && let Ok(_) | Err(EffectError::NotFound(_) | EffectError::Conflict(_)) =
                            &outcome.result
                    {
                        self.done(uid, &mut step);
                    }
                }
            }
        }
        self.delete(input, &mut step);
        self.outbox.sweep(input.now, input.snapshot);
        step
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::cluster;
    use mortise_apis::labels;
    use mortise_cloudprovider::InterruptionKind;
    use mortise_engine::record::Verdict;

    #[test]
    fn an_interruption_fences_deletes_and_then_acknowledges() {
        let mut world = cluster();
        let node = world.up("c", &json!({}));
        world.pod("web", &node, &json!({}));
        world.notice("m1", InterruptionKind::SpotInterruption, "i-00000001");
        world.settle();
        assert!(
            world.get("NodeClaim/c")["metadata"]
                .get("deletionTimestamp")
                .is_some()
        );
        assert_eq!(
            world.get("NodeClaim/c")["metadata"]["annotations"][labels::FENCE],
            "interruption"
        );
        assert!(world.snapshot().ledger.fence("c").is_some());
        let at = |what: &str| world.done.iter().position(|each| each == what).unwrap();
        assert!(at("delete nodeclaim/c") < at("acknowledge "));
        assert_eq!(world.acknowledged(), ["m1"]);
        let reasons: Vec<(&str, String)> = world
            .events()
            .map(|event| (&*event.reason, event.target.to_string()))
            .filter(|(reason, _)| reason.contains("nterrupt"))
            .collect();
        let target = format!("node/{node}");
        assert_eq!(
            reasons,
            [
                ("SpotInterrupted", "nodeclaim/c".to_owned()),
                ("SpotInterrupted", target.clone()),
                ("TerminatingOnInterruption", "nodeclaim/c".to_owned()),
                ("TerminatingOnInterruption", target),
            ]
        );
        assert!(world.verdicts("nodeclaim/c").contains(&Verdict::Notified));

        // The same message again, and others about the same instance, change nothing.
        world.notice("m2", InterruptionKind::SpotInterruption, "i-00000001");
        world.notice("m3", InterruptionKind::Terminated, "i-00000001");
        world.settle();
        assert_eq!(world.acknowledged(), ["m1", "m2", "m3"]);
        assert_eq!(
            world
                .done
                .iter()
                .filter(|each| *each == "delete nodeclaim/c")
                .count(),
            1
        );
        world.pass(30_000);
        assert!(!world.has("NodeClaim/c") && world.instances().is_empty());
    }

    #[test]
    fn a_recommendation_is_only_told_and_strangers_are_acknowledged() {
        let mut world = cluster();
        world.up("c", &json!({}));
        world.notice(
            "m1",
            InterruptionKind::RebalanceRecommendation,
            "i-00000001",
        );
        world.notice("m2", InterruptionKind::SpotInterruption, "i-00000099");
        world.notice("m3", InterruptionKind::Other, "i-00000001");
        world.settle();
        assert_eq!(world.acknowledged(), ["m1", "m2", "m3"]);
        assert!(
            world
                .event("SpotRebalanceRecommendation")
                .is_some_and(|event| !event.warning)
        );
        assert!(
            world.get("NodeClaim/c")["metadata"]
                .get("deletionTimestamp")
                .is_none()
        );
    }

    #[test]
    fn killed_before_the_deletion_was_answered_the_message_is_not_acknowledged() {
        let mut world = cluster();
        world.up("c", &json!({}));
        world.notice("m1", InterruptionKind::SpotInterruption, "i-00000001");
        world.answers.crash_after = Some("delete");
        world.settle();
        assert!(world.acknowledged().is_empty());
        world.notice("m1-again", InterruptionKind::SpotInterruption, "i-00000001");
        world.settle();
        assert_eq!(world.acknowledged(), ["m1-again"]);
    }
}
