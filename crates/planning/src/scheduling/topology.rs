//! Topology spread constraints, pod affinity and anti-affinity.
//!
//! # Terms
//! A *key* is a node label whose values are *domains*, numbered densely. A *group* is one constraint, shared by all pods
//! that state it identically, with the number of matching pods per domain. Hostnames are domains too, one per node; their
//! counts start at zero when a NodeClaim is opened.
//!
//! # Invariant
//! Counts only grow during a pass. A hostname that is rejected for spread or anti-affinity therefore stays rejected, and a
//! pod that depends only on those is not tried again.
//!
//! # Source
//! Karpenter core 1.14, with two differences: a domain must satisfy all constraints of a pod together (Karpenter picks one
//! for each constraint), and constraints that differ in `minDomains` are different groups.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::FixedState;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use smallvec::SmallVec;

use super::fits::labels_meet;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::taints;
use mortise_state::catalog::Bits;
use mortise_state::pods::Selector;
use mortise_state::snapshot::StateNode;

/// Type of a group's constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum TopologyType {
    /// Spread: no domain has `max_skew` more pods than another.
    Spread {
        /// Largest allowed difference.
        max_skew: i32,
        /// With fewer domains the smallest count is taken as zero.
        min_domains: Option<i32>,
    },
    /// Affinity: only domains with matching pods.
    Near,
    /// Anti-affinity: only domains without matching pods.
    Apart,
    /// Inverse anti-affinity: only domains without pods whose anti-affinity matches this pod. Counts the pods with the
    /// anti-affinity.
    Repelled,
}

/// Node selection of a spread constraint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct TopologyNodeFilter {
    /// Alternatives of labels; empty for any.
    pub(super) labels: Vec<Requirements>,
    /// Tolerations of the pod, as comparable texts; `None` ignores taints.
    pub(super) tolerations: Option<Vec<TolerationText>>,
}

/// Key, operator, value and effect of a toleration.
pub(super) type TolerationText = [Option<String>; 4];

/// The fields of a toleration that decide.
pub(super) fn toleration_text(of: &Toleration) -> TolerationText {
    [
        of.key.clone(),
        of.operator.clone(),
        of.value.clone(),
        of.effect.clone(),
    ]
}

impl TopologyNodeFilter {
    /// Whether a node with these taints and labels counts. `PreferNoSchedule` taints are ignored.
    pub(super) fn admits(&self, taints: &[Taint], node: &Requirements) -> bool {
        let none = WellKnown::none();
        self.tolerates(taints)
            && (self.labels.is_empty()
                || self
                    .labels
                    .iter()
                    .any(|asked| node.is_compatible(asked, &none)))
    }

    /// As [`Self::admits`], for a node with these taints.
    pub(super) fn admits_node(&self, taints: &[Taint], node: &StateNode) -> bool {
        self.tolerates(taints)
            && (self.labels.is_empty() || self.labels.iter().any(|asked| labels_meet(node, asked)))
    }

    fn tolerates(&self, taints: &[Taint]) -> bool {
        self.tolerations.as_ref().is_none_or(|all| {
            let tolerations: Vec<Toleration> = all
                .iter()
                .map(|[key, operator, value, effect]| Toleration {
                    key: key.clone(),
                    operator: operator.clone(),
                    value: value.clone(),
                    effect: effect.clone(),
                    toleration_seconds: None,
                })
                .collect();
            let hard = taints
                .iter()
                .filter(|taint| taint.effect != taints::PREFER_NO_SCHEDULE);
            taints::untolerated(hard, &tolerations).next().is_none()
        })
    }

    /// Whether every node counts.
    pub(super) fn is_open(&self) -> bool {
        self.tolerations.is_none() && self.labels.iter().all(Requirements::is_empty)
    }
}

