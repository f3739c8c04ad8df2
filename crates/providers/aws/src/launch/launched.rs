//! What a claim learns of its instance. Pure.

use std::collections::BTreeMap;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::requirements::Operator;
use mortise_apis::resources::resources_of;
use mortise_aws_class::labels::{
    CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_INTERRUPTIBLE, CAPACITY_RESERVATION_TYPE,
    INSTANCE_TENANCY, PLACEMENT_GROUP_ID, PLACEMENT_GROUP_PARTITION, ZONE_ID,
};
use mortise_cloudprovider::{CapacityType, InstanceType, LaunchedInstance, Offering};

use crate::instances::InstanceRecord;
use crate::launch::filters::label;
use crate::node_class::CachedNodeClass;
use crate::tags;
use mortise_aws_catalog::instance_type::EFA;

/// Labels of a reservation: they are the reservation's, not the type's.
const RESERVATION: [&str; 3] = [
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE,
];

/// The class and type of an instance, and how it was launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InstanceOrigin<'a> {
    pub(crate) class: &'a CachedNodeClass,
    pub(crate) instance_type: &'a InstanceType,
    /// The offering it was launched as, if that is known.
    pub(crate) offering: Option<&'a Offering>,
    /// The partition it was launched into.
    pub(crate) partition: Option<i32>,
}

/// The instance of a claim, as its class and type have it.
pub(crate) fn launched_instance(
    claim: &NodeClaim,
    origin: InstanceOrigin<'_>,
    instance: &InstanceRecord,
) -> LaunchedInstance {
    let InstanceOrigin {
        class,
        instance_type,
        ..
    } = origin;
    let requests = claim.spec.requests().map(resources_of).unwrap_or_default();
    let (mut capacity, mut allocatable) =
        (instance_type.capacity.clone(), instance_type.allocatable());
    if requests.extended(EFA) == 0 && class.settings.interfaces.is_empty() {
        capacity.set(EFA, 0); // the type could have some, this instance was launched without
        allocatable.set(EFA, 0);
    }
    let mut annotations = class.hash_annotations();
    annotations.extend(
        class
            .profile
            .iter()
            .map(|profile| (tags::INSTANCE_PROFILE.to_owned(), profile.clone())),
    );
    LaunchedInstance {
        provider_id: tags::provider_id(&instance.zone, &instance.id).into(),
        image_id: instance.image.clone().or_else(|| {
            class
                .image(&instance.instance_type)
                .map(|ami| ami.id.clone())
        }),
        labels: instance_labels(origin, instance),
        annotations,
        capacity: capacity.to_api(),
        allocatable: allocatable.to_api(),
    }
}

/// Every label of which the type has exactly one value, and where and how the instance was launched.
fn instance_labels(
    origin: InstanceOrigin<'_>,
    instance: &InstanceRecord,
) -> BTreeMap<String, String> {
    let InstanceOrigin {
        class,
        instance_type,
        ..
    } = origin;
    let single = instance_type.requirements.iter().filter_map(|each| {
        match (each.operator(), each.values()) {
            (Operator::In, [value]) if !RESERVATION.contains(&each.key()) => {
                Some((each.key().to_owned(), value.to_string()))
            }
            _ => None,
        }
    });
    let mut all: BTreeMap<String, String> = single.collect();
    let mut set = |key: &str, value: Option<&str>| match value {
        Some(value) => all.insert(key.to_owned(), value.to_owned()),
        None => all.remove(key),
    };
    set(labels::TOPOLOGY_ZONE, Some(&instance.zone));
    set(labels::CAPACITY_TYPE, Some(instance.capacity_type.as_str()));
    let tenancy = if instance.dedicated {
        "dedicated"
    } else {
        "default"
    };
    set(INSTANCE_TENANCY, Some(tenancy));
    let mut subnets = class.subnets.iter();
    let subnet = subnets.find(|each| each.subnet.zone == instance.zone);
    set(
        ZONE_ID,
        subnet.and_then(|each| each.subnet.zone_id.as_deref()),
    );
    if instance.capacity_type == CapacityType::Reserved {
        let offering = origin
            .offering
            .or_else(|| only_reservation(origin, instance));
        for key in RESERVATION {
            set(key, offering.and_then(|offering| label(offering, key)));
        }
    }
    let group = class.placement_group.as_ref();
    set(PLACEMENT_GROUP_ID, group.map(|group| &*group.id));
    let partition = origin.partition.map(|each| each.to_string());
    set(PLACEMENT_GROUP_PARTITION, partition.as_deref());
    all
}

/// The reservation of an instance whose launch is not remembered, when there is just one that it can be.
fn only_reservation<'a>(
    origin: InstanceOrigin<'a>,
    instance: &InstanceRecord,
) -> Option<&'a Offering> {
    let mut reserved = origin.instance_type.offerings.iter().filter(|offering| {
        offering.capacity_type == CapacityType::Reserved && *offering.zone == *instance.zone
    });
    let first = reserved.next()?;
    reserved
        .all(|other| other.reservation == first.reservation)
        .then_some(first)
}
