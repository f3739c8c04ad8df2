//! Filters that depend on a pod and a node only.

use k8s_openapi::api::core::v1::{Taint, Toleration};
use mortise_apis::{k8s, labels};

use super::cache::NodeInfo;
use super::pod::{PodView, conflict};
use super::queue::Filter;
use super::selectors::{Labels, node_selects};

/// The first filter that rejects a node for a pod, regardless of other nodes.
pub(super) fn rejection(pod: &PodView, name: &str, node: &NodeInfo) -> Option<Filter> {
    if node.unschedulable && !tolerates(&pod.spec, &cordon()) {
        return Some(Filter::Unschedulable);
    }
    if !tolerates_all(&pod.spec, &node.taints) {
        return Some(Filter::Taints);
    }
    if !wants_node(&pod.spec, name, &node.labels) {
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

/// Whether a node of this name, with these labels, matches the node selector and the required node affinity of a pod.
pub(in super::super) fn wants_node(spec: &k8s::PodSpec, name: &str, labels: &Labels) -> bool {
    let mut selected = spec.node_selector.iter();
    let affinity = spec.affinity.as_ref();
    let required = affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|node| {
            node.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    selected.all(|(key, value)| labels.get(key) == Some(value))
        && required.is_none_or(|selector| node_selects(selector, name, labels))
}

/// Whether a pod tolerates every `NoSchedule` and `NoExecute` taint.
pub(in super::super) fn tolerates_all(spec: &k8s::PodSpec, taints: &[Taint]) -> bool {
    let mut hard = taints
        .iter()
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    hard.all(|taint| tolerates(spec, taint))
}

/// Whether a pod tolerates a taint.
pub(super) fn tolerates(spec: &k8s::PodSpec, taint: &Taint) -> bool {
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
    spec.tolerations.iter().any(matches)
}
