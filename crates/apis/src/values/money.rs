//! Money as integers: a decision never compares floats.
//!
//! Two units, which are never added: a price per hour, and what it comes to over a time.

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

/// Milliseconds of an hour.
const HOUR_MS: i128 = 3_600_000;
/// Units of [`Spent`] in a millionth of a dollar.
const PER_MICRO: i128 = HOUR_MS;

/// An amount of money. Its unit is what a millionth of a dollar per hour comes to in a millisecond, so that adding up prices over
/// times is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spent(i128);

impl Spent {
    /// What a price comes to over this time.
    #[must_use]
    pub fn at_price(price: MicroUsd, ms: i64) -> Self {
        Self(i128::from(price.0) * i128::from(ms))
    }

    /// Reads dollars as [`MicroUsd::parse_dollars`] does.
    #[must_use]
    pub fn parse_dollars(text: &str) -> Option<Self> {
        let micros = MicroUsd::parse_dollars(text)?;
        Some(Self(i128::from(micros.0) * PER_MICRO))
    }

    /// Dollars with six decimals, rounded up, as [`Self::parse_dollars`] reads them. Nothing for a negative amount.
    #[must_use]
    pub fn to_dollars(self) -> String {
        let micros = (self.0.max(0) + PER_MICRO - 1) / PER_MICRO;
        format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    }

    /// The price at which this much is spent over a time, rounded down; nothing for a negative amount.
    #[must_use]
    pub fn over(self, ms: i64) -> MicroUsd {
        let price = self.0.max(0) / i128::from(ms.max(1));
        MicroUsd(i64::try_from(price).unwrap_or(i64::MAX))
    }

    /// Dollars, for display and metrics; never for a decision.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for display only")]
    pub fn dollars(self) -> f64 {
        (self.0 / PER_MICRO) as f64 / 1e6
    }
}

impl Add for Spent {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Spent {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${:.2}", self.dollars())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        // A third of a cent an hour, for a month of milliseconds, one by one or at once.
        let price = MicroUsd(3_333);
        let mut spent = Spent::default();
        for _ in 0..1_000 {
            spent += Spent::at_price(price, 2_678_400);
        }
        assert_eq!(spent, Spent::at_price(price, 2_678_400_000));
        assert_eq!(spent.to_dollars(), "2.479752");
        assert_eq!(spent.over(2_678_400_000), price);
        assert_eq!(Spent::parse_dollars(&spent.to_dollars()), Some(spent));
        assert_eq!(spent.to_string(), "$2.48");
        let least = Spent::at_price(MicroUsd(1), 1);
        assert_eq!(least.to_dollars(), "0.000001", "rounded up");
        assert_eq!((Spent::default() - least).to_dollars(), "0.000000");
        assert_eq!((Spent::default() - least).over(1), MicroUsd(0));
    }
}