/// Identity of a topology group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TopologyGroupKey {
    /// Type of the constraint.
    pub(super) kind: TopologyType,
    /// Node label.
    pub(super) key: Arc<str>,
    /// Namespaces whose pods count. Sorted.
    pub(super) namespaces: Vec<Arc<str>>,
    /// Which pods count; `None` counts none.
    pub(super) selector: Option<Selector>,
    /// Which nodes are domains.
    pub(super) filter: TopologyNodeFilter,
}

impl TopologyGroupKey {
    /// Whether a pod counts.
    pub(super) fn selects(&self, namespace: &Arc<str>, labels: &[(Arc<str>, Arc<str>)]) -> bool {
        self.namespaces.binary_search(namespace).is_ok()
            && self
                .selector
                .as_ref()
                .is_some_and(|selector| selector.matches_labels(labels))
    }
}

/// A node label and its values.
#[derive(Debug)]
pub(super) struct TopologyKey {
    /// The label.
    pub(super) name: Arc<str>,
    /// Whether it is the hostname: every node is a domain of its own.
    pub(super) is_host: bool,
    /// The values. Sorted; empty for hostnames.
    pub(super) domains: Vec<Arc<str>>,
}

impl TopologyKey {
    /// Index of a value.
    pub(super) fn domain(&self, value: &str) -> Option<usize> {
        self.domains
            .binary_search_by(|each| (**each).cmp(value))
            .ok()
    }

    /// The domains in which a node with this requirement may be: all without a requirement.
    pub(super) fn possible(&self, asked: Option<&Requirement>) -> SmallVec<[usize; 4]> {
        let is_possible = |domain: &usize| asked.is_none_or(|own| own.has(&self.domains[*domain]));
        (0..self.domains.len()).filter(is_possible).collect()
    }
}

/// Count of a domain that does not exist for the group.
pub(super) const NO_DOMAIN: i32 = -1;

/// A constraint with its counts.
#[derive(Debug)]
pub(super) struct TopologyGroup {
    /// Its identity.
    pub(super) statement: TopologyGroupKey,
    /// Index of its key.
    pub(super) key: usize,
    /// Matching pods per domain; [`NO_DOMAIN`] where the domain does not exist for the group. Hostnames beyond the end
    /// have 0.
    pub(super) counts: Vec<i32>,
    /// Domains with a count above zero, and pods on nodes that are no domains of the pass.
    pub(super) occupied: usize,
}

impl TopologyGroup {
    pub(super) fn count(&self, domain: usize) -> i32 {
        self.counts.get(domain).copied().unwrap_or(0)
    }

    /// Counts pods of a node that will be in one of these domains. Until the domain is decided, pods of anti-affinity
    /// block each of them; pods of spread and affinity are counted once it is decided.
    pub(super) fn record_possible(&mut self, domains: &[usize], count: usize) {
        let blocks = matches!(
            self.statement.kind,
            TopologyType::Apart | TopologyType::Repelled
        );
        if domains.len() == 1 || blocks {
            for domain in domains {
                (0..count).for_each(|_| self.record(*domain));
            }
        }
    }

    /// Counts one more pod.
    pub(super) fn record(&mut self, domain: usize) {
        if domain >= self.counts.len() {
            self.counts.resize(domain + 1, 0);
        }
        let count = &mut self.counts[domain];
        if *count <= 0 {
            *count = 0;
            self.occupied += 1;
        }
        *count += 1;
    }
}

/// The domains of one key that the constraints of a pod allow now.
#[derive(Debug)]
pub(super) struct AllowedDomains {
    /// Index of the key; never the hostname.
    pub(super) key: usize,
    /// Domains that satisfy every constraint on the key.
    pub(super) domains: Bits,
    /// The pod's domain must be decided: a spread constraint counts it, or it is the first pod of its group.
    pub(super) one: bool,
    /// A node without the label is allowed too: all constraints are anti-affinity, which nothing violates without a
    /// domain.
    pub(super) absent: bool,
    /// Group whose emptiest domains are tried first.
    order: Option<usize>,
}

