//! Why an instance differs from its node class.

use std::fmt;

/// The reason of a drifted instance: a word of the provider, which becomes the reason of the condition `Drifted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriftReason(&'static str);

impl DriftReason {
    /// A reason in CamelCase: conditions allow nothing else.
    #[must_use]
    pub const fn new(reason: &'static str) -> Self {
        Self(reason)
    }

    /// As the condition has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for DriftReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
