//! Reasons of decisions, with the facts.

mod balanced_score;
mod disruption_blocker;
mod fit_error;
mod gang_blocker;
mod karpenter_text;
mod launch_timeout;
mod pool_blocker;
mod scheduling_failure;
mod text;
mod unproven_node;
mod unschedulable_pod;

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

pub use balanced_score::BalancedScore;
pub use disruption_blocker::{DisruptionBlocker, MoveBudgetSource};
pub use fit_error::{FitError, NominationFailure, UnschedulableNode};
pub use gang_blocker::{GangBlocker, GangDomain, GangShortage};
pub use launch_timeout::LaunchTimeout;
pub use pool_blocker::PoolBlocker;
pub use scheduling_failure::SchedulingFailure;
pub use unproven_node::{UnprovenCause, UnprovenNode};
pub use unschedulable_pod::{UnschedulableCause, UnschedulablePod};

use crate::drain_blocker::DrainBlocker;
use crate::pause::Pause;
use mortise_apis::names::{
    ClaimName, NamespacedName, NodeName, ObjectRef, PodKey, PoolName, ProviderId,
};
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{InterruptionKind, Prerequisite};
use mortise_state::snapshot::ProtectingAnnotation;
use mortise_state::watch_age::OldWatch;

/// Whether it is the annotation that Karpenter reads.
fn is_usual(annotation: &ProtectingAnnotation) -> bool {
    *annotation == ProtectingAnnotation::default()
}

