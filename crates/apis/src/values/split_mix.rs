//! Numbers that look random and follow from a seed: names of claims, the simulator, generated test clusters and benchmarks.

/// SplitMix64 (Steele, Lea, Flood 2014): a counter and a finalizer. Small, fast, the same on every platform; not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator; the same seed gives the same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0, and no number is drawn, when `end` is 0.
    ///
    /// By remainder: small numbers are more likely by at most `end` in 2^64, which no user of this type can observe.
    pub const fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next_u64() % end }
    }

    /// A number from `low` to `high`, both included; `low` when `high` is less.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + i64::try_from(self.below(u64::try_from(high - low).unwrap_or(0) + 1)).unwrap_or(0)
    }

    /// `true` in `per_mille` of a thousand cases.
    pub const fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;

    /// From the reference implementation in C and from Java's `SplittableRandom`.
    #[test]
    fn known_sequences() {
        let first = |seed: u64| {
            let mut random = SplitMix64::new(seed);
            [(); 5].map(|()| random.next_u64())
        };
        let zero = [
            0xE220_A839_7B1D_CDAF,
            0x6E78_9E6A_A1B9_65F4,
            0x06C4_5D18_8009_454F,
            0xF88B_B8A8_724C_81EC,
            0x1B39_896A_51A8_749B,
        ];
        assert_eq!(first(0), zero);
        let other = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(first(1_234_567), other);
    }

    #[test]
    fn ranges_include_their_ends_and_nothing_else() {
        let mut random = SplitMix64::new(7);
        let drawn: std::collections::BTreeSet<i64> =
            (0..200).map(|_| random.between(-2, 2)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [-2, -1, 0, 1, 2]);
        assert_eq!(random.between(5, 5), 5);
        assert_eq!(random.between(5, 3), 5);
        let mut same = random.clone();
        assert_eq!(random.below(0), 0);
        assert_eq!(random.next_u64(), same.next_u64(), "nothing was drawn");
        assert!(!random.chance(0));
        assert!(random.chance(1000));
    }
}
