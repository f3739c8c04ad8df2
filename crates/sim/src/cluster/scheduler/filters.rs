//! Filters that depend on a pod and a node only.

use k8s_openapi::api::core::v1::{Taint, Toleration};
use mortise_apis::labels;

use super::cache::NodeInfo;
use super::pod::{PodView, conflict};
use super::queue::Filter;
use super::selectors::node_selects;

/// The first filter that rejects a node for a pod, regardless of other nodes.
pub(super) fn rejection(pod: &PodView, name: &str, node: &NodeInfo) -> Option<Filter> {
    if node.unschedulable && !tolerates(pod, &cordon()) {
        return Some(Filter::Unschedulable);
    }
    if !tolerates_all(pod, node) {
        return Some(Filter::Taints);
    }
    if !wants_node(pod, name, node) {
        return Some(Filter::NodeAffinity);
    }
    let taken = node.pods.values().flat_map(|other| &other.ports);
    if !pod.ports.is_empty()
        && taken
            .into_iter()
            .any(|taken| pod.ports.iter().any(|own| conflict(own, taken)))
    {
        return Some(Filter::Ports);
    }
    let lacks = |(resource, amount): (&str, i64)| {
        amount > 0 && amount > node.allocatable.get(resource) - node.used.get(resource)
    };
    if pod.requests.iter().any(lacks) {
        return Some(Filter::Resources);
    }
    None
}

fn cordon() -> Taint {
    Taint {
        key: labels::UNSCHEDULABLE_TAINT.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }
}

/// Whether a node matches the node selector and the required node affinity of a pod.
pub(super) fn wants_node(pod: &PodView, name: &str, node: &NodeInfo) -> bool {
    let mut selected = pod.spec.node_selector.iter();
    let affinity = pod.spec.affinity.as_ref();
    let required = affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|node| {
            node.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    selected.all(|(key, value)| node.labels.get(key) == Some(value))
        && required.is_none_or(|selector| node_selects(selector, name, &node.labels))
}

/// Whether a pod tolerates every `NoSchedule` and `NoExecute` taint.
pub(super) fn tolerates_all(pod: &PodView, node: &NodeInfo) -> bool {
    let mut hard = node
        .taints
        .iter()
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    hard.all(|taint| tolerates(pod, taint))
}

/// Whether a pod tolerates a taint.
pub(super) fn tolerates(pod: &PodView, taint: &Taint) -> bool {
    tolerated(&pod.spec.tolerations, taint)
}

/// Whether one of the tolerations is of a taint.
pub(in super::super) fn tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    let matches = |toleration: &Toleration| {
        let text = |of: &Option<String>| of.clone().unwrap_or_default();
        let (effect, key) = (text(&toleration.effect), text(&toleration.key));
        let value = match text(&toleration.operator).as_str() {
            "Exists" => true,
            "" | "Equal" => !key.is_empty() && text(&toleration.value) == text(&taint.value),
            _ => false,
        };
        value
            && (effect.is_empty() || effect == taint.effect)
            && (key.is_empty() || key == taint.key)
    };
    tolerations.iter().any(matches)
}
