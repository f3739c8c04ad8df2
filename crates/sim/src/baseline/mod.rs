//! The baseline policy: provisioning and disruption in Karpenter's way, to compare mortise's way with on the same history.
//!
//! # What is Karpenter's
//! - Pods are provisioned for once kube-scheduler has called them unschedulable, in batches of 1 s of silence and 10 s at most.
//! - New nodes are filled first-fit in the order of decreasing requests, and never repacked.
//! - Every 10 s, one method after the other looks for one command: emptiness, drift, prefixes of the candidates (binary search
//!   for the longest that saves money), single nodes. Commands of emptiness and consolidation wait for 15 s and are validated;
//!   there is no other search meanwhile.
//! - Nothing rests after a move, launches are not paused after failures, and nodes that were launched together expire together.
//!
//! # What is not
//! What both policies share: requirements, topology, prices, budgets and blockers, which agree with recorded answers of Karpenter;
//! termination, registration, garbage collection and interruption, which are mortise's own deciders. Computing takes no virtual
//! time, so Karpenter's time limits of a search are never reached.

mod disruption;
mod new_node_claim;
mod prefix_search;
mod provisioning;

use mortise_engine::decider::Decider;
use mortise_engine::decider_id::DeciderId;
use mortise_planning::context::PlanningContext;
use mortise_planning::disruption::search::FoundCommand;
use mortise_planning::settings::{Settings, default_eviction_cost_ms};
use serde::Serialize;

use disruption::BaselineDisruption;
use provisioning::BaselineProvisioning;

/// Who provisions for pods and disrupts nodes; everything else is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SimulatedPolicy {
    /// mortise, with kube-scheduler calling its extender.
    Mortise,
    /// mortise, where kube-scheduler calls no extender.
    MortiseAlone,
    /// mortise with its extender, where pods have deletion costs.
    MortiseDeletionCosts,
    /// mortise's deciders, with provisioning and disruption in Karpenter's way.
    Karpenter,
}

impl SimulatedPolicy {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Mortise,
        Self::MortiseDeletionCosts,
        Self::MortiseAlone,
        Self::Karpenter,
    ];

    /// Its name, as JSON has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mortise => "mortise",
            Self::MortiseDeletionCosts => "mortise-deletion-costs",
            Self::MortiseAlone => "mortise-alone",
            Self::Karpenter => "karpenter",
        }
    }

    /// Whether kube-scheduler calls mortise's extender.
    #[must_use]
    pub const fn has_extender(self) -> bool {
        matches!(self, Self::Mortise | Self::MortiseDeletionCosts)
    }

    /// The policy's deciders, given mortise's.
    #[must_use]
    pub fn deciders(self, deciders: Vec<Box<dyn Decider>>) -> Vec<Box<dyn Decider>> {
        let replaced = |decider: Box<dyn Decider>| -> Box<dyn Decider> {
            match (self, decider.id()) {
                (Self::Karpenter, DeciderId::Provisioning) => {
                    Box::new(BaselineProvisioning::default())
                }
                (Self::Karpenter, DeciderId::Disruption) => Box::new(BaselineDisruption::default()),
                _ => decider,
            }
        };
        deciders.into_iter().map(replaced).collect()
    }

    /// The settings without what the policy does not have.
    #[must_use]
    pub fn settings(self, settings: Settings) -> Settings {
        match self {
            Self::Mortise | Self::MortiseAlone => settings,
            Self::MortiseDeletionCosts => Settings {
                pod_deletion_costs: true,
                consolidation_eviction_cost_ms: default_eviction_cost_ms(true),
                ..settings
            },
            Self::Karpenter => Settings {
                disruption_cooldown_ms: 0,
                consolidation_eviction_cost_ms: 0,
                expiration_jitter_percent: 0,
                max_unproven_launches: 0,
                learn_boot_taints: false,
                launch_failure_threshold: 0,
                initialization_timeout_ms: 0,
                consolidate_groups: false,
                pod_deletion_costs: false,
                ..settings
            },
        }
    }
}

/// What the two methods of consolidation find, each on its own.
#[derive(Default)]
pub struct BaselineProposals {
    /// Several nodes.
    pub multi: Option<FoundCommand>,
    /// One node.
    pub single: Option<FoundCommand>,
}

/// What consolidation would do now, for comparison with recorded decisions of Karpenter.
#[must_use]
pub fn baseline_proposals(context: PlanningContext<'_>) -> BaselineProposals {
    disruption::proposals(context)
}