/// Limit of matching pods per hostname for one constraint.
#[derive(Debug)]
pub(super) struct HostnameRule<'a> {
    /// The constraint.
    pub(super) group: usize,
    counts: &'a [i32],
    least: i32,
    most: i32,
}

impl AllowedDomains {
    /// Whether a node that will be in one of `domains` is allowed in each of them. Empty for a node without the label.
    pub(super) fn suits_all(&self, domains: &[usize]) -> bool {
        if domains.is_empty() {
            return self.absent;
        }
        domains.iter().all(|domain| self.domains.has(*domain))
    }
}

impl HostnameRule<'_> {
    /// Whether a node violates it.
    #[inline]
    pub(super) fn refuses(&self, host: usize) -> bool {
        let count = self.counts.get(host).copied().unwrap_or(0);
        count < self.least || count > self.most
    }
}

/// All constraints of a pass.
#[derive(Debug, Default)]
pub(super) struct Topology {
    pub(super) keys: Vec<TopologyKey>,
    key_ids: BTreeMap<Arc<str>, usize>,
    pub(super) groups: Vec<TopologyGroup>,
    group_ids: HashMap<TopologyGroupKey, usize, FixedState>,
}

/// The groups and requirements of one pod.
#[derive(Debug)]
pub(super) struct PodTopology<'a> {
    /// Its own groups.
    pub(super) owned: &'a [usize],
    /// Groups of other pods' anti-affinity that exclude it.
    pub(super) repelled_by: &'a [usize],
    /// Its own groups that select it. Sorted.
    pub(super) selects_itself: &'a [usize],
    /// Its label requirements without preferences.
    pub(super) strict: &'a Requirements,
}

impl PodTopology<'_> {
    fn groups(&self) -> impl Iterator<Item = usize> {
        self.owned.iter().chain(self.repelled_by).copied()
    }

    fn is_own(&self, group: usize) -> bool {
        self.selects_itself.binary_search(&group).is_ok()
    }
}

impl Topology {
    /// The group with this identity, added if it is new.
    pub(super) fn group(&mut self, statement: TopologyGroupKey) -> usize {
        if let Some(known) = self.group_ids.get(&statement) {
            return *known;
        }
        let key = match self.key_ids.get(&statement.key) {
            Some(known) => *known,
            None => {
                let name = Arc::clone(&statement.key);
                self.key_ids.insert(Arc::clone(&name), self.keys.len());
                let is_host = &*name == labels::HOSTNAME;
                self.keys.push(TopologyKey {
                    name,
                    is_host,
                    domains: Vec::new(),
                });
                self.keys.len() - 1
            }
        };
        self.group_ids.insert(statement.clone(), self.groups.len());
        self.groups.push(TopologyGroup {
            statement,
            key,
            counts: Vec::new(),
            occupied: 0,
        });
        self.groups.len() - 1
    }

    /// Whether the key of the group is the hostname.
    pub(super) fn is_host(&self, group: usize) -> bool {
        self.keys[self.groups[group].key].is_host
    }

    /// For every key except the hostname: the domains that are allowed now.
    ///
    /// # Errors
    /// The group that leaves no domain at all.
    pub(super) fn allow(
        &self,
        asking: &PodTopology<'_>,
    ) -> Result<SmallVec<[AllowedDomains; 2]>, usize> {
        let mut all: SmallVec<[AllowedDomains; 2]> = SmallVec::new();
        for at in asking.groups() {
            let group = &self.groups[at];
            if self.keys[group.key].is_host {
                continue;
            }
            let (domains, one) = self.domains_of(at, asking);
            let spread = matches!(group.statement.kind, TopologyType::Spread { .. }).then_some(at);
            let absent = matches!(
                group.statement.kind,
                TopologyType::Apart | TopologyType::Repelled
            );
            match all.iter_mut().find(|each| each.key == group.key) {
                Some(known) => {
                    known.domains.and(&domains);
                    known.one |= one;
                    known.absent &= absent;
                    known.order = known.order.or(spread);
                }
                None => all.push(AllowedDomains {
                    key: group.key,
                    domains,
                    one,
                    absent,
                    order: spread,
                }),
            }
            if all
                .iter()
                .any(|each| each.domains.is_empty() && !each.absent)
            {
                return Err(at);
            }
        }
        Ok(all)
    }

