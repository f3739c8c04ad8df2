//! Every flag of Cluster Autoscaler, and what answers it here.

/// What follows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagType {
    /// `true` or `false`; `true` without a value.
    Bool,
    /// An integer.
    Integer,
    /// A decimal number.
    Number,
    /// A duration of Go, such as `10m`.
    Duration,
    /// `minimum:maximum`.
    Range,
    /// Any text.
    Text,
}

/// A flag that has a counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagConversion {
    CloudProvider,
    ClusterName,
    ConsolidateAfter,
    CoresTotal,
    Discovery,
    DisableLeaderElection,
    Drains,
    Removals,
    Expander,
    FeatureGate(&'static str),
    GracePeriod,
    MaxNodes,
    MemoryTotal,
    NodeGroup,
    /// What is kept by this flag from being disrupted, and is not here.
    Protection(&'static str),
    ScaleDown,
    /// A flag of `mortise serve` with the same value.
    SameValue(&'static str),
    StartupTaint,
    /// A flag of `mortise serve` that is set if this one is: its name, and its value then.
    Switch(&'static str, &'static str),
    Utilization,
}

/// What becomes of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagAnswer {
    To(FlagConversion),
    /// Why nothing takes its place.
    NotNeeded(&'static str),
    /// A value with which nothing is lost, and what to know about the others.
    NoCounterpart(&'static str, &'static str),
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlagRow {
    pub(super) name: &'static str,
    pub(super) value: FlagType,
    pub(super) answer: FlagAnswer,
}

/// The row of a flag, whose name has neither dashes before it nor underscores.
pub(super) fn find(name: &str) -> Option<&'static FlagRow> {
    FLAGS.iter().find(|row| row.name == name)
}

macro_rules! flags {
    ($($name:literal $value:ident $answer:expr;)*) => {
        /// Flags of versions 1.20 to 1.36, those of its libraries included.
        pub(super) const FLAGS: &[FlagRow] = &[$(FlagRow { name: $name, value: FlagType::$value, answer: $answer }),*];
    };
}

use FlagAnswer::{NoCounterpart, NotNeeded, To};
use FlagConversion as Is;

const BACKOFF: &str = "the pause doubles up to one hour, and one launch at a time tries again";
const BALANCE: &str = "there are no groups to compare";
const BATCH: &str = "pods are planned in batches: --batch-idle-duration, --batch-max-duration";
const CANDIDATES: &str = "all nodes are candidates; the search has a budget of its own";
const COUNTED: &str = "minimumUtilization of a NodePoolPolicy counts all pods of a node";
const GOOGLE: &str = "it is for Google Cloud";
const INSTANCES: &str = "instance types come from EC2";
const LATER: &str = "disruption starts over after each look at the cluster; --disruption-cooldown protects nodes that received pods";
const LEASE: &str =
    "mortise has a Lease of its own: --leader-election-name, --leader-election-namespace";
const LOGS: &str = "--log-level says what is logged";
const OWN_CLIENT: &str = "mortise has values of its own: --kube-client-qps, --kube-client-burst";
const OWN_TIME: &str = "mortise limits the time of its simulations by itself";
const PARALLEL: &str = "nodes of all NodePools are launched at the same time";
const PROBES: &str = "the probes of its Deployment restart mortise";
const REQUESTS: &str = "--provisioning-requests has values of its own";
const SOFT_TAINT: &str = "nodes are tainted when they go, not before";
const STATUS: &str = "the same is in metrics, conditions, and mortise top";
const UNREADY: &str = "voluntary disruption stops by itself while more than three nodes, and more than a third, are not ready";
const SOON: &str = "nodes that do not work are found by --registration-timeout and node repair";

flags! {
    // Node groups.
    "nodes" Text To(Is::NodeGroup);
    "node-group-auto-discovery" Text To(Is::Discovery);
    "cloud-provider" Text To(Is::CloudProvider);
    "cluster-name" Text To(Is::ClusterName);
    "cloud-config" Text NotNeeded("the AWS SDK's own variables, and the role of the ServiceAccount, say how EC2 is called");
    "aws-use-static-instance-list" Bool NotNeeded(INSTANCES);
    "enforce-node-group-min-size" Bool NotNeeded("NodePools with replicas keep their number of nodes");
    "node-autoprovisioning-enabled" Bool NotNeeded("NodePools launch what pods need");
    "max-autoprovisioned-node-group-count" Integer NotNeeded("NodePools launch what pods need");
    "async-node-groups" Bool NotNeeded("there are no groups to make");
    "clusterapi-cloud-config-authoritative" Bool NoCounterpart("false", "mortise has no provider for Cluster API");
    "regional" Bool NotNeeded("zones are requirements of NodePools");
    // Growth.
    "expander" Text To(Is::Expander);
    "grpc-expander-cert" Text NoCounterpart("", "nothing outside of mortise chooses instance types");
    "grpc-expander-url" Text NoCounterpart("", "nothing outside of mortise chooses instance types: use weight and requirements of NodePools");
    "max-nodes-total" Integer To(Is::MaxNodes);
    "cores-total" Range To(Is::CoresTotal);
    "memory-total" Range To(Is::MemoryTotal);
    "gpu-total" Text NoCounterpart("", "write limits such as nvidia.com/gpu into the NodePools");
    "max-nodes-per-scaleup" Integer NotNeeded("maxNewNodesPerWindow of a NodePoolPolicy limits how fast NodePools grow");
    "new-pod-scale-up-delay" Duration NoCounterpart("0s", "pods wait for --batch-idle-duration at most; single pods wait with the annotation pod-scale-up-delay");
    "expendable-pods-priority-cutoff" Integer NoCounterpart("-10", "pods of any priority get nodes: replace Deployments of pause pods by CapacityBuffers");
    "balance-similar-node-groups" Bool NoCounterpart("false", "topology spread constraints of the pods, or default ones (--scheduler-config), spread nodes over zones");
    "balancing-ignore-label" Text NotNeeded(BALANCE);
    "balancing-label" Text NotNeeded(BALANCE);
    "memory-difference-ratio" Number NotNeeded(BALANCE);
    "max-free-difference-ratio" Number NotNeeded(BALANCE);
    "max-allocatable-difference-ratio" Number NotNeeded(BALANCE);
    "force-ds" Bool NotNeeded("instance types that are too small for the DaemonSets are never launched");
    "scale-up-from-zero" Bool NoCounterpart("true", "a NodePool without nodes launches some when pods need them; limits of 0 keep it from that");
    "scale-from-unschedulable" Bool NotNeeded("NodePools are templates: cordoned nodes do not matter");
    "parallel-scale-up" Bool NotNeeded(PARALLEL);
    "salvo-scale-up" Bool NotNeeded(PARALLEL);
    "salvo-scale-up-budget" Duration NotNeeded(PARALLEL);
    "scaleup-simulation-for-skipped-node-groups-enabled" Bool NotNeeded("mortise explain pod says why a NodePool was not used");
    "estimator" Text NotNeeded("all pending pods are packed together");
    "fastpath-binpacking-enabled" Bool NotNeeded(OWN_TIME);
    "max-binpacking-time" Duration NotNeeded(OWN_TIME);
    "max-nodegroup-binpacking-duration" Duration NotNeeded(OWN_TIME);
    "enable-proactive-scaleup" Bool NoCounterpart("false", "nodes are launched for pods that exist: a CapacityBuffer keeps room for more");
    "pod-injection-limit" Integer NotNeeded("nodes are launched for pods that exist");
    "bypassed-scheduler-names" Text NotNeeded(BATCH);
    "allowed-scheduler-names" Text NoCounterpart("", "pods of all schedulers get nodes once they are marked unschedulable");
    "scheduler-config-file" Text NoCounterpart("", "mortise check scheduler compares the scheduler's configuration; default spread constraints are --scheduler-config");
    "startup-taint" Text To(Is::StartupTaint);
    "startup-taint-prefix" Text NotNeeded("taints that nodes lose soon are learned: --learn-boot-taints");
    "ignore-taint" Text To(Is::StartupTaint);
    "status-taint" Text NotNeeded("taints of running nodes do not change the template of a NodePool");
    "frequent-loops-enabled" Bool NotNeeded("mortise acts on changes");
    "scan-interval" Duration NotNeeded("mortise acts on changes");
    "pending-pods-batching-timeout" Duration NotNeeded(BATCH);
    "enable-graceful-degradation" Bool NotNeeded(OWN_TIME);
    "enable-inter-pod-affinity-hostname-fast-path" Bool NotNeeded(OWN_TIME);
    "predicate-parallelism" Integer NotNeeded(OWN_TIME);
    "cluster-snapshot-parallelism" Integer NotNeeded(OWN_TIME);
    // Nodes that do not work.
    "max-node-provision-time" Duration To(Is::SameValue("registration-timeout"));
    "max-node-startup-time" Duration To(Is::SameValue("initialization-timeout"));
    "initial-node-group-backoff-duration" Duration To(Is::SameValue("launch-backoff"));
    "max-node-group-backoff-duration" Duration NotNeeded(BACKOFF);
    "node-group-backoff-reset-timeout" Duration NotNeeded(BACKOFF);
    "force-delete-unregistered-nodes" Bool NotNeeded(SOON);
    "force-delete-failed-nodes" Bool NotNeeded(SOON);
    "max-total-unready-percentage" Number NotNeeded(UNREADY);
    "ok-total-unready-count" Integer NotNeeded(UNREADY);
    "unready-nodes-scope" Text NotNeeded(UNREADY);
    "scale-down-unready-enabled" Bool NotNeeded(SOON);
    "scale-down-unready-time" Duration NotNeeded(SOON);
    // Removal.
    "scale-down-enabled" Bool To(Is::ScaleDown);
    "scale-down-unneeded-time" Duration To(Is::ConsolidateAfter);
    "scale-down-utilization-threshold" Number To(Is::Utilization);
    "scale-down-gpu-utilization-threshold" Number NoCounterpart("0.5", "minimumUtilization of a NodePoolPolicy is about CPU and memory");
    "scale-down-delay-after-add" Duration NotNeeded(LATER);
    "scale-down-delay-after-delete" Duration NotNeeded(LATER);
    "scale-down-delay-after-failure" Duration NotNeeded(LATER);
    "scale-down-delay-type-local" Bool NotNeeded(LATER);
    "scale-down-non-empty-candidates-count" Integer NotNeeded(CANDIDATES);
    "scale-down-candidates-pool-ratio" Number NotNeeded(CANDIDATES);
    "scale-down-candidates-pool-min-count" Integer NotNeeded(CANDIDATES);
    "scale-down-simulation-timeout" Duration NotNeeded(OWN_TIME);
    "unremovable-node-recheck-timeout" Duration NotNeeded(CANDIDATES);
    "node-deletion-candidate-ttl" Duration NotNeeded(LATER);
    "ignore-daemonsets-utilization" Bool NoCounterpart("false", COUNTED);
    "ignore-mirror-pods-utilization" Bool NoCounterpart("false", COUNTED);
    "max-scale-down-parallelism" Integer To(Is::Removals);
    "max-drain-parallelism" Integer To(Is::Drains);
    "max-empty-bulk-delete" Integer NotNeeded("budgets with the reason Empty limit it");
    "node-deletion-batcher-interval" Duration NotNeeded("instances are terminated in batches");
    "max-bulk-soft-taint-count" Integer NotNeeded(SOFT_TAINT);
    "max-bulk-soft-taint-time" Duration NotNeeded(SOFT_TAINT);
    "node-delete-delay-after-taint" Duration NotNeeded("--bind-grace-period is the time between taint and deletion");
    "dynamic-node-delete-delay-after-taint-enabled" Bool NotNeeded("--bind-grace-period is the time between taint and deletion");
    "node-deletion-delay-timeout" Duration NoCounterpart("2m", "annotations delay-deletion.cluster-autoscaler.kubernetes.io do not delay a drain");
    "cordon-node-before-terminating" Bool NotNeeded("nodes are tainted with karpenter.sh/disrupted:NoSchedule");
    "daemonset-eviction-for-empty-nodes" Bool NotNeeded("pods of DaemonSets are evicted after all others, also from empty nodes");
    "daemonset-eviction-for-occupied-nodes" Bool NotNeeded("pods of DaemonSets are evicted after all others");
    "max-graceful-termination-sec" Integer To(Is::GracePeriod);
    "max-pod-eviction-time" Duration NotNeeded("evictions are repeated until terminationGracePeriod of the NodePool");
    "drain-priority-config" Text NoCounterpart("", "drains evict critical pods last, each pod with its own terminationGracePeriodSeconds");
    "skip-nodes-with-system-pods" Bool To(Is::Protection("pods in kube-system"));
    "skip-nodes-with-local-storage" Bool To(Is::Protection("pods with local storage"));
    "skip-nodes-with-custom-controller-pods" Bool To(Is::Protection("pods without a controller of Kubernetes"));
    "min-replica-count" Integer NoCounterpart("0", "workloads with few replicas are protected by PodDisruptionBudgets");
    "blocking-system-pod-distruption-timeout" Duration NotNeeded("pods in kube-system do not keep nodes");
    // Requests, buffers, devices.
    "enable-provisioning-requests" Bool To(Is::Switch("provisioning-requests", "true"));
    "provisioning-request-initial-backoff-time" Duration NotNeeded(REQUESTS);
    "provisioning-request-max-backoff-time" Duration NotNeeded(REQUESTS);
    "provisioning-request-max-backoff-cache-size" Integer NotNeeded(REQUESTS);
    "check-capacity-batch-processing" Bool NotNeeded(REQUESTS);
    "check-capacity-provisioning-request-max-batch-size" Integer NotNeeded(REQUESTS);
    "check-capacity-provisioning-request-batch-timebox" Duration NotNeeded(REQUESTS);
    "check-capacity-processor-instance" Text NoCounterpart("", "--provisioning-requests serves all of them");
    "capacity-buffer-controller-enabled" Bool To(Is::FeatureGate("CapacityBuffer"));
    "capacity-buffer-pod-injection-enabled" Bool To(Is::FeatureGate("CapacityBuffer"));
    "capacity-buffer-pod-dry-run-enabled" Bool NotNeeded("the room of a buffer is planned from its PodTemplate");
    "capacity-buffer-ready-replicas-enabled" Bool NotNeeded("status.replicas of a CapacityBuffer is always written");
    "capacity-quotas-enabled" Bool NoCounterpart("false", "CapacityQuotas are not read: use limits of NodePools, and of a NodePoolPolicy for several");
    "enable-dynamic-resource-allocation" Bool To(Is::Switch("ignore-dra-requests", "false"));
    "enable-csi-node-aware-scheduling" Bool NotNeeded("limits on volumes of a node are always respected");
    // The program.
    "address" Text NotNeeded("metrics are on port 8080: --metrics-port");
    "emit-per-nodegroup-metrics" Bool NotNeeded(STATUS);
    "node-removal-latency-tracking-enabled" Bool NotNeeded(STATUS);
    "max-node-skip-eval-time-tracker-enabled" Bool NotNeeded(STATUS);
    "write-status-configmap" Bool NotNeeded(STATUS);
    "status-config-map-name" Text NotNeeded(STATUS);
    "record-duplicated-events" Bool NotNeeded("events are throttled by themselves");
    "debugging-snapshot-enabled" Bool NotNeeded("mortise snapshot writes one");
    "profiling" Bool NotNeeded("there is no profiling listener");
    "max-inactivity" Duration NotNeeded(PROBES);
    "max-failing-time" Duration NotNeeded(PROBES);
    "max-startup-time" Duration NotNeeded(PROBES);
    "node-info-cache-expire-time" Duration NotNeeded("templates are those of the NodePools, not of running nodes");
    "namespace" Text NotNeeded(LEASE);
    "kubernetes" Text NotNeeded("--kubeconfig says where the API server is");
    "kubeconfig" Text NotNeeded("in a cluster the ServiceAccount is used; --kubeconfig elsewhere");
    "kube-api-content-type" Text NotNeeded(OWN_CLIENT);
    "kube-client-burst" Integer NotNeeded(OWN_CLIENT);
    "kube-client-qps" Number NotNeeded(OWN_CLIENT);
    "user-agent" Text NotNeeded("requests have the user agent of mortise");
    "leader-elect" Bool To(Is::DisableLeaderElection);
    "leader-elect-lease-duration" Duration NotNeeded(LEASE);
    "leader-elect-renew-deadline" Duration NotNeeded(LEASE);
    "leader-elect-retry-period" Duration NotNeeded(LEASE);
    "leader-elect-resource-lock" Text NotNeeded(LEASE);
    "leader-elect-resource-name" Text NotNeeded(LEASE);
    "leader-elect-resource-namespace" Text NotNeeded(LEASE);
    "feature-gates" Text NoCounterpart("", "its feature gates are not those of mortise: docs/reference/flags.md has the list");
    "v" Integer NotNeeded(LOGS);
    "vmodule" Text NotNeeded(LOGS);
    "scheduler-verbosity" Integer NotNeeded(LOGS);
    "logtostderr" Bool NotNeeded(LOGS);
    "alsologtostderr" Bool NotNeeded(LOGS);
    "stderrthreshold" Text NotNeeded(LOGS);
    "one-output" Bool NotNeeded(LOGS);
    "add-dir-header" Bool NotNeeded(LOGS);
    "skip-headers" Bool NotNeeded(LOGS);
    "skip-log-headers" Bool NotNeeded(LOGS);
    "log-dir" Text NotNeeded(LOGS);
    "log-file" Text NotNeeded(LOGS);
    "log-file-max-size" Integer NotNeeded(LOGS);
    "log-backtrace-at" Text NotNeeded(LOGS);
    "log-flush-frequency" Duration NotNeeded(LOGS);
    "log-json-info-buffer-size" Text NotNeeded(LOGS);
    "log-json-split-stream" Bool NotNeeded(LOGS);
    "log-text-info-buffer-size" Text NotNeeded(LOGS);
    "log-text-split-stream" Bool NotNeeded(LOGS);
    "logging-format" Text NotNeeded(LOGS);
    "version" Bool NotNeeded("mortise --version");
    // Google Cloud.
    "gce-concurrent-refreshes" Integer NotNeeded(GOOGLE);
    "gce-mig-instances-min-refresh-wait-time" Duration NotNeeded(GOOGLE);
    "gce-expander-ephemeral-storage-support" Bool NotNeeded(GOOGLE);
    "bulk-mig-instances-listing-enabled" Bool NotNeeded(GOOGLE);
    "cloud-provider-gce-lb-src-cidrs" Text NotNeeded(GOOGLE);
    "cloud-provider-gce-l7lb-src-cidrs" Text NotNeeded(GOOGLE);
}
