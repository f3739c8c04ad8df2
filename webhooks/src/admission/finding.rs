//! What is said about an object, piece by piece, for those who do more with it than print it.

use mortise_apis::issues::{FieldIssue, IssueSeverity, IssueTopic};

use super::review::AdmissionResult;
use super::text::warning;

/// The check that a finding comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// A type, a bound, a pattern or a rule of the definition.
    Schema,
    /// A field that the definition does not have.
    UnknownField,
    /// A field, a value or a version of before.
    Deprecated,
    /// What the API server stores, and nothing can be done with.
    Unusable,
    /// What hardly means what it says.
    Suspicious,
    /// The node class that a pool refers to.
    NodeClass,
    /// A label or value that no instance type has.
    Catalog,
    /// No instance type is left.
    Unsatisfiable,
    /// `minValues` out of reach.
    MinValues,
    /// Disruption budgets that never or always allow.
    Budgets,
    /// Limits that limit nothing, or are below what is there.
    Limits,
    /// Pools, or overlays, that have the same right.
    Overlap,
    /// Nodes that could never be drained.
    BlockedDrain,
    /// An overlay that changes nothing.
    Overlay,
    /// A buffer that follows nothing.
    Buffer,
    /// What goes with an object that is deleted.
    Deletion,
    /// What an edit would do.
    Preview,
    /// A text that is no YAML.
    Unreadable,
    /// `apiVersion` and `kind`.
    Version,
    /// An object that is there twice.
    Duplicate,
    /// A text that looks as if something should have been put in its place.
    Placeholder,
}

impl Check {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::Schema,
        Self::UnknownField,
        Self::Deprecated,
        Self::Unusable,
        Self::Suspicious,
        Self::NodeClass,
        Self::Catalog,
        Self::Unsatisfiable,
        Self::MinValues,
        Self::Budgets,
        Self::Limits,
        Self::Overlap,
        Self::BlockedDrain,
        Self::Overlay,
        Self::Buffer,
        Self::Deletion,
        Self::Preview,
        Self::Unreadable,
        Self::Version,
        Self::Duplicate,
        Self::Placeholder,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn label(self) -> &'static str {
        self.label_and_description().0
    }

    /// What it finds, in a sentence without an end.
    #[must_use]
    pub const fn description(self) -> &'static str {
        self.label_and_description().1
    }

    const fn label_and_description(self) -> (&'static str, &'static str) {
        match self {
            Self::Schema => (
                "schema",
                "A type, bound, pattern or rule of the CRD is violated",
            ),
            Self::UnknownField => ("unknown-field", "The CRD has no such field"),
            Self::Deprecated => (
                "deprecated",
                "A field, value or label of an older version, or at its old path",
            ),
            Self::Unusable => (
                "unusable",
                "The API server accepts it, but the object can never be used",
            ),
            Self::Suspicious => (
                "suspicious",
                "The value is valid, but probably not intended",
            ),
            Self::NodeClass => (
                "node-class",
                "The node class that a NodePool references is missing or not usable",
            ),
            Self::Catalog => ("catalog", "A label or value that no instance type has"),
            Self::Unsatisfiable => ("unsatisfiable", "No instance type meets the requirements"),
            Self::MinValues => (
                "min-values",
                "The requirements leave fewer values than minValues requires",
            ),
            Self::Budgets => (
                "budgets",
                "Disruption budgets that never or always allow a disruption",
            ),
            Self::Limits => (
                "limits",
                "Limits that have no effect, or are already exceeded",
            ),
            Self::Overlap => (
                "overlap",
                "Two objects of equal weight that match the same instance types",
            ),
            Self::BlockedDrain => ("blocked-drain", "Pods that no drain can ever evict"),
            Self::Overlay => ("overlay", "A NodeOverlay that has no effect"),
            Self::Buffer => ("buffer", "A CapacityBuffer without a target"),
            Self::Deletion => (
                "deletion",
                "Nodes and NodeClaims that are deleted with the object",
            ),
            Self::Preview => ("preview", "Effects of an edit"),
            Self::Unreadable => ("unreadable", "The text is not valid YAML"),
            Self::Version => (
                "version",
                "apiVersion and kind are missing, mistyped, or of an older version",
            ),
            Self::Duplicate => ("duplicate", "The same object occurs twice in the files"),
            Self::Placeholder => (
                "placeholder",
                "A value looks like a placeholder that was not filled in",
            ),
        }
    }
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

/// Most things that are said about an object: what comes after them would be read by nobody.
const MOST_FINDINGS: usize = 300;

impl AdmissionResult {
    /// Nobody reads more: what would be said from now on is not kept, so it need not be looked for.
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

    /// Adds a warning about a field.
    pub(super) fn warn(&mut self, check: Check, field: impl Into<String>, text: impl Into<String>) {
        if self.is_full() {
            return;
        }
        let text = text.into();
        self.findings
            .push(new_finding(check, false, field.into(), &text));
        self.warnings.push(text);
    }

    /// Refuses the object because of a field.
    pub(super) fn deny(&mut self, check: Check, field: impl Into<String>, text: impl Into<String>) {
        let text = text.into();
        self.findings
            .push(new_finding(check, true, field.into(), &text));
        self.denied.push(text);
    }
}

/// What stands behind the last semicolon of such a text is what to do.
fn new_finding(check: Check, refused: bool, field: String, text: &str) -> AdmissionFinding {
    let (problem, fix) = text.rsplit_once("; ").unwrap_or((text, ""));
    AdmissionFinding {
        check,
        refused,
        field,
        value: String::new(),
        problem: problem.to_owned(),
        fix: fix.to_owned(),
    }
}
