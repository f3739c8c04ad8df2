//! What follows when settings are others and the histories have parted.
//!
//! The replayed deciders still see the recorded cluster: objects change as they did then. A request that was also made then gets the
//! outcome that it got then. One that was not is not executed: it fails as if the API server or the cloud were out of reach, and a
//! decider that still wants it asks again. So the replay says in each situation of the recorded history what these settings would
//! decide there; it does not say what the cluster would have become.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use mortise_apis::values::{after, since};
use mortise_engine::effect::{Effect, EffectError, EffectOutput};
use mortise_engine::engine::EffectRequest;

/// A request that was not made then fails after this.
const FAILS_AFTER_MS: i64 = 2_000;
/// A recorded request may be made this much later.
const LATE_MS: i64 = 60_000;

type EffectResult = Result<EffectOutput, EffectError>;
/// A request with its outcome.
pub(super) type Answer = (EffectRequest, EffectResult);

/// Requests of both histories that have no counterpart yet.
#[derive(Default)]
pub(super) struct FreeRun {
    /// Recorded ones by text, with their numbers.
    recorded: BTreeMap<String, VecDeque<(Timestamp, u64)>>,
    /// Outcomes of recorded ones.
    outcomes: BTreeMap<u64, (Timestamp, EffectResult)>,
    /// Replayed ones by text.
    waiting: BTreeMap<String, VecDeque<(Timestamp, EffectRequest)>>,
    /// Those of the step at which the histories parted.
    kept: Vec<(String, EffectRequest)>,
    /// The latest time at which deciders were stepped.
    now: Option<Timestamp>,
}

impl FreeRun {
    /// Keeps a request of the step at which the histories part.
    pub(super) fn keep(&mut self, text: String, request: EffectRequest) {
        self.kept.push((text, request));
    }

    /// The time of the next step: not the same one twice.
    pub(super) fn advance(&mut self, wake: Timestamp) -> Timestamp {
        let now = match self.now {
            Some(last) if wake <= last => after(last, 1),
            _ => wake,
        };
        self.now = Some(now);
        now
    }

    /// A request was made then.
    pub(super) fn recorded(
        &mut self,
        at: Timestamp,
        number: u64,
        text: &str,
        numbered: &mut BTreeMap<u64, EffectRequest>,
    ) {
        if let Some((_, request)) = pop(&mut self.waiting, text) {
            numbered.insert(number, request);
        } else {
            let all = self.recorded.entry(text.to_owned()).or_default();
            all.push_back((at, number));
        }
    }

    /// A request is made now. It gets its outcome at once if it is known already.
    pub(super) fn requested(
        &mut self,
        at: Timestamp,
        text: String,
        request: EffectRequest,
        numbered: &mut BTreeMap<u64, EffectRequest>,
    ) -> Vec<Answer> {
        match pop(&mut self.recorded, &text) {
            Some((_, number)) => match self.outcomes.remove(&number) {
                Some((_, result)) => return vec![(request, result)],
                None => drop(numbered.insert(number, request)),
            },
            // Nothing waits for what becomes of an event.
            None if matches!(&*request.effect, Effect::Event(_)) => {}
            None => self
                .waiting
                .entry(text)
                .or_default()
                .push_back((at, request)),
        }
        Vec::new()
    }

    /// The outcome of a recorded request that was not made now.
    pub(super) fn outcome(&mut self, at: Timestamp, number: u64, result: EffectResult) {
        self.outcomes.insert(number, (at, result));
    }

    /// Requests that nothing then answers, with their failures.
    pub(super) fn overdue(&mut self, at: Timestamp) -> Vec<Answer> {
        for (text, request) in std::mem::take(&mut self.kept) {
            let all = self.waiting.entry(text).or_default();
            all.push_back((at, request));
        }
        self.recorded.retain(|_, all| {
            all.retain(|(made, _)| since(at, *made) < LATE_MS);
            !all.is_empty()
        });
        self.outcomes
            .retain(|_, (came, _)| since(at, *came) < LATE_MS);
        let mut failed = Vec::new();
        self.waiting.retain(|_, all| {
            while let Some((made, _)) = all.front()
                && since(at, *made) >= FAILS_AFTER_MS
                && let Some((_, request)) = all.pop_front()
            {
                let message = "the recorded history has no such request".to_owned();
                failed.push((request, Err(EffectError::Unavailable(message))));
            }
            !all.is_empty()
        });
        failed
    }
}

/// Takes the first one of a text.
fn pop<T>(all: &mut BTreeMap<String, VecDeque<T>>, text: &str) -> Option<T> {
    let queue = all.get_mut(text)?;
    let first = queue.pop_front();
    if queue.is_empty() {
        all.remove(text);
    }
    first
}
