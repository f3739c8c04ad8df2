//! Device kinds (`resource.k8s.io`), as far as they are read.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use crate::schema::object::{is_default, object};

/// Name of a counter or capacity to its amount.
pub type CapacityMap = BTreeMap<String, Quantity>;

object! {
    /// A claim for devices.
    pub struct ResourceClaim(
        "resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", NamespaceResourceScope
    ) {
        /// What is wanted.
        pub spec as "spec": ResourceClaimSpec,
        /// What is.
        pub status as "status": ResourceClaimStatus,
    }
}

object! {
    /// What claims that are made for pods look like.
    pub struct ResourceClaimTemplate(
        "resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", NamespaceResourceScope
    ) {
        /// The claim to make.
        pub spec as "spec": ResourceClaimTemplateSpec,
    }
}

object! {
    /// A kind of device that claims may ask for.
    pub struct DeviceClass(
        "resource.k8s.io", "v1", "DeviceClass", "deviceclasses", ClusterResourceScope
    ) {
        /// Which devices are of this kind.
        pub spec as "spec": DeviceClassSpec,
    }
}

object! {
    /// Some of the devices of a pool, as a driver publishes them.
    pub struct ResourceSlice(
        "resource.k8s.io", "v1", "ResourceSlice", "resourceslices", ClusterResourceScope
    ) {
        /// The devices.
        pub spec as "spec": ResourceSliceSpec,
    }
}

/// The claim that a template makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimTemplateSpec {
    /// What it asks for.
    pub spec: ResourceClaimSpec,
}

/// What a claim asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimSpec {
    /// Devices.
    pub devices: DeviceClaim,
}

/// Devices that are asked for together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClaim {
    /// What is asked for; all of it, or nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub requests: Vec<DeviceRequest>,
    /// What the devices must have in common.
    #[serde(skip_serializing_if = "is_default")]
    pub constraints: Vec<DeviceConstraint>,
}

/// One part of what is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    /// Name within the claim.
    pub name: String,
    /// These devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exactly: Option<ExactDeviceRequest>,
    /// The first of these that can be had.
    #[serde(skip_serializing_if = "is_default")]
    pub first_available: Vec<DeviceSubRequest>,
}

/// Devices of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactDeviceRequest {
    /// Class of the devices.
    pub device_class_name: String,
    /// What they must be besides.
    #[serde(skip_serializing_if = "is_default")]
    pub selectors: Vec<DeviceSelector>,
    /// `ExactCount` or `All`; empty counts as the first.
    #[serde(skip_serializing_if = "is_default")]
    pub allocation_mode: String,
    /// How many; 0 counts as one.
    #[serde(skip_serializing_if = "is_default")]
    pub count: i64,
    /// For administration: devices in use will do, and are not used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    /// Taints of devices that it can stand.
    #[serde(skip_serializing_if = "is_default")]
    pub tolerations: Vec<Toleration>,
    /// How much of each device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityRequirements>,
}

/// One of several requests of which one will do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSubRequest {
    /// Name within the request.
    pub name: String,
    /// What it asks for.
    #[serde(flatten)]
    pub exactly: ExactDeviceRequest,
}

/// Amounts of the capacities of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityRequirements {
    /// By name of the capacity.
    pub requests: CapacityMap,
}

/// A condition on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSelector {
    /// An expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cel: Option<CelSelector>,
}

/// An expression that is true for the devices that are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CelSelector {
    /// In the Common Expression Language, over `device`.
    pub expression: String,
}

/// What devices of a claim must have in common, or must not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceConstraint {
    /// Names of the requests that it is about; none means all.
    #[serde(skip_serializing_if = "is_default")]
    pub requests: Vec<String>,
    /// The devices have the same value of this attribute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_attribute: Option<String>,
    /// Each device has another value of this attribute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distinct_attribute: Option<String>,
}

/// What became of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    /// The devices that it has; absent until it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationResult>,
    /// Who uses them.
    #[serde(skip_serializing_if = "is_default")]
    pub reserved_for: Vec<ConsumerReference>,
}

/// Devices that a claim has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResult {
    /// The devices.
    pub devices: DeviceAllocation,
    /// Nodes on which they can be used; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
}

