//! What is said about an object, piece by piece, for those who do more with it than print it.

use mortise_apis::issues::{FieldIssue, IssueSeverity, IssueTopic};

use super::review::AdmissionResult;
use super::text::warning;

macro_rules! checks {
    ($($check:ident $label:literal $description:literal;)*) => {
        /// The check that a finding comes from.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Check {
            $(#[doc = $description] $check,)*
        }

        impl Check {
            /// All of them, in the order of reports.
            pub const ALL: &[Self] = &[$(Self::$check),*];

            /// Its name in reports.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$check => $label,)*
                }
            }

            /// What it finds, in a sentence without an end.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$check => $description,)*
                }
            }
        }
    };
}

checks! {
    Schema "schema" "A type, bound, pattern or rule of the CRD is violated";
    UnknownField "unknown-field" "The CRD has no such field";
    Deprecated "deprecated" "A field, value or label of an older version, or at its old path";
    Unusable "unusable" "The API server accepts it, but the object can never be used";
    Suspicious "suspicious" "The value is valid, but probably not intended";
    NodeClass "node-class" "The node class that a NodePool references is missing, not usable, or contradicts its requirements";
    Catalog "catalog" "A label or value that no instance type has";
    Unsatisfiable "unsatisfiable" "No instance type meets the requirements";
    Architectures "architectures" "Nodes of several architectures, which the NodePool does not say";
    MinValues "min-values" "The requirements leave fewer values than minValues requires";
    Budgets "budgets" "Disruption budgets that never or always allow a disruption";
    Limits "limits" "Limits that have no effect, or are already exceeded";
    Overlap "overlap" "Two objects of equal weight that match the same instance types";
    BlockedDrain "blocked-drain" "Pods that no drain can ever evict";
    Overlay "overlay" "A NodeOverlay that has no effect";
    Policy "policy" "A NodePoolPolicy whose NodePools are missing or have an older one, whose limit is already exceeded, or whose pause has ended";
    Buffer "buffer" "A CapacityBuffer without a target";
    Deletion "deletion" "Nodes and NodeClaims that are deleted with the object";
    Preview "preview" "Effects of an edit";
    Unreadable "unreadable" "The text is not valid YAML";
    Version "version" "apiVersion and kind are missing, mistyped, or of an older version";
    Duplicate "duplicate" "The same object occurs twice in the files";
    Placeholder "placeholder" "A value looks like a placeholder that was not filled in";
}

/// One thing that is said about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionFinding {
    /// What it is about.
    pub check: Check,
    /// It is why the object is refused.
    pub refused: bool,
    /// The field, dots between names; empty for the whole object.
    pub field: String,
    /// The value as JSON, `absent`, or empty where no single value is to blame.
    pub value: String,
    /// What is wrong, and what is allowed.
    pub problem: String,
    /// What to write instead; may be empty.
    pub fix: String,
}

impl From<&FieldIssue> for AdmissionFinding {
    fn from(fault: &FieldIssue) -> Self {
        let check = match (fault.topic, fault.weight) {
            (IssueTopic::Deprecated, _) => Check::Deprecated,
            (IssueTopic::UnknownField, _) => Check::UnknownField,
            (_, IssueSeverity::Schema) => Check::Schema,
            (_, IssueSeverity::Unusable) => Check::Unusable,
            (_, IssueSeverity::Suspicious) => Check::Suspicious,
        };
        Self {
            check,
            refused: fault.weight != IssueSeverity::Suspicious,
            field: fault.field.clone(),
            value: fault.value.clone(),
            problem: fault.problem.clone(),
            fix: fault.fix.clone(),
        }
    }
}

/// Most things that are said about an object: no user reads more.
const MOST_FINDINGS: usize = 300;

impl AdmissionResult {
    /// The result is full: what would be said from now on is not kept, so no check need search for it.
    pub(super) const fn is_full(&self) -> bool {
        self.findings.len() >= MOST_FINDINGS
    }

    /// Says what is wrong with the object itself.
    pub(super) fn add_issue(&mut self, fault: &FieldIssue) {
        let finding = AdmissionFinding::from(fault);
        if finding.refused {
            self.denied.push(fault.to_string());
        } else {
            self.warnings.push(warning(fault));
        }
        self.findings.push(finding);
    }

    /// Adds a warning about a field: what is wrong, and what to write instead or do (may be empty).
    pub(super) fn warn(
        &mut self,
        check: Check,
        field: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        if self.is_full() {
            return;
        }
        let finding = new_finding(check, false, field, problem, fix);
        self.warnings.push(finding.problem_and_fix());
        self.findings.push(finding);
    }

    /// Refuses the object because of a field.
    pub(super) fn deny(
        &mut self,
        check: Check,
        field: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let finding = new_finding(check, true, field, problem, fix);
        self.denied.push(finding.problem_and_fix());
        self.findings.push(finding);
    }
}

impl AdmissionFinding {
    /// `problem; fix`, or the problem alone if there is nothing to do about it.
    fn problem_and_fix(&self) -> String {
        if self.fix.is_empty() {
            self.problem.clone()
        } else {
            format!("{}; {}", self.problem, self.fix)
        }
    }
}

fn new_finding(
    check: Check,
    refused: bool,
    field: impl Into<String>,
    problem: impl Into<String>,
    fix: impl Into<String>,
) -> AdmissionFinding {
    AdmissionFinding {
        check,
        refused,
        field: field.into(),
        value: String::new(),
        problem: problem.into(),
        fix: fix.into(),
    }
}
