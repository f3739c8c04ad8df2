//! What answers for a CEL rule, and what it looks at.

use serde_json::Value;

use super::field_issue::{FieldIssue, IssueSeverity, IssueTopic};
use super::found::Found;
use super::text::quoted;

/// Answers for one rule: adds an issue where the value breaks it.
pub type RuleCheck = fn(&mut RuleContext<'_>);

/// A value that a rule looks at.
#[derive(Debug)]
pub struct RuleContext<'a> {
    /// Where it is.
    pub path: &'a str,
    /// The value.
    pub value: &'a Value,
    /// The value before an update.
    pub old: Option<&'a Value>,
    /// The rule's text in CEL.
    pub rule: &'a str,
    pub(crate) found: &'a mut Found,
}

impl<'a> RuleContext<'a> {
    /// Adds a fault of a value somewhere below; `below` begins with `.` or `[`, or is empty.
    pub fn fault(
        &mut self,
        below: &str,
        value: &Value,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let value = if value.is_null() {
            "absent".to_owned()
        } else {
            quoted(value)
        };
        self.found.push(FieldIssue {
            weight: IssueSeverity::Schema,
            field: format!("{}{below}", self.path),
            value,
            problem: problem.into(),
            fix: fix.into(),
            topic: IssueTopic::Schema,
        });
    }

    /// A field; absent ones are null.
    #[must_use]
    pub fn field(&self, name: &str) -> &'a Value {
        self.value.get(name).unwrap_or(&Value::Null)
    }

    /// Whether the value has this field.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        has(self.value, name)
    }

    /// The entries of a list with their positions.
    pub fn items(&self) -> impl Iterator<Item = (usize, &'a Value)> + use<'a> {
        self.value.as_array().into_iter().flatten().enumerate()
    }

    /// The keys of a map, or the text itself.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let (map, text) = (self.value.as_object(), self.value.as_str());
        let keys = map.into_iter().flat_map(|map| map.keys());
        keys.map(String::as_str).chain(text)
    }

    /// Where a key is below the value that is checked.
    #[must_use]
    pub fn below(&self, key: &str) -> String {
        if self.value.is_object() {
            format!("[{key:?}]")
        } else {
            String::new()
        }
    }
}

/// Whether an object has this field, and it is not null.
#[must_use]
pub fn has(value: &Value, name: &str) -> bool {
    value.get(name).is_some_and(|field| !field.is_null())
}

/// Answers for a rule that refuses an empty text.
pub fn empty(at: &mut RuleContext<'_>, example: &str) {
    let value = at.value;
    if value == "" {
        at.fault(
            "",
            value,
            "is empty, but a text is needed",
            format!("write for example {example}"),
        );
    }
}
