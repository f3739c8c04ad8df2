//! Everything the outside can be asked to do, and what comes back.
//!
//! Invariant: deciders change the world only through these values. Each effect may be executed twice (a crash, a lost
//! answer) and must then still be right: creations are by name, deletions by UID, patches by resource version, launches
//! by the claim's UID.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use mortise_apis::k8s;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, NodeClassKey, NodeName, ObjectRef, PodKey, ProviderId, Uid};
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::values::StaticList;
use mortise_cloudprovider::{
    CloudError, Instance, LaunchError, LaunchRequest, LaunchedInstance, ResolveRequest,
    ResolvedNodeClass, TerminationStatus,
};

use crate::write::lifecycle_step::LifecycleStep;
use crate::write::{ObjectWrite, node_ref};

/// An event for people, on an object. Only [`crate::events::events_of`] makes one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Event {
    /// What it is about.
    pub target: ObjectRef,
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// Reason, from [`crate::events::RULES`], or the type of a condition.
    pub reason: Cow<'static, str>,
    /// Text.
    pub message: String,
    /// Events with the same target, reason and key are sent once per `dedupe_ms`; `None` = the message is the key.
    pub dedupe_key: Option<String>,
    /// How long it is not repeated. Karpenter's default is 2 min.
    pub dedupe_ms: i64,
}

/// Which provider is asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProviderRef {
    /// The one that serves classes of this kind: what a claim refers to.
    OfClass(NodeClassKey),
    /// The one of this name: for instances that no claim names.
    Named(Arc<str>),
}

/// One thing to be done outside.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Creates a claim under the name it has; "already exists" counts as done.
    CreateClaim(Arc<NodeClaim>),
    /// Changes an object.
    Write(ObjectWrite),
    /// Deletes an object; "not found" counts as done.
    Delete {
        /// What.
        target: ObjectRef,
        /// Only if it still has this UID.
        uid: Option<Uid>,
        /// `gracePeriodSeconds` for pods.
        grace_seconds: Option<i64>,
    },
    /// Asks for an eviction through the Eviction API, with UID precondition.
    Evict {
        /// The pod.
        pod: PodKey,
        /// Its UID.
        uid: Uid,
    },
    /// Launches the instance of a claim.
    Launch(Box<LaunchRequest>),
    /// Terminates an instance.
    Terminate {
        /// Whose instance it is.
        provider: ProviderRef,
        /// The instance.
        provider_id: ProviderId,
        /// The claim it was launched for, which may be gone; empty when the cloud does not remember.
        claim: ClaimName,
    },
    /// Lists the instances of every provider.
    ListInstances,
    /// Lists the pods that are bound to a Node, as the API server has them now. The shell hands each to the index before the
    /// outcome, so that the next snapshot has them whatever the watch shows.
    ListPods(NodeName),
    /// Asks for one instance by its id. Only "there is no such instance" says that it is gone: a list may leave one
    /// out.
    FindInstance {
        /// Whose instance it is.
        provider: ProviderRef,
        /// The instance.
        provider_id: ProviderId,
    },
    /// Resolves a node class.
    Resolve(Box<ResolveRequest>),
    /// Asks the provider whether a claim's instance still fits its class.
    CheckDrift {
        /// The claim.
        claim: Arc<NodeClaim>,
        /// Its class.
        class: NodeClassObject,
    },
    /// Gives the instance of a claim the tags that it lacks now that its node is known.
    TagInstance(Arc<NodeClaim>),
    /// Removes a message from a provider's queue.
    Acknowledge {
        /// Provider name.
        provider: Arc<str>,
        /// Message handle.
        notice: Arc<str>,
    },
    /// Sends an event. The engine makes it from a record; no decider waits for the outcome.
    Event(Event),
}

