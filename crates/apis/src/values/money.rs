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
