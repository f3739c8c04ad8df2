//! One thing that is wrong with an object.

use std::fmt;

/// How sure it is that the object cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IssueSeverity {
    /// The definition refuses it, with or without this service.
    Schema,
    /// The API server would store it, and then nothing could ever be done with it.
    Unusable,
    /// It can be used, but probably does not mean what it says.
    Suspicious,
}

/// What a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IssueTopic {
    /// A type, a bound, a pattern or a rule of the definition.
    Schema,
    /// A field that the definition does not have.
    UnknownField,
    /// A field, a value or a place of an older version.
    Deprecated,
    /// What no definition can say.
    Meaning,
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldIssue {
    /// How bad it is.
    pub weight: IssueSeverity,
    /// Where, such as `spec.template.spec.requirements[0].operator`.
    pub field: String,
    /// The value as JSON, cut to a length that reads; `absent` when there is none.
    pub value: String,
    /// What is wrong with it, naming what is allowed.
    pub problem: String,
    /// What to write instead.
    pub fix: String,
    /// What it is about.
    pub topic: IssueTopic,
}

impl FieldIssue {
    /// The word that is nearest to what was written, where the fix is one.
    #[must_use]
    pub fn nearest(&self) -> Option<&str> {
        nearest_in(&self.fix)
    }
}

/// The word in `did you mean "word"?`.
#[must_use]
pub fn nearest_in(fix: &str) -> Option<&str> {
    let (_, rest) = fix.split_once("did you mean ")?;
    let (word, _) = rest.rsplit_once('?')?;
    Some(word.trim_matches('"'))
}

impl fmt::Display for FieldIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} {}; {}",
            self.field, self.value, self.problem, self.fix
        )
    }
}
