//! Instances that left their capacity reservation: their claims and nodes still say that they are paid for.
//!
//! A reservation that ends, or is reclaimed, leaves its instances running on demand. What still says `reserved` is planned
//! with a price of zero and holds a place in a reservation that is free.

use crate::garbage_collection::GarbageCollectionDecider;
use mortise_apis::labels;
use mortise_apis::names::ObjectRef;
use mortise_cloudprovider::{CapacityType, Instance};
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::effect::InstanceListing;
use mortise_engine::write::{CapacityTypeLabels, ObjectWrite, node_ref};

impl GarbageCollectionDecider {
    /// Corrects the labels of claims, and of their nodes, whose instance is on-demand by now.
    pub(super) fn correct_capacity_types(
        &mut self,
        input: &StepInput<'_>,
        listing: &InstanceListing,
        instances: &[Instance],
        step: &mut Step,
    ) {
        let is_reserved = |value: Option<&str>| value == Some(CapacityType::Reserved.as_str());
        let on_demand = instances.iter().filter(|each| {
            each.details.capacity_type == Some(CapacityType::OnDemand) && !each.terminating
        });
        for instance in on_demand {
            let Some(state_node) = input.snapshot.nodes.get(&*instance.provider_id) else {
                continue;
            };
            let claim = state_node.claim.as_deref().filter(|claim| {
                claim.metadata.deletion_timestamp.is_none()
                    && listing.serves.covers(&claim.node_class_key())
            });
            let Some(claim) = claim else {
                continue;
            };
            // Each object by itself: a crash between the two writes leaves one of them to do.
            let of_claim = is_reserved(claim.label(labels::CAPACITY_TYPE))
                .then(|| ObjectRef::Claim(claim.name()));
            let of_node = state_node.node.as_deref().filter(|node| {
                let all = node.metadata.labels.as_ref();
                let own = all.and_then(|all| all.get(labels::CAPACITY_TYPE));
                claim.is_true("Registered") && is_reserved(own.map(String::as_str))
            });
            for target in of_claim.into_iter().chain(of_node.map(node_ref)) {
                let edit = CapacityTypeLabels {
                    capacity_type: CapacityType::OnDemand,
                    removed: listing
                        .reservation_labels
                        .iter()
                        .map(|key| (*key).to_owned())
                        .collect(),
                };
                let write = ObjectWrite::set_capacity_type(target, edit);
                // One that must wait is written after the next list.
                self.outbox.send(input.now, write, step).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::cluster;
    use mortise_apis::labels;
    use mortise_sim::RESERVATION_ID;

    #[test]
    fn an_instance_that_left_its_reservation_is_on_demand_everywhere() {
        let mut world = cluster();
        let node = world.up("c", &json!({}));
        world.pay_on_demand();
        let reserved = json!({ "metadata": { "labels": {
            labels::CAPACITY_TYPE: "reserved", RESERVATION_ID: "r-1",
        } } });
        let both = ["NodeClaim/c".to_owned(), format!("Node/{node}")];
        for object in &both {
            world.edit(object, &reserved);
        }
        world.pass(4 * 60_000);
        for object in &both {
            let labels = world.get(object)["metadata"]["labels"].clone();
            assert_eq!(
                labels[labels::CAPACITY_TYPE],
                "on-demand",
                "{object}: {labels}"
            );
            assert!(labels.get(RESERVATION_ID).is_none(), "{object}: {labels}");
        }
        // One whose claim was corrected by a process that ended before it came to the node.
        world.edit(&both[1], &reserved);
        world.pass(4 * 60_000);
        assert_eq!(
            world.get(&both[1])["metadata"]["labels"][labels::CAPACITY_TYPE],
            "on-demand"
        );
    }
}
