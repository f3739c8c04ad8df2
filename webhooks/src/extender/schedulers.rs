//! Which schedulers ask, and whether pods are bound that no scheduler asked about.
//!
//! kube-scheduler passes over an extender that it cannot reach (`ignorable`) and says nothing about it. Every pod that it
//! binds was a filter call a moment before, so a bind without a call for a minute means that calls do not arrive: a server
//! name that is not in the certificate, a wrong URL, an entry that was never written. With several replicas a scheduler
//! asks one of them, which forwards the calls to the leader: the others know nothing of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

/// A bind this long after the newest call was made without asking.
const SILENCE: SignedDuration = SignedDuration::from_secs(60);
/// Schedulers that are told apart; the names come from pods, so there may be any number.
const MOST: usize = 16;
/// `spec.schedulerName` of the pod that `mortise check scheduler --live` asks about. Its calls prove that the way is open,
/// not that a scheduler uses it.
pub const CHECK_SCHEDULER: &str = "mortise-check";
/// kube-scheduler's own name, which pods without `spec.schedulerName` mean.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The newest call about pods of one scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchedulerCalls {
    /// `spec.schedulerName` of the pods.
    pub scheduler: String,
    /// When it asked last.
    pub last: Timestamp,
    /// Calls since the start.
    pub calls: u64,
}

/// What is known of all schedulers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallsSeen {
    /// The schedulers from which calls came, by name.
    pub schedulers: Vec<SchedulerCalls>,
    /// Pods bound without a call in the minute before, since the newest call.
    pub unasked_binds: u64,
    /// The newest call, or since when binds are watched when there was none; `None` before the first of either.
    pub silent_since: Option<Timestamp>,
}

/// The record of calls and binds. Bounded; a call costs one lock.
#[derive(Debug, Default)]
pub struct Schedulers {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_name: BTreeMap<Box<str>, (Timestamp, u64)>,
    since: Option<Timestamp>,
    unasked: u64,
}

impl Schedulers {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A scheduler asked about one of its pods.
    pub fn record_call(&self, scheduler: Option<&str>, now: Timestamp) {
        let name = scheduler
            .filter(|name| !name.is_empty())
            .unwrap_or(DEFAULT_SCHEDULER);
        let mut inner = self.lock();
        if let Some((last, calls)) = inner.by_name.get_mut(name) {
            *last = now;
            *calls += 1;
        } else if inner.by_name.len() < MOST {
            inner.by_name.insert(name.into(), (now, 1));
        }
        if name != CHECK_SCHEDULER {
            inner.since = Some(now);
            inner.unasked = 0;
        }
    }

    /// A call was answered by another replica, which knows about which pod it was.
    pub fn record_forwarded_call(&self, now: Timestamp) {
        let mut inner = self.lock();
        inner.since = Some(now);
        inner.unasked = 0;
    }

    /// A pod was seen to be bound.
    pub fn record_bind(&self, now: Timestamp) {
        let mut inner = self.lock();
        let since = *inner.since.get_or_insert(now);
        if now.duration_since(since) > SILENCE {
            inner.unasked += 1;
        }
    }

    /// What is known at this moment.
    #[must_use]
    pub fn calls_seen(&self) -> CallsSeen {
        let inner = self.lock();
        let schedulers = inner.by_name.iter();
        CallsSeen {
            schedulers: schedulers
                .map(|(name, (last, calls))| SchedulerCalls {
                    scheduler: name.to_string(),
                    last: *last,
                    calls: *calls,
                })
                .collect(),
            unasked_binds: inner.unasked,
            silent_since: inner.since,
        }
    }

    /// Pods bound without a call in the minute before, since the newest call.
    #[must_use]
    pub fn unasked_binds(&self) -> u64 {
        self.lock().unasked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    #[test]
    fn binds_without_calls_are_counted_after_a_minute() {
        let schedulers = Schedulers::default();
        for second in [0, 30, 60] {
            schedulers.record_bind(at(second));
        }
        assert_eq!(schedulers.unasked_binds(), 0, "the first minute");
        schedulers.record_bind(at(61));
        schedulers.record_bind(at(62));
        let seen = schedulers.calls_seen();
        assert_eq!((seen.unasked_binds, seen.schedulers.len()), (2, 0));
        assert_eq!(seen.silent_since, Some(at(0)));
    }

    #[test]
    fn a_call_ends_the_silence_and_a_quiet_cluster_is_not_silent() {
        let schedulers = Schedulers::default();
        schedulers.record_bind(at(0));
        schedulers.record_bind(at(100));
        assert_eq!(schedulers.unasked_binds(), 1);
        schedulers.record_call(None, at(101));
        assert_eq!(schedulers.unasked_binds(), 0);
        // A pod every ten minutes, each asked about before it is bound.
        for ten in 1..5 {
            schedulers.record_call(Some("second"), at(600 * ten));
            schedulers.record_bind(at(600 * ten + 1));
        }
        let seen = schedulers.calls_seen();
        assert_eq!(seen.unasked_binds, 0);
        let names: Vec<_> = seen
            .schedulers
            .iter()
            .map(|each| &*each.scheduler)
            .collect();
        assert_eq!(names, ["default-scheduler", "second"]);
        assert_eq!(seen.schedulers.last().map(|each| each.calls), Some(4));
    }

    #[test]
    fn a_check_is_no_scheduler_and_names_are_bounded() {
        let schedulers = Schedulers::default();
        schedulers.record_bind(at(0));
        schedulers.record_call(Some(CHECK_SCHEDULER), at(50));
        schedulers.record_bind(at(70));
        assert_eq!(schedulers.unasked_binds(), 1);
        for name in 0..100 {
            schedulers.record_call(Some(&name.to_string()), at(80));
        }
        assert_eq!(schedulers.calls_seen().schedulers.len(), MOST);
        assert_eq!(schedulers.unasked_binds(), 0);
    }
}
