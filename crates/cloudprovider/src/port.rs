//! The provider port: the calls that a cloud implements.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::boxed::BoxFuture;
use crate::drift::DriftReason;
use crate::error::{CloudError, LaunchError};
use crate::gauge::ProviderGauge;
use crate::instance::{Instance, TerminationStatus};
use crate::instance_type::InstanceType;
use crate::interruption::NoticeSource;
use crate::launch::{LaunchRequest, LaunchWindow, LaunchedInstance};
use crate::unavailable::{ShiftedZone, UnavailableCapacity};
use mortise_apis::k8s::Node;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::ProviderId;
use mortise_apis::node_class::{NodeClassKind, NodeClassObject};
use mortise_apis::values::StaticText;
use serde::{Deserialize, Deserializer, Serialize};

/// Input of [`CloudProvider::resolve`].
#[derive(Clone, Debug)]
pub struct ResolveRequest {
    /// The node class.
    pub class: NodeClassObject,
    /// NodePools that refer to it: what is likely to be launched with it.
    pub node_pools: Vec<Arc<NodePool>>,
    /// NodeClaims that refer to it: what their instances use must stay.
    pub claims: Vec<Arc<NodeClaim>>,
    /// Registered nodes of those claims, what they really have included.
    pub nodes: Vec<Arc<Node>>,
}

impl From<NodeClassObject> for ResolveRequest {
    /// A class that nothing refers to.
    fn from(class: NodeClassObject) -> Self {
        Self {
            class,
            node_pools: Vec::new(),
            claims: Vec::new(),
            nodes: Vec::new(),
        }
    }
}

/// Result of resolving a node class: its status, as a JSON merge patch, and its instance types.
#[derive(Clone, Debug, Serialize)]
pub struct ResolvedNodeClass {
    /// Merge patch for the status subresource; `None` if nothing changes.
    pub status: Option<serde_json::Value>,
    /// Annotations to merge into the object's metadata (hashes). May be empty.
    pub annotations: BTreeMap<String, String>,
    /// Finalizer that the provider requires on the object while NodeClaims use it.
    pub finalizer: Option<&'static str>,
    /// All instance types that this class can launch, including those that are unavailable now.
    pub instance_types: Vec<InstanceType>,
    /// All zones that are shifted away now, of which offerings are unavailable.
    pub shifted_zones: Vec<ShiftedZone>,
    /// When to resolve again, in milliseconds, if the provider will soon know more (prices that are being fetched).
    pub again_ms: Option<i64>,
}

/// A node condition that requires repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RepairPolicy {
    /// Condition type.
    pub condition: &'static str,
    /// Unhealthy status of the condition.
    pub status: &'static str,
    /// How long it is tolerated, in seconds.
    pub toleration_seconds: i64,
}

/// A provider as its code declares it.
#[derive(Clone, Copy, Debug)]
pub struct ProviderDescriptor {
    /// Short name, used in metrics and effects.
    pub name: &'static str,
    /// Node class kinds that it serves; the first is the default.
    pub node_classes: &'static [NodeClassKind],
    /// Node conditions that require repair.
    pub repair_policies: &'static [RepairPolicy],
    /// Annotations of NodeClaims whose instance has all its tags, see [`CloudProvider::tag`]. Empty: it tags nothing after a launch.
    pub tagged_annotations: &'static [&'static str],
    /// Labels that only NodeClaims and Nodes of instances in capacity reservations have.
    pub reservation_labels: &'static [&'static str],
    /// How long launches wait for others of the same call; `None`: each is a call of its own.
    pub launch_window: Option<LaunchWindow>,
}

/// Background work of a provider: what keeps its own facts current, or completes what a killed process began. The shell runs it
/// as long as the process runs, and ends it with the process; it may end earlier by itself.
pub struct ProviderWorker {
    /// What it does, for the log: lower case, with dashes.
    pub name: &'static str,
    /// The work.
    pub run: BoxFuture<'static, ()>,
}

