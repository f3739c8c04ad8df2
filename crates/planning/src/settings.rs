//! Settings that deciders read. They are arguments: nothing in the core reads a flag or an environment variable.

use serde::Serialize;

use crate::scheduling::{ReservedCapacityMode, SolveOptions, SpreadDefaults};
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_cloudprovider::RepairPolicy;

/// Every setting a decider may depend on. Durations are in milliseconds, so that tests and simulations can set them finely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// A batch of pending pods ends when none was added for this long (`batch-idle-duration`, 1 s).
    pub batch_idle_ms: i64,
    /// ... and after this long at the latest (`batch-max-duration`, 10 s).
    pub batch_max_ms: i64,
    /// Preferences are honoured until they cannot be (`preference-policy=Respect`).
    pub respect_preferences: bool,
    /// A pool's minValues may be lowered rather than fail (`min-values-policy=BestEffort`).
    pub min_values_best_effort: bool,
    /// Spread constraints of pods that state none (`--scheduler-config`).
    #[serde(skip)]
    pub spread_defaults: SpreadDefaults,
    /// Feature gates of upstream's flag.
    pub gates: FeatureGates,
    /// Conditions of nodes that call for repair, by provider.
    #[serde(skip)]
    pub repair: Vec<RepairPolicies>,
    /// How long a disruption command is held before it is revalidated and carried out (upstream's validation: 15 s).
    pub disruption_validation_delay_ms: i64,
    /// How long new pods are kept off a node before its pods are looked at for the last time.
    pub bind_grace_period_ms: i64,
    /// A drained node is kept this long, so that a pod bound in the last moment is seen (5 s).
    pub min_drain_ms: i64,
    /// A Node that says nothing of `Ready` yet is registered so long after it was seen to join: one that is ready in a moment
    /// is registered and initialized by the same writes (20 s). Kubelets speak of it when they join: this waits for others.
    pub join_grace_ms: i64,
    /// That a claim's launch is held back is written so long after it was: the first machine of a pool may register in a moment
    /// (3 s).
    pub held_grace_ms: i64,
    /// Conditions of a claim that nobody waits for are written so long after they came to be, together with what else comes
    /// (1 s).
    pub condition_grace_ms: i64,
    /// Another reason why a registered node is not initialized yet is written when it has stood so long: while a node comes up,
    /// each reason gives way to the next (10 s).
    pub reason_grace_ms: i64,
    /// That a machine is ending is written so long after the cloud was asked to end it: where it is gone by then, its claim
    /// goes without that write (5 s).
    pub end_grace_ms: i64,
    /// A claim that is not launched is given up after this (5 min).
    pub launch_timeout_ms: i64,
    /// A claim that is not registered is given up after this (15 min).
    pub registration_timeout_ms: i64,
    /// A claim whose node is not initialized so long after it registered is given up; 0 for never, as upstream.
    pub initialization_timeout_ms: i64,
    /// A new claim's `expireAfter` is its pool's less up to so many per cent, each its own; 0 for the pool's itself (10).
    pub expiration_jitter_percent: u32,
    /// While no machine of a template has registered, so many are tried at a time; 0 for any number.
    pub max_unproven_launches: usize,
    /// After so many machines of a pool in a row that did not register, launches are paused; 0 for never.
    pub launch_failure_threshold: u32,
    /// So long at first; doubles with each machine that was tried and did not register, up to 1 h (5 min).
    pub launch_backoff_ms: i64,
    /// A launched machine, and a pod moved by consolidation, rest this long before consolidation touches them again.
    pub disruption_cooldown_ms: i64,
    /// How often claims without machines and machines without claims are looked for (2 min).
    pub garbage_collection_interval_ms: i64,
    /// How often a node class is resolved again although it did not change (5 min).
    pub nodeclass_resync_interval_ms: i64,
    /// Pods that claim devices are left alone (`ignore-dra-requests`).
    pub ignore_devices: bool,
    /// Most instance type names in one claim (600).
    pub max_instance_types: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            batch_idle_ms: 1_000,
            batch_max_ms: 10_000,
            respect_preferences: true,
            min_values_best_effort: false,
            spread_defaults: SpreadDefaults::default(),
            gates: FeatureGates::default(),
            repair: Vec::new(),
            disruption_validation_delay_ms: 15_000,
            bind_grace_period_ms: 2_000,
            min_drain_ms: 5_000,
            join_grace_ms: 20_000,
            held_grace_ms: 3_000,
            condition_grace_ms: 1_000,
            reason_grace_ms: 10_000,
            end_grace_ms: 5_000,
            launch_timeout_ms: 5 * 60_000,
            registration_timeout_ms: 15 * 60_000,
            initialization_timeout_ms: 0,
            expiration_jitter_percent: 10,
            max_unproven_launches: 8,
            launch_failure_threshold: 3,
            launch_backoff_ms: 5 * 60_000,
            disruption_cooldown_ms: 5 * 60_000,
            garbage_collection_interval_ms: 2 * 60_000,
            nodeclass_resync_interval_ms: 5 * 60_000,
            ignore_devices: true,
            max_instance_types: 600,
        }
    }
}

/// What a provider says about sick nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPolicies {
    /// Node classes whose nodes it is about.
    pub serves: ServedNodeClasses,
    /// Bad conditions. May be empty.
    pub policies: Vec<RepairPolicy>,
}

/// Upstream's feature gates with upstream's defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct FeatureGates {
    /// Replace nodes whose conditions are bad.
    pub node_repair: bool,
    /// Use capacity reservations.
    pub reserved_capacity: bool,
    /// Replace a spot node by a cheaper spot node.
    pub spot_to_spot_consolidation: bool,
    /// NodeOverlay objects.
    pub node_overlay: bool,
    /// NodePools with `replicas`.
    pub static_capacity: bool,
    /// CapacityBuffer objects.
    pub capacity_buffer: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            node_repair: false,
            reserved_capacity: true,
            spot_to_spot_consolidation: false,
            node_overlay: false,
            static_capacity: false,
            capacity_buffer: false,
        }
    }
}

impl Settings {
    /// What these settings say about any solve. Nothing is asked for yet, and new nodes are left as they are filled.
    #[must_use]
    pub fn solve_options(&self) -> SolveOptions {
        SolveOptions {
            respect_preferences: self.respect_preferences,
            min_values_best_effort: self.min_values_best_effort,
            max_instance_types: self.max_instance_types,
            reserved: if self.gates.reserved_capacity {
                ReservedCapacityMode::Strict
            } else {
                ReservedCapacityMode::Uncounted
            },
            spread_defaults: self.spread_defaults.clone(),
            ignore_devices: self.ignore_devices,
            ..SolveOptions::default()
        }
    }
}
