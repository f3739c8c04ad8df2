//! What was found, and where it stands.

use std::collections::BTreeMap;

use crate::file::Manifest;
use crate::migrate::{self, SourceFile};
use mortise_apis::deprecated_fields::DeprecationAdvice;
use mortise_apis::issues::nearest_in;
use mortise_apis::karpenter::budget_schedule::Calendar;
use serde_json::Value;

use mortise_webhooks::admission::{AdmissionFinding, Check};

/// Longest value that is repeated, in characters.
const QUOTED: usize = 80;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LintLevel {
    /// It works, but probably not as it was meant.
    #[default]
    Warning,
    /// The API server (or kubectl) refuses it, or nothing can ever be done with it.
    Error,
}

impl LintLevel {
    /// The level as a word; SARIF uses the same.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One thing that is wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintFinding {
    /// Name of the input.
    pub file: String,
    /// Line, counted from 1: of the field, or of the nearest one around it.
    pub line: usize,
    /// Kind of the object, as written; empty for a text that is no object.
    pub kind: String,
    /// Name of the object; may be empty.
    pub name: String,
    /// The field, dots between names; empty for the whole object.
    pub field: String,
    /// The value as JSON, `absent`, or empty where no single value is to blame.
    pub value: String,
    /// How bad it is.
    pub level: LintLevel,
    /// What it is about.
    pub check: Check,
    /// What is wrong, and what is allowed.
    pub problem: String,
    /// What to write instead; may be empty.
    pub fix: String,
    /// The message begins with the value.
    pub value_first: bool,
}

impl Default for LintFinding {
    fn default() -> Self {
        Self {
            file: String::new(),
            line: 1,
            kind: String::new(),
            name: String::new(),
            field: String::new(),
            value: String::new(),
            level: LintLevel::default(),
            check: Check::Schema,
            problem: String::new(),
            fix: String::new(),
            value_first: true,
        }
    }
}

impl LintFinding {
    /// The whole sentence: value, problem and fix.
    #[must_use]
    pub fn message(&self) -> String {
        let mut text = String::new();
        if self.value_first && !self.value.is_empty() {
            text.push_str(&self.value);
            text.push(' ');
        }
        text.push_str(&self.problem);
        if !self.fix.is_empty() {
            text.push_str("; ");
            text.push_str(&self.fix);
        }
        text
    }

    /// The word nearest to the one that was written, where one is.
    #[must_use]
    pub fn nearest(&self) -> Option<&str> {
        nearest_in(&self.fix)
    }
}

/// The budgets of a pool in the days to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolCalendar {
    /// Name of the input.
    pub file: String,
    /// Line on which the pool begins.
    pub line: usize,
    /// The calendar.
    pub days: Calendar,
}

/// What was found in all files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LintReport {
    /// Files that were read.
    pub files: usize,
    /// Objects of ours, parts and old ones counted too.
    pub objects: usize,
    /// What was passed over: kind and number.
    pub passed_over: BTreeMap<String, usize>,
    /// In the order of the files and their lines.
    pub findings: Vec<LintFinding>,
    /// One for each pool whose budgets can be read.
    pub calendars: Vec<PoolCalendar>,
    /// Pools that have none, because of what is wrong with them.
    pub without_calendar: usize,
}

impl LintReport {
    /// How many findings are of a level.
    #[must_use]
    pub fn count(&self, level: LintLevel) -> usize {
        let all = self.findings.iter();
        all.filter(|finding| finding.level == level).count()
    }

    pub(super) fn pass_over(&mut self, what: &str) {
        *self.passed_over.entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn sort(&mut self, sources: &[SourceFile]) {
        let files: BTreeMap<&str, usize> = sources
            .iter()
            .enumerate()
            .map(|(at, source)| (source.name.as_str(), at))
            .collect();
        self.findings.sort_by_cached_key(|finding| {
            let file = files.get(finding.file.as_str()).copied();
            let worst_first = std::cmp::Reverse(finding.level);
            (file, finding.line, worst_first, finding.field.clone())
        });
        self.findings.dedup();
    }
}

/// An object in a file, to say things about.
pub(super) struct ObjectLocation<'a> {
    file: &'a str,
    manifest: &'a Manifest,
    kind: &'a str,
    name: String,
}

