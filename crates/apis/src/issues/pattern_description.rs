//! The pattern of a field in words.

/// A pattern that people can read.
#[derive(Clone, Copy, Debug)]
pub struct PatternDescription {
    /// Whether a text fits.
    pub fits: fn(&str) -> bool,
    /// What is allowed, to follow "is not".
    pub allowed: &'static str,
    /// A text that fits, for most who get here.
    pub example: &'static str,
}

/// A description, for a table of patterns.
#[must_use]
pub const fn describe(
    fits: fn(&str) -> bool,
    allowed: &'static str,
    example: &'static str,
) -> Option<PatternDescription> {
    Some(PatternDescription {
        fits,
        allowed,
        example,
    })
}