/// Devices that a claim has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceAllocation {
    /// One entry for each.
    #[serde(skip_serializing_if = "is_default")]
    pub results: Vec<AllocatedDevice>,
}

/// A device that a claim has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedDevice {
    /// The request it answers, with the part of it after a slash.
    pub request: String,
    /// Its driver.
    pub driver: String,
    /// Its pool.
    pub pool: String,
    /// Its name within the pool.
    pub device: String,
    /// For administration: it is not used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    /// How much of each of its capacities.
    #[serde(skip_serializing_if = "is_default")]
    pub consumed_capacity: CapacityMap,
}

/// Who uses a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerReference {
    /// `pods`, if it is one.
    pub resource: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// Which devices are of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassSpec {
    /// All of these hold.
    #[serde(skip_serializing_if = "is_default")]
    pub selectors: Vec<DeviceSelector>,
}

/// Devices of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSliceSpec {
    /// The driver that publishes them.
    pub driver: String,
    /// The pool they are of.
    pub pool: ResourcePool,
    /// The node they are on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The nodes that can use them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// All nodes can use them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    /// Each device says by itself which nodes can use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_device_node_selection: Option<bool>,
    /// The devices.
    #[serde(skip_serializing_if = "is_default")]
    pub devices: Vec<Device>,
    /// Amounts that devices of the pool draw from together.
    #[serde(skip_serializing_if = "is_default")]
    pub shared_counters: Vec<CounterSet>,
}

/// A pool of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcePool {
    /// Name, unique for its driver.
    pub name: String,
    /// Slices of a lower generation are out of date.
    pub generation: i64,
    /// How many slices of this generation there are.
    pub resource_slice_count: i64,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// Name within its pool.
    pub name: String,
    /// What it is.
    #[serde(skip_serializing_if = "is_default")]
    pub attributes: BTreeMap<String, DeviceAttribute>,
    /// How much it has.
    #[serde(skip_serializing_if = "is_default")]
    pub capacity: BTreeMap<String, DeviceCapacity>,
    /// What it draws from the counters of its pool.
    #[serde(skip_serializing_if = "is_default")]
    pub consumes_counters: Vec<CounterConsumption>,
    /// The node it is on, where devices say that one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The nodes that can use it, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// All nodes can use it, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    /// Taints that requests must tolerate.
    #[serde(skip_serializing_if = "is_default")]
    pub taints: Vec<DeviceTaint>,
    /// Several claims may have it at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_multiple_allocations: Option<bool>,
}

/// The value of an attribute: one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceAttribute {
    /// A number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int: Option<i64>,
    /// Yes or no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bool: Option<bool>,
    /// A text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub string: Option<String>,
    /// A semantic version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A capacity of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceCapacity {
    /// How much there is.
    pub value: Quantity,
    /// What a claim may have of it, where several may have the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_policy: Option<CapacityRequestPolicy>,
}

/// What a claim may have of a capacity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityRequestPolicy {
    /// What it has when it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Quantity>,
    /// One of these amounts; the next larger one is taken.
    #[serde(skip_serializing_if = "is_default")]
    pub valid_values: Vec<Quantity>,
    /// An amount within these bounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_range: Option<CapacityRange>,
}

/// Bounds of an amount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityRange {
    /// At least so much.
    pub min: Quantity,
    /// At most so much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Quantity>,
    /// In such steps above the least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Quantity>,
}

/// Amounts that devices of a pool draw from together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CounterSet {
    /// Name within the pool.
    pub name: String,
    /// By name.
    pub counters: BTreeMap<String, Counter>,
}

/// An amount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counter {
    /// How much.
    pub value: Quantity,
}

/// What a device draws from a counter set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CounterConsumption {
    /// The set.
    pub counter_set: String,
    /// By name.
    pub counters: BTreeMap<String, Counter>,
}

/// A taint of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTaint {
    /// Key.
    pub key: String,
    /// Value; may be empty.
    #[serde(skip_serializing_if = "is_default")]
    pub value: String,
    /// `NoSchedule`, `NoExecute` or `None`.
    pub effect: String,
}
