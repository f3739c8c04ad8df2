//! Money as integers: a decision never compares floats.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// Millionths of a US dollar per hour. `0.096 $/h` is `MicroUsd(96_000)`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MicroUsd(pub i64);

impl MicroUsd {
    /// Rounds a price in dollars per hour, as price lists and annotations give it, to the nearest millionth.
    /// `None` for a negative, infinite or missing number: unknown is not zero.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "range is checked before the cast"
    )]
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let micros = (dollars * 1e6).round();
        (micros.is_finite() && (0.0..9e15).contains(&micros)).then_some(Self(micros as i64))
    }

    /// Reads dollars with at most six decimals, exactly: `12.5` is `MicroUsd(12_500_000)`. `None` for any other text, and for
    /// more than 9 digits before the point.
    #[must_use]
    pub fn parse_dollars(text: &str) -> Option<Self> {
        let (whole, fraction) = text
            .split_once('.')
            .map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
        let digits = |part: &str, most: usize| {
            (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !digits(whole, 9) || !fraction.is_none_or(|part| digits(part, 6)) {
            return None;
        }
        let whole: i64 = whole.parse().ok()?;
        let micros: i64 = format!("{:0<6}", fraction.unwrap_or_default())
            .parse()
            .ok()?;
        Some(Self(whole * 1_000_000 + micros))
    }

    /// Dollars per hour, for display and metrics; never for a decision.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for display only")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Add for MicroUsd {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for MicroUsd {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for MicroUsd {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for MicroUsd {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self(0), Add::add)
    }
}

impl fmt::Display for MicroUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${:.4}/h", self.dollars())
    }
}
