//! Instance types as files have them: snapshots and recordings.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use mortise_apis::RequirementSpec;
use mortise_apis::k8s::devices::ResourceSliceSpec;
use mortise_apis::requirements::requirements_of;
use mortise_apis::resources::{ResourceError, Resources};
use mortise_apis::values::money::MicroUsd;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::capacity_type::CapacityType;
use crate::instance_type::{InstanceType, Offering};

/// An instance type.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct InstanceTypeLine {
    name: Arc<str>,
    requirements: Vec<RequirementSpec>,
    capacity: BTreeMap<String, Quantity>,
    overhead: BTreeMap<String, Quantity>,
    offerings: Vec<OfferingLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    devices: Vec<ResourceSliceSpec>,
}

/// An offering.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OfferingLine {
    zone: Arc<str>,
    capacity_type: CapacityType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    price_micro_usd: Option<MicroUsd>,
    available: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reservation: Option<(Arc<str>, u32)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<(Arc<str>, Arc<str>)>,
}

impl Serialize for InstanceType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        InstanceTypeLine::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for InstanceType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let line = InstanceTypeLine::deserialize(deserializer)?;
        Self::try_from(line).map_err(D::Error::custom)
    }
}

impl From<&InstanceType> for InstanceTypeLine {
    fn from(each: &InstanceType) -> Self {
        Self {
            name: Arc::clone(&each.name),
            requirements: each.requirements.to_specs(),
            capacity: each.capacity.to_api(),
            overhead: each.overhead.to_api(),
            offerings: each.offerings.iter().map(OfferingLine::from).collect(),
            devices: each.devices.to_vec(),
        }
    }
}

impl TryFrom<InstanceTypeLine> for InstanceType {
    type Error = ResourceError;

    fn try_from(line: InstanceTypeLine) -> Result<Self, ResourceError> {
        Ok(Self {
            requirements: requirements_of(&line.requirements),
            capacity: Resources::from_api(&line.capacity)?,
            overhead: Resources::from_api(&line.overhead)?,
            offerings: line.offerings.into_iter().map(Offering::from).collect(),
            devices: line.devices.into(),
            name: line.name,
        })
    }
}

impl From<&Offering> for OfferingLine {
    fn from(each: &Offering) -> Self {
        Self {
            zone: Arc::clone(&each.zone),
            capacity_type: each.capacity_type,
            price_micro_usd: each.price,
            available: each.available,
            reservation: each.reservation.clone(),
            labels: each.labels.clone(),
        }
    }
}

impl From<OfferingLine> for Offering {
    fn from(line: OfferingLine) -> Self {
        Self {
            zone: line.zone,
            capacity_type: line.capacity_type,
            price: line.price_micro_usd,
            available: line.available,
            reservation: line.reservation,
            labels: line.labels,
        }
    }
}
