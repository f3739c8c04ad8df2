//! A conjunction of requirements, one per key.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::sorted::Sorted;
use super::{Incompatible, NoOverlap, Operator, Requirement, UndefinedLabel};
use crate::RequirementSpec;
use crate::labels::{HOSTNAME, INITIALIZED, REGISTERED, WellKnown};

/// Requirements by key: all must be satisfied.
///
/// # Shape
/// Sorted by key, unique by key. A missing key is unrestricted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirements {
    sorted: Sorted,
}

impl Requirements {
    /// Nothing required.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sorted: Sorted::new(),
        }
    }

    /// The labels of an object: each key has exactly its value.
    #[must_use]
    pub fn from_labels<K: Into<Arc<str>>, V: Into<Arc<str>>>(
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        labels
            .into_iter()
            .map(|(key, value)| Requirement::is(key, value))
            .collect()
    }

    /// The same, in memory that all copies share until they are changed: for sets that are kept for long and copied often.
    #[must_use]
    pub fn shared_by_copies(self) -> Self {
        Self {
            sorted: self.sorted.into_shared(),
        }
    }

    fn position(&self, key: &str) -> Result<usize, usize> {
        self.sorted
            .binary_search_by(|requirement| requirement.key().cmp(key))
    }

    /// Adds a requirement; one with the same key is narrowed to what both allow.
    pub fn add(&mut self, requirement: Requirement) {
        match self.position(requirement.key()) {
            Ok(at) => {
                if let Some(existing) = self.sorted.own().get_mut(at) {
                    *existing = requirement.intersection(existing);
                }
            }
            Err(at) => self.sorted.own().insert(at, requirement),
        }
    }

    /// Adds a requirement so that the result requires everything that both require; see [`Requirement::both`].
    pub fn require(&mut self, requirement: Requirement) {
        match self.position(requirement.key()) {
            Ok(at) => {
                if let Some(existing) = self.sorted.own().get_mut(at) {
                    *existing = requirement.both(existing);
                }
            }
            Err(at) => self.sorted.own().insert(at, requirement),
        }
    }

    /// [`Self::require`] for all requirements of another set.
    pub fn require_all(&mut self, other: &Self) {
        let each = other.iter().cloned();
        each.for_each(|requirement| self.require(requirement));
    }

    /// Adds all requirements of another set.
    pub fn add_all(&mut self, other: &Self) {
        other
            .iter()
            .for_each(|requirement| self.add(requirement.clone()));
    }

    /// Replaces the requirement on the key.
    pub fn replace(&mut self, requirement: Requirement) {
        match self.position(requirement.key()) {
            Ok(at) => {
                if let Some(existing) = self.sorted.own().get_mut(at) {
                    *existing = requirement;
                }
            }
            Err(at) => self.sorted.own().insert(at, requirement),
        }
    }

    /// Drops what was required of the key, and returns it.
    pub fn remove(&mut self, key: &str) -> Option<Requirement> {
        self.position(key)
            .ok()
            .map(|at| self.sorted.own().remove(at))
    }

    /// The requirement on the key; `None` if it is unrestricted.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Requirement> {
        self.position(key).ok().and_then(|at| self.sorted.get(at))
    }

    /// What is required of the key, where a missing one is `Exists`.
    #[must_use]
    pub fn get_or_exists(&self, key: &str) -> Requirement {
        self.get(key)
            .map_or_else(|| Requirement::exists(key), Clone::clone)
    }

    /// Whether something is required of the key.
    #[must_use]
    pub fn has_key(&self, key: &str) -> bool {
        self.position(key).is_ok()
    }

    /// The keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.sorted.iter().map(Requirement::key)
    }

    /// The requirements, sorted by key.
    pub fn iter(&self) -> std::slice::Iter<'_, Requirement> {
        self.sorted.iter()
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether nothing is required.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Whether any requirement has minValues.
    #[must_use]
    pub fn has_min_values(&self) -> bool {
        self.sorted
            .iter()
            .any(|requirement| requirement.min_values().is_some())
    }

    /// The requirements as API entries, sorted by key.
    #[must_use]
    pub fn to_specs(&self) -> Vec<RequirementSpec> {
        self.sorted.iter().flat_map(Requirement::to_specs).collect()
    }

    /// Pairs of requirements that both sets have on the same key.
    fn shared<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = (&'a Requirement, &'a Requirement)> {
        let (mut ours, mut theirs) = (
            self.sorted.iter().peekable(),
            other.sorted.iter().peekable(),
        );
        std::iter::from_fn(move || {
            loop {
                match ours.peek()?.key().cmp(theirs.peek()?.key()) {
                    Ordering::Less => ours.next(),
                    Ordering::Greater => theirs.next(),
                    Ordering::Equal => return ours.next().zip(theirs.next()),
                };
            }
        })
    }

    /// Whether the key of `asked` may be missing here.
    fn may_miss(&self, asked: &Requirement, undefined_ok: &WellKnown) -> bool {
        asked.allows_absence() || self.has_key(asked.key()) || undefined_ok.contains(asked.key())
    }

    /// Whether a node with these requirements can satisfy those of `asked`: shared keys overlap, and keys missing here are in
    /// `undefined_ok` or may be absent.
    ///
    /// # Errors
    /// Every incompatible key. Use [`Self::is_compatible`] if the reasons do not matter.
    pub fn compatible(&self, asked: &Self, undefined_ok: &WellKnown) -> Result<(), Incompatible> {
        let undefined: Vec<UndefinedLabel> = asked
            .iter()
            .filter(|requirement| !self.may_miss(requirement, undefined_ok))
            .map(|requirement| UndefinedLabel {
                key: Arc::clone(requirement.shared_key()),
                typo_of: self.typo_of(requirement.key(), undefined_ok),
            })
            .collect();
        match (self.intersects(asked), undefined.is_empty()) {
            (result, true) => result,
            (Ok(()), false) => Err(Incompatible {
                undefined,
                no_overlap: Vec::new(),
            }),
            (Err(reasons), false) => Err(Incompatible {
                undefined,
                ..reasons
            }),
        }
    }

    /// [`Self::compatible`] without the reasons.
    ///
    /// # Cost
    /// No allocation.
    #[must_use]
    pub fn is_compatible(&self, asked: &Self, undefined_ok: &WellKnown) -> bool {
        asked
            .iter()
            .all(|requirement| self.may_miss(requirement, undefined_ok))
            && self.does_intersect(asked)
    }

    /// Whether every key that both have allows a common value; two sides that both allow absence never clash.
    ///
    /// # Errors
    /// Every key without overlap.
    pub fn intersects(&self, asked: &Self) -> Result<(), Incompatible> {
        let no_overlap: Vec<NoOverlap> = self
            .shared(asked)
            .filter(|(had, asked)| clash(had, asked))
            .map(|(had, asked)| NoOverlap {
                asked: asked.clone(),
                had: had.clone(),
            })
            .collect();
        if no_overlap.is_empty() {
            Ok(())
        } else {
            Err(Incompatible {
                undefined: Vec::new(),
                no_overlap,
            })
        }
    }

    /// [`Self::intersects`] without the reasons.
    ///
    /// # Cost
    /// No allocation.
    #[must_use]
    pub fn does_intersect(&self, asked: &Self) -> bool {
        !self.shared(asked).any(|(had, asked)| clash(had, asked))
    }

    /// A key that may have been meant: a well-known one first, then one defined here.
    fn typo_of(&self, key: &str, known: &WellKnown) -> Option<Arc<str>> {
        let last = key.split_once('/').map_or(key, |(_, name)| name);
        known
            .keys()
            .chain(self.sorted.iter().map(Requirement::shared_key))
            .find(|candidate| candidate.contains(key) || candidate.ends_with(last))
            .map(Arc::clone)
    }

    /// Labels for an object that has these requirements: one allowed value for each custom key. The provider sets well-known
    /// keys; host name, `registered` and `initialized` are never set in advance.
    #[must_use]
    pub fn labels(&self, known: &WellKnown) -> BTreeMap<String, String> {
        self.labels_seeded(known, 0)
    }

    /// [`Self::labels`], where the seed picks the value of keys that allow a range, so that two objects can differ.
    #[must_use]
    pub fn labels_seeded(&self, known: &WellKnown, seed: u64) -> BTreeMap<String, String> {
        let preset =
            |key: &str| known.contains(key) || matches!(key, HOSTNAME | REGISTERED | INITIALIZED);
        self.sorted
            .iter()
            .filter(|requirement| !preset(requirement.key()))
            .filter_map(|requirement| {
                let value = requirement.any(seed).filter(|value| !value.is_empty())?;
                Some((requirement.key().to_owned(), value))
            })
            .collect()
    }
}

