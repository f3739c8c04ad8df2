//! Keys of labels, annotations, taints and finalizers, and tables of label keys with a special meaning.
//!
//! The constants are a contract: users' manifests, dashboards and Karpenter share them. The tables are values ([`WellKnown`]),
//! never globals: a provider adds its own keys and domains and passes the result on.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Label on claims and nodes: name of the NodePool they belong to.
pub const NODEPOOL: &str = "karpenter.sh/nodepool";
/// Label on NodeClaims and nodes: capacity type; see the `CAPACITY_TYPE_*` values.
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// Value of [`CAPACITY_TYPE`]: interruptible capacity at a market price.
pub const CAPACITY_TYPE_SPOT: &str = "spot";
/// Value of [`CAPACITY_TYPE`]: capacity at list price.
pub const CAPACITY_TYPE_ON_DEMAND: &str = "on-demand";
/// Value of [`CAPACITY_TYPE`]: capacity that was paid for ahead.
pub const CAPACITY_TYPE_RESERVED: &str = "reserved";
/// Label on nodes, value `true`: the node has been matched with its claim.
pub const REGISTERED: &str = "karpenter.sh/registered";
/// Label on nodes, value `true`: the node is ready and has all resources of its type.
pub const INITIALIZED: &str = "karpenter.sh/initialized";
/// Label on nodes, value `true`: the claim's taints are not copied to the node at registration.
pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";
/// Label on a node that is being deleted, so that load balancers stop sending traffic; value [`EXCLUDE_LB_VALUE`].
pub const EXCLUDE_LB: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Value of [`EXCLUDE_LB`] that distinguishes mortise's label from a user's.
pub const EXCLUDE_LB_VALUE: &str = "karpenter";

/// Standard label: availability zone.
pub const TOPOLOGY_ZONE: &str = "topology.kubernetes.io/zone";
/// Standard label: region.
pub const TOPOLOGY_REGION: &str = "topology.kubernetes.io/region";
/// Standard label: the node's host name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Standard label: name of the instance type.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// Standard label: processor architecture, `amd64` or `arm64`.
pub const ARCH: &str = "kubernetes.io/arch";
/// Standard label: operating system, `linux` or `windows`.
pub const OS: &str = "kubernetes.io/os";
/// Standard label: build number of Windows nodes.
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
/// Value of [`ARCH`] for 64-bit x86.
pub const ARCH_AMD64: &str = "amd64";
/// Value of [`ARCH`] for 64-bit ARM.
pub const ARCH_ARM64: &str = "arm64";
/// Value of [`OS`] for Linux.
pub const OS_LINUX: &str = "linux";
/// Value of [`OS`] for Windows.
pub const OS_WINDOWS: &str = "windows";

/// Annotation on pods (`true` or a duration), nodes and claims (`true`): no voluntary disruption.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// Annotation of Cluster Autoscaler on pods: with `false` it does not remove their node.
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// Annotation of Cluster Autoscaler on nodes: with `true` it does not remove them.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// Annotation of Cluster Autoscaler on pods: it launches nothing for them until they are that old.
pub const POD_SCALE_UP_DELAY: &str = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay";
/// Annotations on pods of a ProvisioningRequest: its name. The second one is of earlier versions.
pub const CONSUME_PROVISIONING_REQUEST: [&str; 2] = [
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
];
/// Taints of Cluster Autoscaler on nodes that it removes, and on those that it is about to remove.
pub const CLUSTER_AUTOSCALER_REMOVES: [&str; 2] = [
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
];
/// Annotation on pools and claims: hash of the pool's template, decimal text.
pub const NODEPOOL_HASH: &str = "karpenter.sh/nodepool-hash";
/// Annotation on pools and claims: version of the algorithm behind [`NODEPOOL_HASH`].
pub const NODEPOOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
/// The value of [`NODEPOOL_HASH_VERSION`] whose algorithm is computed bit for bit.
pub const NODEPOOL_HASH_VERSION_VALUE: &str = "v3";
/// Annotation on claims: RFC 3339 time after which pods are deleted without asking.
pub const TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
/// Annotation on claims, `true` or `false`: whether minValues were relaxed to launch it.
pub const MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
/// Annotation on claims: comma list of DRA drivers that must be up before the node counts as initialized.
pub const REQUESTED_DRA_DRIVERS: &str = "karpenter.sh/requested-dra-drivers";
/// Annotation on claims: the price overlay that applied.
pub const PRICE_OVERLAY_APPLIED: &str = "karpenter.sh/price-overlay-applied";
/// Annotation on claims: the capacity overlay that applied.
pub const CAPACITY_OVERLAY_APPLIED: &str = "karpenter.sh/capacity-overlay-applied";
/// Annotation with a provider's compatibility data.
pub const PROVIDER_COMPATIBILITY: &str = "compatibility.karpenter.sh/provider";
/// Annotation on pods of a ReplicaSet: cost of deleting them, an integer; read for the eviction cost.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Annotation on pods: the [`POD_DELETION_COST`] that this service wrote. One that differs from it is the user's.
pub const OWN_DELETION_COST: &str = "mortise.sh/pod-deletion-cost";
/// Annotation on pods of a workload: consolidation moves at most this number of them in a day.
pub const MAX_MOVES_PER_DAY: &str = "mortise.sh/max-moves-per-day";
/// Annotation on pods of a Deployment: a drain restarts the Deployment instead of evicting the pod, and waits so long for it. A duration, or
/// `true`.
pub const HAND_OVER: &str = "mortise.sh/hand-over";
/// Annotation on the pod template of a Deployment: the UID of the pod for which it was last restarted.
pub const HANDED_OVER: &str = "mortise.sh/handed-over";