impl Effect {
    /// Word for logs and metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::CreateClaim(_) => "create_claim",
            Self::Write(_) => "patch",
            Self::Delete { .. } => "delete",
            Self::Evict { .. } => "evict",
            Self::Launch(_) => "launch",
            Self::Terminate { .. } => "terminate",
            Self::ListInstances => "list_instances",
            Self::ListPods(_) => "list_pods",
            Self::FindInstance { .. } => "find_instance",
            Self::Resolve(_) => "resolve",
            Self::CheckDrift { .. } => "check_drift",
            Self::TagInstance(_) => "tag_instance",
            Self::Acknowledge { .. } => "acknowledge",
            Self::Event(_) => "event",
        }
    }

    /// What it is about, for logs.
    #[must_use]
    pub fn target(&self) -> Option<ObjectRef> {
        Some(match self {
            Self::CreateClaim(claim)
            | Self::CheckDrift { claim, .. }
            | Self::TagInstance(claim) => ObjectRef::Claim(claim.name()),
            Self::Launch(request) => ObjectRef::Claim(request.claim.name()),
            Self::Write(write) => write.target.clone(),
            Self::Delete { target, .. } => target.clone(),
            Self::Evict { pod, .. } => ObjectRef::Pod(pod.clone()),
            Self::ListPods(node) => ObjectRef::Node(node.clone()),
            Self::Terminate { claim, .. } => ObjectRef::Claim(claim.clone()),
            Self::Resolve(request) => ObjectRef::NodeClass(request.class.key.clone()),
            Self::Event(event) => event.target.clone(),
            Self::ListInstances | Self::FindInstance { .. } | Self::Acknowledge { .. } => {
                return None;
            }
        })
    }

    /// Deletes a NodeClaim, and no other of the same name.
    #[must_use]
    pub fn delete_claim(claim: &NodeClaim) -> Self {
        Self::Delete {
            target: ObjectRef::Claim(claim.name()),
            uid: claim.uid(),
            grace_seconds: None,
        }
    }

    /// Deletes a Node, and no other of the same name.
    #[must_use]
    pub fn delete_node(node: &k8s::Node) -> Self {
        Self::Delete {
            target: node_ref(node),
            uid: node.metadata.uid.as_deref().map(Uid::from),
            grace_seconds: None,
        }
    }

    /// The lifecycle step that it is; `None` if it does not advance a node's lifecycle.
    #[must_use]
    pub fn lifecycle_step(&self) -> Option<LifecycleStep> {
        match self {
            Self::CreateClaim(_) => Some(LifecycleStep::CreateClaim),
            Self::Launch(_) => Some(LifecycleStep::Launch),
            Self::Terminate { .. } => Some(LifecycleStep::Terminate),
            Self::Evict { .. } => Some(LifecycleStep::Evict),
            Self::Delete { target, .. } => match target {
                ObjectRef::Claim(_) => Some(LifecycleStep::DeleteClaim),
                ObjectRef::Node(_) => Some(LifecycleStep::DeleteNode),
                ObjectRef::Pod(_) => Some(LifecycleStep::DeletePod),
                ObjectRef::Pool(_)
                | ObjectRef::NodeClass(_)
                | ObjectRef::Overlay(_)
                | ObjectRef::Policy(_)
                | ObjectRef::Buffer(_)
                | ObjectRef::Request(_)
                | ObjectRef::Deployment(_) => None,
            },
            Self::Write(write) => write.lifecycle_step(),
            Self::ListInstances
            | Self::ListPods(_)
            | Self::FindInstance { .. }
            | Self::Resolve(_)
            | Self::CheckDrift { .. }
            | Self::TagInstance(_)
            | Self::Acknowledge { .. }
            | Self::Event(_) => None,
        }
    }
}

impl From<ObjectWrite> for Effect {
    fn from(write: ObjectWrite) -> Self {
        Self::Write(write)
    }
}

/// What one provider said when it was asked for its instances.
#[derive(Clone, Debug, Serialize)]
pub struct InstanceListing {
    /// Its name.
    pub provider: Arc<str>,
    /// Node classes whose instances it launches.
    pub serves: ServedNodeClasses,
    /// Labels that only objects of instances in capacity reservations have.
    pub reservation_labels: &'static [&'static str],
    /// All its instances; an error says nothing about any of them, least of all that there are none.
    pub instances: Result<Vec<Instance>, CloudError>,
}

