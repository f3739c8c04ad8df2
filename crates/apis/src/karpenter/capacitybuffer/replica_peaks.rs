//! The most replicas that a workload had in each hour of the last weeks, and what follows for the next hour.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use jiff::Timestamp;
use thiserror::Error;

const HOUR_S: i64 = 3_600;
/// Hours of a week.
const WEEK: i64 = 7 * 24;
/// Weeks that are kept.
const WEEKS: i64 = 4;
/// Hours that are kept: the current one, and the last weeks.
const MOST_HOURS: usize = (WEEKS * WEEK) as usize + 1;

/// The most replicas of a workload in each hour (UTC), from a first hour on. An hour in which the workload was not seen has none.
///
/// As text it is the first hour and the peaks, equal ones with their number: `2026-11-02T08:00:00Z 3 5*2 -*3 4`.
///
/// # Cost
/// At most 673 hours of 8 bytes; some 2 KiB of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaPeaks {
    /// Hours since 1970.
    first: i64,
    peaks: VecDeque<Option<u32>>,
}

/// What is expected for an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedReplicas {
    /// Most replicas.
    pub replicas: u32,
    /// Number of weeks that it is known from.
    pub weeks: usize,
}

/// How expectations would have done in the last week.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hindsight {
    /// Hours with an expectation.
    pub hours: usize,
    /// Those of them in which the workload had no more replicas than were expected.
    pub covered: usize,
}

/// Why recorded peaks cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseReplicaPeaksError {
    /// The text does not begin with a full hour.
    #[error("{0:?} is not a full hour; a time such as 2026-11-02T08:00:00Z is allowed")]
    FirstHour(String),
    /// One of the peaks cannot be read.
    #[error(
        "{0:?} is not a number of replicas; 12, 12*3 (three hours) and - (not known) are allowed"
    )]
    Peak(String),
    /// There are too many hours.
    #[error("there are more than {MOST_HOURS} hours")]
    TooLong,
}

/// The hour of a time, in hours since 1970.
fn hour_of(now: Timestamp) -> i64 {
    now.as_second().div_euclid(HOUR_S)
}

fn begin_of(hour: i64) -> Timestamp {
    Timestamp::from_second(hour.saturating_mul(HOUR_S)).unwrap_or(Timestamp::MAX)
}

/// When the next full hour begins.
#[must_use]
pub fn next_hour(now: Timestamp) -> Timestamp {
    begin_of(hour_of(now) + 1)
}

impl ReplicaPeaks {
    /// The hour from which on peaks are recorded; `None` if there are none.
    #[must_use]
    pub fn since(&self) -> Option<Timestamp> {
        (!self.peaks.is_empty()).then(|| begin_of(self.first))
    }

    /// The peak of the hour that a time is in.
    #[must_use]
    pub fn peak_at(&self, time: Timestamp) -> Option<u32> {
        self.peak(hour_of(time))
    }

    fn peak(&self, hour: i64) -> Option<u32> {
        let index = usize::try_from(hour - self.first).ok()?;
        self.peaks.get(index).copied().flatten()
    }

    /// Records that there are this many replicas. Hours of more than four weeks ago are forgotten. A time before the first hour is
    /// too late to be recorded.
    pub fn record(&mut self, at: Timestamp, replicas: u32) {
        let hour = hour_of(at);
        let is_far = hour - self.first > self.peaks.len() as i64 + MOST_HOURS as i64;
        if self.peaks.is_empty() || is_far {
            self.first = hour;
            self.peaks.clear();
        }
        let Ok(index) = usize::try_from(hour - self.first) else {
            return;
        };
        while self.peaks.len() <= index {
            self.peaks.push_back(None);
        }
        if let Some(peak) = self.peaks.get_mut(index) {
            *peak = (*peak).max(Some(replicas));
        }
        while self.peaks.len() > MOST_HOURS || self.peaks.front() == Some(&None) {
            self.peaks.pop_front();
            self.first += 1;
        }
    }

    /// The replicas that are expected in the hour that begins now: those of the same hours of the last weeks, of which this
    /// percentile is taken by the nearest rank. `None` until a week is recorded.
    #[must_use]
    pub fn expected(&self, now: Timestamp, percentile: u8) -> Option<ExpectedReplicas> {
        self.expected_in(hour_of(now), percentile)
    }

