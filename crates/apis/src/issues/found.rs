//! The faults of one object, no more of them than anybody reads: what a stranger sends must not make more work than it is
//! long.

use super::field_issue::{FieldIssue, IssueSeverity};

/// Most faults of an object that refuse it, and as many that do not.
pub const MOST_FAULTS: usize = 100;

/// Longest place that is told, in characters. Names of fields are as long as their author likes.
const LONGEST_PLACE: usize = 300;

/// Collects faults up to [`MOST_FAULTS`] of those that refuse and as many of the others.
#[derive(Debug, Default)]
pub(crate) struct Found {
    all: Vec<FieldIssue>,
    refusing: usize,
    suspicious: usize,
}

impl Found {
    /// Keeps a fault while there is room for its weight.
    pub(crate) fn push(&mut self, mut fault: FieldIssue) {
        if !self.takes(fault.weight) {
            return;
        }
        let seen = match fault.weight {
            IssueSeverity::Suspicious => &mut self.suspicious,
            IssueSeverity::Schema | IssueSeverity::Unusable => &mut self.refusing,
        };
        *seen += 1;
        if let Some((cut, _)) = fault.field.char_indices().nth(LONGEST_PLACE) {
            fault.field.truncate(cut);
            fault.field.push_str("...");
        }
        self.all.push(fault);
    }

    /// There is room for another one of this weight; asked before a text is made that the list would drop.
    pub(crate) const fn takes(&self, weight: IssueSeverity) -> bool {
        match weight {
            IssueSeverity::Suspicious => self.suspicious < MOST_FAULTS,
            IssueSeverity::Schema | IssueSeverity::Unusable => self.refusing < MOST_FAULTS,
        }
    }

    /// No more issues that refuse are searched for: there may be more of them.
    pub(crate) const fn is_cut(&self) -> bool {
        self.refusing >= MOST_FAULTS
    }

    /// How many refuse.
    pub(crate) const fn refusing(&self) -> usize {
        self.refusing
    }

    /// What was found.
    pub(crate) fn all(&self) -> &[FieldIssue] {
        &self.all
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut FieldIssue> {
        self.all.iter_mut()
    }

    /// What was found, by weight and field, each once.
    pub(crate) fn sorted(mut self) -> Vec<FieldIssue> {
        self.all.sort();
        self.all.dedup();
        self.all
    }
}
