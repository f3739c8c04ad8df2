//! Why one set of requirements does not meet another.

use std::fmt;
use std::sync::Arc;

use super::Requirement;

/// A key that is required and that nothing defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndefinedLabel {
    /// The required key.
    pub key: Arc<str>,
    /// A known key that may have been meant.
    pub typo_of: Option<Arc<str>>,
}

impl fmt::Display for UndefinedLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "label {:?} does not have known values", self.key)?;
        match &self.typo_of {
            Some(known) => write!(f, " (typo of {known:?}?)"),
            None => Ok(()),
        }
    }
}

/// A key for which no value satisfies both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoOverlap {
    /// The requirement.
    pub asked: Requirement,
    /// What there is.
    pub had: Requirement,
}

impl NoOverlap {
    /// The key both are about.
    #[must_use]
    pub fn key(&self) -> &str {
        self.asked.key()
    }
}

impl fmt::Display for NoOverlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}, {} not in {}", self.key(), self.asked, self.had)
    }
}

/// All reasons why requirements are not satisfied.
///
/// # Shape
/// Not empty; both lists are sorted by key. The text is Karpenter's: the first undefined label, or else all keys without
/// overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Incompatible {
    /// Required keys that nothing defines.
    pub undefined: Vec<UndefinedLabel>,
    /// Keys without a common value.
    pub no_overlap: Vec<NoOverlap>,
}

impl Incompatible {
    /// The keys involved, undefined ones first.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.undefined
            .iter()
            .map(|u| u.key.as_ref())
            .chain(self.no_overlap.iter().map(NoOverlap::key))
    }
}

impl fmt::Display for Incompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(first) = self.undefined.first() {
            return first.fmt(f);
        }
        for (i, clash) in self.no_overlap.iter().enumerate() {
            let gap = if i == 0 { "" } else { "; " };
            write!(f, "{gap}{clash}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Incompatible {}