    /// An hour that begins within an hour of the clock ends in the next one.
    fn expected_in(&self, hour: i64, percentile: u8) -> Option<ExpectedReplicas> {
        let weeks = (1..=WEEKS).map(|weeks| hour - weeks * WEEK);
        let peaks = weeks.filter_map(|then| self.peak(then).max(self.peak(then + 1)));
        let mut peaks: Vec<u32> = peaks.collect();
        peaks.sort_unstable();
        let rank = (peaks.len() * usize::from(percentile)).div_ceil(100);
        let replicas = *peaks.get(rank.checked_sub(1)?)?;
        Some(ExpectedReplicas {
            replicas,
            weeks: peaks.len(),
        })
    }

    /// How this percentile would have done in the last 168 hours.
    #[must_use]
    pub fn hindsight(&self, now: Timestamp, percentile: u8) -> Hindsight {
        let hour = hour_of(now);
        let mut found = Hindsight::default();
        for then in hour - WEEK..hour {
            if let (Some(peak), Some(expected)) =
                (self.peak(then), self.expected_in(then, percentile))
            {
                found.hours += 1;
                found.covered += usize::from(peak <= expected.replicas);
            }
        }
        found
    }
}

impl fmt::Display for ReplicaPeaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", begin_of(self.first))?;
        let mut peaks = self.peaks.iter().peekable();
        while let Some(peak) = peaks.next() {
            let mut number = 1;
            while peaks.next_if_eq(&peak).is_some() {
                number += 1;
            }
            f.write_char(' ')?;
            match peak {
                Some(peak) => write!(f, "{peak}")?,
                None => f.write_char('-')?,
            }
            if number > 1 {
                write!(f, "*{number}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for ReplicaPeaks {
    type Err = ParseReplicaPeaksError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split_ascii_whitespace();
        let begin = words.next().unwrap_or_default();
        let no_hour = || ParseReplicaPeaksError::FirstHour(begin.to_owned());
        let first: Timestamp = begin.parse().map_err(|_| no_hour())?;
        let first = hour_of(
            Some(first)
                .filter(|at| begin_of(hour_of(*at)) == *at)
                .ok_or_else(no_hour)?,
        );
        let mut peaks = VecDeque::new();
        for word in words {
            let (peak, number) = word.split_once('*').unwrap_or((word, "1"));
            let bad = || ParseReplicaPeaksError::Peak(word.to_owned());
            let peak = match peak {
                "-" => None,
                number => Some(number.parse::<u32>().map_err(|_| bad())?),
            };
            let number: usize = number.parse().map_err(|_| bad())?;
            if number == 0 {
                return Err(bad());
            }
            if number > MOST_HOURS - peaks.len() {
                return Err(ParseReplicaPeaksError::TooLong);
            }
            peaks.extend(std::iter::repeat_n(peak, number));
        }
        Ok(Self { first, peaks })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::values::SplitMix64;

    fn at(hour: i64) -> Timestamp {
        begin_of(hour)
    }

    fn read(text: &str) -> ReplicaPeaks {
        text.parse().unwrap()
    }

    #[test]
    fn text_is_short_and_read_again() {
        let mut peaks = ReplicaPeaks::default();
        assert_eq!(peaks.since(), None);
        for (hour, replicas) in [(8, 3), (9, 5), (9, 4), (10, 5), (14, 4)] {
            peaks.record(at(hour), replicas);
        }
        let text = "1970-01-01T08:00:00Z 3 5*2 -*3 4";
        assert_eq!(peaks.to_string(), text);
        assert_eq!(read(text), peaks);
        assert_eq!(peaks.since(), Some(at(8)));
        assert_eq!(
            [8, 9, 11, 15, 7].map(|hour| peaks.peak(hour)),
            [Some(3), Some(5), None, None, None]
        );
        // A clock that is behind loses nothing, and what is too old is no news.
        peaks.record(at(9), 9);
        peaks.record(at(1), 9);
        assert_eq!(peaks.to_string(), "1970-01-01T08:00:00Z 3 9 5 -*3 4");
        let table = [
            ("", "\"\" is not a full hour"),
            ("8 3", "\"8\" is not a full hour"),
            ("1970-01-01T08:30:00Z 3", "is not a full hour"),
            (
                "1970-01-01T08:00:00Z 3 x",
                "\"x\" is not a number of replicas",
            ),
            ("1970-01-01T08:00:00Z 3*0", "\"3*0\" is not"),
            ("1970-01-01T08:00:00Z -3", "\"-3\" is not"),
            ("1970-01-01T08:00:00Z 3*600 4*74", "more than 673 hours"),
            ("1970-01-01T08:00:00Z 3*99999999999", "more than 673 hours"),
        ];
        for (text, part) in table {
            let error = text.parse::<ReplicaPeaks>().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    /// Against counting: the hours of four weeks are kept, whatever comes between them.
    #[test]
    fn four_weeks_are_kept() {
        let mut random = SplitMix64::new(7);
        let (mut peaks, mut all, mut hour) = (ReplicaPeaks::default(), BTreeMap::new(), 400_000);
        for _ in 0..3_000 {
            let replicas = u32::try_from(random.next_u64() % 40).unwrap();
            hour += match random.next_u64() % 64 {
                0 => 800,
                1 => 30,
                2..8 => 2,
                8..20 => 0,
                _ => 1,
            };
            peaks.record(at(hour), replicas);
            let most: &mut u32 = all.entry(hour).or_default();
            *most = replicas.max(*most);
            for back in 0..=WEEKS * WEEK {
                let then = hour - back;
                assert_eq!(
                    peaks.peak(then),
                    all.get(&then).copied(),
                    "{then} of {hour}"
                );
            }
            assert_eq!(peaks.peak(hour - WEEKS * WEEK - 1), None);
            assert!(peaks.peaks.len() <= MOST_HOURS);
            assert_eq!(read(&peaks.to_string()), peaks);
        }
    }

    #[test]
    fn the_same_hours_of_the_last_weeks_are_expected() {
        let mut peaks = ReplicaPeaks::default();
        let begin = 3_000 * WEEK;
        // Ten replicas at eight, and twenty in the third week; else two.
        for hour in 0..4 * WEEK {
            let (week, hour_of_day) = (hour / WEEK, hour % 24);
            let replicas = match (hour_of_day, week) {
                (8, 2) => 20,
                (8, _) => 10,
                _ => 2,
            };
            let now = at(begin + hour);
            let known = peaks.expected(now, 90);
            assert_eq!(known.is_some(), hour >= WEEK - 1, "{hour}");
            peaks.record(now, replicas);
        }
        let expected = |hour: i64, percentile| {
            let found = peaks
                .expected(at(begin + 4 * WEEK + hour), percentile)
                .unwrap();
            (found.replicas, found.weeks)
        };
        // The room is there an hour before.
        let hours = [6, 7, 8, 9].map(|hour| expected(hour, 75));
        assert_eq!(hours, [(2, 4), (10, 4), (10, 4), (2, 4)]);
        let percentiles = [1, 25, 75, 76, 100].map(|percentile| expected(8, percentile).0);
        assert_eq!(percentiles, [10, 10, 10, 20, 20]);
        // Within an hour nothing changes.
        let later = at(begin + 4 * WEEK + 7).checked_add(jiff::SignedDuration::from_mins(59));
        assert_eq!(peaks.expected(later.unwrap(), 75).unwrap().replicas, 10);
        // Of the last week every hour was covered; of the third none at eight.
        let now = at(begin + 4 * WEEK);
        assert_eq!(
            peaks.hindsight(now, 90),
            Hindsight {
                hours: 168,
                covered: 168
            }
        );
        let mut third = ReplicaPeaks::default();
        for hour in 0..3 * WEEK {
            third.record(at(begin + hour), peaks.peak(begin + hour).unwrap());
        }
        let found = third.hindsight(at(begin + 3 * WEEK), 90);
        assert_eq!(
            found,
            Hindsight {
                hours: 168,
                covered: 161
            }
        );
        assert_eq!(
            ReplicaPeaks::default().hindsight(now, 90),
            Hindsight::default()
        );
    }
}
