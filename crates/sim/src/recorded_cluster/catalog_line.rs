//! Instance types as lines of a snapshot file.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use mortise_apis::RequirementSpec;
use mortise_apis::k8s::devices::ResourceSliceSpec;
use mortise_apis::requirements::requirements_of;
use mortise_apis::resources::{ResourceError, Resources};
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use serde::{Deserialize, Serialize};

/// An instance type.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct InstanceTypeLine {
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
