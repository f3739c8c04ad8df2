//! The provider port: what a cloud does for the autoscaler.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use crate::error::CloudError;
use crate::error::LaunchError;
use crate::instance::Instance;
use crate::instance::TerminationStatus;
use crate::instance_type::InstanceType;
use crate::interruption::InterruptionNotice;
use crate::launch::LaunchRequest;
use crate::launch::LaunchedInstance;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::ProviderId;
use mortise_apis::node_class::NodeClassKind;
use mortise_apis::node_class::NodeClassObject;

/// A future as the port's methods return it, so that several providers live behind `Arc<dyn CloudProvider>`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

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