impl<'de> Deserialize<'de> for InstanceListing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Stored {
            provider: Arc<str>,
            serves: ServedNodeClasses,
            reservation_labels: StaticList,
            instances: Result<Vec<Instance>, CloudError>,
        }
        let stored = Stored::deserialize(deserializer)?;
        Ok(Self {
            provider: stored.provider,
            serves: stored.serves,
            reservation_labels: stored.reservation_labels.0,
            instances: stored.instances,
        })
    }
}

/// The instances of the provider that serves a class; `None` when that provider did not answer or is not there.
#[must_use]
pub fn instances_for<'a>(
    listings: &'a [InstanceListing],
    class: &NodeClassKey,
) -> Option<&'a [Instance]> {
    listings
        .iter()
        .filter(|listing| listing.serves.covers(class))
        .find_map(|listing| listing.instances.as_deref().ok())
}

/// What an effect gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum EffectOutput {
    /// Written (created, patched); the new object was handed to the index before this outcome.
    Written,
    /// Deletion was accepted, or there was nothing to delete.
    Deleted,
    /// The eviction was accepted. A pod that was gone, or is another by now, is an error: not found, or a conflict.
    Evicted,
    /// The instance exists.
    Launched(Box<LaunchedInstance>),
    /// How far the termination is.
    Terminated(TerminationStatus),
    /// Instances of every provider, those providers included that could not be asked. Sorted by provider name.
    Instances(Vec<InstanceListing>),
    /// The number of pods that were listed and handed to the index.
    PodsListed(usize),
    /// The instance that was asked for by its id; `None`: there is no such instance (any more).
    Found(Option<Instance>),
    /// What the class stands for.
    Resolved(Arc<ResolvedNodeClass>),
    /// Drift reason, if any.
    Drift(Option<String>),
    /// Annotations by which the claim remembers that its instance has all tags; none while there is nothing to remember.
    Tagged(BTreeMap<String, String>),
    /// The message is gone from the queue.
    Acknowledged,
    /// The event was sent, or dropped by the limiter.
    Sent,
}

/// Why an effect was not done. Transient failures of the API server were already retried by the shell.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
pub enum EffectError {
    /// The object changed in between: decide again on the fresh one.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The object is gone.
    #[error("not found: {0}")]
    NotFound(String),
    /// 429 to an eviction: a disruption budget does not allow it now.
    #[error("blocked by a disruption budget: {0}")]
    Blocked(String),
    /// Several disruption budgets select the pod, which the Eviction API does not support.
    #[error("several disruption budgets select the pod: {0}")]
    MultipleBudgets(String),
    /// The server refused for good: forbidden, invalid, denied by a policy.
    #[error("refused with {code}: {message}")]
    Refused {
        /// HTTP status code.
        code: u16,
        /// What the server said.
        message: String,
    },
    /// A limit would not hold; nothing was sent.
    #[error("limit exceeded: {0}")]
    Limit(String),
    /// Still failing after retries.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The launch gave no instance.
    #[error(transparent)]
    Launch(LaunchError),
    /// A provider call failed.
    #[error(transparent)]
    Cloud(CloudError),
}

impl EffectError {
    /// Word for metrics and records.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Conflict(_) => "conflict",
            Self::NotFound(_) => "not_found",
            Self::Blocked(_) => "blocked",
            Self::MultipleBudgets(_) => "multiple_budgets",
            Self::Refused { .. } => "refused",
            Self::Limit(_) => "limit",
            Self::Unavailable(_) => "unavailable",
            Self::Launch(_) => "launch",
            Self::Cloud(error) => error.label,
        }
    }
}

/// What became of an effect; it is delivered to the decider that asked for it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The effect.
    pub effect: Arc<Effect>,
    /// What became of it.
    pub result: Result<EffectOutput, EffectError>,
}
