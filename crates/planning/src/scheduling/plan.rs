//! Input and result of a solve: placements, NodeClaims to create, and why pods are unschedulable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::commitments::PayingCommitment;
use super::default_spread::SpreadDefaults;
use super::template_cache::TemplateCache;
use crate::reason::{NominationFailure, Reason};
use mortise_apis::labels::WellKnown;
use mortise_apis::names::{NodeClassKey, PodKey, PoolName, Uid};
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_state::catalog::{Bits, Catalog, PricedOffering};
use mortise_state::ledger::NominationTarget;
use mortise_state::snapshot::{
    CommitmentsLeft, GangKind, NodeCpu, NodeKey, OnDemandUses, Pod, Snapshot,
};

/// Options of a solve.
#[derive(Clone, Debug)]
pub struct SolveOptions {
    /// Nodes to remove (disruption candidates); their reschedulable pods are placed elsewhere.
    pub without: BTreeSet<NodeKey>,
    /// Nodes that keep their pods and accept no further ones (in cooldown, fenced).
    pub closed: BTreeSet<NodeKey>,
    /// Also place pending pods and pods of nodes that are being deleted. Simulations set this too: the capacity for these
    /// pods is not free.
    pub pending: bool,
    /// With `pending`: also place the virtual pods of capacity buffers, after all others.
    pub buffers: bool,
    /// Virtual pods that are not placed: their room stays where it is.
    pub staying: BTreeSet<Uid>,
    /// Further pods to place.
    pub extra: Vec<Arc<Pod>>,
    /// Preferences are respected and relaxed when they cannot be satisfied; `false` (`preference-policy=Ignore`) ignores
    /// them.
    pub respect_preferences: bool,
    /// minValues may be lowered.
    pub min_values_best_effort: bool,
    /// Most instance types per NodeClaim.
    pub max_instance_types: usize,
    /// Each pod gets the node that has most free, as kube-scheduler places pods that it asks no extender about.
    pub scattered: bool,
    /// Create no NodeClaims: only check whether the pods fit on existing nodes.
    pub existing_only: bool,
    /// Default topology spread constraints.
    pub spread_defaults: SpreadDefaults,
    /// How NodeClaims use reserved capacity.
    pub reserved: ReservedCapacityMode,
    /// Work of repacking, in steps of some nanoseconds for each pod on a new NodeClaim; 0 disables it.
    pub repack: u32,
    /// Repacking may also replace a single NodeClaim by several.
    pub split: bool,
    /// Pods that claim devices are rejected, as in Karpenter by default.
    pub ignore_devices: bool,
    /// Kinds of gangs that hold: their pods get all places that they need, or none.
    pub gangs: BTreeSet<GangKind>,
    /// Nodes on which kube-scheduler rejected a pod: it is placed elsewhere.
    pub refused: BTreeMap<Uid, BTreeSet<NodeKey>>,
    /// What policies have on-demand without the nodes that the pass removes; `None`: what the snapshot has.
    pub on_demand: Option<Arc<OnDemandUses>>,
    /// What is left of commitments without the nodes that the pass removes; `None`: what the snapshot has.
    pub commitments: Option<CommitmentsLeft>,
    /// Templates of NodePools that passes over this snapshot share; `None`: the pass makes its own.
    pub templates: Option<Arc<TemplateCache>>,
    /// Seed of random choices.
    pub seed: u64,
}

/// How NodeClaims use reserved capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReservedCapacityMode {
    /// Reservations are offerings like others, and are not counted.
    #[default]
    Uncounted,
    /// A NodeClaim that could use a reservation holds one, or its pod waits for a later pass.
    Strict,
    /// A NodeClaim that could use a reservation holds one if any is left, and is launched without one otherwise.
    Fallback,
}

/// [`SolveOptions::repack`] of provisioning: enough for some hundred different sizes of pods, at a third of the time of
/// the pass itself.
pub const REPACK: u32 = 2_000;

impl Default for SolveOptions {
    /// Karpenter's defaults: preferences are respected, minValues are strict, 600 types. No pods are selected: set
    /// `pending`, `without` or `extra`.
    fn default() -> Self {
        Self {
            without: BTreeSet::new(),
            closed: BTreeSet::new(),
            pending: false,
            buffers: true,
            staying: BTreeSet::new(),
            extra: Vec::new(),
            respect_preferences: true,
            min_values_best_effort: false,
            max_instance_types: 600,
            scattered: false,
            existing_only: false,
            spread_defaults: SpreadDefaults::default(),
            reserved: ReservedCapacityMode::default(),
            repack: 0,
            split: false,
            ignore_devices: true,
            gangs: BTreeSet::new(),
            refused: BTreeMap::new(),
            on_demand: None,
            commitments: None,
            templates: None,
            seed: 0,
        }
    }
}

/// A pod placed on an existing node.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The node.
    pub node: NodeKey,
    /// Its name in the ledger.
    pub place: NominationTarget,
    /// Whether the node is not initialized yet.
    pub uninitialized: bool,
    /// Whether the pod was nominated to this node already.
    pub kept: bool,
}

impl SolveOptions {
    /// The first of these offers for these types, as many as a NodeClaim may have.
    pub(super) fn cheapest(
        &self,
        by_price: &[(usize, PricedOffering)],
        types: &Bits,
    ) -> Vec<(usize, PricedOffering)> {
        let offers = by_price.iter().filter(|(at, _)| types.has(*at));
        offers.take(self.most_types()).copied().collect()
    }

    /// Most instance types of a NodeClaim.
    pub(super) const fn most_types(&self) -> usize {
        match self.max_instance_types {
            0 => usize::MAX,
            most => most,
        }
    }

