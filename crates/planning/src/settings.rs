//! Settings of planners and deciders. They are arguments: no pure crate reads a flag or an environment variable.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize};

use crate::scheduling::{ReservedCapacityMode, SolveOptions, SpreadDefaults};
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::values::StaticList;
use mortise_cloudprovider::{LaunchWindow, RepairPolicy};
use mortise_state::snapshot::GangKind;

/// Every setting a decider may depend on. Durations are in milliseconds, so that tests and simulations can set them finely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Namespace of the service; empty where there is none, as in most tests.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Version of the service; empty where it does not matter, as in most tests. NodePools that name another one were upgraded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// A batch of pending pods ends when none was added for this long (`batch-idle-duration`, 1 s).
    pub batch_idle_ms: i64,
    /// ... and after this long at the latest (`batch-max-duration`, 10 s).
    pub batch_max_ms: i64,
    /// Preferences are respected and relaxed (`preference-policy=Respect`).
    pub respect_preferences: bool,
    /// minValues may be lowered instead of failing (`min-values-policy=BestEffort`).
    pub min_values_best_effort: bool,
    /// Default topology spread constraints (`--scheduler-config`).
    #[serde(skip)]
    pub spread_defaults: SpreadDefaults,
    /// Karpenter's feature gates.
    pub gates: FeatureGates,
    /// Conditions of nodes that require repair, by provider.
    #[serde(skip)]
    pub repair: Vec<RepairPolicies>,
    /// What providers tag after a launch.
    #[serde(skip)]
    pub tagging: Vec<InstanceTagging>,
    /// Providers that make several launches by one call.
    #[serde(skip)]
    pub launch_batching: Vec<LaunchBatching>,
    /// How long a disruption command waits before it is validated and executed (Karpenter's validation: 15 s).
    pub disruption_validation_delay_ms: i64,
    /// How long a node is fenced against new pods before its pods are validated for the last time.
    pub bind_grace_period_ms: i64,
    /// A drained node is kept this long, so that a pod that was bound at the end is observed (5 s).
    pub min_drain_ms: i64,
    /// A Node without a `Ready` condition is registered this long after it joined: a node that becomes ready within this
    /// time is registered and initialized by the same writes (20 s). Kubelets set the condition when they join: this waits
    /// for other implementations.
    pub join_grace_ms: i64,
    /// Delay before a NodeClaim's paused launch is written: the first node of a NodePool may register within this time (3
    /// s).
    pub held_grace_ms: i64,
    /// Delay before conditions that no controller waits for are written, together with later ones (1 s).
    pub condition_grace_ms: i64,
    /// Delay before a changed reason for a missing initialization is written: while a node starts, the reasons follow each
    /// other (10 s).
    pub reason_grace_ms: i64,
    /// Delay before a terminating instance is written to its NodeClaim: an instance that is deleted within this time saves
    /// the write (5 s).
    pub end_grace_ms: i64,
    /// A NodeClaim that is not launched is deleted after this time (5 min).
    pub launch_timeout_ms: i64,
    /// A NodeClaim that is not registered is deleted after this time (15 min).
    pub registration_timeout_ms: i64,
    /// A NodeClaim whose node is not initialized this long after registration is deleted; 0 for never, as in Karpenter.
    pub initialization_timeout_ms: i64,
    /// Random reduction of a new NodeClaim's `expireAfter`, at most this percentage of its NodePool's; 0 for none (10).
    pub expiration_jitter_percent: u32,
    /// NodeClaims that are launched at a time while no node of a template has registered; 0 for any number.
    pub max_unproven_launches: usize,
    /// Consecutive nodes of a NodePool that do not register before launches are paused; 0 for never.
    pub launch_failure_threshold: u32,
    /// Initial pause; doubles with each probe that does not register, up to 1 h (5 min).
    pub launch_backoff_ms: i64,
    /// Taints that young nodes of a NodePool lose are learned (`--learn-boot-taints`, on).
    pub learn_boot_taints: bool,
    /// Annotations of Cluster Autoscaler keep pods and nodes from being disrupted (`--respect-cluster-autoscaler-annotations`, off).
    pub respect_cluster_autoscaler_annotations: bool,
    /// ProvisioningRequests are served (`--provisioning-requests`, off).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub provisioning_requests: bool,
    /// Pods of ReplicaSets get deletion costs, so that workloads that shrink leave the nodes that should go (`--pod-deletion-costs`, off).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pod_deletion_costs: bool,
    /// Pods that ask for it are replaced by a restart of their Deployment instead of an eviction (`--hand-over`, off).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hand_over: bool,
    /// Consolidation may replace groups of nodes by several cheaper ones (`--consolidate-groups`, off).
    pub consolidate_groups: bool,
    /// What evicting a pod of a churning workload costs: the price of an average pod for this long (see
    /// [`default_eviction_cost_ms`]); 0 for nothing, as in Karpenter.
    pub consolidation_eviction_cost_ms: i64,
    /// If more than this percentage of the nodes of a NodePool drift with an upgrade of the service, they wait for a person; 100 for never (20).
    pub upgrade_drift_percent: u32,
    /// Cooldown of launched nodes and of pods relocated by consolidation.
    pub disruption_cooldown_ms: i64,
    /// How often orphaned NodeClaims and instances are collected (2 min).
    pub garbage_collection_interval_ms: i64,
    /// How often an unchanged node class is resolved again (5 min).
    pub nodeclass_resync_interval_ms: i64,
    /// Pods that claim devices are ignored (`ignore-dra-requests`).
    pub ignore_devices: bool,
    /// Kinds of gangs that the API server serves: their pods get all nodes that they need, or none.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub gangs: BTreeSet<GangKind>,
    /// What follows a rebalance recommendation where the NodePool does not say (`rebalance-recommendation`, `ignore`).
    pub rebalance: RebalancePolicy,
    /// Most instance type names in one NodeClaim (600).
    pub max_instance_types: usize,
}

