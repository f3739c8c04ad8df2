//! The plan as data. Its JSON is stable: fields are added, and neither renamed nor removed.

use jiff::Timestamp;
use mortise_apis::names::PodKey;
use mortise_apis::values::money::MicroUsd;
use serde::{Serialize, Serializer};

/// What the service would do now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    /// When the cluster was recorded: the plan is for this time.
    pub taken_at: Timestamp,
    /// Nodes, with those that are starting.
    pub nodes: usize,
    /// Pods, without those that have ended.
    pub pods: usize,
    /// Pods that wait for a node and could use a new one.
    pub pending: usize,
    /// NodeClaims to create for pods, or for the size of a static NodePool.
    pub launches: Vec<PlannedLaunch>,
    /// Pods that get a place on a node that is there or starting.
    pub placements: Vec<PlannedMove>,
    /// Disruption commands, in the order of decision.
    pub commands: Vec<PlannedCommand>,
    /// Other objects that would be deleted or evicted, and by which part of the service.
    pub actions: Vec<PlannedAction>,
    /// Pods without a place, by reason.
    pub unplaced: Vec<UnplacedPods>,
    /// Nodes that may not be disrupted.
    pub blocked: Vec<BlockedNode>,
    /// Nodes that may be disrupted, and stay.
    pub kept: Vec<BlockedNode>,
    /// Prices.
    pub totals: PlanTotals,
}

/// A NodeClaim to create.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedLaunch {
    /// Its NodePool.
    pub node_pool: String,
    /// Cheapest instance type; `None` when no price is known.
    pub instance_type: Option<String>,
    /// Zone of its cheapest offering.
    pub zone: Option<String>,
    /// Capacity type of its cheapest offering.
    pub capacity_type: Option<String>,
    /// Price of its cheapest offering an hour.
    pub price_micro_usd: Option<MicroUsd>,
    /// Instance types that the cloud may choose from, the cheapest first.
    pub instance_types: Vec<String>,
    /// Its pods, as `namespace/name`.
    #[serde(serialize_with = "as_texts")]
    pub pods: Vec<PodKey>,
}

/// Where a pod goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedMove {
    /// The pod, as `namespace/name`.
    #[serde(serialize_with = "as_text")]
    pub pod: PodKey,
    /// Its node; of a node that is not there yet, its NodeClaim.
    pub to: String,
}

/// A disruption command.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedCommand {
    /// `Empty`, `Drifted` or `Underutilized`.
    pub reason: &'static str,
    /// Nodes to remove.
    pub nodes: Vec<RemovedNode>,
    /// NodeClaims to create first.
    pub replacements: Vec<PlannedLaunch>,
    /// Pods that go to nodes that are there.
    pub moves: Vec<PlannedMove>,
    /// Price of the nodes an hour; `None` when one is unknown.
    pub before_micro_usd: Option<MicroUsd>,
    /// Price of the replacements an hour; `None` when one is unknown.
    pub after_micro_usd: Option<MicroUsd>,
}

/// A node to remove.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovedNode {
    /// Its name.
    pub name: String,
    /// Its NodePool.
    pub node_pool: String,
    /// Its instance type.
    pub instance_type: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// Its price an hour.
    pub price_micro_usd: Option<MicroUsd>,
    /// Why it is drifted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drifted: Option<String>,
}

/// Another request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedAction {
    /// Which part of the service: `expiration`, `repair`, `termination` and so on.
    pub by: &'static str,
    /// `delete`, `evict`, `launch` or `terminate`.
    pub action: &'static str,
    /// The object.
    pub object: String,
}

/// Pods without a place.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnplacedPods {
    /// The pods, as `namespace/name`.
    #[serde(serialize_with = "as_texts")]
    pub pods: Vec<PodKey>,
    /// Why.
    pub why: String,
}

/// A node that stays, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockedNode {
    /// Its name.
    pub node: String,
    /// Its NodePool.
    pub node_pool: String,
    /// Why it stays.
    pub why: String,
}

/// Prices an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanTotals {
    /// Nodes of NodePools as recorded.
    pub before_micro_usd: MicroUsd,
    /// Nodes that are being deleted, or that the question removes.
    pub removed_micro_usd: MicroUsd,
    /// Launches for pods.
    pub launches_micro_usd: MicroUsd,
    /// Difference that disruption commands make; negative: they save.
    pub commands_micro_usd: MicroUsd,
    /// After all of this.
    pub after_micro_usd: MicroUsd,
    /// Nodes and launches whose price is unknown. They count as zero.
    pub unknown_prices: usize,
}

fn as_text<S: Serializer>(pod: &PodKey, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(pod)
}

fn as_texts<S: Serializer>(pods: &[PodKey], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(pods.iter().map(ToString::to_string))
}
