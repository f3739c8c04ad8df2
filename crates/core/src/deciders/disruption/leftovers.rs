//! Cleaning what a command left behind when it was given up, or when the process ended in the middle of it.
//!
//! Taint and condition of a machine that no command speaks of, and that is not going, are removed, and so is the fence that
//! an older version wrote as an annotation. Replacements are ordinary claims and stay; what is not needed of them is
//! consolidated later.

use super::Disruption;
use super::writes::{self, Taint, Write};
use crate::deciders::{Step, StepInput};
use crate::effect::{Effect, ObjectRef};

impl Disruption {
    /// Looks at every machine. Cost: one pass, no allocation for machines without left-overs.
    pub(super) fn clean_leftovers(&mut self, input: &StepInput<'_>, step: &mut Step) {
        let snapshot = input.snapshot;
        let mut machines: Vec<_> = snapshot
            .nodes
            .values()
            .filter(|machine| !machine.deleting)
            .filter(|machine| {
                let Some(claim) = &machine.claim else {
                    return false;
                };
                writes::is_fenced(claim)
                    || writes::is_marked(claim, None)
                    || machine
                        .node
                        .as_ref()
                        .is_some_and(|node| writes::is_tainted(node))
            })
            .filter(|machine| {
                !self
                    .commands
                    .values()
                    .any(|command| command.has(&machine.key))
            })
            .collect();
        machines.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let mut waits = false;
        let mut write = |subject: ObjectRef, write, effect: Effect| {
            let key = (subject.clone(), write);
            self.write(subject, write, || effect, input, step);
            waits |= self.flights.waits_until(&key).is_some();
        };
        for machine in machines {
            if let Some(node) = machine
                .node
                .as_ref()
                .filter(|node| writes::is_tainted(node))
                && let Some(name) = machine.node_name()
            {
                let effect = writes::taint(node, &name, Taint::Off);
                write(ObjectRef::Node(name), Write::Taint, effect);
            }
            let Some(claim) = &machine.claim else {
                continue;
            };
            let subject = ObjectRef::Claim(claim.name());
            if writes::is_fenced(claim) {
                let effect = writes::unfence(&claim.name());
                write(subject.clone(), Write::Fence, effect);
            }
            if writes::is_marked(claim, None) {
                write(
                    subject,
                    Write::Condition,
                    writes::condition(claim, None, input.now),
                );
            }
        }
        // What failed a moment ago is tried again, although nothing changed.
        self.clean |= waits;
    }
}