    /// The domains that satisfy one group, and whether the pod's domain must be decided. Not for hostnames.
    pub(super) fn domains_of(&self, at: usize, asking: &PodTopology<'_>) -> (Bits, bool) {
        let group = &self.groups[at];
        let key = &self.keys[group.key];
        let own = asking.strict.get(&key.name);
        let usable = |domain: usize| {
            group.count(domain) != NO_DOMAIN && own.is_none_or(|own| own.has(&key.domains[domain]))
        };
        let all = || (0..key.domains.len()).filter(|domain| usable(*domain));
        let mut bits = Bits::none(key.domains.len());
        let mut one = false;
        match &group.statement.kind {
            TopologyType::Spread {
                max_skew,
                min_domains,
            } => {
                let (mut least, mut supported) = (i32::MAX, 0);
                for domain in all() {
                    least = least.min(group.count(domain));
                    supported += 1;
                }
                if min_domains.is_some_and(|min| supported < min) {
                    least = 0;
                }
                let more = i32::from(asking.is_own(at));
                let level = |domain: usize| {
                    group
                        .count(domain)
                        .saturating_add(more)
                        .saturating_sub(least)
                };
                all()
                    .filter(|domain| level(*domain) <= *max_skew)
                    .for_each(|domain| bits.insert(domain));
                one = true;
            }
            TopologyType::Near => {
                all()
                    .filter(|domain| group.count(*domain) > 0)
                    .for_each(|domain| bits.insert(domain));
                if bits.is_empty() && asking.is_own(at) {
                    all().for_each(|domain| bits.insert(domain));
                    one = true;
                }
            }
            TopologyType::Apart | TopologyType::Repelled => {
                all()
                    .filter(|domain| group.count(*domain) == 0)
                    .for_each(|domain| bits.insert(domain));
            }
        }
        (bits, one)
    }

    /// The pod's constraints by hostname, prepared for checks of many nodes.
    pub(super) fn host_rules(&self, asking: &PodTopology<'_>) -> SmallVec<[HostnameRule<'_>; 2]> {
        let rule = |at: usize| {
            let group = &self.groups[at];
            let (least, most) = match &group.statement.kind {
                // A new node is always possible, so the smallest count is zero.
                TopologyType::Spread { max_skew, .. } => {
                    (i32::MIN, max_skew - i32::from(asking.is_own(at)))
                }
                TopologyType::Near if group.occupied == 0 && asking.is_own(at) => {
                    (i32::MIN, i32::MAX)
                }
                TopologyType::Near => (1, i32::MAX),
                TopologyType::Apart | TopologyType::Repelled => (i32::MIN, 0),
            };
            HostnameRule {
                group: at,
                counts: &group.counts,
                least,
                most,
            }
        };
        asking
            .groups()
            .filter(|at| self.is_host(*at))
            .map(rule)
            .collect()
    }

    /// Count of a domain, for the choice among allowed domains.
    pub(super) fn count_of(&self, allow: &AllowedDomains, domain: usize) -> i32 {
        allow
            .order
            .map_or(0, |order| self.groups[order].count(domain))
    }

    /// The domains to try, in order: smallest count first, then by name.
    pub(super) fn in_order(&self, allow: &AllowedDomains, among: &Bits) -> SmallVec<[usize; 4]> {
        let mut domains: SmallVec<[usize; 4]> = among
            .iter()
            .filter(|domain| allow.domains.has(*domain))
            .collect();
        if let Some(order) = allow.order {
            domains.sort_by_key(|domain| self.groups[order].count(*domain));
        }
        domains
    }
}
