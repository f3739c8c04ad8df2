//! How long what is outside of the service takes.

use mortise_apis::values::SplitMix64;

/// Durations in milliseconds, each from and to; the one that counts is random.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// From the launch of an instance to its Node.
    pub(crate) boot: StartTime,
    /// From the binding of a pod to its running containers.
    pub(crate) pod_start: StartTime,
    /// The pull of an image that a node does not have; `None`: part of the start.
    pub(crate) image_pull: Option<StartTime>,
    /// The attachment of the volumes of a pod; `None`: it takes no time.
    pub(crate) volume_attach: Option<StartTime>,
    /// From the recommendation to leave an instance to its interruption; `None`: nothing is recommended.
    pub(crate) rebalance_ahead: Option<StartTime>,
    /// From the deletion of a pod to its end.
    pub(crate) pod_stop_ms: (i64, i64),
    /// From the request to terminate an instance to its end; 0 = the provider confirms the end at once.
    pub(crate) termination_ms: (i64, i64),
    /// The deletion time of a pod includes its grace period, as in Kubernetes. Otherwise it is the time of the request.
    pub(crate) marks_grace: bool,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            boot: StartTime::between(15_000, 35_000),
            pod_start: StartTime::between(800, 2_500),
            image_pull: None,
            volume_attach: None,
            rebalance_ahead: None,
            pod_stop_ms: (500, 3_000),
            termination_ms: (5_000, 20_000),
            marks_grace: false,
        }
    }
}

/// A distribution of durations in whole milliseconds: uniform, except for a share that takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartTime {
    /// The shortest.
    pub(crate) from_ms: i64,
    /// The longest of those that are not slow.
    pub(crate) to_ms: i64,
    /// Share of the slow ones, in percent.
    pub(crate) slow_percent: u64,
    /// The longest of the slow ones; the shortest takes `to_ms`.
    pub(crate) slow_to_ms: i64,
}

impl StartTime {
    pub(crate) const fn between(from_ms: i64, to_ms: i64) -> Self {
        Self {
            from_ms,
            to_ms,
            slow_percent: 0,
            slow_to_ms: to_ms,
        }
    }

    /// One duration. Integers only: other processors draw the same.
    pub(crate) fn draw(&self, random: &mut SplitMix64) -> i64 {
        let is_slow = self.slow_percent > 0 && random.chance(self.slow_percent * 10);
        if is_slow {
            random.between(self.to_ms, self.slow_to_ms)
        } else {
            random.between(self.from_ms, self.to_ms)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_slow_as_stated() {
        let time = StartTime {
            slow_percent: 10,
            slow_to_ms: 300_000,
            ..StartTime::between(20_000, 40_000)
        };
        let mut random = SplitMix64::new(1);
        let drawn: Vec<i64> = (0..1_000).map(|_| time.draw(&mut random)).collect();
        assert!(drawn.iter().all(|ms| (20_000..=300_000).contains(ms)));
        let slow = drawn.iter().filter(|ms| **ms > 40_000).count();
        assert!((70..=130).contains(&slow), "{slow} of 1,000");
    }

    #[test]
    fn without_slow_ones_one_number_is_drawn() {
        let mut random = SplitMix64::new(7);
        let drawn = StartTime::between(5, 9).draw(&mut random);
        let mut other = SplitMix64::new(7);
        assert_eq!(drawn, other.between(5, 9));
        assert_eq!(random.next_u64(), other.next_u64());
    }
}
