//! The provider port: what the core and the shell ask of a cloud, and what a cloud tells them.
//!
//! Invariant: nothing here names a cloud. Labels are data, errors classify themselves once (in the provider), and a
//! number that a cloud does not know is `None`, never zero.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use crate::apis::k8s::devices::ResourceSliceSpec;
use crate::apis::nodeclaim::NodeClaim;
use crate::labels::WellKnown;
use crate::money::MicroUsd;
use crate::names::{NodeClassKey, ProviderId};
use crate::requirements::Requirements;
use crate::resources::Resources;

/// A future as the port's methods return it, so that several providers live behind `Arc<dyn CloudProvider>`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How a machine is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// Paid for already.
    Reserved,
    /// Spare capacity that can be taken back.
    Spot,
    /// At the list price, kept until given back.
    OnDemand,
}

impl CapacityType {
    /// The label value, such as `on-demand`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// Reads a label value; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Reserved, Self::Spot, Self::OnDemand]
            .into_iter()
            .find(|each| each.as_str() == text)
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One way to buy an instance type: a zone and a capacity type at a price.
#[derive(Clone, Debug, PartialEq)]
pub struct Offering {
    /// Zone name, the value of `topology.kubernetes.io/zone`.
    pub zone: Arc<str>,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// Price; `None` when it is not known.
    pub price: Option<MicroUsd>,
    /// `false` while the cloud has none of it (insufficient capacity, subnet full).
    pub available: bool,
    /// Reservation id and how many machines are left in it, for `reserved`.
    pub reservation: Option<(Arc<str>, u32)>,
    /// Further labels of this offering, such as `topology.k8s.aws/zone-id`. Sorted by key.
    pub labels: Vec<(Arc<str>, Arc<str>)>,
}

/// A kind of machine.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceType {
    /// Name, the value of `node.kubernetes.io/instance-type`.
    pub name: Arc<str>,
    /// Every well-known label of the type, as requirements (zone and capacity type are the union over offerings).
    pub requirements: Requirements,
    /// What the machine has.
    pub capacity: Resources,
    /// What the system and the kubelet keep of it.
    pub overhead: Resources,
    /// Ways to buy it. Sorted by (zone, capacity type).
    pub offerings: Vec<Offering>,
    /// Devices that its machines bring, as their drivers will publish them. Which node they are on is left out.
    pub devices: Arc<[ResourceSliceSpec]>,
}

impl InstanceType {
    /// What pods can use: capacity less overhead, never negative, and memory less what huge pages take.
    #[must_use]
    pub fn allocatable(&self) -> Resources {
        let mut free = Resources::max(&self.capacity.sub(&self.overhead), &Resources::zero());
        let huge: i64 = self
            .capacity
            .extended
            .iter()
            .filter(|(name, _)| name.starts_with("hugepages-"))
            .map(|(_, bytes)| bytes)
            .sum();
        free.memory = free.memory.saturating_sub(huge).max(0);
        free
    }
}

/// Group, version, kind and plural of a node class that a provider serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeClassKind {
    /// API group.
    pub group: &'static str,
    /// Served version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Resource name in URLs.
    pub plural: &'static str,
}

/// A node class object as stored, with what every kind has in common already read.
#[derive(Clone, Debug)]
pub struct NodeClassObject {
    /// Which object.
    pub key: NodeClassKey,
    /// The whole object, for its provider.
    pub object: Arc<serde_json::Value>,
}

/// What is asked of [`CloudProvider::launch`].
#[derive(Clone, Debug)]
pub struct LaunchRequest {
    /// The claim, as stored: its requirements, requests, taints and UID. The idempotency token derives from the UID.
    pub claim: Arc<NodeClaim>,
    /// The claim's node class, when it exists.
    pub node_class: Option<NodeClassObject>,
}

/// A machine that a launch made, or that was already there for the same claim.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchedInstance {
    /// Its id.
    pub provider_id: ProviderId,
    /// Image it runs, when images have ids.
    pub image_id: Option<String>,
    /// Labels that the node will have: instance type, zone, capacity type and the provider's own.
    pub labels: BTreeMap<String, String>,
    /// Annotations for the claim, such as the node class hash.
    pub annotations: BTreeMap<String, String>,
    /// `status.capacity` of the claim.
    pub capacity: BTreeMap<String, Quantity>,
    /// `status.allocatable` of the claim.
    pub allocatable: BTreeMap<String, Quantity>,
}

/// A (type, zone, capacity type) that the cloud could not give just now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct UnavailableOffering {
    /// Instance type name.
    pub instance_type: Arc<str>,
    /// Zone name.
    pub zone: Arc<str>,
    /// Capacity type.
    pub capacity_type: CapacityType,
}

/// Why a launch gave no machine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LaunchError {
    /// No offering had capacity. The claim is given up and its pods are planned again.
    #[error("insufficient capacity: {message}")]
    InsufficientCapacity {
        /// What the cloud said.
        message: String,
        /// The offerings that were found empty.
        unavailable: Vec<UnavailableOffering>,
    },
    /// The node class is missing or not ready. The claim is given up.
    #[error("node class is not ready: {message}")]
    NodeClassNotReady {
        /// Why.
        message: String,
    },
    /// The cloud refused for a reason that has a name; the claim is kept and tried again.
    #[error("{reason}: {message}")]
    Create {
        /// Condition reason, CamelCase.
        reason: String,
        /// What the cloud said.
        message: String,
    },
    /// Anything else; tried again with back-off.
    #[error("{0}")]
    Other(CloudError),
}

/// What to do about a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Call again, with back-off.
    Again,
    /// The same call will fail the same way.
    Never,
}

