//! The fields of a kubelet's configuration, and what each holds.

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldType {
    Int32,
    Int64,
    Bool,
    Text,
    Duration,
    Texts,
    TextByName,
    BoolByName,
    /// An object or a list of objects.
    Structure,
}

/// Every field of `kubelet.config.k8s.io/v1beta1` of Kubernetes 1.36.
const FIELDS: [(FieldType, &[&str]); 9] = [
    (
        FieldType::Int32,
        &[
            "containerLogMaxFiles",
            "containerLogMaxWorkers",
            "eventBurst",
            "eventRecordQPS",
            "evictionMaxPodGracePeriod",
            "healthzPort",
            "imageGCHighThresholdPercent",
            "imageGCLowThresholdPercent",
            "iptablesDropBit",
            "iptablesMasqueradeBit",
            "kubeAPIBurst",
            "kubeAPIQPS",
            "maxParallelImagePulls",
            "maxPods",
            "nodeLeaseDurationSeconds",
            "nodeStatusMaxImages",
            "oomScoreAdj",
            "podsPerCore",
            "port",
            "readOnlyPort",
            "registryBurst",
            "registryPullQPS",
        ],
    ),
    (FieldType::Int64, &["maxOpenFiles", "podPidsLimit"]),
    (
        FieldType::Bool,
        &[
            "cgroupsPerQOS",
            "cpuCFSQuota",
            "enableContentionProfiling",
            "enableControllerAttachDetach",
            "enableDebugFlagsHandler",
            "enableDebuggingHandlers",
            "enableProfilingHandler",
            "enableServer",
            "enableSystemLogHandler",
            "enableSystemLogQuery",
            "failCgroupV1",
            "failSwapOn",
            "kernelMemcgNotification",
            "localStorageCapacityIsolation",
            "makeIPTablesUtilChains",
            "mergeDefaultEvictionSettings",
            "protectKernelDefaults",
            "registerNode",
            "rotateCertificates",
            "runOnce",
            "seccompDefault",
            "serializeImagePulls",
            "serverTLSBootstrap",
            "singleProcessOOMKill",
        ],
    ),
    (
        FieldType::Text,
        &[
            "address",
            "cgroupDriver",
            "cgroupRoot",
            "clusterDomain",
            "configMapAndSecretChangeDetectionStrategy",
            "containerLogMaxSize",
            "containerRuntimeEndpoint",
            "contentType",
            "cpuManagerPolicy",
            "hairpinMode",
            "healthzBindAddress",
            "imagePullCredentialsVerificationPolicy",
            "imageServiceEndpoint",
            "kubeReservedCgroup",
            "kubeletCgroups",
            "memoryManagerPolicy",
            "podCIDR",
            "podLogsDir",
            "providerID",
            "reservedSystemCPUs",
            "resolvConf",
            "showHiddenMetricsForVersion",
            "staticPodPath",
            "staticPodURL",
            "systemCgroups",
            "systemReservedCgroup",
            "tlsCertFile",
            "tlsMinVersion",
            "tlsPrivateKeyFile",
            "topologyManagerPolicy",
            "topologyManagerScope",
            "volumePluginDir",
        ],
    ),
    (
        FieldType::Texts,
        &[
            "allowedUnsafeSysctls",
            "clusterDNS",
            "enforceNodeAllocatable",
            "preloadedImagesVerificationAllowlist",
            "tlsCipherSuites",
        ],
    ),
    (
        FieldType::TextByName,
        &[
            "cpuManagerPolicyOptions",
            "evictionHard",
            "evictionMinimumReclaim",
            "evictionSoft",
            "evictionSoftGracePeriod",
            "kubeReserved",
            "qosReserved",
            "systemReserved",
            "topologyManagerPolicyOptions",
        ],
    ),
    (FieldType::BoolByName, &["featureGates"]),
    (
        FieldType::Duration,
        &[
            "containerLogMonitorInterval",
            "cpuCFSQuotaPeriod",
            "cpuManagerReconcilePeriod",
            "evictionPressureTransitionPeriod",
            "fileCheckFrequency",
            "httpCheckFrequency",
            "imageMaximumGCAge",
            "imageMinimumGCAge",
            "nodeStatusReportFrequency",
            "nodeStatusUpdateFrequency",
            "runtimeRequestTimeout",
            "shutdownGracePeriod",
            "shutdownGracePeriodCriticalPods",
            "streamingConnectionIdleTimeout",
            "syncFrequency",
            "volumeStatsAggPeriod",
        ],
    ),
    (
        FieldType::Structure,
        &[
            "apiVersion",
            "authentication",
            "authorization",
            "crashLoopBackOff",
            "kind",
            "logging",
            "memorySwap",
            "memoryThrottlingFactor",
            "registerWithTaints",
            "reservedMemory",
            "shutdownGracePeriodByPodPriority",
            "staticPodURLHeader",
            "tlsCurvePreferences",
            "tracing",
            "userNamespaces",
        ],
    ),
];

/// What a field holds; `None` for one that the configuration does not have.
pub(crate) fn field_type(name: &str) -> Option<FieldType> {
    FIELDS
        .iter()
        .find(|(_, names)| names.contains(&name))
        .map(|(field_type, _)| *field_type)
}

/// The names of all fields.
pub(crate) fn names() -> impl Iterator<Item = &'static &'static str> {
    FIELDS.iter().flat_map(|(_, names)| *names)
}
