//! How many instances each capacity reservation still takes: EC2's own count, corrected by what was launched and terminated since.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a count is believed without being read again.
/// # Source
/// The reference implementation's number; classes that select a reservation have it read every minute.
const TTL: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Copy, Debug)]
struct ReservationCount {
    left: u32,
    /// When EC2 was asked.
    read: Instant,
    expires: Instant,
}

/// Free instances by reservation id.
#[derive(Debug, Default)]
pub(crate) struct ReservationCounts {
    by_id: Mutex<BTreeMap<Arc<str>, ReservationCount>>,
}

impl ReservationCounts {
    /// Free instances of a reservation; 0 for one that is not known.
    pub(crate) fn left(&self, id: &str) -> u32 {
        let now = Instant::now();
        let all = self.lock();
        all.get(id)
            .filter(|count| count.expires > now)
            .map_or(0, |count| count.left)
    }

    /// EC2 said at `read` that `left` are free.
    pub(crate) fn read(&self, id: &str, left: u32, read: Instant) {
        let count = ReservationCount {
            left,
            read,
            expires: Instant::now() + TTL,
        };
        self.lock().insert(Arc::from(id), count);
    }

    /// An instance was launched into a reservation at `launched`. Counts unless EC2 was asked later than that.
    pub(crate) fn launched(&self, id: &str, launched: Instant) {
        self.change(id, |count| {
            if count.read <= launched {
                count.left = count.left.saturating_sub(1);
            }
        });
    }

    /// An instance of a reservation is gone.
    pub(crate) fn terminated(&self, id: &str) {
        self.change(id, |count| count.left = count.left.saturating_add(1));
    }

    /// EC2 refused a launch into a reservation, or takes its instances away: nothing is free until it is asked again.
    pub(crate) fn exhausted(&self, id: &str) {
        self.change(id, |count| count.left = 0);
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut ReservationCount)) {
        if let Some(count) = self.lock().get_mut(id) {
            change(count);
            count.expires = Instant::now() + TTL;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, ReservationCount>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn launches_count_until_ec2_is_asked_again() {
        let counts = ReservationCounts::default();
        assert_eq!(counts.left("cr-1"), 0, "not known");
        counts.launched("cr-1", Instant::now());
        counts.read("cr-1", 2, Instant::now());
        tokio::time::advance(Duration::from_secs(1)).await;
        let launched = Instant::now();
        counts.launched("cr-1", launched);
        assert_eq!(counts.left("cr-1"), 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        counts.read("cr-1", 1, Instant::now());
        counts.launched("cr-1", launched);
        assert_eq!(counts.left("cr-1"), 1, "EC2's count has it already");
        counts.exhausted("cr-1");
        assert_eq!(counts.left("cr-1"), 0);
        counts.terminated("cr-1");
        assert_eq!(counts.left("cr-1"), 1);
        tokio::time::advance(TTL).await;
        assert_eq!(counts.left("cr-1"), 0);
    }
}