/// The reason of a decision. Closed: a new reason does not compile until it has a label and a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
#[allow(
    missing_docs,
    reason = "the variant's sentence says what its fields are"
)]
pub enum Reason {
    /// Placed on this node.
    OnNode {
        node: NodeName,
        /// Its NodeClaim, if it has one.
        #[serde(skip_serializing_if = "Option::is_none")]
        claim: Option<ClaimName>,
    },
    /// Placed on the node of this NodeClaim.
    OnClaim {
        claim: ClaimName,
        /// Its node, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        node: Option<NodeName>,
    },
    /// The nomination to this node is no longer valid.
    NominationInvalid {
        node: String,
        why: NominationFailure,
    },
    /// The pod is nominated to this ready node, and kube-scheduler has not bound it there; kube-scheduler's message.
    NotTakenOn { node: String, message: String },
    /// kube-scheduler rejected the pod on these ready nodes that it was nominated to; the newest message.
    RejectedOn { nodes: Vec<String>, message: String },
    /// Nominations to these unused nodes failed; the last failure, and when the next node may be launched.
    LaunchBackoff {
        nodes: Vec<String>,
        why: NominationFailure,
        until: Timestamp,
    },
    /// For these pods.
    ForPods { pods: Vec<PodKey>, more: usize },
    /// Launched by this NodePool.
    FromPool { pool: PoolName },
    /// As this offering, at this price.
    Offering {
        instance_type: String,
        zone: String,
        capacity_type: String,
        price: Option<MicroUsd>,
    },
    /// A commitment pays for it.
    PaidInAdvance {
        policy: Arc<str>,
        commitment: Arc<str>,
    },
    /// Cheapest price of a plan.
    Price {
        old: Option<MicroUsd>,
        new: Option<MicroUsd>,
    },
    /// A NodePool cannot run the pod: the constraint, with Karpenter's text, and the decisive fact (may be empty).
    PoolRefused {
        pool: PoolName,
        blocker: PoolBlocker,
        constraint: String,
        detail: String,
        /// The scheduler tried it; otherwise it could launch no node at all.
        is_tried: bool,
    },
    /// No usable NodePool.
    NoPools,
    /// The own requirements of the NodePool leave no instance type; whether because of minValues.
    NoInstanceTypes { min_values: bool },
    /// The pod cannot be placed by mortise: its own specification, or objects that it refers to.
    PodIgnored { why: String },
    /// kube-scheduler has a node for the pod: it called the extender.
    SchedulerHasNode,
    /// Creating NodeClaims of the NodePool failed a moment ago.
    PoolCannotLaunch { pool: PoolName },
    /// The nearest instance type lacks this much, in the units of [`mortise_apis::resources::Resources`].
    NearestTypeShortfall {
        instance_type: String,
        resource: String,
        by: i64,
    },
    /// No pod would have to be relocated.
    Empty,
    /// It costs more than its pods need.
    Underutilized,
    /// It differs from its NodePool or node class.
    Drifted { why: String },
    /// It is too old.
    Expired,
    /// The cloud interrupts the instance.
    Interrupted { kind: InterruptionKind },
    /// A condition of the node has been bad for too long.
    Unhealthy {
        condition: String,
        status: String,
        since: Timestamp,
    },
    /// It is not needed, or its deletion was requested.
    Deleted,
    /// Forcefully deleted: by which decider, and why.
    ClaimDeleted { by: String },
    /// The cloud has no such instance.
    InstanceGone { instance: ProviderId },
    /// The instance has no NodeClaim.
    NoClaim { instance: ProviderId },
    /// Irreversible actions are suspended while a watch is outdated.
    Outdated(OldWatch),
    /// Its node exists and is ready.
    NodeIsReady,
    /// An object that matters cannot be read.
    Unreadable { object: ObjectRef },
    /// A PodDisruptionBudget allows no eviction now.
    Pdb { pdb: NamespacedName },
    /// Several PodDisruptionBudgets select one pod.
    MultiplePdbs {
        pod: PodKey,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pdbs: Vec<NamespacedName>,
    },
    /// A pod may not be disrupted.
    DoNotDisruptPod {
        pod: PodKey,
        #[serde(skip_serializing_if = "is_usual")]
        by: ProtectingAnnotation,
    },
    /// The node may not be disrupted.
    DoNotDisruptNode {
        #[serde(skip_serializing_if = "is_usual")]
        by: ProtectingAnnotation,
    },
    /// Voluntary disruption is paused.
    Paused(Pause),
    /// The pool's budget allows no more.
    Budget { pool: PoolName, allowed: i64 },
    /// The node is nominated to a pod.
    PodNominated { pod: PodKey },
    /// It changed (or its pods changed) too recently.
    CooldownActive { until: Timestamp },
    /// It would be replaced, and waits for nodes that become consolidatable soon.
    OthersConsolidatableSoon { until: Timestamp },
    /// Its pods have room only where they are planned, and kube-scheduler, which asks no extender, may place them otherwise.
    NeedsPlannedPlacement,
    /// Its price is not known.
    UnknownPrice,
    /// The price of the replacement is not known.
    #[serde(rename = "unknown_price")]
    UnknownReplacementPrice,
    /// No cheaper way was found.
    NotCheaper { old: MicroUsd, new: MicroUsd },
    /// More than one new node would be needed.
    NeedsMoreNodes { count: usize },
    /// These pods would be unschedulable.
    PodsUnschedulable {
        pods: Vec<PodKey>,
        /// Why, of the first of them.
        why: Vec<UnschedulablePod>,
    },
    /// A limit of the NodePool would be exceeded.
    Limit { pool: PoolName, message: String },
    /// Required and existing nodes of a static NodePool.
    Replicas {
        pool: PoolName,
        wanted: i64,
        there: i64,
    },
    /// Consecutive nodes of the NodePool that did not register: launches are paused until this time.
    LaunchesPaused {
        pool: PoolName,
        failures: u32,
        until: Timestamp,
    },
    /// A drain blocker: kind, object, owner, start, facts, and what would clear it.
    DrainBlocked(DrainBlocker),
    /// A premise of the command no longer holds.
    PremiseChanged { what: String },
    /// The cloud or the API server failed.
    Failed { error: String },
    /// A condition has this value for this reason.
    ConditionIs {
        condition: String,
        status: String,
        why: String,
    },
    /// The pods of its gang run together or not at all.
    GangWaits(Box<GangBlocker>),
    /// Pods with device claims are not scheduled, because device claims are ignored.
    DeviceClaimsIgnored,
    /// The instance types of a planned NodeClaim do not satisfy minValues of these labels.
    MinValuesNotMet { labels: Vec<String> },
    /// The NodeClaim is deleted, because its condition did not become true.
    #[serde(rename = "condition_is")]
    LaunchTimedOut {
        condition: &'static str,
        status: &'static str,
        why: LaunchTimeout,
    },
    /// A condition changed its status.
    Transition {
        condition: String,
        from: String,
        to: String,
        why: String,
    },
    /// The object was deleted and is gone.
    Finalized,
    /// For this disruption reason, as budgets spell it.
    ForDisruption { disruption: &'static str },
    /// A disruption command: some of its nodes, how many more there are, and how many nodes replace them.
    Command {
        nodes: Vec<NodeName>,
        more: usize,
        replacements: usize,
        decided: Timestamp,
    },
    /// The part of one node in a disruption command.
    CommandOfNode {
        node: NodeName,
        /// Nodes of the command.
        nodes: usize,
        replacements: usize,
        savings: Option<MicroUsd>,
    },
    /// Karpenter's word for why a command was abandoned.
    RejectedFor { word: &'static str },
    /// The policy `Balanced` approved the command of a NodePool.
    Approved { score: BalancedScore },
    /// The replacement is launched and not initialized.
    ReplacementNotReady,
    /// The cloud announced this.
    Notice { kind: InterruptionKind },
    /// The instance was launched for a NodeClaim that was deleted meanwhile.
    InstanceOfDeletedClaim { instance: ProviderId },
    /// Consecutive nodes did not register; when the next probe is launched.
    NodesNotRegistering { failures: u32, probe: Timestamp },
    /// Launches of the NodePool are allowed again.
    LaunchesResumed,
    /// The node registered without the taint that keeps pods off until then.
    UnregisteredTaintMissing { node: NodeName },
    /// The node has less capacity than its NodeClaim states.
    Inconsistent { problem: String },
    /// More nodes are unhealthy than repair accepts: of a NodePool, or of the cluster.
    TooManyUnhealthy {
        unhealthy: i64,
        nodes: i64,
        limit: String,
        in_pool: bool,
    },
    /// An annotation has a value that is ignored.
    InvalidAnnotation {
        annotation: &'static str,
        value: String,
        must_be: &'static str,
        did_you_mean: Option<String>,
    },
    /// `spec.replicas` has no effect, because static capacity is switched off.
    StaticCapacityOff,
    /// No NodeClaim can be planned for a static NodePool.
    NoStaticPlan { why: String },
    /// The zone is shifted away, so no node of the NodePool is launched into it.
    ZoneShifted {
        zone: String,
        id: String,
        until: Timestamp,
    },
    /// The shift of the zone is over.
    ZoneShiftEnded { zone: String, id: String },
    /// The account lacks what the cloud needs before it launches what the NodeClaim asks for.
    PrerequisiteMissing { what: Prerequisite },
    /// Nodes join with this taint, which the NodePool does not declare and which was removed within this number of seconds.
    BootTaint { taint: String, seconds: i64 },
    /// The instance was given its tags.
    InstanceTagged,
    /// NodeClaims use the node class; some of them.
    UsedBy { claims: Vec<ClaimName> },
    /// The value of `karpenter.sh/do-not-disrupt` has no effect.
    InvalidProtection { value: String },
    /// The pod is protected until then.
    ProtectedUntil { until: Timestamp },
    /// The protection of the pod, a duration, is over.
    ProtectionElapsed { duration: String },
    /// All pods of the node are deleted at this time.
    TerminationDeadline { deadline: Timestamp },
    /// The Deployment of the pod was restarted instead of evicting the pod, which is evicted at this time if it is still there.
    HandedOver {
        deployment: NamespacedName,
        until: Timestamp,
    },
    /// Pods wait for their eviction.
    PodsWaiting { count: usize },
    /// These volumes are still attached; some of them.
    VolumesAttached { volumes: Vec<String> },
    /// The pod was deleted instead of evicted, because the termination grace period of its node ended.
    GracePeriodEnded,
    /// The pod that should be evicted.
    Eviction { pod: PodKey },
    /// A PodDisruptionBudget rejects the eviction; which one is not known.
    EvictionRejected { pod: PodKey, error: String },
    /// The node is not disrupted.
    #[serde(untagged)]
    NotDisrupted(DisruptionBlocker),
}

impl From<DisruptionBlocker> for Reason {
    fn from(blocker: DisruptionBlocker) -> Self {
        Self::NotDisrupted(blocker)
    }
}
