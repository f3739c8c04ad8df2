//! Node overlays: whether they are in force.
//!
//! May: write the condition `ValidationSucceeded` and with it `Ready` of overlays.
//!
//! Must never: decide which of two overlays counts. That is done where they are applied ([`mortise_state::overlays`]),
//! and told here.
//!
//! Implements karpenter-core 1.4 (conditions).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::tracking::event_throttle::EventThrottle;
use crate::tracking::timer_queue::TimerQueue;
use crate::tracking::write_tracker::WriteTracker;
use mortise_apis::karpenter::nodeoverlay::NodeOverlay as Overlay;
use mortise_apis::names::ObjectRef;
use mortise_apis::schema::conditions::{self, Conditions};
use mortise_apis::validation::{in_words, overlay_faults};
use mortise_engine::condition_edits::edited;
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Effect;
use mortise_engine::write::ObjectWrite;
use mortise_state::index::Changes;
use mortise_state::overlays::rivals;

const VALIDATION: &str = "ValidationSucceeded";

/// The decider. See the module's documentation.
#[derive(Debug)]
pub struct NodeOverlayDecider {
    agenda: TimerQueue<Arc<str>>,
    outbox: WriteTracker,
    told: EventThrottle,
}

impl Default for NodeOverlayDecider {
    fn default() -> Self {
        Self {
            agenda: TimerQueue::new(),
            outbox: WriteTracker::new(),
            told: EventThrottle::default(),
        }
    }
}

impl NodeOverlayDecider {
    fn look(
        &mut self,
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
        let target = ObjectRef::Overlay(Arc::clone(name));
        let write = ObjectWrite::overlay_status(overlay, list.clone());
        if let Err(at) = self.outbox.send(input.now, write, step) {
            return at;
        }
        let condition = conditions::find(&list, VALIDATION)?;
        let by = (input, DeciderId::NodeOverlay);
        self.told
            .condition(by, &target, VALIDATION, condition, step);
        None
    }
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
        let mut step = Step::default();
        let mut names: BTreeSet<Arc<str>> = self.agenda.due(input.now).into_iter().collect();
        for delivery in input.inbox {
            if let InboxMessage::Outcome(outcome) = delivery
                && let Effect::Write(ObjectWrite {
                    target: ObjectRef::Overlay(name),
                    ..
                }) = &*outcome.effect
            {
                self.outbox
                    .answered(input.now, &outcome.effect, &outcome.result);
                names.insert(Arc::clone(name));
            }
        }
        if self.is_interested(input.changes) {
            names.extend(input.snapshot.overlays.keys().cloned());
        }
        for name in names {
            let again = self.look(input, &name, &mut step);
            self.agenda.set(&name, again);
        }
        self.told.sweep(input.now);
        self.outbox.sweep(input.now, input.snapshot);
        if let Some(at) = self.agenda.next() {
            step.wake_at(at);
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::tests::cluster;
    use mortise_sim::test_cluster::TestCluster;

    fn overlay(name: &str, weight: i32, price: &str) -> Value {
        json!({
            "kind": "NodeOverlay", "metadata": { "name": name, "generation": 1 },
            "spec": {
                "requirements": [{ "key": "karpenter.sh/nodepool", "operator": "In", "values": ["default"] }],
                "weight": weight, "priceAdjustment": price,
            },
        })
    }

    /// Status, reason and message of `ValidationSucceeded`, and the status of `Ready`.
    fn verdict(world: &TestCluster, name: &str) -> [String; 4] {
        let list = world.get(&format!("NodeOverlay/{name}"))["status"]["conditions"]
            .as_array()
            .unwrap();
        let of = |type_: &str, field: &str| {
            let found = list.iter().find(|each| each["type"] == type_).unwrap();
            found[field].as_str().unwrap().to_owned()
        };
        let validation = |field: &str| of("ValidationSucceeded", field);
        [
            validation("status"),
            validation("reason"),
            validation("message"),
            of("Ready", "status"),
        ]
    }

    #[test]
    fn of_two_that_say_the_same_one_is_told_so_until_the_other_goes() {
        let mut world = cluster();
        for (name, weight) in [("a", 5), ("b", 5), ("c", 4)] {
            world.put(&overlay(name, weight, "-10%"));
        }
        world.settle();
        let good = ["True", "ValidationSucceeded", "", "True"];
        assert_eq!(verdict(&world, "b"), good, "the last name comes first");
        assert_eq!(
            verdict(&world, "a"),
            [
                "False",
                "Conflict",
                "conflict with another overlay: b",
                "False"
            ]
        );
        assert_eq!(verdict(&world, "c"), good, "a lower weight only yields");
        let writes = world.done.len();
        world.pass(60_000);
        assert_eq!(world.done.len(), writes, "nothing is written twice");
        world.delete("NodeOverlay/b");
        world.settle();
        assert_eq!(verdict(&world, "a"), good);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let mut world = cluster();
        world.put(&overlay("odd", 1, "ten percent"));
        world.settle();
        let [status, reason, message, ready] = verdict(&world, "odd");
        assert_eq!(
            (&*status, &*reason, &*ready),
            ("False", "RuntimeValidation", "False")
        );
        assert!(message.contains("priceAdjustment"), "{message}");
    }
}
