//! How much a body may hold, in addition to how long it may be: a value takes many times the memory of the byte or two
//! that it is written with, so values are counted before any of them is read.

use std::fmt;

/// What a body may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most values: objects, lists, and what they contain.
    pub values: usize,
    /// Deepest nesting.
    pub depth: usize,
}

/// An AdmissionReview. A pool with every field used, its record of field managers and the same before the update has
/// some hundred values.
pub const REVIEW: Limits = Limits {
    values: 100_000,
    depth: 100,
};

/// One object to convert. More than fits into what an API server stores.
pub const OBJECT: Limits = Limits {
    values: 1_000_000,
    depth: 100,
};

/// A body holds more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMuch {
    /// The number of values, at least, and the number that is allowed.
    Values(usize, usize),
    /// Nested deeper than this.
    Depth(usize),
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values(found, most) => {
                write!(f, "holds {found} values or more; at most {most} are read")
            }
            Self::Depth(most) => write!(f, "is nested deeper than the {most} levels that are read"),
        }
    }
}

impl Limits {
    /// Counts values and levels of a JSON text without reading it; a text that is no JSON is counted all the same.
    ///
    /// # Errors
    /// There are more than allowed.
    ///
    /// # Cost
    /// One look at each byte, no memory.
    pub fn check(self, text: &[u8]) -> Result<(), TooMuch> {
        let (mut values, mut depth) = (1, 0_usize);
        let (mut quoted, mut escaped) = (false, false);
        for byte in text {
            if quoted {
                quoted = escaped || *byte != b'"';
                escaped = !escaped && *byte == b'\\';
                continue;
            }
            match byte {
                b'"' => quoted = true,
                b'{' | b'[' => {
                    values += 1;
                    depth += 1;
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                b',' => values += 1,
                _ => {}
            }
            if values > self.values {
                return Err(TooMuch::Values(values, self.values));
            }
            if depth > self.depth {
                return Err(TooMuch::Depth(self.depth));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Limits = Limits {
        values: 4,
        depth: 2,
    };

    #[test]
    fn values_and_levels_are_counted_and_texts_are_not_looked_into() {
        assert_eq!(FEW.check(b""), Ok(()));
        assert_eq!(FEW.check(b"[1,2,3]"), Ok(()));
        assert_eq!(FEW.check(b"[1,2,3,4]"), Err(TooMuch::Values(5, 4)));
        assert_eq!(FEW.check(br#"{"a":{"b":1}}"#), Ok(()));
        assert_eq!(FEW.check(b"[[[]]]"), Err(TooMuch::Depth(2)));
        assert_eq!(FEW.check(br#"["[,[,[\",[,", "\\"]"#), Ok(()));
        assert_eq!(FEW.check(br#"["\\",[,[,"#), Err(TooMuch::Values(5, 4)));
        assert_eq!(FEW.check(b"]]]][[]]"), Ok(()));
    }
}
