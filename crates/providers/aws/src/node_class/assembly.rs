//! From what was found for a class to its status and to what launches need of it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_aws_class::spec::{Ec2NodeClass, Ec2NodeClassSpec};
use mortise_aws_class::status::{Ec2NodeClassStatus, Subnet};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::node_class::cache::{CachedNodeClass, PlacementGroup};
use crate::node_class::lookup::{FoundParts, UnmetCondition};
use crate::node_class::networks::FoundSubnet;
use crate::node_class::{amis, conditions};
use crate::offerings::region_offerings::{ClassShape, RegionOfferings};
use mortise_aws_catalog::CapacityOptions;
use mortise_aws_catalog::node_settings::NodeSettings;

/// The class with its parts, and the patch that brings the stored status up to date; `None` when it is.
pub(crate) fn assemble(
    mut object: Ec2NodeClass,
    found: FoundParts,
    offerings: &RegionOfferings,
    options: CapacityOptions,
    now: Timestamp,
) -> (CachedNodeClass, Option<Value>) {
    let settings = NodeSettings::read(&object.spec, options)
        .map_err(|error| UnmetCondition::new("InvalidKubeletConfiguration", error.to_string()));
    let conditions = conditions::assess(&object, &found, &settings, now);
    let settings = settings.unwrap_or_default();
    let profile = instance_profile(&object.spec);
    let subnets = found.subnets.unwrap_or_default();
    let groups = found.groups.unwrap_or_default();
    let amis = found.amis.unwrap_or_default();
    let status = Ec2NodeClassStatus {
        subnets: keep_order(
            &object.status.subnets,
            subnets.iter().map(|each| each.subnet.clone()).collect(),
        ),
        security_groups: groups.clone(),
        amis: amis.clone(),
        capacity_reservations: object.status.capacity_reservations.clone(),
        instance_profile: profile.clone(),
        conditions,
    };
    let patch = patch(&object.status, &status);
    let not_ready = conditions::not_ready(&status.conditions);
    object.status = status;
    let (reservations, placement_group) = (Vec::new(), None::<PlacementGroup>);
    let group = placement_group.as_ref().map(PlacementGroup::shape);
    let shape = ClassShape {
        settings: &settings,
        zones: &zones(&subnets),
        reservations: &reservations,
        group: group.as_ref(),
    };
    let (types, nothing) = match offerings.instance_types(&found.offerings, &shape) {
        Ok(types) => (types, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let not_ready = not_ready.or(nothing);
    let class = CachedNodeClass {
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
    };
    (class, patch)
}

/// The profile that instances get: the class's own, or the one with the name of its role.
fn instance_profile(spec: &Ec2NodeClassSpec) -> Option<String> {
    let of_role = || {
        let name = spec.role.as_deref()?.rsplit('/').next()?;
        Some(name.to_owned())
    };
    spec.instance_profile.clone().or_else(of_role)
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

/// A merge patch from the stored status to the new one: the fields that differ, `null` for those that went.
fn patch(stored: &Ec2NodeClassStatus, new: &Ec2NodeClassStatus) -> Option<Value> {
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
