//! Affinity and anti-affinity between pods: which nodes it leaves, and which it prefers.
//!
//! Three rules leave a node out: a pod in its domain whose required anti-affinity speaks of the new pod; a pod in its domain
//! of which the new pod's required anti-affinity speaks; no pod in its domain that all terms of the new pod's required
//! affinity speak of. The last one does not hold for the first pod of a group: when no such pod has a node anywhere, and the
//! terms speak of the new pod itself, every node will do that has the labels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cache::{Cache, Crowd, Machine};
use super::pod::{PodView, Profile, Term};

/// A label key and its value: a domain.
type Domain = (String, String);

/// What a pod's wish weighs against a term that must hold, of a pod that is there.
const REQUIRED_WEIGHT: i64 = 1;

/// Computed once for a pod, asked for each node.
#[derive(Debug)]
pub(super) struct Neighbours<'a> {
    profile: &'a Profile,
    /// Domains from which pods that are there keep the pod away.
    closed: BTreeSet<Domain>,
    /// Domains with a pod from which the pod keeps away.
    apart: BTreeSet<Domain>,
    /// Domains with a pod that all affinity terms speak of.
    near: BTreeSet<Domain>,
    /// All affinity terms speak of the pod itself.
    starts_group: bool,
    /// What pods that are there make of domains, and the pod's own wishes.
    points: BTreeMap<Domain, i64>,
}

impl<'a> Neighbours<'a> {
    pub(super) fn new(cache: &Cache, pod: &'a PodView) -> Self {
        let own = &*pod.profile;
        let about = |term: &Term, of: &Profile| term.selects(of, &cache.namespaces);
        let all_near = |of: &Profile| own.near.iter().all(|term| about(term, of));
        let mut found = Self {
            profile: own,
            closed: BTreeSet::new(),
            apart: BTreeSet::new(),
            near: BTreeSet::new(),
            starts_group: !own.near.is_empty() && all_near(own),
            points: BTreeMap::new(),
        };
        for crowd in cache.crowds.values().filter(|crowd| !crowd.on.is_empty()) {
            let other = &*crowd.profile;
            for term in other.apart.iter().filter(|term| about(term, own)) {
                found.closed.extend(domains(cache, crowd, &term.key));
            }
            for term in own.apart.iter().filter(|term| about(term, other)) {
                found.apart.extend(domains(cache, crowd, &term.key));
            }
            if !own.near.is_empty() && all_near(other) {
                for term in &own.near {
                    found.near.extend(domains(cache, crowd, &term.key));
                }
            }
            let theirs = other.wishes.iter().map(|(weight, term)| (*weight, term));
            let required = other.near.iter().map(|term| (REQUIRED_WEIGHT, term));
            for (weight, term) in theirs.chain(required).filter(|(_, term)| about(term, own)) {
                found.add_points(cache, crowd, &term.key, weight);
            }
            for (weight, term) in own.wishes.iter().filter(|(_, term)| about(term, other)) {
                found.add_points(cache, crowd, &term.key, *weight);
            }
        }
        found
    }

    fn add_points(&mut self, cache: &Cache, crowd: &Crowd, key: &str, weight: i64) {
        for (node, count) in &crowd.on {
            let machine = cache.machines.get(node);
            if let Some(value) = machine.and_then(|machine| machine.labels.get(key)) {
                let domain = (key.to_owned(), value.clone());
                *self.points.entry(domain).or_default() += weight * count.all();
            }
        }
    }

    /// Whether the terms leave a node.
    pub(super) fn leave(&self, machine: &Machine) -> bool {
        let within = |domains: &BTreeSet<Domain>| {
            let mut domains = domains.iter();
            domains.any(|(key, value)| machine.labels.get(key) == Some(value))
        };
        !within(&self.closed) && !within(&self.apart) && self.is_near(machine)
    }

    fn is_near(&self, machine: &Machine) -> bool {
        let terms = &self.profile.near;
        let labelled = || {
            terms
                .iter()
                .all(|term| machine.labels.contains_key(&term.key))
        };
        let has_partner = |term: &Term| {
            let value = machine.labels.get(&term.key);
            value.is_some_and(|value| self.near.contains(&(term.key.clone(), value.clone())))
        };
        terms.is_empty()
            || terms.iter().all(has_partner)
            || (self.near.is_empty() && self.starts_group && labelled())
    }

    /// How much a node is preferred; any number.
    pub(super) fn points(&self, machine: &Machine) -> i64 {
        let points = self.points.iter();
        points
            .filter(|((key, value), _)| machine.labels.get(key) == Some(value))
            .map(|(_, points)| points)
            .sum()
    }
}

/// The domains in which a crowd is.
fn domains<'a>(
    cache: &'a Cache,
    crowd: &'a Crowd,
    key: &'a str,
) -> impl Iterator<Item = Domain> + 'a {
    crowd.on.keys().filter_map(move |node| {
        let value = cache.machines.get(node)?.labels.get(key)?;
        Some((key.to_owned(), value.clone()))
    })
}

/// Whether the terms of a pod that waits speak of another, or the other's of it.
pub(super) fn speak(cache: &Cache, waiting: &Profile, other: &Arc<Profile>) -> bool {
    let about = |term: &Term, of: &Profile| term.selects(of, &cache.namespaces);
    let own = waiting.near.iter().chain(&waiting.apart);
    own.into_iter().any(|term| about(term, other))
        || other.apart.iter().any(|term| about(term, waiting))
        || waiting
            .spread
            .iter()
            .any(|spread| spread.counts(&waiting.namespace, other))
}
