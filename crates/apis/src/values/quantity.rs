//! Kubernetes quantities: exact amounts with a suffix.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::quantity_text;

/// Nano-units in one unit: the finest amount a quantity can hold.
pub(super) const NANOS: i128 = 1_000_000_000;

/// The family of suffixes in which a quantity is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// `n u m`, none, `k M G T P E`: powers of 1000.
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`: powers of 1024.
    BinarySi,
    /// `e3`, `e-6`: powers of 1000 as exponents.
    DecimalExponent,
}

/// An exact amount: CPU, bytes, or a count.
///
/// # Units
/// Nano-units in 128 bits, which is more than any suffix of the API can reach; sums saturate.
///
/// # Shape
/// The text of simple input is kept as written until arithmetic; everything else prints canonically. Equality, order and hash
/// look at the amount only.
///
/// # Source
/// `resource.Quantity` of Kubernetes apimachinery 0.36, checked against recorded answers.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
    /// As written, when that is what must be printed.
    text: Option<Box<str>>,
    /// Negative and parsed on the arbitrary-precision path, whose rounding differs; see [`Self::scaled`].
    odd_rounding: bool,
}

/// A text that is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid quantity {given:?}: must be a decimal number with at most one of the suffixes n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, or an exponent such as e3{}",
    nearest.as_ref().map_or_else(String::new, |nearest| format!("; did you mean {nearest:?}?"))
)]
pub struct ParseQuantityError {
    /// The text as given.
    pub given: String,
    /// A valid quantity that may have been meant.
    pub nearest: Option<String>,
}

impl Quantity {
    /// Nothing at all, decimal.
    pub const ZERO: Self = Self {
        nanos: 0,
        format: Format::DecimalSi,
        text: None,
        odd_rounding: false,
    };

    /// Reads a quantity.
    ///
    /// # Errors
    /// The text is not a number with one of the API's suffixes.
    pub fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        quantity_text::parse(text).map(|parsed| Self {
            nanos: parsed.nanos,
            format: parsed.format,
            text: parsed.keep_text.then(|| Box::from(text)),
            odd_rounding: parsed.odd_rounding,
        })
    }

    /// A whole number of units, printed in powers of 1000.
    #[must_use]
    pub fn from_units(units: i64) -> Self {
        Self {
            nanos: i128::from(units) * NANOS,
            ..Self::ZERO
        }
    }

    /// Thousandths of a unit, printed in powers of 1000.
    #[must_use]
    pub fn from_milli(milli: i64) -> Self {
        Self {
            nanos: i128::from(milli) * (NANOS / 1000),
            ..Self::ZERO
        }
    }

    /// A whole number of bytes, printed in powers of 1024 where that is exact.
    #[must_use]
    pub fn from_bytes(bytes: i64) -> Self {
        Self {
            format: Format::BinarySi,
            ..Self::from_units(bytes)
        }
    }

    /// The amount in units, rounded up (away from zero), saturating.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.scaled(NANOS)
    }

    /// The amount in thousandths of a unit, rounded up (away from zero), saturating.
    #[must_use]
    pub fn milli(&self) -> i64 {
        self.scaled(NANOS / 1000)
    }

    /// The exact amount in nano-units.
    #[must_use]
    pub const fn nanos(&self) -> i128 {
        self.nanos
    }

    /// The family of suffixes.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Whether the amount is zero.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// -1, 0 or 1.
    #[must_use]
    pub const fn signum(&self) -> i32 {
        match self.nanos {
            0 => 0,
            1.. => 1,
            _ => -1,
        }
    }

    fn scaled(&self, unit: i128) -> i64 {
        if self.odd_rounding {
            return quantity_text::odd_scaled(self.nanos, unit);
        }
        let up = i128::from(self.nanos % unit != 0) * self.nanos.signum();
        let rounded = self.nanos / unit + up;
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }

    /// The result of arithmetic: a new amount in the format of the first operand that is not zero.
    fn result(&self, other: &Self, nanos: i128) -> Self {
        Self {
            nanos,
            format: if self.is_zero() {
                other.format
            } else {
                self.format
            },
            text: None,
            odd_rounding: false,
        }
    }
}

impl Add for &Quantity {
    type Output = Quantity;

    fn add(self, other: Self) -> Quantity {
        self.result(other, self.nanos.saturating_add(other.nanos))
    }
}

impl Sub for &Quantity {
    type Output = Quantity;

    fn sub(self, other: Self) -> Quantity {
        self.result(other, self.nanos.saturating_sub(other.nanos))
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        &self + &other
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        &self - &other
    }
}

impl AddAssign<&Self> for Quantity {
    fn add_assign(&mut self, other: &Self) {
        *self = &*self + other;
    }
}

impl SubAssign<&Self> for Quantity {
    fn sub_assign(&mut self, other: &Self) {
        *self = &*self - other;
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            nanos: self.nanos.saturating_neg(),
            text: None,
            odd_rounding: false,
            ..self
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.pad(text),
            None => f.pad(&quantity_text::canonical(self.nanos, self.format)),
        }
    }
}

impl TryFrom<&ApiQuantity> for Quantity {
    type Error = ParseQuantityError;

    fn try_from(from: &ApiQuantity) -> Result<Self, Self::Error> {
        Self::parse(&from.0)
    }
}

impl From<&Quantity> for ApiQuantity {
    fn from(from: &Quantity) -> Self {
        Self(from.to_string())
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity as text or number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                // Spaces around the text are tolerated in objects, though not in flags.
                Quantity::parse(text.trim()).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                // A whole number that is no JSON integer was written with an exponent, and is kept like that.
                let whole = number.fract() == 0.0;
                self.visit_str(&if whole {
                    format!("{number:e}")
                } else {
                    number.to_string()
                })
            }

            fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
                Ok(Quantity::ZERO)
            }
        }

        deserializer.deserialize_any(Text)
    }
}
