//! Node overlays: whether they are in force.
//!
//! May: write the condition `ValidationSucceeded` and with it `Ready` of overlays.
//!
//! Must never: decide which of two overlays counts. That is done where they are applied ([`mortise_state::overlays`]),
//! and told here.
//!
//! Implements karpenter-core 1.4 (conditions).

use std::sync::Arc;

use jiff::Timestamp;

use crate::tracking::status_reports::{StatusReports, StatusWriter};
use mortise_apis::karpenter::nodeoverlay::NodeOverlay as Overlay;
use mortise_apis::names::ObjectRef;
use mortise_apis::schema::conditions::{self, Conditions};
use mortise_apis::validation::{in_words, overlay_faults};
use mortise_engine::condition_edits::edited;
use mortise_engine::decider::{Decider, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::write::ObjectWrite;
use mortise_state::index::Changes;
use mortise_state::overlays::rivals;

const VALIDATION: &str = "ValidationSucceeded";

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct NodeOverlayDecider {
    statuses: StatusReports<Arc<str>>,
}

impl Default for NodeOverlayDecider {
    fn default() -> Self {
        Self {
            statuses: StatusReports::new(DeciderId::NodeOverlay),
        }
    }
}

fn look(
    writer: &mut StatusWriter,
    input: &StepInput<'_>,
    name: &Arc<str>,
    step: &mut Step,
) -> Option<Timestamp> {
    let overlay = input.snapshot.overlays.get(name)?;
    if overlay.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let list = edited(
        conditions::NODE_OVERLAY,
        &overlay.metadata,
        &overlay.status.conditions,
        input.now,
        |conditions| judge(conditions, input, overlay),
    )?;
    let write = ObjectWrite::overlay_status(overlay, list.clone());
    writer.write(input, write, (&list, &[VALIDATION]), step)
}

/// Sets the conditions of an overlay from its spec and from what the others say.
fn judge(conditions: &mut Conditions<'_>, input: &StepInput<'_>, overlay: &Overlay) {
    let faults = overlay_faults(overlay, &input.snapshot.well_known);
    if !faults.is_empty() {
        conditions.set_false(VALIDATION, "RuntimeValidation", &in_words(&faults));
    } else if input.snapshot.rejected_overlays.contains(&overlay.name()) {
        let names: Vec<String> = rivals(input.snapshot, overlay)
            .into_iter()
            .map(|rival| rival.name.to_string())
            .collect();
        let text = format!("conflict with another overlay: {}", names.join(", "));
        conditions.set_false(VALIDATION, "Conflict", &text);
    } else {
        conditions.set_true(VALIDATION);
    }
}

impl Decider for NodeOverlayDecider {
    fn id(&self) -> DeciderId {
        DeciderId::NodeOverlay
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        // Overlays are among the surroundings; who conflicts with whom also depends on pools and catalogues.
        changes.everything
            || changes.cluster_objects
            || !changes.pools.is_empty()
            || !changes.node_classes.is_empty()
    }

    fn step(&mut self, input: &StepInput<'_>, _stop: &dyn Fn() -> bool) -> Step {
        let all = &input.snapshot.overlays;
        let changed = self
            .is_interested(input.changes)
            .then(|| all.keys().cloned());
        let key_of = |target: &ObjectRef| match target {
            ObjectRef::Overlay(key) => Some(key.clone()),
            _ => None,
        };
        self.statuses
            .step(input, key_of, changed.into_iter().flatten(), look)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::tests::{cluster, validation};

    fn overlay(name: &str, weight: i32, price: &str) -> Value {
        json!({
            "kind": "NodeOverlay", "metadata": { "name": name, "generation": 1 },
            "spec": {
                "requirements": [{ "key": "karpenter.sh/nodepool", "operator": "In", "values": ["default"] }],
                "weight": weight, "priceAdjustment": price,
            },
        })
    }

    #[test]
    fn of_two_that_say_the_same_one_is_told_so_until_the_other_goes() {
        let mut world = cluster();
        for (name, weight) in [("a", 5), ("b", 5), ("c", 4)] {
            world.put(&overlay(name, weight, "-10%"));
        }
        world.settle();
        let good = ["True", "ValidationSucceeded", "", "True"];
        assert_eq!(
            validation(&world, "NodeOverlay/b"),
            good,
            "the last name comes first"
        );
        assert_eq!(
            validation(&world, "NodeOverlay/a"),
            [
                "False",
                "Conflict",
                "conflict with another overlay: b",
                "False"
            ]
        );
        assert_eq!(
            validation(&world, "NodeOverlay/c"),
            good,
            "a lower weight only yields"
        );
        let writes = world.done.len();
        world.pass(60_000);
        assert_eq!(world.done.len(), writes, "nothing is written twice");
        world.delete("NodeOverlay/b");
        world.settle();
        assert_eq!(validation(&world, "NodeOverlay/a"), good);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let mut world = cluster();
        world.put(&overlay("odd", 1, "ten percent"));
        world.settle();
        let [status, reason, message, ready] = validation(&world, "NodeOverlay/odd");
        assert_eq!(
            (&*status, &*reason, &*ready),
            ("False", "RuntimeValidation", "False")
        );
        assert!(message.contains("priceAdjustment"), "{message}");
    }
}
