//! What was said already, so that something that stays true is said once and not at every look.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::since;
use crate::effect::ObjectRef;

/// How long something said is remembered at most. Longer than every period with which things are said again.
const REMEMBERED_MS: i64 = 60 * 60_000;

/// What was said per subject and topic.
///
/// Cost: one entry per subject and topic that was ever worth a word in the last hour.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    said: BTreeMap<(ObjectRef, &'static str), Said>,
    swept: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Said {
    text: String,
    at: Timestamp,
}

impl Told {
    /// Whether this is worth saying: another text than last time, or the same after `every_ms`. If so it counts as said.
    pub(crate) fn is_news(
        &mut self,
        subject: &ObjectRef,
        topic: &'static str,
        text: &str,
        now: Timestamp,
        every_ms: i64,
    ) -> bool {
        let key = (subject.clone(), topic);
        if let Some(said) = self.said.get(&key)
            && said.text == text
            && since(now, said.at) < every_ms
        {
            return false;
        }
        self.said.insert(
            key,
            Said {
                text: text.to_owned(),
                at: now,
            },
        );
        true
    }

    /// Forgets a topic of a subject: it is over, and if it comes back it is news.
    pub(crate) fn forget(&mut self, subject: &ObjectRef, topic: &'static str) {
        self.said.remove(&(subject.clone(), topic));
    }

    /// Drops what is older than is remembered. Cheap to call at every step: it works once a minute.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        if self.swept.is_some_and(|at| since(now, at) < 60_000) {
            return;
        }
        self.swept = Some(now);
        self.said
            .retain(|_, said| since(now, said.at) < REMEMBERED_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::super::after;
    use super::*;

    #[test]
    fn says_again_when_the_text_changes_or_time_has_passed() {
        let t0 = Timestamp::UNIX_EPOCH;
        let node = ObjectRef::Node("n".into());
        let mut told = Told::default();
        assert!(told.is_news(&node, "a", "x", t0, 1_000));
        assert!(!told.is_news(&node, "a", "x", after(t0, 999), 1_000));
        assert!(told.is_news(&node, "a", "y", after(t0, 999), 1_000));
        assert!(told.is_news(&node, "b", "y", after(t0, 999), 1_000));
        assert!(told.is_news(&node, "a", "y", after(t0, 1_999), 1_000));
        told.forget(&node, "a");
        assert!(told.is_news(&node, "a", "y", after(t0, 2_000), 1_000));
        told.sweep(after(t0, 2 * REMEMBERED_MS));
        assert!(told.said.is_empty());
    }
}
