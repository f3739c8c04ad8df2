//! What can happen.

use mortise_apis::names::{PodKey, ProviderId};
use mortise_engine::effect::Outcome;
use mortise_engine::engine::EffectRequest;
use mortise_state::resource_kinds::{ObjectKey, ObjectKind};
use serde_json::Value;

/// What happened to an object, to be shown to watches.
#[derive(Clone, Debug)]
pub(crate) struct StoreEvent {
    pub(crate) key: ObjectKey,
    /// `None` = gone.
    pub(crate) object: Option<Value>,
    /// The version at which this happened.
    pub(crate) version: u64,
}

/// Something that will happen.
pub(crate) enum Action {
    /// A watch shows changes.
    Watch(Vec<StoreEvent>),
    /// An effect of a replica arrives where it is executed.
    Execute(usize, EffectRequest),
    /// The outcome of an effect arrives at the replica that requested it.
    Answer(usize, EffectRequest, Box<Outcome>),
    /// The leader learns that the lease is lost.
    LeaseLost,
    /// A replica gets the lease.
    LeaseWon(usize),
    /// An instance has booted far enough to make its Node.
    NodeAppears(ProviderId),
    /// The kubelet reports ready.
    NodeReady(ProviderId),
    /// An instance is gone.
    InstanceGone(ProviderId),
    /// A pod's containers run.
    PodRuns(PodKey),
    /// A pod has ended by itself.
    PodDone(PodKey),
    /// A pod's containers have stopped.
    PodStopped(PodKey, String),
    /// A watch says up to which version it has shown everything.
    Bookmark(ObjectKind, u64),
    /// Controllers and kubelets look at the cluster.
    Tick,
    /// The scheduler takes the next pod.
    Schedule,
    /// The cloud reclaims an instance.
    Interrupt,
}