/// Label of a pod with the name of its coscheduling PodGroup.
pub const COSCHEDULING_GROUP: &str = "scheduling.x-k8s.io/pod-group";
/// Annotations of a pod with the name of its Volcano PodGroup.
pub const VOLCANO_GROUPS: [&str; 2] = [
    "scheduling.volcano.sh/group-name",
    "scheduling.k8s.io/group-name",
];

/// Key of the taint on a node that was chosen for disruption or is terminating (effect NoSchedule).
pub const DISRUPTED_TAINT: &str = "karpenter.sh/disrupted";
/// Key of the taint that a node is born with and loses at registration (effect NoExecute).
pub const UNREGISTERED_TAINT: &str = "karpenter.sh/unregistered";
/// Key of the taint that the node controller sets on nodes that are not ready.
pub const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// Key of the taint that the node controller sets on nodes that it cannot reach.
pub const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";
/// Key of the taint on cordoned nodes.
pub const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";
/// Key of the taint that a cloud controller manager removes when it has seen the node.
pub const CLOUD_UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Prefix of taint keys that a readiness gate removes by itself.
pub const READINESS_TAINT_PREFIX: &str = "readiness.k8s.io/";
/// Finalizer on claims and nodes.
pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";

/// Group of the core kinds, and the restricted label domain.
pub const GROUP: &str = "karpenter.sh";

/// Keys that a pod may require although no template defines them.
const CORE_WELL_KNOWN: [&str; 8] = [
    CAPACITY_TYPE,
    NODEPOOL,
    ARCH,
    OS,
    INSTANCE_TYPE,
    WINDOWS_BUILD,
    TOPOLOGY_REGION,
    TOPOLOGY_ZONE,
];

/// Old spellings of standard keys; a requirement on one counts as a requirement on the other.
const ALIASES: [(&str, &str); 5] = [
    ("beta.kubernetes.io/arch", ARCH),
    ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
    ("beta.kubernetes.io/os", OS),
    ("failure-domain.beta.kubernetes.io/region", TOPOLOGY_REGION),
    ("failure-domain.beta.kubernetes.io/zone", TOPOLOGY_ZONE),
];

/// The current name of a label key: aliases of earlier Kubernetes versions are replaced, other keys are returned unchanged.
#[must_use]
pub fn normalize(key: &str) -> &str {
    if !key.contains("beta.kubernetes.io/") {
        return key; // almost every key: one search instead of five comparisons
    }
    ALIASES
        .iter()
        .find(|(alias, _)| *alias == key)
        .map_or(key, |(_, canonical)| canonical)
}

/// The older spellings of a label key; none for almost every key.
pub fn aliases_of(key: &str) -> impl Iterator<Item = &'static str> {
    ALIASES
        .iter()
        .filter(move |(_, canonical)| *canonical == key)
        .map(|(alias, _)| *alias)
}

/// The part of a label key before the first slash; empty when there is none.
#[must_use]
pub fn domain(key: &str) -> &str {
    key.split_once('/').map_or("", |(domain, _)| domain)
}

/// The label key that names a node class on claims and nodes: `<group>/<lower-case kind>`.
#[must_use]
pub fn node_class_key(group: &str, kind: &str) -> String {
    format!("{group}/{}", kind.to_lowercase())
}

/// Which label keys have a meaning of their own, and which a user must not set.
///
/// # Shape
/// Keys, domains and values are sorted and unique. A provider extends the core's table and hands the result to everything that
/// compares requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WellKnown {
    keys: Vec<Arc<str>>,
    domains: Vec<Arc<str>>,
    values: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    zone_ids: Vec<Arc<str>>,
}

