//! From what was found for a class to its status and to what launches need of it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_aws_class::status::{Ec2NodeClassStatus, Subnet};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::node_class::cache::{CachedNodeClass, PlacementGroup};
use crate::node_class::lookup::{ClassPart, FoundParts, PartProblem};
use crate::node_class::networks::FoundSubnet;
use crate::node_class::{amis, conditions};
use crate::offerings::region_offerings::{ClassShape, RegionOfferings};
use mortise_aws_catalog::CapacityOptions;
use mortise_aws_catalog::node_settings::NodeSettings;

/// How classes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadOptions {
    pub(crate) shape: CapacityOptions,
    /// Reserved capacity is used.
    pub(crate) reserved: bool,
}

/// The class with its parts, and its status brought up to date except for its validity. What could not be asked for stays as `previous`
/// knew it, or as the status says.
pub(crate) fn assemble(
    mut object: Ec2NodeClass,
    found: FoundParts,
    previous: Option<&CachedNodeClass>,
    offerings: &RegionOfferings,
    options: ReadOptions,
    now: Timestamp,
) -> CachedNodeClass {
    // Settings that cannot be read make the class invalid; its types are shown as if it had none.
    let settings = NodeSettings::read(&object.spec, options.shape).unwrap_or_default();
    let conditions = conditions::assess(&object, &found, options.reserved, now);
    let stored = std::mem::take(&mut object.status);
    let listed = or_stored(listed(&found.subnets), &stored.subnets);
    let known = previous.map(|class| &*class.subnets).unwrap_or_default();
    let subnets = found.subnets.unwrap_or_else(|_| still(known, &listed));
    let groups = or_stored(found.groups, &stored.security_groups);
    let amis = or_stored(found.amis, &stored.amis);
    let reservations = or_stored(found.reservations, &stored.capacity_reservations);
    let profile = found.profile.ok().flatten().or(stored.instance_profile);
    object.status = Ec2NodeClassStatus {
        subnets: keep_order(&stored.subnets, listed),
        security_groups: groups.clone(),
        amis: amis.clone(),
        capacity_reservations: reservations.clone(),
        instance_profile: profile.clone(),
        conditions,
    };
    let placement_group = found.placement_group.ok().flatten();
    let group = placement_group.as_ref().map(PlacementGroup::shape);
    let shape = ClassShape {
        settings: &settings,
        zones: &zones(&subnets),
        reservations: &reservations,
        group: group.as_ref(),
    };
    let known = previous.map(|class| &*class.types).unwrap_or_default();
    let (types, not_ready) = match offerings.instance_types(&found.offerings, &shape, known) {
        Ok(types) => (types, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    CachedNodeClass {
        hash: found
            .cluster
            .ok()
            .map(|cluster| object.hash(&cluster.ca_bundle).to_string()),
        images: amis::positions(&amis, &types),
        object,
        settings,
        subnets,
        groups,
        amis,
        reservations,
        placement_group,
        profile,
        types,
        not_ready,
        found: Instant::now(),
    }
}

/// What was found; nothing where there is nothing; what the status says where that could not be asked for.
fn or_stored<T: Clone>(part: Result<Vec<T>, PartProblem>, stored: &[T]) -> Vec<T> {
    match part {
        Ok(found) => found,
        Err(PartProblem::Unmet(_)) => Vec::new(),
        Err(PartProblem::Failed(_)) => stored.to_vec(),
    }
}

fn listed(found: &ClassPart<Vec<FoundSubnet>>) -> ClassPart<Vec<Subnet>> {
    let found = found.as_ref().map_err(Clone::clone)?;
    Ok(found.iter().map(|each| each.subnet.clone()).collect())
}

/// The subnets that were known before, of those that are still listed. How many addresses the others have left is not known.
fn still(known: &[FoundSubnet], listed: &[Subnet]) -> Vec<FoundSubnet> {
    let is_listed = |each: &&FoundSubnet| listed.iter().any(|listed| listed.id == each.subnet.id);
    known.iter().filter(is_listed).cloned().collect()
}

/// Zones that have a subnet, with their ids.
fn zones(subnets: &[FoundSubnet]) -> BTreeMap<Arc<str>, Option<Arc<str>>> {
    let mut zones: BTreeMap<Arc<str>, Option<Arc<str>>> = BTreeMap::new();
    for FoundSubnet { subnet, .. } in subnets {
        let id = zones.entry(Arc::from(&*subnet.zone)).or_default();
        *id = id
            .take()
            .or_else(|| subnet.zone_id.as_deref().map(Arc::from));
    }
    zones
}

/// The stored order, when the subnets are the same: the number of free addresses changes with every launch, and is not worth a write.
fn keep_order(stored: &[Subnet], found: Vec<Subnet>) -> Vec<Subnet> {
    let sorted = |list: &[Subnet]| {
        let mut list = list.to_vec();
        list.sort_by(|a, b| a.id.cmp(&b.id));
        list
    };
    if sorted(stored) == sorted(&found) {
        stored.to_vec()
    } else {
        found
    }
}

/// A merge patch from the stored status to the new one: the fields that differ, `null` for those that went. `None` when none differs.
pub(crate) fn patch(stored: &Ec2NodeClassStatus, new: &Ec2NodeClassStatus) -> Option<Value> {
    let fields = |status: &Ec2NodeClassStatus| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (stored, new) = (fields(stored), fields(new));
    let mut patch: Map<String, Value> = stored
        .keys()
        .filter(|key| !new.contains_key(*key))
        .map(|key| (key.clone(), Value::Null))
        .collect();
    patch.extend(
        new.into_iter()
            .filter(|(key, value)| stored.get(key) != Some(value)),
    );
    (!patch.is_empty()).then(|| json!(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(id: &str) -> Subnet {
        Subnet {
            id: id.to_owned(),
            zone: "us-east-1a".to_owned(),
            zone_id: None,
        }
    }

    #[test]
    fn a_patch_has_what_changed() {
        let stored = Ec2NodeClassStatus {
            subnets: vec![subnet("a")],
            instance_profile: Some("p".to_owned()),
            ..Ec2NodeClassStatus::default()
        };
        assert_eq!(patch(&stored, &stored), None);
        let new = Ec2NodeClassStatus {
            subnets: vec![subnet("b")],
            ..Ec2NodeClassStatus::default()
        };
        assert_eq!(
            patch(&stored, &new),
            Some(
                json!({ "instanceProfile": null, "subnets": [{ "id": "b", "zone": "us-east-1a" }] })
            )
        );
    }

    #[test]
    fn the_order_of_the_same_subnets_stays() {
        let (a, b) = (subnet("a"), subnet("b"));
        assert_eq!(
            keep_order(&[a.clone(), b.clone()], vec![b.clone(), a.clone()]),
            [a.clone(), b.clone()]
        );
        assert_eq!(
            keep_order(std::slice::from_ref(&a), vec![b.clone(), a.clone()]),
            [b, a]
        );
    }
}
