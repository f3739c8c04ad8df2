//! Faults in what a person wrote.

use std::fmt;

use mortise_apis::nearest::nearest;

/// Names that an error lists of those that there are.
const LISTED: usize = 8;

/// A field that cannot be used as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError {
    /// Path of the field in its document, for example `spec.timeline[2].scale.deployment`; empty: the document, or a value of the
    /// command line.
    pub field: String,
    /// What is wrong, what is allowed, and what may have been meant.
    pub problem: String,
}

impl ManifestError {
    /// An error about a field, by its path.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// `given` is none of those that are allowed.
    pub(crate) fn unknown(field: impl Into<String>, given: &str, known: &[&str]) -> Self {
        let allowed = if known.is_empty() {
            "there is none".to_owned()
        } else {
            format!("must be one of {}", known.join(", "))
        };
        let meant = meant(given, known);
        Self::new(field, format!("unknown {given:?}: {allowed}{meant}"))
    }

    /// `given` is none of those that the cluster has.
    pub(crate) fn absent<'a>(
        field: &str,
        what: &str,
        given: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let listed: Vec<&str> = known.iter().take(LISTED).copied().collect();
        let mut there = listed.join(", ");
        if known.is_empty() {
            "none".clone_into(&mut there);
        } else if let Some(more @ 1..) = known.len().checked_sub(LISTED) {
            there = format!("{there} and {more} more");
        }
        let meant = meant(given, &known);
        Self::new(
            field,
            format!("unknown {what} {given:?}: there is {there}{meant}"),
        )
    }
}

fn meant(given: &str, known: &[&str]) -> String {
    nearest(given, known).map_or_else(String::new, |near| format!("; did you mean {near:?}?"))
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            return f.write_str(&self.problem);
        }
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for ManifestError {}