impl WellKnown {
    /// An empty table: every undefined key is rejected.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            keys: Vec::new(),
            domains: Vec::new(),
            values: BTreeMap::new(),
            zone_ids: Vec::new(),
        }
    }

    /// The core's own keys and its restricted domain.
    #[must_use]
    pub fn core() -> Self {
        Self::none()
            .with_keys(CORE_WELL_KNOWN)
            .with_domains([GROUP])
            .with_values(
                CAPACITY_TYPE,
                [
                    CAPACITY_TYPE_ON_DEMAND,
                    CAPACITY_TYPE_RESERVED,
                    CAPACITY_TYPE_SPOT,
                ],
            )
    }

    /// Adds keys that may be required without being defined.
    #[must_use]
    pub fn with_keys<K: Into<Arc<str>>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.keys.extend(keys.into_iter().map(Into::into));
        self.keys.sort_unstable();
        self.keys.dedup();
        self
    }

    /// Adds domains (without a leading dot) in which, sub-domains included, only well-known keys may be used.
    #[must_use]
    pub fn with_domains<D: Into<Arc<str>>>(mut self, domains: impl IntoIterator<Item = D>) -> Self {
        self.domains.extend(domains.into_iter().map(Into::into));
        self.domains.sort_unstable();
        self.domains.dedup();
        self
    }

    /// Sets the possible values of a well-known key; adds to earlier ones.
    #[must_use]
    pub fn with_values<V: Into<Arc<str>>>(
        mut self,
        key: impl Into<Arc<str>>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        let known = self.values.entry(key.into()).or_default();
        known.extend(values.into_iter().map(Into::into));
        known.sort_unstable();
        known.dedup();
        self
    }

    /// Adds labels with a cloud's own ID of a zone.
    #[must_use]
    pub fn with_zone_ids<K: Into<Arc<str>>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.zone_ids.extend(keys.into_iter().map(Into::into));
        self.zone_ids.sort_unstable();
        self.zone_ids.dedup();
        self
    }

    /// Whether the label has a cloud's own ID of a zone.
    #[must_use]
    pub fn is_zone_id(&self, key: &str) -> bool {
        self.zone_ids.iter().any(|known| **known == *key)
    }

    /// The only values that the key can have, sorted; `None` when that is not known.
    #[must_use]
    pub fn known_values(&self, key: &str) -> Option<&[Arc<str>]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// Whether the key may be required without being defined.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.keys
            .binary_search_by(|known| known.as_ref().cmp(key))
            .is_ok()
    }

    /// The well-known keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.keys.iter()
    }

    /// The restricted domains, sorted.
    pub fn domains(&self) -> impl Iterator<Item = &Arc<str>> {
        self.domains.iter()
    }

    /// Whether users must not set or require this label: the host name, and keys of restricted domains that are not well known.
    #[must_use]
    pub fn is_restricted(&self, key: &str) -> bool {
        if self.contains(key) {
            return false;
        }
        let of = domain(key);
        key == HOSTNAME
            || self.domains.iter().any(|domain| {
                of.strip_suffix(domain.as_ref())
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            })
    }
}

