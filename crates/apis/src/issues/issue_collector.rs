//! Collects what is wrong with an object beyond its definition.

use serde_json::Value;

use super::field_issue::{FieldIssue, IssueSeverity, IssueTopic};
use super::found::Found;
use super::text::quoted;

/// Collects faults.
#[derive(Debug, Default)]
pub struct IssueCollector(Found);

impl IssueCollector {
    /// No more issues that refuse, or no more that do not, are searched for.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        !self.0.takes(IssueSeverity::Unusable) || !self.0.takes(IssueSeverity::Suspicious)
    }

    fn add(
        &mut self,
        weight: IssueSeverity,
        field: String,
        value: &Value,
        problem: String,
        fix: String,
    ) {
        let value = if value.is_null() {
            "absent".to_owned()
        } else {
            quoted(value)
        };
        self.0.push(FieldIssue {
            weight,
            field,
            value,
            problem,
            fix,
            topic: IssueTopic::Meaning,
        });
    }

    /// Adds an issue that makes the object unusable.
    pub fn unusable(
        &mut self,
        field: String,
        value: &Value,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(
            IssueSeverity::Unusable,
            field,
            value,
            problem.into(),
            fix.into(),
        );
    }

    /// Adds an issue of an object that can be used, and probably does something else than intended.
    pub fn suspicious(
        &mut self,
        field: String,
        value: &Value,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(
            IssueSeverity::Suspicious,
            field,
            value,
            problem.into(),
            fix.into(),
        );
    }

    /// What was found.
    pub(crate) fn into_found(self) -> Found {
        self.0
    }
}
