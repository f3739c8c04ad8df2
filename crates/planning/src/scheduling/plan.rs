//! What a solve answers: where pods go, which claims to make for them, and why some go nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::default_spread::SpreadDefaults;
use crate::reason::{NominationFailure, Reason};
use mortise_apis::labels::WellKnown;
use mortise_apis::names::{NodeClassKey, PodKey, PoolName, Uid};
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_state::ledger::NominationTarget;
use mortise_state::snapshot::{NodeKey, Pod};

/// What is asked of a solve.
#[derive(Clone, Debug)]
pub struct SolveOptions {
    /// Machines that are thought away (disruption candidates); their reschedulable pods are placed elsewhere.
    pub without: BTreeSet<NodeKey>,
    /// Machines that may keep their pods but take no further ones (still inside their rest, fenced).
    pub closed: BTreeSet<NodeKey>,
    /// Also place pods that are pending and pods of machines that are going. A what-if wants this too: their room is not free.
    pub pending: bool,
    /// Pods to place besides those; used by `simulate`.
    pub extra: Vec<Arc<Pod>>,
    /// Preferences may be dropped (always true upstream; `false` = `preference-policy=Ignore` drops them from the start).
    pub respect_preferences: bool,
    /// minValues may be lowered.
    pub min_values_best_effort: bool,
    /// Most instance types per claim.
    pub max_instance_types: usize,
    /// Do not open new claims at all: only ask whether the pods fit on what is there.
    pub existing_only: bool,
    /// Spread constraints of pods that state none.
    pub spread_defaults: SpreadDefaults,
    /// What claims do with reserved capacity.
    pub reserved: ReservedCapacityMode,
    /// How much work goes into making the new machines cheaper, in steps of some nanoseconds for each pod placed on one;
    /// 0 leaves them as they are filled.
    pub repack: u32,
    /// Pods that claim devices are refused, as upstream does unless told otherwise.
    pub ignore_devices: bool,
    /// Machines on which kube-scheduler has refused a pod that was expected there: the pod is expected elsewhere.
    pub refused: BTreeMap<Uid, BTreeSet<NodeKey>>,
    /// Fixes the choice among equals.
    pub seed: u64,
}

/// What claims do with reserved capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReservedCapacityMode {
    /// Reservations are offerings like others, and are not counted.
    #[default]
    Uncounted,
    /// A claim that could use a reservation holds one, or its pod waits for a later pass.
    Strict,
    /// A claim that could use a reservation holds one if any is left; else it does without.
    Fallback,
}

/// [`SolveOptions::repack`] of provisioning: enough for some hundred different sizes of pods, at a third of the time that
/// the pass itself takes.
pub const REPACK: u32 = 2_000;

impl Default for SolveOptions {
    /// Upstream's defaults: preferences are respected, minValues are strict, 600 types. Nothing is asked for yet: set
    /// `pending`, `without` or `extra`.
    fn default() -> Self {
        Self {
            without: BTreeSet::new(),
            closed: BTreeSet::new(),
            pending: false,
            extra: Vec::new(),
            respect_preferences: true,
            min_values_best_effort: false,
            max_instance_types: 600,
            existing_only: false,
            spread_defaults: SpreadDefaults::default(),
            reserved: ReservedCapacityMode::default(),
            repack: 0,
            ignore_devices: true,
            refused: BTreeMap::new(),
            seed: 0,
        }
    }
}

/// A pod that goes to a machine that is there or coming.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The machine.
    pub node: NodeKey,
    /// How the ledger names it.
    pub place: NominationTarget,
    /// The machine is not initialized yet.
    pub uninitialized: bool,
    /// The pod was promised a place on this machine already.
    pub kept: bool,
}

/// One way to buy a planned claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedOffering {
    /// Instance type name.
    pub instance_type: Arc<str>,
    /// Zone.
    pub zone: Arc<str>,
    /// Capacity type label value.
    pub capacity_type: mortise_cloudprovider::CapacityType,
    /// Price, when known.
    pub price: Option<MicroUsd>,
}

/// A claim to make.
#[derive(Clone, Debug)]
pub struct PlannedClaim {
    /// Pool it is made from.
    pub pool: PoolName,
    /// Node class of the pool.
    pub node_class: NodeClassKey,
    /// What its machine must satisfy, without the instance type list.
    pub requirements: Requirements,
    /// Pods' requests plus the smallest DaemonSet overhead.
    pub requests: Resources,
    /// Instance types that satisfy it, cheapest available compatible offering first, at most `max_instance_types`.
    pub instance_types: Vec<Arc<str>>,
    /// Cheapest offering of the first type.
    pub cheapest: Option<PlannedOffering>,
    /// Element-wise maximum of capacity over `instance_types`: what it can cost of a limit.
    pub most: Resources,
    /// Pods it is made for, in the order in which they were placed.
    pub pods: Vec<Arc<Pod>>,
    /// minValues were lowered.
    pub min_values_relaxed: bool,
    /// Capacity types that some compatible available offering of these types has.
    pub capacity_types: Vec<mortise_cloudprovider::CapacityType>,
    /// Drivers whose devices its pods get because the machine brings them. Sorted.
    pub device_drivers: Vec<Arc<str>>,
    /// Label keys that need no definition: they are not copied to the claim's labels.
    pub well_known: Arc<WellKnown>,
}

/// The plan of a solve.
#[derive(Clone, Debug, Default)]
pub struct LaunchPlan {
    /// Pods on machines that are there or coming.
    pub placements: Vec<Placement>,
    /// Claims to make.
    pub claims: Vec<PlannedClaim>,
}

/// Pods of one class that have no place, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unplaced {
    /// The pods.
    pub pods: Vec<(PodKey, Uid)>,
    /// The reasons, one or more per pool.
    pub reasons: Vec<Reason>,
    /// Upstream's error text, for the `FailedScheduling` event.
    pub message: String,
    /// They wait for reserved capacity that others hold in this pass: no event, they are looked at again.
    pub deferred: bool,
}

/// What a solve says besides its plan.
#[must_use]
#[derive(Clone, Debug, Default)]
pub struct SolveReport {
    /// Pods without a place.
    pub unplaced: Vec<Unplaced>,
    /// Pods that are not ours to place (opted out, broken volume claims), with the reason.
    pub ignored: Vec<(PodKey, String)>,
    /// How many pods were looked at.
    pub considered: usize,
    /// Pods whose promise does not hold any more, and why. They are placed anew, or among `unplaced`.
    pub broken: Vec<(Uid, NominationFailure)>,
    /// Pods that stay where they were promised a place, although the types of that machine are not known now.
    pub entrusted: Vec<PodKey>,
    /// Pools whose own requirements leave no instance type, with upstream's words for it. By name.
    pub typeless: Vec<(PoolName, String)>,
    /// The time ran out: what is not in the plan was not tried to the end.
    pub stopped: bool,
}

impl LaunchPlan {
    /// Sum of the cheapest prices of the new claims; `None` when one is not known.
    #[must_use]
    pub fn price(&self) -> Option<MicroUsd> {
        self.claims
            .iter()
            .map(|claim| claim.cheapest.as_ref().and_then(|cheapest| cheapest.price))
            .sum()
    }
}
