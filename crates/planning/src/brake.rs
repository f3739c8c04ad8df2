//! The brake: while many nodes do not work, nodes that work are not disrupted voluntarily.
//!
//! # Problem
//! When a zone, a network or an image fails, the pods of the nodes that fail need the others. Consolidation sees unused room, and
//! drift sees nodes to replace: both make it worse, each within its budgets.
//!
//! # Rule
//! More than three nodes, and more than a third of the nodes, are not ready. Nodes that are not ready may be disrupted, so that a
//! drift that repairs them goes on.

use std::fmt;

use mortise_state::snapshot::{Snapshot, StateNode};

/// Nodes that may be unready at any time.
const SOME: usize = 3;
/// One of this many nodes may be unready.
const SHARE: usize = 3;

/// The brake, while it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Brake {
    /// Nodes that are not ready.
    pub unready: usize,
    /// All nodes.
    pub nodes: usize,
}

impl Brake {
    /// The brake, if it holds. Nodes count that mortise launched, once they are initialized and until they are deleted.
    ///
    /// # Cost
    /// One pass over the nodes.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Option<Self> {
        let is_counted =
            |node: &&StateNode| node.is_managed() && node.initialized && !node.deleting;
        let counted = snapshot.nodes.values().map(|node| &**node);
        let (mut unready, mut nodes) = (0, 0);
        for node in counted.filter(is_counted) {
            nodes += 1;
            unready += usize::from(!node.is_ready());
        }
        (unready > SOME && unready * SHARE > nodes).then_some(Self { unready, nodes })
    }
}

impl fmt::Display for Brake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unready, nodes } = self;
        write!(
            f,
            "{unready} of {nodes} nodes are not ready, so nodes that are ready are not disrupted"
        )
    }
}
