//! When a burst of pending pods is over, so that pods that belong together are solved together.
//!
//! # The rule
//! A batch is over once no pod was added for a *quiet* time of `100 ms + half of what the batch has lasted`, at most
//! `batch_idle_ms`; and `batch_max_ms` after its first pod in any case.
//!
//! # Derivation
//! - 100 ms: kube-controller-manager creates pods at 20 a second once its burst of 30 is used up, so the pods of one
//!   scale-up are at most 50 ms apart; twice that survives one late answer. A single pod therefore waits 100 ms. With
//!   50 ms of watch delay and 50 ms to solve and to create, "pod created -> NodeClaim created" stays under 300 ms.
//! - Half of the length: how long a burst will go on is best guessed by how long it has gone on. Waiting a fixed share
//!   of that costs at most that share (a burst of 1 s is solved 600 ms after its last pod), and a pause within a long
//!   roll-out does not cut it into pieces, each of which would get nodes of its own.
//! - The settings are upper bounds. They are Karpenter's whole rule: 1 s for every pod.

use jiff::Timestamp;

use mortise_apis::values::{after, since};
use mortise_planning::settings::Settings;

/// Quiet time after a single pod, in milliseconds.
const QUIET_MS: i64 = 100;

/// Pods that wait to be solved together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BatchWindow {
    window: Option<(Timestamp, Timestamp)>,
}

impl BatchWindow {
    /// A pod was added.
    pub(super) const fn add(&mut self, now: Timestamp) {
        self.window = match self.window {
            Some((first, _)) => Some((first, now)),
            None => Some((now, now)),
        };
    }

    /// Pods wait for its end.
    pub(super) const fn is_open(&self) -> bool {
        self.window.is_some()
    }

    /// When it is over if no further pod comes; `None` while nothing waits.
    pub(super) fn ends(&self, settings: &Settings) -> Option<Timestamp> {
        let (first, last) = self.window?;
        let quiet = QUIET_MS + since(last, first) / 2;
        let idle = after(last, quiet.min(settings.batch_idle_ms));
        Some(idle.min(after(first, settings.batch_max_ms)))
    }

    /// It was solved.
    pub(super) const fn close(&mut self) {
        self.window = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        after(Timestamp::UNIX_EPOCH, ms)
    }

    #[track_caller]
    fn ends(arrivals: &[i64], want: i64) {
        let mut batch = BatchWindow::default();
        for ms in arrivals {
            batch.add(at(*ms));
        }
        assert_eq!(
            batch.ends(&Settings::default()),
            Some(at(want)),
            "{arrivals:?}"
        );
    }

    #[test]
    fn waits_longer_the_longer_a_burst_lasts_within_the_settings() {
        assert_eq!(BatchWindow::default().ends(&Settings::default()), None);
        ends(&[0], 100);
        ends(&[0, 50], 175);
        ends(&[0, 1_000], 1_600);
        ends(&[0, 5_000], 6_000);
        ends(&[0, 9_500], 10_000);
        ends(&[0, 12_000], 10_000);
    }
}
