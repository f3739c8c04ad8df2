//! Scheduling: places pods on existing nodes and on new NodeClaims.
//!
//! [`solve()`] depends on a snapshot, options and a timestamp alone. Equal inputs give equal plans; the order in which pods
//! were created does not matter. Which nodes a pod may use follows Karpenter and is checked against recorded passes; the choice
//! among allowed nodes is mortise's own.
//!
//! ```text
//! snapshot ─► queue (pods in order) ─► equivalence classes ─► pass ─► plan, report
//!          └► templates (NodePools), existing nodes, topology (counts of other pods) ─┘
//! ```
//!
//! Invariant: every placement satisfies [`fn@fits`], no node gets more pods than its allocatable resources less all nominations
//! admit, and no NodePool exceeds its limits, the number of nodes included.
//!
//! Non-goal: preemption. A pod with a constraint that mortise cannot interpret is reported, and never placed as if it had none.

mod buffer_rooms;
mod can_add;
mod commitments;
mod daemon_set_pods;
mod default_spread;
mod devices;
mod equivalence_class;
mod existing_node;
mod explain;
mod fits;
mod gang_topology;
mod gangs;
mod in_flight_node_claim;
mod instance_type_reasons;
mod launch_plan;
mod messages;
mod narrowed_offerings;
mod narrowed_template;
mod node_claim_object;
mod nominations;
mod on_demand_share;
mod pass;
mod placements;
pub mod plan;
mod pod_queue;
mod pod_requirements;
mod policy_demands;
mod policy_room;
mod pool_template;
mod reasons;
mod relax;
mod repack;
mod request_rooms;
mod reservations;
mod resource_vector;
mod solve;
mod static_claim;
mod template_cache;
mod topology;
mod topology_counts;
mod volumes;
mod zone_balance;

pub use buffer_rooms::buffer_rooms;
pub use commitments::PayingCommitment;
pub(crate) use commitments::payable;
pub use daemon_set_pods::{DaemonSetOverhead, DaemonSetPod, DaemonSetPods};
pub use default_spread::{
    DefaultConstraint, InvalidDefaultConstraint, PodTopologySpread, SchedulerConfig, SpreadDefaults,
};
pub use explain::{PodExplanation, PodSchedulingState, explain};
pub use fits::{FreeCapacity, fits, fits_class};
pub use plan::{
    LaunchPlan, Placement, PlannedClaim, PlannedOffering, REPACK, ReservedCapacityMode,
    SolveOptions, SolveReport, Unplaced,
};
pub use request_rooms::request_rooms;
pub use solve::solve;
pub use static_claim::{StaticClaimPlanner, StaticClaimTemplate};
pub use template_cache::TemplateCache;
pub use volumes::volumes_fit;
