//! Where capacity buffers have room, so that disruption keeps it.
//!
//! # Rule
//! Virtual pods that fit on the nodes as they are must fit without the nodes that are removed: on those that stay, or on the
//! replacement. Virtual pods that fit nowhere now are not disruption's concern. Removing a node that has their room and
//! launching another one for them right after would be churn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::candidate::Candidate;
use super::disruption_view::DisruptionView;
use crate::scheduling::{SolveOptions, solve};
use mortise_state::snapshot::{NodeKey, Pod};

/// Virtual pods by the node that has room for them.
#[derive(Debug, Default)]
pub struct HeldRoom {
    nodes: BTreeMap<NodeKey, Vec<Arc<Pod>>>,
}

impl HeldRoom {
    /// Places the virtual pods after all pods that wait. Nothing without buffers.
    ///
    /// # Cost
    /// One pass over the pods that wait and the virtual pods.
    pub(super) fn new(view: &DisruptionView<'_>) -> Self {
        if view.snapshot().virtual_pods().next().is_none() {
            return Self::default();
        }
        let options = SolveOptions {
            closed: view.closed().clone(),
            pending: true,
            existing_only: true,
            ..view.context.settings.solve_options()
        };
        let (plan, _) = solve(view.now, view.view(), &options, &|| false);
        let mut nodes: BTreeMap<NodeKey, Vec<Arc<Pod>>> = BTreeMap::new();
        let placed = plan.placements.into_iter();
        for placement in placed.filter(|placement| placement.pod.is_virtual()) {
            let pods = nodes.entry(placement.node).or_default();
            pods.push(placement.pod);
        }
        Self { nodes }
    }

    /// How many virtual pods have room on a node.
    #[must_use]
    pub fn pods_on(&self, node: &NodeKey) -> usize {
        self.nodes.get(node).map_or(0, Vec::len)
    }

    /// The virtual pods to place when these nodes are removed: those on them, and those on nodes that accept relocated pods,
    /// which take their room. Room on closed nodes stays where it is.
    pub(super) fn displaced(
        &self,
        candidates: &[&Candidate],
        closed: &BTreeSet<NodeKey>,
    ) -> Vec<Arc<Pod>> {
        let is_removed = |node: &NodeKey| candidates.iter().any(|each| each.key() == node);
        let nodes = self.nodes.iter();
        nodes
            .filter(|(node, _)| is_removed(node) || !closed.contains(*node))
            .flat_map(|(_, pods)| pods.iter().cloned())
            .collect()
    }
}
