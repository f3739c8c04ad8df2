//! An instance as EC2 describes it, in our words. Pure.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{
    CapacityReservationPreference, Instance as Ec2Instance, InstanceLifecycleType,
    InstanceStateName, NetworkInterfaceType, Tenancy,
};
use jiff::Timestamp;
use mortise_apis::names::ProviderId;
use mortise_cloudprovider::{CapacityType, Instance, InstanceDetails};

use crate::tags;

/// Tag: name in the console; ours is the node's.
pub(crate) const NAME: &str = "Name";
/// Tags that are remembered: the others are the users'.
const REMEMBERED_TAGS: [&str; 8] = [
    NAME,
    tags::NODECLAIM,
    tags::NODECLAIM_UID,
    tags::LAUNCH_BATCH,
    tags::LAUNCH_REQUEST,
    tags::NODEPOOL,
    tags::NODE_CLASS,
    tags::EKS_CLUSTER,
];

/// An instance as we need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstanceRecord {
    pub(crate) id: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) capacity_type: CapacityType,
    /// The capacity reservation that it runs in; always there when the capacity type is `reserved`.
    pub(crate) reservation: Option<InstanceReservation>,
    pub(crate) subnet: Option<String>,
    pub(crate) image: Option<String>,
    /// On hardware of one's own.
    pub(crate) dedicated: bool,
    /// Ids of its security groups; empty in the answer to a launch.
    pub(crate) groups: Vec<String>,
    /// What EC2 says of it once it runs; empty for one of which only the launch is known.
    pub(crate) described: InstanceDescription,
}

/// The part of a description that a launch does not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstanceDescription {
    pub(crate) zone_id: Option<String>,
    pub(crate) launched: Option<Timestamp>,
    pub(crate) state: Option<InstanceStateName>,
    pub(crate) placement_group: Option<String>,
    pub(crate) partition: Option<i32>,
    /// Network interfaces with EFA.
    pub(crate) efa_count: usize,
    /// Our tags.
    pub(crate) tags: BTreeMap<String, String>,
}

/// The capacity reservation of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstanceReservation {
    pub(crate) id: String,
    /// A block of capacity with an end, instead of a reservation on demand.
    pub(crate) is_block: bool,
    /// Its owner can reclaim it.
    pub(crate) interruptible: bool,
}

#[cfg(test)]
impl InstanceReservation {
    /// The value of the label for its type.
    pub(crate) const fn type_label(&self) -> &'static str {
        if self.is_block {
            mortise_aws_class::labels::CAPACITY_BLOCK
        } else {
            "default"
        }
    }
}

impl InstanceRecord {
    /// EC2's description in our words; `None` when it lacks what an instance always has. `use_reservations`: instances can be `reserved`.
    pub(super) fn read(found: &Ec2Instance, use_reservations: bool) -> Option<Self> {
        let placement = found.placement()?;
        let (capacity_type, reservation) = paid_for(found, use_reservations);
        let owned = |text: Option<&str>| text.filter(|each| !each.is_empty()).map(str::to_owned);
        Some(Self {
            id: found.instance_id()?.to_owned(),
            instance_type: found.instance_type()?.as_str().to_owned(),
            zone: placement.availability_zone()?.to_owned(),
            capacity_type,
            reservation,
            subnet: owned(found.subnet_id()),
            image: owned(found.image_id()),
            dedicated: placement.tenancy() == Some(&Tenancy::Dedicated),
            groups: found
                .security_groups()
                .iter()
                .filter_map(|group| owned(group.group_id()))
                .collect(),
            described: InstanceDescription {
                zone_id: owned(placement.availability_zone_id()),
                launched: found
                    .launch_time()
                    .and_then(|time| Timestamp::new(time.secs(), 0).ok()),
                state: state(found).cloned(),
                placement_group: owned(placement.group_id()),
                partition: placement.partition_number(),
                efa_count: efa_count(found),
                tags: REMEMBERED_TAGS
                    .iter()
                    .filter_map(|key| Some(((*key).to_owned(), tag(found, key)?.to_owned())))
                    .collect(),
            },
        })
    }

    /// EC2 is ending it.
    pub(super) fn is_shutting_down(&self) -> bool {
        self.described.state == Some(InstanceStateName::ShuttingDown)
    }

    /// The instance as the port has it.
    pub(super) fn to_instance(&self, provider_id: ProviderId) -> Instance {
        let described = &self.described;
        Instance {
            provider_id,
            claim: described.tags.get(tags::NODECLAIM).cloned(),
            batch: described.tags.get(tags::LAUNCH_BATCH).cloned(),
            created: described.launched,
            terminating: self.is_shutting_down(),
            details: InstanceDetails {
                instance_type: Some(self.instance_type.clone()),
                zone: Some(self.zone.clone()),
                capacity_type: Some(self.capacity_type),
                reservation: self.reservation.as_ref().map(|each| each.id.clone()),
                image: self.image.clone(),
            },
        }
    }
}

/// How an instance is paid for. Reserved is what was launched into a reservation on purpose: an instance that only happens to use an
/// open one stays on-demand.
fn paid_for(
    found: &Ec2Instance,
    use_reservations: bool,
) -> (CapacityType, Option<InstanceReservation>) {
    let lifecycle = found.instance_lifecycle();
    let requested = found.spot_instance_request_id();
    if requested.is_some_and(|id| !id.is_empty()) || lifecycle == Some(&InstanceLifecycleType::Spot)
    {
        return (CapacityType::Spot, None);
    }
    let preference = found
        .capacity_reservation_specification()
        .and_then(|each| each.capacity_reservation_preference());
    let only = preference == Some(&CapacityReservationPreference::CapacityReservationsOnly);
    let id = found
        .capacity_reservation_id()
        .filter(|id| use_reservations && only && !id.is_empty());
    match id {
        None => (CapacityType::OnDemand, None),
        Some(id) => (
            CapacityType::Reserved,
            Some(InstanceReservation {
                id: id.to_owned(),
                is_block: lifecycle == Some(&InstanceLifecycleType::CapacityBlock),
                interruptible: lifecycle
                    == Some(&InstanceLifecycleType::InterruptibleCapacityReservation),
            }),
        ),
    }
}

fn efa_count(found: &Ec2Instance) -> usize {
    let is_efa = |kind: &str| {
        kind == NetworkInterfaceType::Efa.as_str() || kind == NetworkInterfaceType::EfaOnly.as_str()
    };
    found
        .network_interfaces()
        .iter()
        .filter(|each| each.interface_type().is_some_and(is_efa))
        .count()
}

/// Its state.
pub(super) fn state(found: &Ec2Instance) -> Option<&InstanceStateName> {
    found.state().and_then(|state| state.name())
}

/// The value of one of its tags.
pub(super) fn tag<'a>(found: &'a Ec2Instance, key: &str) -> Option<&'a str> {
    found
        .tags()
        .iter()
        .find(|tag| tag.key() == Some(key))
        .and_then(|tag| tag.value())
}