/// Annotation of NodeClaims, set by mortise: why the node is fenced; the label of a `FenceReason`.
pub const FENCE: &str = "mortise.sh/fence";
/// Annotation of NodeClaims, set by mortise: the interruption that the cloud has announced, and when it begins if that is known.
pub const INTERRUPTION: &str = "mortise.sh/interruption";
/// Annotation of NodePools: what follows a rebalance recommendation: `ignore`, `cordon` or `replace-first`.
pub const REBALANCE_RECOMMENDATION: &str = "mortise.sh/rebalance-recommendation";
/// Annotation of NodeClaims, set by mortise: provider ID of the instance, together with its labels; status may follow shortly
/// after.
pub const PROVIDER_ID: &str = "mortise.sh/provider-id";
/// Annotation of NodeClaims, set by mortise: token of the call that launches its instance together with others, written before the
/// call.
pub const LAUNCH_BATCH: &str = "mortise.sh/launch-batch";
/// Annotation of NodeClaims, set by mortise: UIDs of pods that the NodeClaim was created for, separated by commas.
pub const NOMINATED_PODS: &str = "mortise.sh/nominated-pods";
/// Annotation of NodeClaims, set by mortise: the largest capacity that the node can have, as a resource list in JSON. It counts
/// against the limits of the NodePool until status has the capacity.
pub const PLANNED_CAPACITY: &str = "mortise.sh/planned-capacity";
/// Annotation of NodeClaims, set by mortise: the decision that created it. An existing NodeClaim of the same name is the same
/// NodeClaim only if this text is equal.
pub const INTENT: &str = "mortise.sh/intent";
/// Annotation of NodeClaims, set by mortise: names of the NodeClaims that it replaces, separated by commas.
pub const REPLACES: &str = "mortise.sh/replaces";
/// Annotation of NodeClaims next to [`REPLACES`], from the second on: how many replacements in a row there were, each of them less
/// than a day after the one before.
pub const REPLACEMENTS_IN_A_ROW: &str = "mortise.sh/replacements-in-a-row";
/// Annotation of NodeClaims that are deleted by force, set by mortise: decider and reason.
pub const DELETION_REASON: &str = "mortise.sh/deletion-reason";
/// Annotation of Nodes, NodeClaims, NodePools and the namespace of the service: no voluntary disruption; by convention with the
/// reason.
pub const PAUSE: &str = "mortise.sh/pause";
/// Annotation next to [`PAUSE`]: when it ends, in RFC 3339.
pub const PAUSE_UNTIL: &str = "mortise.sh/pause-until";
/// Annotation of NodePools, set by mortise: the version of mortise that wrote their hash.
pub const VERSION: &str = "mortise.sh/version";
/// Annotation next to [`VERSION`]: when another version followed, in RFC 3339. Nodes that drifted with it may wait until a person removes it.
pub const UPGRADED_AT: &str = "mortise.sh/upgraded-at";
/// Annotation of NodePools: how unhealthy nodes are replaced: `forceful` (default), `graceful` or `off`.
pub const REPAIR_MODE: &str = "mortise.sh/repair-mode";
/// Annotation of NodePools: how long an unhealthy node condition is tolerated, such as `10m`, instead of the provider's
/// durations.
pub const REPAIR_TOLERATION_DURATION: &str = "mortise.sh/repair-toleration-duration";
/// Annotation of NodePools: how many nodes may be unhealthy at once without blocking repair: a number or a percentage.
pub const REPAIR_MAX_UNHEALTHY: &str = "mortise.sh/repair-max-unhealthy";
/// Annotation of NodeClaims (from the template of the NodePool): names of hooks, separated by commas, that must be completed
/// before a node counts as registered.
pub const REGISTRATION_HOOKS: &str = "mortise.sh/registration-hooks";
/// Prefix of the annotation on the Node with which the controller of a hook marks it as completed: `true`.
pub const REGISTRATION_HOOK: &str = "registration.mortise.sh/";
/// Annotation of pods: expected duration of the pod, such as `2h`. Without it `activeDeadlineSeconds` counts.
pub const EXPECTED_DURATION: &str = "mortise.sh/expected-duration";
/// Annotation of pods: percentage of the workload's pods that should run on spot capacity, of those beyond
/// [`ON_DEMAND_BASE_CAPACITY`].
pub const SPOT_PERCENT: &str = "mortise.sh/spot-percent";
/// Annotation of pods: number of the workload's pods that should not run on spot capacity in any case.
pub const ON_DEMAND_BASE_CAPACITY: &str = "mortise.sh/on-demand-base-capacity";
/// Annotation of CapacityBuffers: when it begins to keep room, a cron expression in UTC; without it the buffer always does.
pub const BUFFER_SCHEDULE: &str = "mortise.sh/buffer-schedule";
/// Annotation next to [`BUFFER_SCHEDULE`]: how long it keeps room from each beginning, such as `11h`.
pub const BUFFER_DURATION: &str = "mortise.sh/buffer-duration";
/// Annotation of CapacityBuffers: what follows from the replicas that their workload had in the last weeks, `observe` or `apply`.
pub const BUFFER_LEARNING: &str = "mortise.sh/buffer-learning";
/// Annotation next to [`BUFFER_LEARNING`]: which percentile of the same hours of the last weeks is expected, such as `90`.
pub const BUFFER_PERCENTILE: &str = "mortise.sh/buffer-percentile";
/// Annotation of CapacityBuffers that learn: the most replicas of their workload in each hour of the last weeks.
pub const REPLICA_PEAKS: &str = "mortise.sh/replica-peaks";
/// Annotation of the Lease: address and port at which the holder answers the calls of kube-scheduler that reach another replica.
pub const LEADER_ADDRESS: &str = "mortise.sh/leader-address";
/// Annotation of Nodes: when the extender last requested that pending pods be retried.
pub const CAPACITY_FREED_AT: &str = "mortise.sh/capacity-freed-at";
/// Label of namespaces: scheduler of new pods, if its webhook is installed.
pub const SCHEDULER_NAME: &str = "mortise.sh/scheduler-name";

/// The domain of our own annotations.
pub const OWN: &str = "mortise.sh";

/// Whether an annotation describes one object, so that a template must not set it for all: every key of mortise's domain except
/// [`REGISTRATION_HOOKS`], which is made for templates.
#[must_use]
pub fn is_own_state(annotation: &str) -> bool {
    domain(annotation) == OWN && annotation != REGISTRATION_HOOKS
}
