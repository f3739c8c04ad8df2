//! What was done to a manifest, and what somebody should look at.

use serde::Serialize;

/// How much a finding asks of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MigrationLevel {
    /// Converted; it means what it meant.
    Converted,
    /// Converted, but look at it: the meaning cannot be kept exactly, or was not clear.
    Warning,
    /// Not converted: somebody has to decide, and what is written does not work yet.
    Error,
}

impl MigrationLevel {
    /// The level as a word.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Converted => "converted",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Code {
    /// A kind or version became another.
    Version,
    /// A field went to another place.
    Moved,
    /// A field or a value has another name.
    Renamed,
    /// A field was written out that had a default, or none.
    Added,
    /// A field was taken away.
    Removed,
    /// A selector became a list of terms.
    Selector,
    /// Kubelet settings went into a node class.
    Kubelet,
    /// Something behaves in another way now.
    Behaviour,
    /// A text looks like a placeholder that was not filled in.
    Placeholder,
    /// Something that is not supported any more, or ends soon.
    Unsupported,
    /// Something is missing that nobody but the user knows.
    Missing,
    /// A text that is not YAML, or not what it should be.
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

/// One decision or warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MigrationFinding {
    /// Name of the input.
    pub file: String,
    /// Line in the input, counted from 1; 0 when it is about nothing that stands there.
    pub line: usize,
    /// Kind and name of the object, as in the input.
    pub object: String,
    /// How much it asks of the reader.
    pub level: MigrationLevel,
    /// What kind of finding.
    pub code: Code,
    /// The field, dots between names; empty for the whole object.
    pub field: String,
    /// One sentence.
    pub text: String,
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