/// Default of `--consolidation-eviction-cost`, in milliseconds. With deletion costs it is longer: who waits for the workload to
/// shrink again gets the node without an eviction.
#[must_use]
pub const fn default_eviction_cost_ms(pod_deletion_costs: bool) -> i64 {
    if pod_deletion_costs {
        390 * 60_000
    } else {
        90 * 60_000
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: String::new(),
            version: String::new(),
            batch_idle_ms: 1_000,
            batch_max_ms: 10_000,
            respect_preferences: true,
            min_values_best_effort: false,
            spread_defaults: SpreadDefaults::default(),
            gates: FeatureGates::default(),
            repair: Vec::new(),
            tagging: Vec::new(),
            launch_batching: Vec::new(),
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
            learn_boot_taints: true,
            respect_cluster_autoscaler_annotations: false,
            provisioning_requests: false,
            pod_deletion_costs: false,
            hand_over: false,
            consolidate_groups: false,
            consolidation_eviction_cost_ms: default_eviction_cost_ms(false),
            upgrade_drift_percent: 20,
            disruption_cooldown_ms: 5 * 60_000,
            garbage_collection_interval_ms: 2 * 60_000,
            nodeclass_resync_interval_ms: 5 * 60_000,
            ignore_devices: true,
            gangs: BTreeSet::new(),
            rebalance: RebalancePolicy::default(),
            max_instance_types: 600,
        }
    }
}

/// What follows when the cloud says that a spot instance is likely to be interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RebalancePolicy {
    /// An event, as in Karpenter.
    #[default]
    Ignore,
    /// The node accepts no further pods.
    Cordon,
    /// The node is replaced; it is drained when its replacement is ready.
    ReplaceFirst,
}

impl RebalancePolicy {
    /// Every word, in flags and annotations.
    pub const WORDS: [&str; 3] = ["ignore", "cordon", "replace-first"];

    /// Parses a word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let policies = [Self::Ignore, Self::Cordon, Self::ReplaceFirst];
        let mut all = Self::WORDS.iter().zip(policies);
        all.find(|(each, _)| **each == word)
            .map(|(_, policy)| policy)
    }
}

/// What a provider tags once the node of an instance is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceTagging {
    /// Node classes whose instances it concerns.
    pub serves: ServedNodeClasses,
    /// Annotations of claims whose instance has all tags. Empty: nothing is tagged.
    pub annotations: &'static [&'static str],
}

impl<'de> Deserialize<'de> for InstanceTagging {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Stored {
            serves: ServedNodeClasses,
            annotations: StaticList,
        }
        let stored = Stored::deserialize(deserializer)?;
        Ok(Self {
            serves: stored.serves,
            annotations: stored.annotations.0,
        })
    }
}

/// How long a provider's launches wait for others of the same call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchBatching {
    /// Node classes whose instances it concerns.
    pub serves: ServedNodeClasses,
    /// How long, and how many.
    pub window: LaunchWindow,
}

/// A provider's repair policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairPolicies {
    /// Node classes whose nodes they concern.
    pub serves: ServedNodeClasses,
    /// Bad conditions. May be empty.
    pub policies: Vec<RepairPolicy>,
}

/// Karpenter's feature gates with Karpenter's defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct FeatureGates {
    /// Replace nodes whose conditions are bad.
    pub node_repair: bool,
    /// Use capacity reservations.
    pub reserved_capacity: bool,
    /// Replace a spot node with a cheaper spot node.
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
    /// The options of a solve with these settings. No pods are selected, and repacking is off.
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
            gangs: self.gangs.clone(),
            buffers: self.gates.capacity_buffer,
            ..SolveOptions::default()
        }
    }
}
