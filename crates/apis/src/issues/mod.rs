//! What is wrong with an object, as data: the field, the value, what is allowed, and what to write instead. What finds it is
//! [`crate::validation`] for every kind, and the API of a node class for its own.

mod field_issue;
mod found;
mod issue_collector;
mod pattern_description;
mod rule_context;
mod text;

pub use field_issue::{FieldIssue, IssueSeverity, IssueTopic, nearest_in};
pub(crate) use found::Found;
pub use found::MOST_FAULTS;
pub use issue_collector::IssueCollector;
pub use pattern_description::{PatternDescription, describe};
pub use rule_context::{RuleCheck, RuleContext, empty, has};
pub use text::{either, meant, quoted};