/// A cloud. Every call may be repeated; none blocks.
pub trait CloudProvider: Send + Sync + 'static {
    /// What never changes while it runs.
    fn descriptor(&self) -> ProviderDescriptor;

    /// Label keys that may be left undefined on a template because the provider defines them.
    fn well_known(&self) -> WellKnown;

    /// Resolves a node class: its status and its instance types. Called when the object changes and every few minutes.
    fn resolve<'a>(
        &'a self,
        request: &'a ResolveRequest,
    ) -> BoxFuture<'a, Result<ResolvedNodeClass, CloudError>>;

    /// Launches the instance of a NodeClaim, or returns the one that exists for the same NodeClaim UID, or for the same batch and no
    /// other NodeClaim of it.
    fn launch<'a>(
        &'a self,
        request: &'a LaunchRequest,
    ) -> BoxFuture<'a, Result<LaunchedInstance, LaunchError>>;

    /// Terminates an instance. `claim` is the NodeClaim that it belongs to, for clouds that store instances as objects.
    fn terminate<'a>(
        &'a self,
        instance: &'a ProviderId,
        claim: &'a str,
    ) -> BoxFuture<'a, Result<TerminationStatus, CloudError>>;

    /// One instance, by its ID alone; `None` if the cloud knows no such instance, or has terminated it. An instance that may
    /// only not be visible yet is an error.
    fn instance<'a>(
        &'a self,
        instance: &'a ProviderId,
    ) -> BoxFuture<'a, Result<Option<Instance>, CloudError>>;

    /// Every instance of this cluster. Instances that were launched or tagged recently may be missing: a missing instance may
    /// exist, see [`CloudProvider::instance`].
    fn list_instances(&self) -> BoxFuture<'_, Result<Vec<Instance>, CloudError>>;

    /// Why the instance of a NodeClaim differs from its node class; `None` if it does not.
    fn drifted<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: &'a NodeClassObject,
    ) -> BoxFuture<'a, Result<Option<DriftReason>, CloudError>>;

    /// Gives the instance of a NodeClaim the tags that name its node and its NodeClaim, as far as it lacks them. Returns the annotations
    /// by which the NodeClaim remembers that this is done; none while it is not, and for an instance that is gone.
    fn tag<'a>(
        &'a self,
        _claim: &'a NodeClaim,
    ) -> BoxFuture<'a, Result<BTreeMap<String, String>, CloudError>> {
        Box::pin(std::future::ready(Ok(BTreeMap::new())))
    }

    /// Sources of interruption notices, each of which is read by one loop while the process leads; none if the cloud announces
    /// nothing.
    fn notices(&self) -> Vec<Arc<dyn NoticeSource>> {
        Vec::new()
    }

    /// Removes a message from the queue.
    fn acknowledge<'a>(&'a self, _notice: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Capacity that the cloud refused lately and is not asked for now.
    fn unavailable(&self) -> Vec<UnavailableCapacity> {
        Vec::new()
    }

    /// Background work, for a process that serves a cluster. Calls do not depend on it: without it they know less.
    fn workers(&self) -> Vec<ProviderWorker> {
        Vec::new()
    }

    /// The part of [`Self::workers`] that only reads, for a process that must not write: prices, for example.
    fn reading_workers(&self) -> Vec<ProviderWorker> {
        Vec::new()
    }

    /// What it measures of its own facts at the moment, for metrics. Asked at each scrape: calls nothing.
    fn gauges(&self) -> Vec<ProviderGauge> {
        Vec::new()
    }
}

impl<'de> Deserialize<'de> for ResolvedNodeClass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Stored {
            status: Option<serde_json::Value>,
            annotations: BTreeMap<String, String>,
            finalizer: Option<StaticText>,
            instance_types: Vec<InstanceType>,
            shifted_zones: Vec<ShiftedZone>,
            again_ms: Option<i64>,
        }
        let stored = Stored::deserialize(deserializer)?;
        Ok(Self {
            status: stored.status,
            annotations: stored.annotations,
            finalizer: stored.finalizer.map(|text| text.0),
            instance_types: stored.instance_types,
            shifted_zones: stored.shifted_zones,
            again_ms: stored.again_ms,
        })
    }
}

impl<'de> Deserialize<'de> for RepairPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Stored {
            condition: StaticText,
            status: StaticText,
            toleration_seconds: i64,
        }
        let stored = Stored::deserialize(deserializer)?;
        Ok(Self {
            condition: stored.condition.0,
            status: stored.status.0,
            toleration_seconds: stored.toleration_seconds,
        })
    }
}
