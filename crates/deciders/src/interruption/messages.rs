//! Messages that wait for what they ask for to be stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mortise_apis::names::Uid;
use mortise_engine::decider::Step;
use mortise_engine::effect::Effect;

/// A message: which provider's, and its handle.
pub(super) type MessageKey = (Arc<str>, Arc<str>);

/// Open messages, found from both sides.
#[derive(Debug, Default)]
pub(super) struct OpenMessages {
    waits: BTreeMap<MessageKey, BTreeSet<Uid>>,
    by_claim: BTreeMap<Uid, BTreeSet<MessageKey>>,
}

impl OpenMessages {
    /// Acknowledges a message when these claims are done; at once when there are none.
    pub(super) fn wait(&mut self, key: MessageKey, claims: BTreeSet<Uid>, step: &mut Step) {
        if claims.is_empty() {
            acknowledge(key, step);
            return;
        }
        for uid in &claims {
            self.by_claim
                .entry(uid.clone())
                .or_default()
                .insert(key.clone());
        }
        self.waits.insert(key, claims);
    }

    /// A claim is done: messages that waited for it, and for nothing else, are acknowledged.
    pub(super) fn done(&mut self, uid: &Uid, step: &mut Step) {
        for key in self.by_claim.remove(uid).unwrap_or_default() {
            let Some(waits) = self.waits.get_mut(&key) else {
                continue;
            };
            waits.remove(uid);
            if waits.is_empty() {
                self.waits.remove(&key);
                acknowledge(key, step);
            }
        }
    }
}

fn acknowledge((provider, notice): MessageKey, step: &mut Step) {
    step.effect(Effect::Acknowledge { provider, notice });
}
