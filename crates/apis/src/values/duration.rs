//! Durations as Go reads and prints them, and the durations that may be `Never`.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use serde::de;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const MICRO: i64 = 1_000;
const MILLI: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// A span of time.
///
/// # Units
/// Nanoseconds in 64 bits, which is 292 years either way.
///
/// # Source
/// Go's `time.ParseDuration` and `Duration.String`: `1h30m`, `-1.5s`, `300ms`; there is no unit longer than an hour. In JSON
/// it is text and printed again (`60s` becomes `1m0s`), as for `metav1.Duration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// A text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid duration {given:?}: must be numbers with the units h, m, s, ms, us or ns, such as 1h30m, within 292 years{}",
    nearest.as_ref().map_or_else(String::new, |nearest| format!("; did you mean {nearest:?}?"))
)]
pub struct ParseDurationError {
    /// The text as given.
    pub given: String,
    /// A valid duration that may have been meant.
    pub nearest: Option<String>,
}

impl GoDuration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A number of nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// A number of seconds; saturates.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// The span in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The span in whole seconds, cut toward zero.
    #[must_use]
    pub const fn as_secs(self) -> i64 {
        self.0 / SECOND
    }

    /// Reads a duration.
    ///
    /// # Errors
    /// The text is empty, has a number without a unit (other than `0`) or an unknown unit, or leaves 64 bits.
    pub fn parse(text: &str) -> Result<Self, ParseDurationError> {
        read(text).map(Self).ok_or_else(|| ParseDurationError {
            given: text.to_owned(),
            nearest: nearest(text),
        })
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    )
}

fn unit(name: &str) -> Option<i64> {
    match name {
        "ns" => Some(1),
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(MICRO), // the micro sign and the Greek letter
        "ms" => Some(MILLI),
        "s" => Some(SECOND),
        "m" => Some(MINUTE),
        "h" => Some(HOUR),
        _ => None,
    }
}

/// The nanoseconds of digits after the point: at most 18 of them count, and what is finer than a nanosecond is cut.
fn fraction(text: &str, unit: i64) -> Option<i128> {
    let counted: String = text.chars().take(18).collect();
    let number: i128 = if counted.is_empty() {
        0
    } else {
        counted.parse().ok()?
    };
    let places = u32::try_from(counted.len()).ok()?;
    Some(number * i128::from(unit) / 10_i128.checked_pow(places)?)
}

fn read(text: &str) -> Option<i64> {
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    // The most negative duration has no positive counterpart, so the sum is kept wider than 64 bits.
    let limit = i128::from(i64::MAX) + 1;
    let mut total = 0_i128;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (part, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && part.is_empty() {
            return None;
        }
        let (name, after) = after.split_at(
            after
                .find(|c: char| c == '.' || c.is_ascii_digit())
                .unwrap_or(after.len()),
        );
        let unit = unit(name)?;
        let whole: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        total = whole
            .checked_mul(i128::from(unit))?
            .checked_add(fraction(part, unit)?)?
            .checked_add(total)?;
        if total > limit {
            return None;
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// A guess at what was meant: days and weeks in hours, a bare number as seconds.
fn nearest(text: &str) -> Option<String> {
    let trimmed = text.trim();
    let (number, name) = digits(trimmed);
    let number: i64 = number.parse().ok()?;
    let guess = match name.trim().to_ascii_lowercase().as_str() {
        "" | "sec" | "secs" | "second" | "seconds" => format!("{number}s"),
        "min" | "mins" | "minute" | "minutes" => format!("{number}m"),
        "hr" | "hrs" | "hour" | "hours" => format!("{number}h"),
        "d" | "day" | "days" => format!("{}h", number.checked_mul(24)?),
        "w" | "week" | "weeks" => format!("{}h", number.checked_mul(24 * 7)?),
        other => format!("{number}{other}"),
    };
    read(&guess).map(|_| guess)
}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// A number of `unit` with the decimals it needs.
fn decimal(f: &mut fmt::Formatter<'_>, nanos: u64, unit: u64, name: &str) -> fmt::Result {
    let (whole, rest) = (nanos / unit, nanos % unit);
    if rest == 0 {
        return write!(f, "{whole}{name}");
    }
    let width = usize::try_from(unit.ilog10()).unwrap_or(0);
    let places = format!("{rest:0width$}");
    write!(f, "{whole}.{}{name}", places.trim_end_matches('0'))
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let second = SECOND.unsigned_abs();
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => decimal(f, nanos, MICRO.unsigned_abs(), "\u{b5}s"),
            1_000_000..1_000_000_000 => decimal(f, nanos, MILLI.unsigned_abs(), "ms"),
            _ => {
                let minutes = nanos / (60 * second);
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                decimal(f, nanos % (60 * second), second, "s")
            }
        }
    }
}

impl From<GoDuration> for SignedDuration {
    fn from(duration: GoDuration) -> Self {
        Self::from_nanos(duration.0)
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// A duration that may be `Never`: the type of `expireAfter` and `consolidateAfter`.
///
/// # Shape
/// The text is kept as written, so that an object that is read and written back does not change.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NillableDuration(Option<(GoDuration, Box<str>)>);

/// Text that means no duration.
const NEVER: &str = "Never";

/// A text that is neither a duration nor `Never`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be `Never` or a duration")]
pub struct ParseNillableDurationError(#[from] ParseDurationError);

impl NillableDuration {
    /// No end.
    #[must_use]
    pub const fn never() -> Self {
        Self(None)
    }

    /// Reads `Never` (exactly that) or a duration.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse(text: &str) -> Result<Self, ParseNillableDurationError> {
        if text == NEVER {
            return Ok(Self::never());
        }
        Ok(Self(Some((GoDuration::parse(text)?, Box::from(text)))))
    }

    /// The duration; `None` for `Never`.
    #[must_use]
    pub fn duration(&self) -> Option<GoDuration> {
        self.0.as_ref().map(|(duration, _)| *duration)
    }

    /// Whether there is no end.
    #[must_use]
    pub const fn is_never(&self) -> bool {
        self.0.is_none()
    }
}

impl From<GoDuration> for NillableDuration {
    fn from(duration: GoDuration) -> Self {
        Self(Some((duration, duration.to_string().into_boxed_str())))
    }
}

impl FromStr for NillableDuration {
    type Err = ParseNillableDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for NillableDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_ref().map_or(NEVER, |(_, text)| text))
    }
}

impl Serialize for NillableDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NillableDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(|ParseNillableDurationError(source)| {
            de::Error::custom(format_args!("must be {NEVER:?} or a duration: {source}"))
        })
    }
}
