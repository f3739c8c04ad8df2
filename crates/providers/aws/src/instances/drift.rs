//! The first difference between an instance and its class, in the reference implementation's order and words. Pure.

use std::collections::BTreeSet;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_aws_class::hash::HASH_VERSION;
use mortise_aws_class::labels::PLACEMENT_GROUP_ID;
use mortise_cloudprovider::{CloudError, DriftReason, Retry};

use crate::instances::record::InstanceRecord;
use crate::node_class::CachedNodeClass;
use crate::tags;

/// The instance is in a capacity reservation that its class does not select.
pub(super) const CAPACITY_RESERVATION: DriftReason = DriftReason::new("CapacityReservationDrift");

/// The claim cannot be compared with its class, because something is not known.
fn unresolved(message: String) -> CloudError {
    CloudError {
        label: "unresolved",
        message,
        retry: Retry::Never,
    }
}

/// What can be said without looking at the instance.
/// # Errors
/// The class or the claim lacks what is compared.
pub(super) fn of_claim(
    claim: &NodeClaim,
    class: &CachedNodeClass,
) -> Result<Option<DriftReason>, CloudError> {
    if has_other_hash(claim, class) {
        return Ok(Some(DriftReason::new("NodeClassDrift")));
    }
    let is_other = has_other_image(claim, class)
        .map_err(|why| unresolved(format!("calculating ami drift, {why}")))?;
    Ok(is_other.then_some(DriftReason::new("AMIDrift")))
}

/// The claim was launched with another version of the class. Hashes of different versions cannot be compared.
fn has_other_hash(claim: &NodeClaim, class: &CachedNodeClass) -> bool {
    let version = claim.annotation(tags::CLASS_HASH_VERSION);
    let hashes = class
        .hash
        .as_deref()
        .zip(claim.annotation(tags::CLASS_HASH));
    version == Some(HASH_VERSION) && hashes.is_some_and(|(ours, theirs)| ours != theirs)
}

/// The claim runs another image than its type would get now.
/// # Errors
/// Type or image is not known. A type that is not in the list just now says nothing about the image: a gap in EC2's list must not replace
/// a fleet.
fn has_other_image(claim: &NodeClaim, class: &CachedNodeClass) -> Result<bool, String> {
    if class.subnets.is_empty() {
        return Err("getting instanceTypes, no subnets found".to_owned());
    }
    let name = claim.label(labels::INSTANCE_TYPE).unwrap_or_default();
    if class.instance_type(name).is_none() {
        return Err(format!("finding node instance type (instance-type={name})"));
    }
    if class.amis.is_empty() {
        return Err("no amis exist given constraints".to_owned());
    }
    let image = claim.status.image_id.as_deref();
    let image = image.filter(|id| !id.is_empty());
    let image = image.ok_or_else(|| "no ami ID found in nodeClaim status".to_owned())?;
    Ok(class.image(name).is_none_or(|ami| ami.id != image))
}

/// What a look at the instance says.
/// # Errors
/// The class lacks what is compared.
pub(super) fn of_instance(
    claim: &NodeClaim,
    class: &CachedNodeClass,
    instance: &InstanceRecord,
) -> Result<Option<DriftReason>, CloudError> {
    if class.groups.is_empty() {
        let why = "calculating securitygroup drift, no security groups are present in the status";
        return Err(unresolved(why.to_owned()));
    }
    if class.subnets.is_empty() {
        let why = "calculating subnet drift, no subnets are present in the status";
        return Err(unresolved(why.to_owned()));
    }
    Ok(if has_other_groups(class, instance) {
        Some(DriftReason::new("SecurityGroupDrift"))
    } else if is_in_other_subnet(class, instance) {
        Some(DriftReason::new("SubnetDrift"))
    } else if is_in_other_reservation(class, instance) {
        Some(CAPACITY_RESERVATION)
    } else if is_in_other_group(claim, class) {
        Some(DriftReason::new("PlacementGroupDrift"))
    } else {
        None
    })
}

fn has_other_groups(class: &CachedNodeClass, instance: &InstanceRecord) -> bool {
    let wanted: BTreeSet<&str> = class.groups.iter().map(|group| &*group.id).collect();
    wanted != instance.groups.iter().map(|id| &**id).collect()
}

fn is_in_other_subnet(class: &CachedNodeClass, instance: &InstanceRecord) -> bool {
    let own = instance.subnet.as_ref();
    own.is_some_and(|own| class.subnets.iter().all(|each| each.subnet.id != *own))
}

fn is_in_other_reservation(class: &CachedNodeClass, instance: &InstanceRecord) -> bool {
    let own = instance.reservation.as_ref();
    own.is_some_and(|own| class.reservations.iter().all(|each| each.id != own.id))
}

/// The group that was selected at launch is another than now. A group that is selected and not found just now says nothing.
fn is_in_other_group(claim: &NodeClaim, class: &CachedNodeClass) -> bool {
    let is_unknown =
        class.placement_group.is_none() && class.object.spec.placement_group_selector.is_some();
    let wanted = class.placement_group.as_ref().map(|group| &*group.id);
    !is_unknown && wanted != claim.label(PLACEMENT_GROUP_ID).filter(|id| !id.is_empty())
}
