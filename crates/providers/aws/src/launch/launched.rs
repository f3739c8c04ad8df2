//! What a claim learns of its instance. Pure.

use std::collections::BTreeMap;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::requirements::Operator;
use mortise_apis::resources::resources_of;
use mortise_cloudprovider::{InstanceType, LaunchedInstance};

use crate::instances::InstanceRecord;
use crate::node_class::CachedNodeClass;
use crate::tags;
use mortise_aws_catalog::instance_type::EFA;

/// The instance of a claim, as its class and type have it.
pub(crate) fn launched_instance(
    claim: &NodeClaim,
    class: &CachedNodeClass,
    instance_type: &InstanceType,
    instance: &InstanceRecord,
) -> LaunchedInstance {
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
        labels: instance_labels(instance_type, class, instance),
        annotations,
        capacity: capacity.to_api(),
        allocatable: allocatable.to_api(),
    }
}

/// Every label of which the type has exactly one value, and where and how the instance was launched.
fn instance_labels(
    instance_type: &InstanceType,
    class: &CachedNodeClass,
    instance: &InstanceRecord,
) -> BTreeMap<String, String> {
    let single = instance_type.requirements.iter().filter_map(|each| {
        match (each.operator(), each.values()) {
            (Operator::In, [value]) => Some((each.key().to_owned(), value.to_string())),
            _ => None,
        }
    });
    let mut all: BTreeMap<String, String> = single.collect();
    all.insert(labels::TOPOLOGY_ZONE.to_owned(), instance.zone.clone());
    all.insert(
        labels::CAPACITY_TYPE.to_owned(),
        instance.capacity_type.as_str().to_owned(),
    );
    let tenancy = if instance.dedicated {
        "dedicated"
    } else {
        "default"
    };
    all.insert(
        mortise_aws_class::labels::INSTANCE_TENANCY.to_owned(),
        tenancy.to_owned(),
    );
    let zone_id = class
        .subnets
        .iter()
        .find(|each| each.subnet.zone == instance.zone)
        .and_then(|each| each.subnet.zone_id.clone());
    match zone_id {
        Some(id) => all.insert(mortise_aws_class::labels::ZONE_ID.to_owned(), id),
        None => all.remove(mortise_aws_class::labels::ZONE_ID),
    };
    all
}
