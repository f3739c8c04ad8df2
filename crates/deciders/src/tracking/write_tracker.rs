//! Writes of one decider: one of a kind per object at a time, with back-off after failures, and with rest after
//! successes that did not show.
//!
//! The answer to a write is in the snapshot before its outcome arrives, so a decider that still wants the same write
//! then is looking at an object that does not keep what is written: an admission webhook takes it off again, a watch
//! has not shown the deletion yet, another controller disagrees. Without rest it would write as fast as the server
//! answers.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use jiff::Timestamp;

use super::timer_queue::attempt;
use crate::tracking::request_tracker::RequestTracker;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::ObjectRef;
use mortise_apis::values::{after, doubled, since};
use mortise_engine::decider::Step;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectError, EffectOutput};
use mortise_engine::write::{DeletionReason, ObjectWrite};
use mortise_planning::reason::Reason;
use mortise_state::snapshot::Snapshot;

/// Back-off after a refusal or a conflict. The first wait is about one watch delay.
const BACKOFF_MS: (i64, i64) = (100, 30_000);
/// Rest of a write that was accepted and is wanted again unchanged, doubling.
const REST_MS: (i64, i64) = (1_000, 60_000);
/// How often objects that are gone are forgotten.
const SWEEP_MS: i64 = 60_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WriteKind {
    Patch,
    Delete,
}

type Key = (ObjectRef, WriteKind);

#[derive(Clone, Copy, Debug)]
struct Accepted {
    content: u64,
    until: Timestamp,
    times: u32,
}

/// The writes under way. See the module's documentation.
#[derive(Debug)]
pub(crate) struct WriteTracker {
    flights: RequestTracker<Key>,
    accepted: BTreeMap<Key, Accepted>,
    swept: Option<Timestamp>,
}

impl WriteTracker {
    pub(crate) const fn new() -> Self {
        Self {
            flights: RequestTracker::new(BACKOFF_MS.0, BACKOFF_MS.1),
            accepted: BTreeMap::new(),
            swept: None,
        }
    }

    /// Sends a patch or a deletion of an object, unless it must wait.
    ///
    /// # Errors
    /// It was not sent: when to come back, or `None` while an earlier one is under way (its outcome comes).
    pub(crate) fn send(
        &mut self,
        now: Timestamp,
        effect: impl Into<Effect>,
        step: &mut Step,
    ) -> Result<(), Option<Timestamp>> {
        let effect = effect.into();
        let Some((key, content)) = describe(&effect) else {
            step.effect(effect);
            return Ok(());
        };
        let resting = self
            .accepted
            .get(&key)
            .filter(|accepted| accepted.content == content && accepted.until > now);
        if let Some(resting) = resting {
            return Err(Some(resting.until));
        }
        attempt(&mut self.flights, &key, now)?;
        step.effect(effect);
        Ok(())
    }

    /// Ends a claim by force: writes on it who does and why, then deletes it. Whether the first write is taken decides
    /// nothing: the claim goes in any case.
    ///
    /// # Errors
    /// As [`WriteTracker::send`], of the deletion.
    pub(crate) fn end(
        &mut self,
        now: Timestamp,
        claim: &NodeClaim,
        (who, why): (DeciderId, &Reason),
        step: &mut Step,
    ) -> Result<(), Option<Timestamp>> {
        let mut deletion = Step::default();
        self.send(now, Effect::delete_claim(claim), &mut deletion)?;
        let reason = DeletionReason {
            by: who,
            reason: why.clone(),
        };
        if let Some(mark) = ObjectWrite::record_deletion(claim, reason) {
            // A mark that waits behind an earlier write of this decider is left out.
            self.send(now, mark, step).ok();
        }
        step.effects.append(&mut deletion.effects);
        Ok(())
    }

    /// Takes the outcome of a write in. `true` when it was a patch or a deletion.
    pub(crate) fn answered(
        &mut self,
        now: Timestamp,
        effect: &Effect,
        result: &Result<EffectOutput, EffectError>,
    ) -> bool {
        let Some((key, content)) = describe(effect) else {
            return false;
        };
        // An object that is gone, or another of the same name, has nothing left to be written. A conflict of a deletion
        // means the latter: its only precondition is the UID.
        let over = match result {
            Ok(_) | Err(EffectError::NotFound(_)) => true,
            Err(EffectError::Conflict(_)) => key.1 == WriteKind::Delete,
            Err(_) => false,
        };
        if !over {
            self.flights.failed(&key, now);
            return true;
        }
        self.flights.succeeded(&key);
        let times = self
            .accepted
            .get(&key)
            .filter(|before| before.content == content)
            .map_or(0, |before| before.times + 1);
        let rest = doubled(REST_MS.0, times, REST_MS.1);
        self.accepted.insert(
            key,
            Accepted {
                content,
                until: after(now, rest),
                times,
            },
        );
        true
    }

