//! The digest of a history.

use std::fmt;

/// FNV-1a in 64 bits: the same on every computer, and independent of the version of a library.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryDigest(u64);

impl Default for HistoryDigest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl HistoryDigest {
    /// Adds a text.
    pub(super) fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

impl fmt::Display for HistoryDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let of = |text| {
            let mut digest = HistoryDigest::default();
            digest.add(text);
            digest.to_string()
        };
        assert_eq!(of(""), "cbf29ce484222325");
        assert_eq!(of("a"), "af63dc4c8601ec8c");
        assert_eq!(of("foobar"), "85944171f73967e8");
    }
}
