//! Edits of the disrupted taint of a Node.

use k8s_openapi::api::core::v1::Taint;
use mortise_apis::{k8s, labels, taints};

/// The taints of a Node after an edit of the disrupted taint, and the label that excludes it from load balancers.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeTaints {
    /// All taints of the Node; `None` if they are not changed.
    pub all: Option<Vec<Taint>>,
    /// What happens to the label; `None` if it is not changed.
    pub exclusion: Option<LoadBalancerExclusion>,
}

/// An edit of the label that excludes a Node from load balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadBalancerExclusion {
    /// Load balancers remove the Node from their targets.
    Set,
    /// Load balancers use the Node again.
    Clear,
}

impl NodeTaints {
    /// Adds the taint to a Node that stays in load balancers until its replacements are ready.
    #[must_use]
    pub fn disrupted(node: &k8s::Node) -> Self {
        Self {
            all: Some(with_disrupted(node)),
            exclusion: None,
        }
    }

    /// Adds the taint to a Node without replacement, which leaves load balancers with the same write.
    #[must_use]
    pub fn disrupted_and_excluded(node: &k8s::Node) -> Self {
        Self {
            all: Some(with_disrupted(node)),
            exclusion: (!is_excluded(node)).then_some(LoadBalancerExclusion::Set),
        }
    }

    /// Removes the taint, and the label.
    #[must_use]
    pub fn restored(node: &k8s::Node) -> Self {
        Self {
            all: Some(others(node)),
            exclusion: is_excluded(node).then_some(LoadBalancerExclusion::Clear),
        }
    }

    /// Adds what a Node that terminates lacks of taint and label; `None` if it has both.
    #[must_use]
    pub fn terminating(node: &k8s::Node) -> Option<Self> {
        let disrupted = taints::disrupted();
        let is_tainted = node.has_taint(&disrupted.key, &disrupted.effect);
        let edit = Self {
            all: (!is_tainted).then(|| with_disrupted(node)),
            exclusion: (!is_excluded(node)).then_some(LoadBalancerExclusion::Set),
        };
        (edit.all.is_some() || edit.exclusion.is_some()).then_some(edit)
    }
}

fn with_disrupted(node: &k8s::Node) -> Vec<Taint> {
    let mut all = others(node);
    all.push(taints::disrupted());
    all
}

fn others(node: &k8s::Node) -> Vec<Taint> {
    let mut all = node.spec.taints.clone();
    all.retain(|taint| taint.key != labels::DISRUPTED_TAINT);
    all
}

fn is_excluded(node: &k8s::Node) -> bool {
    node.label(labels::EXCLUDE_LB) == Some(labels::EXCLUDE_LB_VALUE)
}
