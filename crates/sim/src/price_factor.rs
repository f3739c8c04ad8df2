//! By how much a price changes.

use mortise_apis::values::money::MicroUsd;

/// A factor in millionths, from 0.000001 to 1000: money is never computed with floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PriceFactor(u64);

impl PriceFactor {
    /// Decimal places of a factor.
    pub(crate) const PLACES: usize = 6;
    /// A factor of one, in millionths.
    pub(crate) const ONE: u64 = 1_000_000;
    /// The largest factor, in millionths.
    const LARGEST: u64 = 1_000 * Self::ONE;

    /// `None`: out of range.
    pub(crate) fn of_millionths(millionths: u64) -> Option<Self> {
        let is_allowed = (1..=Self::LARGEST).contains(&millionths);
        is_allowed.then_some(Self(millionths))
    }

    /// Rounded to the nearest millionth; `None`: out of range.
    pub(crate) fn from_number(number: f64) -> Option<Self> {
        let millionths = MicroUsd::from_dollars(number)?.0;
        Self::of_millionths(u64::try_from(millionths).ok()?)
    }

    /// Rounded to the nearest.
    pub(crate) fn times(self, price: MicroUsd) -> MicroUsd {
        let product = i128::from(price.0) * i128::from(self.0);
        let rounded = (product + i128::from(Self::ONE / 2)) / i128::from(Self::ONE);
        MicroUsd(i64::try_from(rounded).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_and_kept_in_range() {
        for (number, want) in [
            (1.0, Some(1_000_000)),
            (1.2, Some(1_200_000)),
            (0.000_001, Some(1)),
            (1000.0, Some(1_000_000_000)),
            (1000.1, None),
            (0.0, None),
            (-1.0, None),
            (f64::NAN, None),
        ] {
            let factor = PriceFactor::from_number(number);
            assert_eq!(factor, want.map(PriceFactor), "{number}");
        }
        let times = |millionths, price| PriceFactor(millionths).times(MicroUsd(price));
        assert_eq!(times(1_200_000, 96_000), MicroUsd(115_200));
        assert_eq!(times(500_000, 3), MicroUsd(2));
    }
}
