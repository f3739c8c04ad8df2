//! Spread constraints and pod (anti-)affinity terms, compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    PodAffinityTerm, TopologySpreadConstraint, WeightedPodAffinityTerm,
};

use super::Selector;
use mortise_apis::labels;

/// A topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpreadConstraint {
    /// Label of nodes whose values are the domains.
    pub key: Arc<str>,
    /// Maximum difference between the counts of a domain and of the lowest domain.
    pub max_skew: i32,
    /// Which pods of the namespace count; `None` selects none.
    pub selector: Option<Selector>,
    /// `DoNotSchedule`; otherwise it is a preference.
    pub hard: bool,
    /// With fewer domains than this, the lowest count is taken to be zero.
    pub min_domains: Option<i32>,
    /// `nodeTaintsPolicy: Honor`: nodes whose taints the pod does not tolerate are no domains.
    pub honor_taints: bool,
    /// `nodeAffinityPolicy: Honor`, the default: nodes that the pod does not select are no domains.
    pub honor_affinity: bool,
}

impl SpreadConstraint {
    /// Compiles a constraint; `own` are the pod's labels, from which `matchLabelKeys` take their values.
    #[must_use]
    pub fn new(constraint: &TopologySpreadConstraint, own: &[(Arc<str>, Arc<str>)]) -> Self {
        let mut selector = constraint.label_selector.as_ref().map(Selector::new);
        for key in constraint.match_label_keys.iter().flatten() {
            if let Some((key, value)) = own.iter().find(|(own, _)| **own == **key) {
                selector = selector.map(|selector| selector.and_label(key, value));
            }
        }
        Self {
            key: labels::normalize(&constraint.topology_key).into(),
            max_skew: constraint.max_skew,
            selector,
            hard: constraint.when_unsatisfiable != "ScheduleAnyway",
            min_domains: constraint.min_domains,
            honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
            honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
        }
    }
}

/// A pod affinity or anti-affinity term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompiledAffinityTerm {
    /// Label of nodes whose values are the domains.
    pub key: Arc<str>,
    /// Selector of pods; `None` selects none.
    pub selector: Option<Selector>,
    /// Namespaces by name. If this and `namespace_selector` are empty: the namespace of the pod. Sorted.
    pub namespaces: Vec<Arc<str>>,
    /// Namespaces by their labels.
    pub namespace_selector: Option<Selector>,
}

impl CompiledAffinityTerm {
    /// Compiles a term.
    #[must_use]
    pub fn new(term: &PodAffinityTerm) -> Self {
        let mut namespaces: Vec<Arc<str>> = term
            .namespaces
            .iter()
            .flatten()
            .map(|name| name.as_str().into())
            .collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        Self {
            key: labels::normalize(&term.topology_key).into(),
            selector: term.label_selector.as_ref().map(Selector::new),
            namespaces,
            namespace_selector: term.namespace_selector.as_ref().map(Selector::new),
        }
    }
}

impl CompiledAffinityTerm {
    /// Whether the term applies to pods of a namespace with these labels; `own` is the namespace of the pod.
    #[must_use]
    pub fn means_namespace(
        &self,
        own: &str,
        namespace: &str,
        labels: Option<&BTreeMap<String, String>>,
    ) -> bool {
        if self.namespaces.is_empty() && self.namespace_selector.is_none() {
            return own == namespace;
        }
        let label = |key: &str| labels.and_then(|all| all.get(key)).map(String::as_str);
        self.namespaces.iter().any(|name| **name == *namespace)
            || self
                .namespace_selector
                .as_ref()
                .is_some_and(|selector| selector.matches(label))
    }
}

/// A preferred term with its weight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WeightedTerm {
    /// 1 to 100; terms with lower weight are relaxed first.
    pub weight: i32,
    /// The term.
    pub term: CompiledAffinityTerm,
}

/// Terms of one type: affinity, or anti-affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTerms {
    /// Required terms.
    pub required: Vec<CompiledAffinityTerm>,
    /// Preferred terms, as written.
    pub preferred: Vec<WeightedTerm>,
}

impl PodTerms {
    /// Compiles both lists.
    #[must_use]
    pub fn new(
        required: Option<&[PodAffinityTerm]>,
        preferred: Option<&[WeightedPodAffinityTerm]>,
    ) -> Self {
        let required = required
            .unwrap_or_default()
            .iter()
            .map(CompiledAffinityTerm::new)
            .collect();
        let weighted = |each: &WeightedPodAffinityTerm| WeightedTerm {
            weight: each.weight,
            term: CompiledAffinityTerm::new(&each.pod_affinity_term),
        };
        Self {
            required,
            preferred: preferred.unwrap_or_default().iter().map(weighted).collect(),
        }
    }

    /// Whether there are no terms.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.required.is_empty() && self.preferred.is_empty()
    }
}
