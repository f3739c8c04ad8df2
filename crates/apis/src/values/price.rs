//! Price changes of node overlays.

use std::fmt;
use std::str::FromStr;

/// How an overlay changes a price.
///
/// # Units
/// Dollars per hour or percent, both as billionths, so that every number with up to nine decimals is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriceChange {
    /// No change.
    Keep,
    /// The price is replaced.
    Set(i128),
    /// An amount is added; negative makes it cheaper.
    Add(i128),
    /// Percent are added; negative makes it cheaper.
    Percent(i128),
}

/// A text that is no price change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid price change {0:?}: must be a price such as 0.25, a signed difference such as -0.05, or a signed percentage such as +10%"
)]
pub struct ParsePriceChangeError(pub String);

/// Billionths in one dollar, or one percent.
const BILLION: i128 = 1_000_000_000;
/// Billionths in one millionth.
const PER_MICRO: i128 = 1_000;

/// An unsigned decimal number in billionths; further decimals are cut.
fn billionths(text: &str) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let fraction: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    whole
        .checked_mul(BILLION)?
        .checked_add(fraction.parse().ok()?)
}

impl PriceChange {
    /// Reads a change: with a sign it is relative, without one it is the new price; empty means none.
    ///
    /// # Errors
    /// Not a decimal number, or a percentage without a sign.
    pub fn parse(text: &str) -> Result<Self, ParsePriceChangeError> {
        let parsed = match text
            .strip_prefix('-')
            .map(|rest| (-1, rest))
            .or_else(|| text.strip_prefix('+').map(|rest| (1, rest)))
        {
            None if text.is_empty() => Some(Self::Keep),
            None => billionths(text).map(Self::Set),
            Some((sign, rest)) => match rest.strip_suffix('%') {
                Some(percent) => billionths(percent).map(|n| Self::Percent(sign * n)),
                None => billionths(rest).map(|n| Self::Add(sign * n)),
            },
        };
        parsed.ok_or_else(|| ParsePriceChangeError(text.to_owned()))
    }

    /// The changed price; never below zero.
    ///
    /// # Units
    /// Millionths of a dollar per hour, rounded to the nearest.
    #[must_use]
    pub fn apply(self, micros: i64) -> i64 {
        let price = i128::from(micros).saturating_mul(PER_MICRO);
        let changed = match self {
            Self::Keep => price,
            Self::Set(to) => to,
            Self::Add(by) => price.saturating_add(by),
            Self::Percent(by) => {
                let factor = by.saturating_add(100 * BILLION);
                // Multiply last in two parts, so that absurd percentages saturate instead of losing all digits.
                price
                    .checked_mul(factor)
                    .map_or(i128::MAX, |product| product / (100 * BILLION))
            }
        };
        i64::try_from((changed.max(0).saturating_add(PER_MICRO / 2)) / PER_MICRO)
            .unwrap_or(i64::MAX)
    }
}

impl FromStr for PriceChange {
    type Err = ParsePriceChangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for PriceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |n: i128| {
            let n = n.unsigned_abs();
            let unit = BILLION.unsigned_abs();
            let text = format!("{}.{:09}", n / unit, n % unit);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        let sign = |n: i128| if n < 0 { '-' } else { '+' };
        match *self {
            Self::Keep => Ok(()),
            Self::Set(n) => f.write_str(&number(n)),
            Self::Add(n) => write!(f, "{}{}", sign(n), number(n)),
            Self::Percent(n) => write!(f, "{}{}%", sign(n), number(n)),
        }
    }
}
