//! Schedules of disruption budgets: five fields, macros and `@every`, in UTC.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

use super::GoDuration;

/// How far ahead or back a fire time is searched; a schedule such as 30 February has none.
const HORIZON_YEARS: i16 = 5;

/// When something recurs, in UTC.
///
/// # Source
/// `ParseStandard` of robfig/cron v3 without its time zone prefix: minute, hour, day of month, month, day of week; names of
/// three letters; `@hourly` and the like; `@every` with a duration. Day of month and day of week are alternatives when both
/// are restricted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronSchedule {
    text: Box<str>,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Fields(Fields),
    /// Seconds from one fire time to the next, counted from the given time.
    Every(i64),
}

/// Allowed numbers of each field, as bits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether day of month or day of week is unrestricted, so that the other decides alone.
    any_day: bool,
}

/// A text that is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid schedule {given:?}: {reason}")]
pub struct ParseCronError {
    /// The text as given.
    pub given: String,
    /// What is wrong.
    pub reason: CronFault,
}

/// What can be wrong with a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronFault {
    /// Not five fields.
    #[error("must be five fields (minute hour day-of-month month day-of-week), found {0}")]
    FieldCount(usize),
    /// A macro that does not exist.
    #[error(
        "unknown macro: must be one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, or @every with a duration such as 90m"
    )]
    Macro,
    /// `@every` with a text that is no duration.
    #[error("{0}")]
    Every(#[from] super::ParseDurationError),
    /// A field with something that is no number, name, range or step.
    #[error(
        "{field} has {part:?}: must be numbers from {min} to {max}, {names}ranges a-b, steps */n, or lists of them"
    )]
    Field {
        /// Name of the field.
        field: &'static str,
        /// The part that is wrong.
        part: String,
        /// Smallest number allowed.
        min: u32,
        /// Largest number allowed.
        max: u32,
        /// Names allowed in addition to numbers; empty or with a trailing comma.
        names: &'static str,
    },
}

/// The numbers and names a field may have.
struct Bounds {
    field: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
    names_text: &'static str,
}

const MINUTE: Bounds = Bounds {
    field: "minute",
    min: 0,
    max: 59,
    names: &[],
    names_text: "",
};
const HOUR: Bounds = Bounds {
    field: "hour",
    min: 0,
    max: 23,
    names: &[],
    names_text: "",
};
const DAY: Bounds = Bounds {
    field: "day of month",
    min: 1,
    max: 31,
    names: &[],
    names_text: "",
};
const MONTH: Bounds = Bounds {
    field: "month",
    min: 1,
    max: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
    names_text: "names JAN to DEC, ",
};
const WEEKDAY: Bounds = Bounds {
    field: "day of week",
    min: 0,
    max: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    names_text: "names SUN to SAT, ",
};

impl Bounds {
    fn number(&self, text: &str) -> Option<u32> {
        let lower = text.to_ascii_lowercase();
        let named = self
            .names
            .iter()
            .position(|name| *name == lower)
            .and_then(|at| u32::try_from(at).ok());
        named.map(|at| at + self.min).or_else(|| text.parse().ok())
    }

    /// The bits of one part of a list, and whether it is a star that restricts nothing.
    fn part(&self, text: &str) -> Option<(u64, bool)> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (
                range,
                Some(step.parse::<u32>().ok().filter(|step| *step > 0)?),
            ),
            None => (text, None),
        };
        let (low, high) = range
            .split_once('-')
            .map_or((range, None), |(low, high)| (low, Some(high)));
        let star = matches!(low, "*" | "?");
        let (start, end) = match (star, high, step) {
            (true, _, _) => (self.min, self.max),
            (false, Some(high), _) => (self.number(low)?, self.number(high)?),
            (false, None, Some(_)) => (self.number(low)?, self.max),
            (false, None, None) => (self.number(low)?, self.number(low)?),
        };
        if start < self.min || end > self.max || start > end {
            return None;
        }
        let step = step.unwrap_or(1);
        let bits = (start..=end)
            .step_by(usize::try_from(step).ok()?)
            .fold(0, |bits, n| bits | (1 << n));
        Some((bits, star && step == 1))
    }

    fn field(&self, text: &str) -> Result<(u64, bool), CronFault> {
        // Empty parts of a list are passed over; a field of nothing but commas never fires.
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts
            .into_iter()
            .try_fold((0, false), |(bits, any), part| match self.part(part) {
                Some((more, star)) => Ok((bits | more, any | star)),
                None => Err(CronFault::Field {
                    field: self.field,
                    part: part.to_owned(),
                    min: self.min,
                    max: self.max,
                    names: self.names_text,
                }),
            })
    }
}

