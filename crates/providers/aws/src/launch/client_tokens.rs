//! Tokens of launch requests: derived from the claim's UID, so that a repetition is the same request, and changed only when EC2 has
//! answered one of them without an instance.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long an instance of an earlier request may stay invisible. EC2's lists usually lag by seconds; minutes are unheard of.
const SETTLED: Duration = Duration::from_secs(5 * 60);
/// How long tokens are remembered.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Requests made for claims, so that a request that was answered "nothing" can be followed by another one.
#[derive(Debug, Default)]
pub(crate) struct ClientTokens {
    by_uid: Mutex<HashMap<String, TokenState>>,
}

/// The token of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientToken {
    pub(crate) text: String,
    /// How many requests were answered before.
    pub(crate) answered: u32,
}

#[derive(Clone, Copy, Debug)]
struct TokenState {
    /// How many requests were answered without an instance.
    answered: u32,
    /// Since when EC2 says that it knows the token, while no instance is visible.
    unsettled: Option<Instant>,
    touched: Instant,
}

impl ClientTokens {
    /// The token of the next request: the UID, and how often EC2 has already answered for it. The claim is known from then on.
    pub(crate) fn token(&self, uid: &str) -> ClientToken {
        let mut answered = 0;
        self.change(uid, |attempt| answered = attempt.answered);
        let text = match answered {
            0 => uid.to_owned(),
            answered => format!("{uid}-{answered}"),
        };
        ClientToken { text, answered }
    }

    /// Whether a request was made for the claim before.
    pub(crate) fn is_known(&self, uid: &str) -> bool {
        self.lock().contains_key(uid)
    }

    /// This number of requests was answered, by this process or others: the next one needs another token.
    pub(crate) fn answered_before(&self, uid: &str, answered: u32) {
        self.change(uid, |attempt| {
            if attempt.answered < answered {
                attempt.answered = answered;
                attempt.unsettled = None;
            }
        });
    }

    /// EC2 answered without an instance: the next request needs another token.
    pub(crate) fn answered(&self, uid: &str) {
        self.change(uid, |attempt| {
            attempt.answered += 1;
            attempt.unsettled = None;
        });
    }

    /// Notes that the token was used before. Returns whether the instance of that request should have been seen by now.
    pub(crate) fn unsettled(&self, uid: &str) -> bool {
        let mut settled = false;
        self.change(uid, |attempt| {
            let since = *attempt.unsettled.get_or_insert_with(Instant::now);
            if since.elapsed() >= SETTLED {
                settled = true;
                attempt.answered += 1;
                attempt.unsettled = None;
            }
        });
        settled
    }

    /// The instance is known; tokens are not needed any more.
    pub(crate) fn done(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn change(&self, uid: &str, change: impl FnOnce(&mut TokenState)) {
        let mut all = self.lock();
        all.retain(|_, attempt| attempt.touched.elapsed() < REMEMBERED);
        let attempt = all.entry(uid.to_owned()).or_insert_with(|| TokenState {
            answered: 0,
            unsettled: None,
            touched: Instant::now(),
        });
        attempt.touched = Instant::now();
        change(attempt);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, TokenState>> {
        self.by_uid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tokens_follow_what_ec2_answered() {
        let attempts = ClientTokens::default();
        let text = || attempts.token("u").text;
        assert!(!attempts.is_known("u"));
        assert_eq!(text(), "u");
        assert!(attempts.is_known("u"));
        assert_eq!(text(), "u", "a repetition has the same token");
        attempts.answered("u");
        assert_eq!(
            text(),
            "u-1",
            "an answer without an instance frees the next one"
        );
        assert!(!attempts.unsettled("u"));
        assert_eq!(text(), "u-1", "an instance may still become visible");
        tokio::time::advance(SETTLED).await;
        assert!(attempts.unsettled("u"));
        assert_eq!(text(), "u-2");
        attempts.answered_before("u", 1);
        assert_eq!(text(), "u-2");
        attempts.answered_before("u", 3);
        assert_eq!(text(), "u-3", "another process made them");
        attempts.done("u");
        assert_eq!(text(), "u");
    }
}
