//! Whether the queue says everything. EC2 sends an event for every instance that ends; when those of instances that we ended do not
//! come, another reader takes from the queue, such as a second cluster, or a rule is missing. Messages about instances of others say
//! nothing: the rules are for the whole account.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Events come within seconds; one that has not come after this was lost.
const PATIENCE: Duration = Duration::from_secs(300);
/// This many instances are looked back on.
const REMEMBERED: usize = 50;
/// Fewer say nothing.
const ENOUGH: usize = 10;
/// Instances whose end is awaited at most; more say nothing new.
const AWAITED: usize = 1_000;

#[derive(Debug, Default)]
struct Ends {
    awaited: BTreeMap<Arc<str>, Instant>,
    /// Whether the event of an instance came, newest last.
    came: VecDeque<bool>,
}

/// Ends of instances, as expected and as told.
#[derive(Debug, Default)]
pub(crate) struct QueueAudit {
    ends: Mutex<Ends>,
}

impl QueueAudit {
    /// An instance ends.
    pub(crate) fn expect(&self, id: &str) {
        let mut ends = self.lock();
        if ends.awaited.len() < AWAITED {
            ends.awaited
                .entry(Arc::from(id))
                .or_insert_with(Instant::now);
        }
    }

    /// The queue told the end of an instance.
    pub(crate) fn seen(&self, id: &str) {
        let mut ends = self.lock();
        if ends.awaited.remove(id).is_some() {
            remember(&mut ends, true);
        }
    }

    /// What is wrong with the queue; `None` if it told nearly every end.
    pub(crate) fn fault(&self) -> Option<String> {
        let mut ends = self.lock();
        let now = Instant::now();
        let all = ends.awaited.len();
        ends.awaited.retain(|_, since| now - *since < PATIENCE);
        for _ in ends.awaited.len()..all {
            remember(&mut ends, false);
        }
        let (known, lost) = (
            ends.came.len(),
            ends.came.iter().filter(|came| !**came).count(),
        );
        drop(ends);
        if known < ENOUGH || lost * 5 < known {
            None
        } else if lost == known {
            Some(format!(
                "no state change of the last {known} terminated instances arrived: check the rule for EC2 Instance State-change Notification and its target, and that nothing else reads the queue"
            ))
        } else {
            Some(format!(
                "state changes of {lost} of the last {known} terminated instances did not arrive: something else reads the queue, such as another cluster; each cluster needs a queue of its own"
            ))
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remember(ends: &mut Ends, came: bool) {
    if ends.came.len() == REMEMBERED {
        ends.came.pop_front();
    }
    ends.came.push_back(came);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_reader_shows_by_what_is_missing() {
        let audit = QueueAudit::default();
        let end = async |from: usize, told: fn(usize) -> bool| {
            for n in from..from + 20 {
                let id = format!("i-{n}");
                audit.expect(&id);
                if told(n) {
                    audit.seen(&id);
                    audit.seen(&id);
                }
            }
            tokio::time::advance(PATIENCE).await;
            audit.fault()
        };
        assert_eq!(end(0, |_| true).await, None);
        let shared = end(20, |n| n % 2 == 0).await.unwrap();
        assert!(
            shared.starts_with("state changes of 10 of the last 40"),
            "{shared}"
        );
        end(40, |_| true).await;
        end(60, |_| true).await;
        assert_eq!(end(80, |_| true).await, None, "most of it was long ago");
        for from in [100, 120, 140] {
            end(from, |_| false).await;
        }
        let deaf = audit.fault().unwrap();
        assert!(deaf.starts_with("no state change of the last 50"), "{deaf}");
    }
}
