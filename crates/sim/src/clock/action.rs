//! Planned events of the simulation.

use mortise_apis::names::{NodeName, PodKey, ProviderId};
use mortise_engine::effect::Outcome;
use mortise_engine::engine::EffectRequest;
use mortise_state::resource_kinds::{ObjectKey, ObjectKind};
use serde_json::Value;

/// A change of an object, for the watches.
#[derive(Clone, Debug)]
pub(crate) struct StoreEvent {
    pub(crate) key: ObjectKey,
    /// `None` = deleted.
    pub(crate) object: Option<Value>,
    /// Resource version of the change.
    pub(crate) version: u64,
}

/// A planned event.
pub(crate) enum Action {
    /// A watch delivers changes.
    Watch(Vec<StoreEvent>),
    /// An effect of a replica is executed.
    Execute(usize, EffectRequest),
    /// The outcome of an effect arrives at the replica that requested it.
    Outcome(usize, EffectRequest, Box<Outcome>),
    /// The leader notices that the lease is lost.
    LeaseLost,
    /// A replica acquires the lease.
    LeaseWon(usize),
    /// The kubelet of a booting instance creates its Node.
    CreateNode(ProviderId),
    /// The kubelet reports the node as ready.
    MarkNodeReady(ProviderId),
    /// A component of a node is ready and removes its taint, which has this key.
    RemoveTaint(NodeName, String),
    /// The cloud removes an instance.
    RemoveInstance(ProviderId),
    /// A controller creates a pod.
    CreatePod(PodKey, Box<Value>),
    /// The containers of a pod start.
    RunPod(PodKey),
    /// A pod completes.
    CompletePod(PodKey),
    /// The containers of a deleted pod have stopped.
    RemoveStoppedPod(PodKey, String),
    /// A watch sends a bookmark.
    Bookmark(ObjectKind, u64),
    /// Controllers and kubelets reconcile.
    Tick,
    /// The scheduler runs a scheduling cycle.
    Schedule,
    /// The cloud interrupts a spot instance, or recommends to leave one that it will interrupt.
    Interrupt,
    /// The cloud interrupts this instance.
    InterruptInstance(ProviderId),
}