/// A failed call to a cloud, classified once by its provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CloudError {
    /// A word from a closed list of the provider, for metrics: `throttled`, `unauthorized`, `unreachable` ...
    pub label: &'static str,
    /// What the cloud said.
    pub message: String,
    /// Whether to call again.
    pub retry: Retry,
}

/// Answer to [`CloudProvider::terminate`]. It is asked again until the machine is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TerminationStatus {
    /// Termination was asked for, or is under way.
    Started,
    /// There is no such machine (any more).
    Gone,
}

/// A machine as [`CloudProvider::list_instances`] lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Instance {
    /// Its id.
    pub provider_id: ProviderId,
    /// Name of the claim it was launched for, when the cloud remembers.
    pub claim: Option<String>,
    /// When it was launched.
    pub created: Option<Timestamp>,
    /// `true` while it is going away.
    pub terminating: bool,
}

/// What a cloud announces about machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptionKind {
    /// The machine will be taken back within minutes.
    SpotInterruption,
    /// The machine is more likely than others to be taken back.
    RebalanceRecommendation,
    /// Maintenance or retirement was announced for it.
    ScheduledChange,
    /// It is stopping or shutting down.
    Stopping,
    /// It is stopped or gone.
    Terminated,
    /// A message that asks for nothing.
    Other,
}

impl InterruptionKind {
    /// The metric label, which is upstream's `message_type` value.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::SpotInterruption => "spot_interrupted",
            Self::RebalanceRecommendation => "rebalance_recommendation",
            Self::ScheduledChange => "scheduled_change",
            Self::Stopping => "instance_stopped",
            Self::Terminated => "instance_terminated",
            Self::Other => "no_op",
        }
    }
}

/// One message from a cloud. It is acknowledged (deleted from the queue) only when what it asks for has been decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InterruptionNotice {
    /// The queue's handle of the message, for the acknowledgement.
    pub id: Arc<str>,
    /// What it announces.
    pub kind: InterruptionKind,
    /// The machines concerned, by the last part of their provider id (such as `i-0123`).
    pub instances: Vec<Arc<str>>,
    /// When the cloud sent it.
    pub sent: Option<Timestamp>,
}

/// Status that a provider found for one of its node classes; a JSON merge patch for `status`, and the catalogue it gives.
#[derive(Clone, Debug)]
pub struct ResolvedNodeClass {
    /// Merge patch for the status subresource; `None` when nothing is to be written.
    pub status: Option<serde_json::Value>,
    /// Annotations to merge into the object's metadata (hashes). May be empty.
    pub annotations: BTreeMap<String, String>,
    /// Finalizer that the provider wants on the object while claims use it.
    pub finalizer: Option<&'static str>,
    /// Instance types that this class can launch, all of them, also those unavailable now.
    pub instance_types: Vec<InstanceType>,
    /// When to ask again, in milliseconds, if the provider will soon know more (prices that are on their way).
    pub again_ms: Option<i64>,
}

/// A condition of a node that calls for replacing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPolicy {
    /// Condition type.
    pub condition: &'static str,
    /// Condition status that is bad.
    pub status: &'static str,
    /// How long it may last, in seconds.
    pub toleration_seconds: i64,
}

/// A cloud. Every call may be repeated; none blocks.
pub trait CloudProvider: Send + Sync + 'static {
    /// Short name, used in metrics: `kwok`, `aws`.
    fn name(&self) -> &'static str;

    /// Node class kinds it serves; the first is the default.
    fn node_class_kinds(&self) -> &'static [NodeClassKind];

    /// Label keys that may be left undefined on a template because the provider defines them.
    fn well_known(&self) -> WellKnown;

    /// Finds what a node class stands for: its status and its instance types. Called when the object changes and every few minutes.
    fn resolve<'a>(
        &'a self,
        class: &'a NodeClassObject,
    ) -> BoxFuture<'a, Result<ResolvedNodeClass, CloudError>>;

    /// Makes the machine for a claim, or finds the one already made for the same claim UID.
    fn launch<'a>(
        &'a self,
        request: &'a LaunchRequest,
    ) -> BoxFuture<'a, Result<LaunchedInstance, LaunchError>>;

    /// Ends a machine. `claim` is the claim it belongs to, for clouds that keep machines as objects.
    fn terminate<'a>(
        &'a self,
        machine: &'a ProviderId,
        claim: &'a str,
    ) -> BoxFuture<'a, Result<TerminationStatus, CloudError>>;

    /// One machine, by its id and nothing else; `None` when the cloud knows no such machine, or has ended it. A machine that
    /// may only not be visible yet is an error.
    fn instance<'a>(
        &'a self,
        machine: &'a ProviderId,
    ) -> BoxFuture<'a, Result<Option<Instance>, CloudError>>;

    /// Every machine of this cluster. It may leave some out that were launched or tagged a moment ago: what is not in it is
    /// not gone, see [`CloudProvider::instance`].
    fn list_instances(&self) -> BoxFuture<'_, Result<Vec<Instance>, CloudError>>;

    /// Why a claim's machine differs from what its node class now asks for; `None` when it does not.
    fn drifted<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: &'a NodeClassObject,
    ) -> BoxFuture<'a, Result<Option<String>, CloudError>>;

    /// Waits for messages (long poll); `None` when the cloud sends none at all.
    fn notices(&self) -> Option<BoxFuture<'_, Result<Vec<InterruptionNotice>, CloudError>>>;

    /// Removes a message from the queue.
    fn acknowledge<'a>(&'a self, notice: &'a str) -> BoxFuture<'a, Result<(), CloudError>>;

    /// Node conditions that call for repair.
    fn repair_policies(&self) -> Vec<RepairPolicy>;
}