impl<'a> ObjectLocation<'a> {
    pub(super) fn new(
        file: &'a str,
        manifest: &'a Manifest,
        object: &Value,
        kind: &'a str,
    ) -> Self {
        let name = ["/metadata/name", "/metadata/generateName"]
            .into_iter()
            .find_map(|pointer| object.pointer(pointer)?.as_str());
        Self {
            file,
            manifest,
            kind,
            name: name.unwrap_or_default().to_owned(),
        }
    }

    /// A finding about a field that has no words yet.
    pub(super) fn finding(&self, field: &str) -> LintFinding {
        LintFinding {
            file: self.file.to_owned(),
            line: self.manifest.line_of(field),
            kind: self.kind.to_owned(),
            name: self.name.clone(),
            field: field.to_owned(),
            ..LintFinding::default()
        }
    }

    /// What admission says.
    pub(super) fn locate(&self, findings: Vec<AdmissionFinding>) -> Vec<LintFinding> {
        findings
            .into_iter()
            .map(|finding| {
                let AdmissionFinding {
                    check,
                    refused,
                    field,
                    value,
                    problem,
                    fix,
                } = finding;
                // kubectl refuses unknown fields by itself, and an API server that does not drops them.
                let error = refused || check == Check::UnknownField;
                let value_first = !value.is_empty();
                // A warning that has to stand alone names its field itself.
                let problem = match problem.split_once(": ") {
                    Some((name, rest)) if !value_first && field.contains(name) => rest.to_owned(),
                    _ => problem,
                };
                LintFinding {
                    level: if error {
                        LintLevel::Error
                    } else {
                        LintLevel::Warning
                    },
                    check,
                    value: if value_first {
                        value
                    } else {
                        self.value_of(&field)
                    },
                    problem,
                    fix,
                    value_first,
                    ..self.finding(&field)
                }
            })
            .collect()
    }

    /// A single value as a field has it; empty when there is none.
    fn value_of(&self, field: &str) -> String {
        let value = self.manifest.value_of(field).filter(|_| !field.is_empty());
        let text = match value {
            Some(Value::Object(_)) | None => String::new(),
            Some(value) => value.to_string(),
        };
        if text.chars().count() <= QUOTED {
            return text;
        }
        let short: String = text.chars().take(QUOTED - 3).collect();
        format!("{short}...")
    }

    pub(super) fn deprecated(&self, advice: DeprecationAdvice) -> LintFinding {
        LintFinding {
            check: Check::Deprecated,
            level: LintLevel::Warning,
            value: advice.found,
            problem: "is deprecated".to_owned(),
            fix: advice.instead,
            ..self.finding(&advice.field)
        }
    }

    pub(super) fn placeholders(&self) -> Vec<LintFinding> {
        let found = self.manifest.placeholders(self.file);
        self.remarks(Check::Placeholder, found, "replace it before applying")
    }

    pub(super) fn old_names(&self) -> Vec<LintFinding> {
        let found = self.manifest.old_names(self.file);
        self.remarks(Check::Deprecated, found, "write the new name")
    }

    fn remarks(
        &self,
        check: Check,
        found: Vec<migrate::MigrationFinding>,
        fix: &str,
    ) -> Vec<LintFinding> {
        found
            .into_iter()
            .map(|remark| LintFinding {
                check,
                level: LintLevel::Warning,
                line: remark.line,
                problem: remark.text,
                fix: fix.to_owned(),
                ..self.finding(&remark.field)
            })
            .collect()
    }
}
