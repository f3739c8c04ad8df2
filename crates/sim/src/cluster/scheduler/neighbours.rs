//! Affinity and anti-affinity between pods: filter and score.
//!
//! Three rules reject a node: a pod in its domain whose required anti-affinity selects the new pod; a pod in its domain that
//! the new pod's required anti-affinity selects; no pod in its domain that all terms of the new pod's required affinity
//! select. The last rule does not apply to the first pod of a group: if no such pod is bound anywhere, and the terms select
//! the new pod itself, every node with the labels passes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cache::{Cache, NodeInfo, ProfilePods};
use super::pod::{PodView, Profile, Term};

/// A label key and its value: a domain.
type Domain = (String, String);

/// Weight of the required affinity terms of bound pods in the score.
const REQUIRED_WEIGHT: i64 = 1;

/// Computed once for a pod, evaluated for each node.
#[derive(Debug)]
pub(super) struct Neighbours<'a> {
    profile: &'a Profile,
    /// Domains with a pod whose anti-affinity selects the new pod.
    closed: BTreeSet<Domain>,
    /// Domains with a pod that the new pod's anti-affinity selects.
    apart: BTreeSet<Domain>,
    /// Domains with a pod that all affinity terms select.
    near: BTreeSet<Domain>,
    /// All affinity terms select the new pod itself.
    starts_group: bool,
    /// Score of domains: preferred terms of bound pods and of the new pod.
    points: BTreeMap<Domain, i64>,
}

impl<'a> Neighbours<'a> {
    pub(super) fn new(cache: &Cache, pod: &'a PodView) -> Self {
        let own = &*pod.profile;
        let selects = |term: &Term, of: &Profile| term.selects(of, &cache.namespaces);
        let all_near = |of: &Profile| own.near.iter().all(|term| selects(term, of));
        let mut found = Self {
            profile: own,
            closed: BTreeSet::new(),
            apart: BTreeSet::new(),
            near: BTreeSet::new(),
            starts_group: !own.near.is_empty() && all_near(own),
            points: BTreeMap::new(),
        };
        for pods in cache.by_profile.values().filter(|pods| !pods.on.is_empty()) {
            let other = &*pods.profile;
            for term in other.apart.iter().filter(|term| selects(term, own)) {
                found.closed.extend(domains(cache, pods, &term.key));
            }
            for term in own.apart.iter().filter(|term| selects(term, other)) {
                found.apart.extend(domains(cache, pods, &term.key));
            }
            if !own.near.is_empty() && all_near(other) {
                for term in &own.near {
                    found.near.extend(domains(cache, pods, &term.key));
                }
            }
            let theirs = other.preferred.iter().map(|(weight, term)| (*weight, term));
            let required = other.near.iter().map(|term| (REQUIRED_WEIGHT, term));
            for (weight, term) in theirs
                .chain(required)
                .filter(|(_, term)| selects(term, own))
            {
                found.add_points(cache, pods, &term.key, weight);
            }
            for (weight, term) in own
                .preferred
                .iter()
                .filter(|(_, term)| selects(term, other))
            {
                found.add_points(cache, pods, &term.key, *weight);
            }
        }
        found
    }

    fn add_points(&mut self, cache: &Cache, pods: &ProfilePods, key: &str, weight: i64) {
        for (node, count) in &pods.on {
            let node = cache.node_infos.get(node);
            if let Some(value) = node.and_then(|node| node.labels.get(key)) {
                let domain = (key.to_owned(), value.clone());
                *self.points.entry(domain).or_default() += weight * count.all();
            }
        }
    }

    /// Whether the node passes all terms.
    pub(super) fn is_feasible(&self, node: &NodeInfo) -> bool {
        let within = |domains: &BTreeSet<Domain>| {
            let mut domains = domains.iter();
            domains.any(|(key, value)| node.labels.get(key) == Some(value))
        };
        !within(&self.closed) && !within(&self.apart) && self.is_near(node)
    }

    fn is_near(&self, node: &NodeInfo) -> bool {
        let terms = &self.profile.near;
        let labelled = || terms.iter().all(|term| node.labels.contains_key(&term.key));
        let has_partner = |term: &Term| {
            let value = node.labels.get(&term.key);
            value.is_some_and(|value| self.near.contains(&(term.key.clone(), value.clone())))
        };
        terms.is_empty()
            || terms.iter().all(has_partner)
            || (self.near.is_empty() && self.starts_group && labelled())
    }

    /// Score of a node; any number.
    pub(super) fn points(&self, node: &NodeInfo) -> i64 {
        let points = self.points.iter();
        points
            .filter(|((key, value), _)| node.labels.get(key) == Some(value))
            .map(|(_, points)| points)
            .sum()
    }
}

/// Domains with pods of a profile.
fn domains<'a>(
    cache: &'a Cache,
    pods: &'a ProfilePods,
    key: &'a str,
) -> impl Iterator<Item = Domain> + 'a {
    pods.on.keys().filter_map(move |node| {
        let value = cache.node_infos.get(node)?.labels.get(key)?;
        Some((key.to_owned(), value.clone()))
    })
}

/// Whether the terms of a pending pod select another pod, or the terms of the other select it.
pub(super) fn is_affected(cache: &Cache, waiting: &Profile, other: &Arc<Profile>) -> bool {
    let selects = |term: &Term, of: &Profile| term.selects(of, &cache.namespaces);
    let own = waiting.near.iter().chain(&waiting.apart);
    own.into_iter().any(|term| selects(term, other))
        || other.apart.iter().any(|term| selects(term, waiting))
        || waiting
            .spread
            .iter()
            .any(|spread| spread.counts(&waiting.namespace, other))
}
