//! Cleaning what a command left behind when it was abandoned, or when the process ended in the middle of it.
//!
//! Taint and condition of a node that no command speaks of, and that is not being deleted, are removed, and so is the
//! fence that an older version wrote as an annotation. Replacements are ordinary claims and stay; what is not needed of
//! them is consolidated later.

use std::collections::BTreeSet;

use super::DisruptionDecider;
use super::writes::{self, CommandWrite};
use mortise_apis::labels;
use mortise_apis::names::ObjectRef;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::write::{NodeTaints, ObjectWrite};
use mortise_state::index::Changes;
use mortise_state::snapshot::{NodeKey, StateNode};

/// Nodes on which something may have been left.
#[derive(Debug)]
pub(super) struct CleanupQueue {
    /// All of them.
    everything: bool,
    /// Those that changed, that left their command, or on which something was found at the last look.
    nodes: BTreeSet<NodeKey>,
}

impl CleanupQueue {
    /// Nothing was checked yet.
    pub(super) const fn all() -> Self {
        Self {
            everything: true,
            nodes: BTreeSet::new(),
        }
    }

    /// Takes changes in.
    pub(super) fn see(&mut self, changes: &Changes) {
        self.everything |= changes.everything;
        self.nodes.extend(changes.nodes.iter().cloned());
    }

    /// A command speaks of the node no more.
    pub(super) fn leaves(&mut self, key: &NodeKey) {
        self.nodes.insert(key.clone());
    }
}

impl DisruptionDecider {
    /// Looks at nodes that changed, and at those that left their commands. Cost: their number.
    pub(super) fn clean_leftovers(&mut self, input: &StepInput<'_>, step: &mut Step) {
        let snapshot = input.snapshot;
        let mut suspects = std::mem::take(&mut self.suspects.nodes);
        if std::mem::take(&mut self.suspects.everything) {
            suspects.extend(snapshot.nodes.iter().map(|(key, _)| key.clone()));
        }
        let known = suspects.iter().filter_map(|key| snapshot.nodes.get(key));
        let mut left: Vec<_> = known
            .filter(|state_node| has_leftovers(state_node))
            .collect();
        if left.is_empty() {
            return;
        }
        let targets = self.commands.values().flat_map(|each| &each.targets);
        let taken: BTreeSet<&NodeKey> = targets.map(|target| &target.key).collect();
        left.retain(|state_node| !taken.contains(&state_node.key));
        for state_node in left {
            // What fails is tried again, although nothing changes.
            self.suspects.nodes.insert(state_node.key.clone());
            self.clean(state_node, input, step);
        }
    }

    fn clean(&mut self, state_node: &StateNode, input: &StepInput<'_>, step: &mut Step) {
        if let Some(node) = state_node
            .node
            .as_ref()
            .filter(|node| writes::is_tainted(node))
            && let Some(name) = state_node.node_name()
        {
            let effect = || ObjectWrite::set_taints(node, NodeTaints::restored(node));
            let subject = ObjectRef::Node(name.clone());
            self.write(subject, CommandWrite::Taint, effect, input, step);
        }
        let Some(claim) = &state_node.claim else {
            return;
        };
        let subject = ObjectRef::Claim(claim.name());
        if writes::is_fenced(claim) {
            let effect = || ObjectWrite::set_fence(claim.name(), None);
            self.write(subject.clone(), CommandWrite::Fence, effect, input, step);
        }
        if writes::is_marked(claim, None) {
            let effect = || writes::condition(claim, None, input.now);
            self.write(subject, CommandWrite::Condition, effect, input, step);
        }
    }
}

fn has_leftovers(state_node: &StateNode) -> bool {
    let node = state_node.node.as_ref();
    !state_node.deleting
        && state_node.claim.as_ref().is_some_and(|claim| {
            // A node with an announced interruption is cordoned on purpose.
            let is_cordoned = claim.annotation(labels::INTERRUPTION).is_some();
            writes::is_fenced(claim)
                || writes::is_marked(claim, None)
                || node.is_some_and(|node| !is_cordoned && writes::is_tainted(node))
        })
}
