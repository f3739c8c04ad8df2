//! Faults in what a person wrote.

use std::fmt;

use mortise_apis::nearest::nearest;

/// A field that cannot be simulated as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// Path of the field in its document, for example `spec.timeline[2].scale.deployment`; empty: the document.
    pub field: String,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

impl ScenarioError {
    pub(super) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// `given` is none of those that there are.
    pub(super) fn unknown(field: impl Into<String>, given: &str, known: &[&str]) -> Self {
        let meant = nearest(given, known)
            .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        let known = if known.is_empty() {
            "there is none".to_owned()
        } else {
            format!("must be one of {}", known.join(", "))
        };
        Self::new(field, format!("unknown {given:?}: {known}{meant}"))
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            return f.write_str(&self.problem);
        }
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for ScenarioError {}
