//! Cleaning what a command left behind when it was abandoned, or when the process ended in the middle of it.
//!
//! Taint and condition of a machine that no command speaks of, and that is not going, are removed, and so is the fence that
//! an older version wrote as an annotation. Replacements are ordinary claims and stay; what is not needed of them is
//! consolidated later.

use std::collections::BTreeSet;

use super::DisruptionDecider;
use super::writes::{self, CommandWrite};
use mortise_apis::names::ObjectRef;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::write::{NodeTaints, ObjectWrite};
use mortise_state::index::Changes;
use mortise_state::snapshot::{NodeKey, StateNode};

/// Machines on which something may have been left.
#[derive(Debug)]
pub(super) struct CleanupQueue {
    /// All of them.
    everything: bool,
    /// Those that changed, that left their command, or on which something was found at the last look.
    machines: BTreeSet<NodeKey>,
}

impl CleanupQueue {
    /// Nothing was looked at yet.
    pub(super) const fn all() -> Self {
        Self {
            everything: true,
            machines: BTreeSet::new(),
        }
    }

    /// Takes changes in.
    pub(super) fn see(&mut self, changes: &Changes) {
        self.everything |= changes.everything;
        self.machines.extend(changes.nodes.iter().cloned());
    }

    /// A command speaks of the machine no more.
    pub(super) fn leaves(&mut self, key: &NodeKey) {
        self.machines.insert(key.clone());
    }
}

impl DisruptionDecider {
    /// Looks at machines that changed, and at those that left their commands. Cost: their number.
    pub(super) fn clean_leftovers(&mut self, input: &StepInput<'_>, step: &mut Step) {
        let snapshot = input.snapshot;
        let mut suspects = std::mem::take(&mut self.suspects.machines);
        if std::mem::take(&mut self.suspects.everything) {
            suspects.extend(snapshot.nodes.iter().map(|(key, _)| key.clone()));
        }
        let known = suspects.iter().filter_map(|key| snapshot.nodes.get(key));
        let mut left: Vec<_> = known.filter(|machine| has_leftovers(machine)).collect();
        if left.is_empty() {
            return;
        }
        let targets = self.commands.values().flat_map(|each| &each.targets);
        let taken: BTreeSet<&NodeKey> = targets.map(|target| &target.key).collect();
        left.retain(|machine| !taken.contains(&machine.key));
        for machine in left {
            // What fails is tried again, although nothing changes.
            self.suspects.machines.insert(machine.key.clone());
            self.clean(machine, input, step);
        }
    }

    fn clean(&mut self, machine: &StateNode, input: &StepInput<'_>, step: &mut Step) {
        if let Some(node) = machine
            .node
            .as_ref()
            .filter(|node| writes::is_tainted(node))
            && let Some(name) = machine.node_name()
        {
            let effect = || ObjectWrite::set_taints(node, NodeTaints::restored(node));
            let subject = ObjectRef::Node(name.clone());
            self.write(subject, CommandWrite::Taint, effect, input, step);
        }
        let Some(claim) = &machine.claim else {
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

fn has_leftovers(machine: &StateNode) -> bool {
    let node = machine.node.as_ref();
    !machine.deleting
        && machine.claim.as_ref().is_some_and(|claim| {
            writes::is_fenced(claim)
                || writes::is_marked(claim, None)
                || node.is_some_and(|node| writes::is_tainted(node))
        })
}