impl Fields {
    fn parse(text: &str) -> Result<Self, CronFault> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let &[minute, hour, day, month, weekday] = parts.as_slice() else {
            return Err(CronFault::FieldCount(parts.len()));
        };
        let (minutes, _) = MINUTE.field(minute)?;
        let (hours, _) = HOUR.field(hour)?;
        let (days, any_date) = DAY.field(day)?;
        let (months, _) = MONTH.field(month)?;
        let (weekdays, any_weekday) = WEEKDAY.field(weekday)?;
        Ok(Self {
            minutes,
            hours,
            days,
            months,
            weekdays,
            any_day: any_date || any_weekday,
        })
    }

    fn has_day(&self, day: Date) -> bool {
        let has = |bits: u64, n: i8| u32::try_from(n).is_ok_and(|n| bits >> n & 1 == 1);
        let in_month = has(self.days, day.day());
        let in_week = has(self.weekdays, day.weekday().to_sunday_zero_offset());
        has(self.months, day.month())
            && if self.any_day {
                in_month && in_week
            } else {
                in_month || in_week
            }
    }

    /// The first fire time of a day at or after a minute of it.
    fn first(&self, from: u32) -> Option<u32> {
        (from / 60..24)
            .filter(|hour| self.hours >> hour & 1 == 1)
            .find_map(|hour| {
                let start = from.saturating_sub(hour * 60);
                (start..60)
                    .find(|minute| self.minutes >> minute & 1 == 1)
                    .map(|minute| hour * 60 + minute)
            })
    }

    /// The last fire time of a day at or before a minute of it.
    fn last(&self, to: u32) -> Option<u32> {
        (0..=to / 60)
            .rev()
            .filter(|hour| self.hours >> hour & 1 == 1)
            .find_map(|hour| {
                let end = (to - hour * 60).min(59);
                (0..=end)
                    .rev()
                    .find(|minute| self.minutes >> minute & 1 == 1)
                    .map(|minute| hour * 60 + minute)
            })
    }
}

const LAST_MINUTE: u32 = 24 * 60 - 1;

fn at(day: Date, minute: u32) -> Option<Timestamp> {
    let midnight = day.to_zoned(TimeZone::UTC).ok()?.timestamp();
    midnight
        .checked_add(SignedDuration::from_mins(i64::from(minute)))
        .ok()
}

/// The day and the minute of it that a time falls into.
fn minute_of(time: Timestamp) -> (Date, u32) {
    let civil = time.to_zoned(TimeZone::UTC).datetime();
    let minute = i32::from(civil.hour()) * 60 + i32::from(civil.minute());
    (civil.date(), u32::try_from(minute).unwrap_or(0))
}

impl CronSchedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// Not five fields, an unknown macro, or a field with an impossible number; the error says which and what is allowed.
    pub fn parse(text: &str) -> Result<Self, ParseCronError> {
        let fault = |reason| ParseCronError {
            given: text.to_owned(),
            reason,
        };
        let trimmed = text.trim();
        let rule = match trimmed {
            "@yearly" | "@annually" => Fields::parse("0 0 1 1 *").map(Rule::Fields),
            "@monthly" => Fields::parse("0 0 1 * *").map(Rule::Fields),
            "@weekly" => Fields::parse("0 0 * * 0").map(Rule::Fields),
            "@daily" | "@midnight" => Fields::parse("0 0 * * *").map(Rule::Fields),
            "@hourly" => Fields::parse("0 * * * *").map(Rule::Fields),
            _ => match (trimmed.strip_prefix("@every "), trimmed.starts_with('@')) {
                // Whole seconds, and at least one.
                (Some(period), _) => GoDuration::parse(period)
                    .map(|d| Rule::Every(d.as_secs().max(1)))
                    .map_err(CronFault::from),
                (None, true) => Err(CronFault::Macro),
                (None, false) => Fields::parse(trimmed).map(Rule::Fields),
            },
        };
        Ok(Self {
            text: Box::from(text),
            rule: rule.map_err(fault)?,
        })
    }

    /// It is counted from the given time (`@every`), so that no fire time is its own.
    #[must_use]
    pub const fn is_relative(&self) -> bool {
        matches!(self.rule, Rule::Every(_))
    }

    /// It fires at times of its own: it is not counted from another time, and there is a day on which it fires.
    #[must_use]
    pub fn has_times(&self) -> bool {
        // From a fixed day on, so that the answer never depends on when it is asked.
        !self.is_relative() && self.next(Timestamp::UNIX_EPOCH).is_some()
    }

    /// The first fire time after a time; `None` when there is none within five years.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.rule {
            Rule::Every(seconds) => {
                Timestamp::from_second(after.as_second().checked_add(*seconds)?).ok()
            }
            Rule::Fields(fields) => {
                let (day, minute) = minute_of(after);
                let end = date(day.year().checked_add(HORIZON_YEARS)?.min(9998), 12, 31);
                let today = fields
                    .has_day(day)
                    .then(|| fields.first(minute + 1))
                    .flatten();
                let mut next = today.map(|minute| (day, minute));
                let mut day = day;
                while next.is_none() {
                    day = day.tomorrow().ok().filter(|day| *day <= end)?;
                    next = fields
                        .has_day(day)
                        .then(|| fields.first(0))
                        .flatten()
                        .map(|minute| (day, minute));
                }
                next.and_then(|(day, minute)| at(day, minute))
            }
        }
    }

    /// The last fire time at or before a time; `None` if there is none within five years, and for `@every`, which is counted
    /// from the given time.
    #[must_use]
    pub fn prev(&self, at_or_before: Timestamp) -> Option<Timestamp> {
        match &self.rule {
            Rule::Every(_) => None,
            Rule::Fields(fields) => {
                let (mut day, mut minute) = minute_of(at_or_before);
                let end = day.checked_sub(HORIZON_YEARS.years()).ok()?;
                loop {
                    if let Some(found) = fields.has_day(day).then(|| fields.last(minute)).flatten()
                    {
                        return at(day, found);
                    }
                    day = day.yesterday().ok().filter(|day| *day >= end)?;
                    minute = LAST_MINUTE;
                }
            }
        }
    }
}

impl FromStr for CronSchedule {
    type Err = ParseCronError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for CronSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