    /// Whether these types, and one value of this key, are enough for the minValues of a NodeClaim.
    pub(super) fn is_enough(
        &self,
        catalog: &Catalog,
        types: &Bits,
        (requirements, pinned): (&Requirements, &str),
    ) -> bool {
        // An API server refuses fewer values than minValues, also where too few types are tolerated.
        let least = requirements.get(pinned).and_then(Requirement::min_values);
        least.is_none_or(|least| least <= 1)
            && (self.min_values_best_effort
                || catalog.check_min_values_of(types, requirements).is_ok())
    }
}

/// One offering for a planned NodeClaim.
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

impl PlannedOffering {
    /// An offer of a catalog, by the position of its instance type there.
    pub(super) fn new(catalog: &Catalog, (at, offer): &(usize, PricedOffering)) -> Option<Self> {
        let kind = catalog.table().kinds().get(offer.kind)?;
        Some(Self {
            instance_type: Arc::clone(&catalog.types().get(*at)?.name),
            zone: Arc::clone(&kind.zone),
            capacity_type: kind.capacity_type,
            price: offer.price,
        })
    }
}

/// A NodeClaim to create.
#[derive(Clone, Debug)]
pub struct PlannedClaim {
    /// Its NodePool.
    pub pool: PoolName,
    /// Node class of the NodePool.
    pub node_class: NodeClassKey,
    /// Its requirements, without the instance type list.
    pub requirements: Requirements,
    /// Pods' requests plus the smallest DaemonSet overhead.
    pub requests: Resources,
    /// Instance types that satisfy it, cheapest available compatible offering first, at most `max_instance_types`.
    pub instance_types: Vec<Arc<str>>,
    /// Cheapest offering of the first type.
    pub cheapest: Option<PlannedOffering>,
    /// The commitment that pays for it, whichever of its instance types is launched.
    pub paid_by: Option<PayingCommitment>,
    /// Element-wise maximum of capacity over `instance_types`: the most that it can count against a limit.
    pub most: Resources,
    /// Its pods, in the order in which they were placed.
    pub pods: Vec<Arc<Pod>>,
    /// minValues were lowered.
    pub min_values_relaxed: bool,
    /// Capacity types that some compatible available offering of these types has.
    pub capacity_types: Vec<mortise_cloudprovider::CapacityType>,
    /// Drivers whose devices its pods get because the node comes with them. Sorted.
    pub device_drivers: Vec<Arc<str>>,
    /// Well-known label keys: they are not copied to the NodeClaim's labels.
    pub well_known: Arc<WellKnown>,
}

impl PlannedClaim {
    /// Its pods without the virtual ones of capacity buffers.
    pub fn real_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().filter(|pod| !pod.is_virtual())
    }

    /// What it costs at its cheapest: nothing if a commitment pays for it. `None` if the price is unknown.
    #[must_use]
    pub fn cost(&self) -> Option<MicroUsd> {
        let price = self.cheapest.as_ref()?.price?;
        Some(if self.paid_by.is_some() {
            MicroUsd(0)
        } else {
            price
        })
    }

    /// CPUs of its cheapest instance type, as spot if it may be spot; `None` without instance types.
    #[must_use]
    pub fn cpu(&self, snapshot: &Snapshot) -> Option<NodeCpu> {
        let pool = snapshot.pools.get(&self.pool)?;
        let types = snapshot.catalog_of(pool)?;
        let cheapest = types.get(self.instance_types.first()?)?;
        Some(NodeCpu::planned(cheapest.capacity.cpu, &self.requirements))
    }
}

/// The plan of a solve.
#[derive(Clone, Debug, Default)]
pub struct LaunchPlan {
    /// Pods placed on existing nodes.
    pub placements: Vec<Placement>,
    /// NodeClaims to create.
    pub claims: Vec<PlannedClaim>,
}

/// Unschedulable pods of one class, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unplaced {
    /// The pods.
    pub pods: Vec<(PodKey, Uid)>,
    /// The reasons, one or more per NodePool.
    pub reasons: Vec<Reason>,
    /// Karpenter's error text, for the `FailedScheduling` event.
    pub message: String,
    /// They wait for reserved capacity that other NodeClaims of this pass hold: they are retried without an event.
    pub deferred: bool,
}

/// The report of a solve, next to its plan.
#[must_use]
#[derive(Clone, Debug, Default)]
pub struct SolveReport {
    /// Unschedulable pods.
    pub unplaced: Vec<Unplaced>,
    /// Pods that mortise does not place (opted out, broken volume claims), with the reason.
    pub ignored: Vec<(PodKey, Reason)>,
    /// Number of pods considered.
    pub considered: usize,
    /// Pods whose nomination is no longer valid, and why. They are placed again, or among `unplaced`.
    pub broken: Vec<(Uid, NominationFailure)>,
    /// Pods that keep their nomination although the instance types of that node are unknown now.
    pub entrusted: Vec<PodKey>,
    /// NodePools whose own requirements leave no instance type. By name.
    pub typeless: Vec<(PoolName, Reason)>,
    /// Time ran out: the plan is incomplete.
    pub stopped: bool,
}

impl LaunchPlan {
    /// Sum of the cheapest prices of the new NodeClaims, whoever pays for them; `None` when one is unknown.
    #[must_use]
    pub fn price(&self) -> Option<MicroUsd> {
        self.claims
            .iter()
            .map(|claim| claim.cheapest.as_ref().and_then(|cheapest| cheapest.price))
            .sum()
    }

    /// How many pods have a place.
    #[must_use]
    pub fn placed(&self) -> usize {
        let launched = self.claims.iter().map(|claim| claim.pods.len());
        launched.sum::<usize>() + self.placements.len()
    }
}
