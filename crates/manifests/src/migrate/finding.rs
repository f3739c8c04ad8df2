//! Findings: what was converted, and what needs attention.

use std::fmt;

use serde::Serialize;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MigrationLevel {
    /// Converted without a change of meaning.
    Converted,
    /// Converted, but needs a review: the meaning cannot be kept exactly, or was not clear.
    Warning,
    /// Not converted: needs a decision by the user, and does not work as written.
    Error,
}

impl MigrationLevel {
    /// The level as text.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Converted => "converted",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Category of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Code {
    /// A kind or version was replaced.
    Version,
    /// A field was moved.
    Moved,
    /// A field or a value was renamed.
    Renamed,
    /// A field was added that had a default, or none.
    Added,
    /// A field was removed.
    Removed,
    /// A selector became a list of terms.
    Selector,
    /// Kubelet settings were moved into a node class.
    Kubelet,
    /// A behaviour changed.
    Behaviour,
    /// A text looks like a placeholder.
    Placeholder,
    /// A feature is not supported any more, or is deprecated.
    Unsupported,
    /// A value is missing that only the user knows.
    Missing,
    /// A text that is not YAML, or has an unexpected structure.
    Unreadable,
}

impl Code {
    /// The code as in the JSON report.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Moved => "moved",
            Self::Renamed => "renamed",
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Selector => "selector",
            Self::Kubelet => "kubelet",
            Self::Behaviour => "behaviour",
            Self::Placeholder => "placeholder",
            Self::Unsupported => "unsupported",
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
        }
    }
}

/// One conversion or warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MigrationFinding {
    /// Name of the input.
    pub file: String,
    /// Line in the input, counted from 1; 0 if it concerns no line.
    pub line: usize,
    /// Kind and name of the object, as in the input.
    pub object: String,
    /// Severity.
    pub level: MigrationLevel,
    /// Category.
    pub code: Code,
    /// The field, dots between names; empty for the whole object.
    pub field: String,
    /// One sentence.
    pub text: String,
}

/// One line of the report: `file:line: level: object field: text`.
impl fmt::Display for MigrationFinding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.file)?;
        if self.line > 0 {
            write!(out, ":{}", self.line)?;
        }
        write!(out, ": {}: {}", self.level.label(), self.object)?;
        if !self.field.is_empty() {
            write!(out, " {}", self.field)?;
        }
        write!(out, ": {}", self.text)
    }
}

/// Findings about one object.
pub(crate) struct FindingLog<'a> {
    pub(crate) file: &'a str,
    pub(crate) object: String,
    pub(crate) findings: &'a mut Vec<MigrationFinding>,
}

impl FindingLog<'_> {
    fn push(&mut self, level: MigrationLevel, code: Code, line: usize, field: &str, text: String) {
        self.findings.push(MigrationFinding {
            file: self.file.to_owned(),
            line,
            object: self.object.clone(),
            level,
            code,
            field: field.to_owned(),
            text,
        });
    }

    pub(crate) fn converted(
        &mut self,
        code: Code,
        line: usize,
        field: &str,
        text: impl Into<String>,
    ) {
        self.push(MigrationLevel::Converted, code, line, field, text.into());
    }

    pub(crate) fn warning(
        &mut self,
        code: Code,
        line: usize,
        field: &str,
        text: impl Into<String>,
    ) {
        self.push(MigrationLevel::Warning, code, line, field, text.into());
    }

    pub(crate) fn error(&mut self, code: Code, line: usize, field: &str, text: impl Into<String>) {
        self.push(MigrationLevel::Error, code, line, field, text.into());
    }
}