/// Requirements of a spec list. The CRD rejects an entry with an unknown operator; if one is stored anyway, it matches
/// nothing, so that it can never add instance types to a NodeClaim.
pub fn requirements_of<'a>(specs: impl IntoIterator<Item = &'a RequirementSpec>) -> Requirements {
    let mut all = Requirements::new();
    for spec in specs {
        let requirement = match spec.operator.parse::<Operator>() {
            Ok(operator) => Requirement::new(
                spec.key.as_str(),
                operator,
                spec.values().iter().map(String::as_str),
            )
            .with_min_values(spec.min_values.and_then(|min| u32::try_from(min).ok())),
            Err(_) => Requirement::does_not_exist(spec.key.as_str()),
        };
        all.add(requirement);
    }
    all
}

fn clash(had: &Requirement, asked: &Requirement) -> bool {
    let both_absent = had.allows_absence() && asked.allows_absence();
    !both_absent && !had.has_intersection(asked)
}

impl FromIterator<Requirement> for Requirements {
    fn from_iter<T: IntoIterator<Item = Requirement>>(iter: T) -> Self {
        let mut set = Self::new();
        set.extend(iter);
        set
    }
}

impl Extend<Requirement> for Requirements {
    fn extend<T: IntoIterator<Item = Requirement>>(&mut self, iter: T) {
        iter.into_iter()
            .for_each(|requirement| self.add(requirement));
    }
}

impl<'a> IntoIterator for &'a Requirements {
    type Item = &'a Requirement;
    type IntoIter = std::slice::Iter<'a, Requirement>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Requirements {
    /// Comma-separated, sorted by key, without the host name (which differs per node).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self
            .sorted
            .iter()
            .filter(|r| r.key() != HOSTNAME)
            .enumerate()
        {
            let gap = if i == 0 { "" } else { ", " };
            write!(f, "{gap}{requirement}")?;
        }
        Ok(())
    }
}
