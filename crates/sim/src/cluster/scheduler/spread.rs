//! Topology spread: filter and score.
//!
//! A constraint counts, by domain, the pods of the new pod's namespace that its selector matches and that are not being
//! deleted. Domains are those of nodes that have the keys of all constraints of the same form and that the inclusion policies
//! of the constraint admit. With `DoNotSchedule` a node passes if the count of its domain, with the new pod if the selector
//! matches it, exceeds the smallest count of any domain by at most `maxSkew`; the smallest count is 0 if there are fewer
//! domains than `minDomains`. With `ScheduleAnyway` nodes in domains with few pods get higher scores.

use std::collections::BTreeMap;

use mortise_apis::names::NodeName;

use super::cache::{Cache, NodeInfo};
use super::filters::{tolerates_all, wants_node};
use super::pod::{PodView, Spread};

/// One constraint with the counts of its domains.
#[derive(Debug)]
struct DomainCounts<'a> {
    spread: &'a Spread,
    domains: BTreeMap<&'a str, i64>,
    /// 1 if the selector matches the new pod itself.
    own: i64,
    /// In thousandths: grows with the number of domains.
    weight: i64,
}

/// Computed once for a pod, evaluated for each node.
#[derive(Debug)]
pub(super) struct Spreads<'a> {
    must: Vec<DomainCounts<'a>>,
    should: Vec<DomainCounts<'a>>,
}

impl<'a> Spreads<'a> {
    pub(super) fn new(cache: &'a Cache, pod: &'a PodView) -> Self {
        Self {
            must: count_domains(cache, pod, true),
            should: count_domains(cache, pod, false),
        }
    }

    /// Whether the node satisfies the required constraints.
    pub(super) fn is_feasible(&self, node: &NodeInfo) -> bool {
        self.must.iter().all(|of| {
            let Some(value) = node.labels.get(&of.spread.key) else {
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

    /// Cost of a node for the preferred constraints, at least 0; `None` if it lacks the key of one.
    pub(super) fn spread_cost(&self, node: &NodeInfo) -> Option<i64> {
        let mut sum = 0;
        for of in &self.should {
            let value = node.labels.get(&of.spread.key)?;
            let here = of.domains.get(value.as_str()).copied().unwrap_or(0);
            sum += here * of.weight + (of.spread.max_skew - 1) * 1_000;
        }
        Some(sum)
    }

    /// Whether there are preferred constraints.
    pub(super) fn has_preferred(&self) -> bool {
        !self.should.is_empty()
    }
}

fn count_domains<'a>(cache: &'a Cache, pod: &'a PodView, must: bool) -> Vec<DomainCounts<'a>> {
    let profile = &pod.profile;
    let constraints: Vec<&Spread> = profile
        .spread
        .iter()
        .filter(|spread| spread.must == must)
        .collect();
    let labelled = |node: &NodeInfo| {
        let mut keys = constraints.iter().map(|spread| &spread.key);
        keys.all(|key| node.labels.contains_key(key))
    };
    let all = constraints.iter().map(|spread| {
        let is_included = |name: &NodeName, node: &NodeInfo| {
            labelled(node)
                && (!spread.honor_affinity || wants_node(&pod.spec, name, &node.labels))
                && (!spread.honor_taints || tolerates_all(&pod.spec, &node.taints))
        };
        let included: BTreeMap<&NodeName, &str> = cache
            .nodes()
            .filter(|(name, node)| is_included(name, node))
            .filter_map(|(name, node)| Some((name, node.labels.get(&spread.key)?.as_str())))
            .collect();
        let mut domains: BTreeMap<&str, i64> = included.values().map(|value| (*value, 0)).collect();
        let by_profile = cache.by_profile.values();
        for pods in by_profile.filter(|pods| spread.counts(&profile.namespace, &pods.profile)) {
            for (node, count) in &pods.on {
                if let Some(domain) = included.get(node).and_then(|value| domains.get_mut(value)) {
                    *domain += count.active;
                }
            }
        }
        let size = domains.len() as u64 + 2;
        DomainCounts {
            spread,
            domains,
            own: i64::from(spread.counts(&profile.namespace, profile)),
            weight: ln_thousandths(size),
        }
    });
    all.collect()
}

/// The natural logarithm in thousandths, without floats: the same on every platform. The error is below 2 for arguments from 2.
fn ln_thousandths(of: u64) -> i64 {
    let micro: u64 = (1..=of).map(|each| 1_000_000 / each).sum();
    let rest = 577_216 + 500_000 / of;
    i64::try_from(micro.saturating_sub(rest) / 1_000).unwrap_or(i64::MAX)
}
