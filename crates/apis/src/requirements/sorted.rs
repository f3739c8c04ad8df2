//! Where a set of requirements is kept: by itself, or in memory that copies share.
//!
//! Problem: a region has some thousand instance types with forty requirements each, and every holder of a list of types has a copy.
//! Most sets, on the other hand, are small, short-lived and changed often; sharing them would cost more than it saves.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use super::Requirement;

/// Requirements in the order of their keys. Two with the same requirements are equal, wherever they are kept.
#[derive(Clone, Debug)]
pub(super) enum Sorted {
    Own(Vec<Requirement>),
    Shared(Arc<Vec<Requirement>>),
}

impl Sorted {
    pub(super) const fn new() -> Self {
        Self::Own(Vec::new())
    }

    /// For changes. What was shared is copied.
    pub(super) fn own(&mut self) -> &mut Vec<Requirement> {
        if let Self::Shared(shared) = self {
            *self = Self::Own(Vec::clone(shared));
        }
        match self {
            Self::Own(own) => own,
            Self::Shared(shared) => Arc::make_mut(shared),
        }
    }

    pub(super) fn into_shared(self) -> Self {
        match self {
            Self::Own(mut own) => {
                own.shrink_to_fit();
                Self::Shared(Arc::new(own))
            }
            shared @ Self::Shared(_) => shared,
        }
    }
}

impl Default for Sorted {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Sorted {
    type Target = [Requirement];

    fn deref(&self) -> &[Requirement] {
        match self {
            Self::Own(own) => own,
            Self::Shared(shared) => shared,
        }
    }
}

impl PartialEq for Sorted {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Sorted {}

impl PartialOrd for Sorted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sorted {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Sorted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use crate::requirements::{Requirement, Requirements};

    #[test]
    fn a_copy_of_a_shared_set_changes_alone() {
        let own: Requirements = [Requirement::is("a", "1")].into_iter().collect();
        let shared = own.clone().shared_by_copies();
        let mut copy = shared.clone();
        assert_eq!(own, shared, "where it is kept does not matter");
        copy.add(Requirement::is("b", "2"));
        assert_eq!(shared, own);
        assert_eq!(copy.len(), 2);
        assert_eq!(copy.remove("a"), Some(Requirement::is("a", "1")));
        assert!(shared.has_key("a"));
    }
}