    /// Another term begins: what failed in the last one is tried again at once.
    pub(crate) fn forgive(&mut self) {
        self.flights.forgive();
    }

    /// Forgets objects that are gone, once a minute.
    pub(crate) fn sweep(&mut self, now: Timestamp, snapshot: &Snapshot) {
        if self.swept.is_some_and(|at| since(now, at) < SWEEP_MS) {
            return;
        }
        self.swept = Some(now);
        self.flights.retain(|(target, _)| exists(snapshot, target));
        self.accepted.retain(|(target, _), accepted| {
            accepted.until > now || (accepted.times > 0 && exists(snapshot, target))
        });
    }
}

/// Which write it is, and a number that is the same for the same content.
fn describe(effect: &Effect) -> Option<(Key, u64)> {
    let hash = FixedState::with_seed(3);
    match effect {
        // The version is no content: the same write of a newer one is still ineffective.
        Effect::Write(write) => {
            let body = write.edit.render(None);
            let content = (body.subresource.is_some(), body.merge.to_string());
            Some((
                (write.target.clone(), WriteKind::Patch),
                hash.hash_one(content),
            ))
        }
        Effect::Delete {
            target,
            uid,
            grace_seconds,
        } => Some((
            (target.clone(), WriteKind::Delete),
            hash.hash_one((uid, grace_seconds)),
        )),
        _ => None,
    }
}

fn exists(snapshot: &Snapshot, target: &ObjectRef) -> bool {
    match target {
        ObjectRef::Node(name) => snapshot.named.contains(name),
        ObjectRef::Claim(name) => snapshot.claims.contains(name),
        ObjectRef::Pool(name) => snapshot.pools.contains_key(name),
        ObjectRef::NodeClass(key) => snapshot.node_classes.contains_key(key),
        ObjectRef::Overlay(name) => snapshot.overlays.contains_key(name),
        ObjectRef::Policy(name) => snapshot.policies.contains_key(name),
        ObjectRef::Pod(key) => snapshot.pods.contains(key),
        ObjectRef::Buffer(key) => snapshot.buffers.contains_key(key),
        ObjectRef::Request(key) => snapshot.gangs.requests.contains_key(key),
        ObjectRef::Deployment(key) => {
            let rollouts = snapshot.rollouts.as_ref();
            rollouts.is_some_and(|all| all.contains_key(key))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(value: &str) -> Effect {
        let labels = [("a".to_owned(), value.to_owned())].into();
        ObjectWrite::add_labels(ObjectRef::Node("n".into()), labels).into()
    }

    #[test]
    fn a_write_that_does_not_show_rests_and_another_does_not() {
        let (t0, mut outbox, mut step) =
            (Timestamp::UNIX_EPOCH, WriteTracker::new(), Step::default());
        assert_eq!(outbox.send(t0, label("x"), &mut step), Ok(()));
        assert_eq!(outbox.send(t0, label("x"), &mut step), Err(None));
        outbox.answered(t0, &label("x"), &Ok(EffectOutput::Written));
        assert_eq!(
            outbox.send(t0, label("x"), &mut step),
            Err(Some(after(t0, 1_000)))
        );
        assert_eq!(
            outbox.send(t0, label("y"), &mut step),
            Ok(()),
            "another content goes at once"
        );
        outbox.answered(t0, &label("y"), &Err(EffectError::Conflict(String::new())));
        assert_eq!(
            outbox.send(t0, label("y"), &mut step),
            Err(Some(after(t0, 100)))
        );
        let t1 = after(t0, 1_000);
        assert_eq!(outbox.send(t1, label("x"), &mut step), Ok(()));
        outbox.answered(t1, &label("x"), &Ok(EffectOutput::Written));
        assert_eq!(
            outbox.send(t1, label("x"), &mut step),
            Err(Some(after(t1, 2_000))),
            "rest doubles"
        );
        assert_eq!(step.effects.len(), 3);
    }

    #[test]
    fn deletions_of_another_object_of_the_name_are_over() {
        let (t0, mut outbox, mut step) =
            (Timestamp::UNIX_EPOCH, WriteTracker::new(), Step::default());
        let delete = || Effect::Delete {
            target: ObjectRef::Claim("c".into()),
            uid: Some("u".into()),
            grace_seconds: None,
        };
        assert_eq!(outbox.send(t0, delete(), &mut step), Ok(()));
        assert!(outbox.answered(t0, &delete(), &Err(EffectError::Conflict(String::new()))));
        assert_eq!(
            outbox.send(t0, delete(), &mut step),
            Err(Some(after(t0, 1_000)))
        );
        assert!(!outbox.answered(t0, &Effect::ListInstances, &Ok(EffectOutput::Sent)));
    }
}
