//! Topology spread: which nodes it leaves, and which it prefers.
//!
//! A constraint counts the pods of the new pod's namespace that its selector speaks of and that stay, by domain. Domains are
//! those of nodes that have the keys of all constraints of the same form and that the constraint's inclusion policies keep.
//! With `DoNotSchedule` a node is left when the count of its domain, with the new pod if the selector speaks of it, exceeds
//! the smallest count of any domain by `maxSkew` at most; the smallest count is 0 when there are fewer domains than
//! `minDomains`. With `ScheduleAnyway` nodes in domains with few pods are preferred.

use std::collections::BTreeMap;

use mortise_apis::names::NodeName;

use super::cache::{Cache, Machine};
use super::filters::{tolerates_all, wants_node};
use super::pod::{PodView, Spread};

/// One constraint with the counts of its domains.
#[derive(Debug)]
struct Counted<'a> {
    spread: &'a Spread,
    domains: BTreeMap<&'a str, i64>,
    /// The new pod counts itself.
    own: i64,
    /// In thousandths: a domain weighs more where there are many.
    weight: i64,
}

/// Computed once for a pod, asked for each node.
#[derive(Debug)]
pub(super) struct Spreads<'a> {
    must: Vec<Counted<'a>>,
    should: Vec<Counted<'a>>,
}

impl<'a> Spreads<'a> {
    pub(super) fn new(cache: &'a Cache, pod: &'a PodView) -> Self {
        Self {
            must: counted(cache, pod, true),
            should: counted(cache, pod, false),
        }
    }

    /// Whether the constraints that must hold leave a node.
    pub(super) fn leave(&self, machine: &Machine) -> bool {
        self.must.iter().all(|of| {
            let Some(value) = machine.labels.get(&of.spread.key) else {
                return false;
            };
            let here = of.domains.get(value.as_str()).copied().unwrap_or(0);
            let least = if of.domains.len() < of.spread.min_domains {
                0
            } else {
                of.domains.values().copied().min().unwrap_or(0)
            };
            here + of.own - least <= of.spread.max_skew
        })
    }

    /// How little a node is preferred, 0 and more; `None` when it lacks a key of a constraint that should hold.
    pub(super) fn crowding(&self, machine: &Machine) -> Option<i64> {
        let mut sum = 0;
        for of in &self.should {
            let value = machine.labels.get(&of.spread.key)?;
            let here = of.domains.get(value.as_str()).copied().unwrap_or(0);
            sum += here * of.weight + (of.spread.max_skew - 1) * 1_000;
        }
        Some(sum)
    }

    /// Whether there are constraints that should hold.
    pub(super) fn prefers(&self) -> bool {
        !self.should.is_empty()
    }
}

fn counted<'a>(cache: &'a Cache, pod: &'a PodView, must: bool) -> Vec<Counted<'a>> {
    let profile = &pod.profile;
    let constraints: Vec<&Spread> = profile
        .spread
        .iter()
        .filter(|spread| spread.must == must)
        .collect();
    let labelled = |machine: &Machine| {
        let mut keys = constraints.iter().map(|spread| &spread.key);
        keys.all(|key| machine.labels.contains_key(key))
    };
    let all = constraints.iter().map(|spread| {
        let is_included = |name: &NodeName, machine: &Machine| {
            labelled(machine)
                && (!spread.honor_affinity || wants_node(pod, name, machine))
                && (!spread.honor_taints || tolerates_all(pod, machine))
        };
        let included: BTreeMap<&NodeName, &str> = cache
            .nodes()
            .filter(|(name, machine)| is_included(name, machine))
            .filter_map(|(name, machine)| Some((name, machine.labels.get(&spread.key)?.as_str())))
            .collect();
        let mut domains: BTreeMap<&str, i64> = included.values().map(|value| (*value, 0)).collect();
        let crowds = cache.crowds.values();
        for crowd in crowds.filter(|crowd| spread.counts(&profile.namespace, &crowd.profile)) {
            for (node, count) in &crowd.on {
                if let Some(domain) = included.get(node).and_then(|value| domains.get_mut(value)) {
                    *domain += count.staying;
                }
            }
        }
        let size = domains.len() as u64 + 2;
        Counted {
            spread,
            domains,
            own: i64::from(spread.counts(&profile.namespace, profile)),
            weight: ln_thousandths(size),
        }
    });
    all.collect()
}

/// The natural logarithm in thousandths, without floats: the same on every machine. Off by less than 2 from 2 on.
fn ln_thousandths(of: u64) -> i64 {
    let micro: u64 = (1..=of).map(|each| 1_000_000 / each).sum();
    let rest = 577_216 + 500_000 / of;
    i64::try_from(micro.saturating_sub(rest) / 1_000).unwrap_or(i64::MAX)
}
