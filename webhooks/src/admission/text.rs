//! Words of warnings: short, the important part first.

use std::fmt::Display;

use mortise_apis::issues::FieldIssue;

/// Longest warning: API servers cut what is longer in sum, and terminals wrap it.
pub(super) const WARNING_MAX: usize = 120;

/// A label key without its domain reads well within the length of a warning.
pub(super) fn without_domain(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

/// `1 node`, `12 nodes`.
pub(super) fn count(number: usize, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {what}{end}")
}

/// The first few of many.
pub(super) fn first_of<T: Display>(all: impl IntoIterator<Item = T>, most: usize) -> String {
    let mut all = all.into_iter();
    let mut text = String::new();
    for each in all.by_ref().take(most) {
        let comma = if text.is_empty() { "" } else { ", " };
        text.push_str(&format!("{comma}{each}"));
    }
    match all.count() {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// The nearest known word as a fix; empty if none is near.
pub(super) fn did_you_mean<S: AsRef<str>>(
    word: &str,
    known: impl IntoIterator<Item = S>,
) -> String {
    mortise_apis::nearest::nearest(word, known)
        .map(|near| format!("did you mean \"{near}\"?"))
        .unwrap_or_default()
}

/// A fault as a warning: the fix stays, and what is allowed is cut if need be.
pub(super) fn warning(fault: &FieldIssue) -> String {
    let FieldIssue {
        field,
        value,
        problem,
        fix,
        ..
    } = fault;
    let first = problem.split([':', ';']).next().unwrap_or(problem);
    let name = field
        .rsplit_once("spec.")
        .map_or(&**field, |(_, name)| name);
    [
        format!("{field}: {value} {problem}; {fix}"),
        format!("{field}: {value} {first}; {fix}"),
        format!("{field}: {first}; {fix}"),
        format!("{name}: {first}; {fix}"),
    ]
    .into_iter()
    .find(|text| text.chars().count() <= WARNING_MAX)
    .unwrap_or_else(|| format!("{name}: {fix}"))
}

/// Cuts at a character, not in one.
pub(super) fn shorten(text: &str) -> String {
    if text.chars().count() <= WARNING_MAX {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(WARNING_MAX - 3).collect();
    short.push_str("...");
    short
}
