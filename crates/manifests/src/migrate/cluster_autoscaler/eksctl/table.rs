//! The fields of a node group of eksctl.

use super::super::fields::FieldAnswer::{Converted, NoCounterpart, NotNeeded};
use super::super::fields::FieldRow;

const SHARED: &str = "each node class says what its nodes may access: securityGroupSelectorTerms";
const BALANCERS: &str =
    "the AWS Load Balancer Controller registers targets by pod or node, whoever launched it";
const CREDITS: &str = "T instances have the credit option that is the default of the account";
const SSH: &str = "node classes have no key pairs: use Session Manager, or kubectl debug node";

/// Every field of a group, managed or not.
pub(super) const FIELDS: &[FieldRow] = &[
    ("name", Converted),
    ("ami", Converted),
    ("amiFamily", Converted),
    ("availabilityZones", Converted),
    ("localZones", Converted),
    ("instanceType", Converted),
    ("instanceTypes", Converted),
    ("instanceSelector.vCPUs", Converted),
    ("instanceSelector.memory", Converted),
    ("instanceSelector.gpus", Converted),
    ("instanceSelector.cpuArchitecture", Converted),
    (
        "instanceSelector.allow",
        NoCounterpart("write requirements into the NodePool"),
    ),
    (
        "instanceSelector.deny",
        NoCounterpart("write requirements into the NodePool"),
    ),
    ("instancesDistribution.instanceTypes", Converted),
    ("instancesDistribution.onDemandBaseCapacity", Converted),
    (
        "instancesDistribution.onDemandPercentageAboveBaseCapacity",
        Converted,
    ),
    (
        "instancesDistribution.spotAllocationStrategy",
        NotNeeded("spot capacity is launched where it is cheap and unlikely to be reclaimed"),
    ),
    (
        "instancesDistribution.spotInstancePools",
        NotNeeded("all instance types of the NodePool are candidates"),
    ),
    (
        "instancesDistribution.capacityRebalance",
        NoCounterpart(
            "--rebalance-recommendation=replace-first does it for all NodePools, or an annotation for one",
        ),
    ),
    (
        "instancesDistribution.maxPrice",
        NoCounterpart(
            "there is no highest price of a spot instance: hourlyPrice of a NodePoolPolicy limits all of them",
        ),
    ),
    ("spot", Converted),
    ("minSize", Converted),
    ("maxSize", Converted),
    (
        "desiredCapacity",
        NotNeeded("there are as many nodes as the pods need"),
    ),
    ("labels", Converted),
    ("taints", Converted),
    ("tags", Converted),
    ("volumeSize", Converted),
    ("volumeType", Converted),
    ("volumeName", Converted),
    ("volumeEncrypted", Converted),
    ("volumeKmsKeyID", Converted),
    ("volumeIOPS", Converted),
    ("volumeThroughput", Converted),
    (
        "additionalVolumes",
        NoCounterpart("write them into blockDeviceMappings of the node class"),
    ),
    (
        "additionalEncryptedVolume",
        NoCounterpart("write it into blockDeviceMappings of the node class"),
    ),
    (
        "ebsOptimized",
        NotNeeded("all current instance types are optimized for EBS"),
    ),
    ("privateNetworking", Converted),
    ("subnets", Converted),
    ("securityGroups.attachIDs", Converted),
    ("securityGroups.withShared", Converted),
    ("securityGroups.withLocal", NotNeeded(SHARED)),
    ("iam.instanceRoleARN", Converted),
    ("iam.instanceRoleName", Converted),
    ("iam.instanceProfileARN", Converted),
    (
        "iam.attachPolicyARNs",
        NoCounterpart("attach these policies to the role of the node class"),
    ),
    (
        "iam.attachPolicy",
        NoCounterpart("attach this policy to the role of the node class"),
    ),
    (
        "iam.withAddonPolicies",
        NoCounterpart(
            "attach these policies to the role of the node class, or give the add-ons roles of their own",
        ),
    ),
    (
        "iam.instanceRolePermissionsBoundary",
        NoCounterpart("set it at the role of the node class"),
    ),
    ("maxPodsPerNode", Converted),
    ("clusterDNS", Converted),
    ("kubeletExtraConfig", Converted),
    ("preBootstrapCommands", Converted),
    (
        "overrideBootstrapCommand",
        NoCounterpart(
            "write what it does beyond joining the cluster into userData of the node class",
        ),
    ),
    (
        "bottlerocket",
        NoCounterpart("write these settings as TOML into userData of the node class"),
    ),
    ("containerRuntime", NotNeeded("all images run containerd")),
    (
        "disableIMDSv1",
        NotNeeded("session tokens are required by default"),
    ),
    ("disablePodIMDS", Converted),
    ("enableDetailedMonitoring", Converted),
    (
        "efaEnabled",
        NoCounterpart(
            "write networkInterfaces with interfaceType: efa-only into the node class, and request vpc.amazonaws.com/efa in the pods",
        ),
    ),
    (
        "enclaveEnabled",
        NoCounterpart(
            "require karpenter.k8s.aws/nitro-sandbox in the NodePool; node classes do not enable enclaves",
        ),
    ),
    ("placement.groupName", Converted),
    (
        "capacityReservation.capacityReservationTarget.capacityReservationID",
        Converted,
    ),
    (
        "capacityReservation.capacityReservationTarget.capacityReservationResourceGroupARN",
        NoCounterpart("select its reservations by id or tags in capacityReservationSelectorTerms"),
    ),
    (
        "capacityReservation.capacityReservationPreference",
        NotNeeded("reservations that capacityReservationSelectorTerms select are used first"),
    ),
    (
        "instanceMarketOptions",
        NoCounterpart(
            "select the reservation of the capacity block in capacityReservationSelectorTerms, and allow the capacity type reserved",
        ),
    ),
    ("cpuCredits", NoCounterpart(CREDITS)),
    ("maxInstanceLifetime", Converted),
    ("updateConfig.maxUnavailable", Converted),
    ("updateConfig.maxUnavailablePercentage", Converted),
    (
        "nodeRepairConfig",
        NotNeeded("the feature gate NodeRepair replaces nodes that do not work"),
    ),
    ("releaseVersion", Converted),
    ("launchTemplate", Converted),
    (
        "propagateASGTags",
        NotNeeded("labels and taints are read from the NodePool"),
    ),
    (
        "asgMetricsCollection",
        NotNeeded("mortise has metrics of its NodePools"),
    ),
    (
        "asgSuspendProcesses",
        NotNeeded("there is no Auto Scaling group"),
    ),
    (
        "instanceName",
        NotNeeded("nodes are named by EC2, and tagged with their NodePool"),
    ),
    (
        "instancePrefix",
        NotNeeded("nodes are named by EC2, and tagged with their NodePool"),
    ),
    ("classicLoadBalancerNames", NoCounterpart(BALANCERS)),
    ("targetGroupARNs", NoCounterpart(BALANCERS)),
    (
        "outpostARN",
        NoCounterpart(
            "subnets of the outpost, and its instance types, belong into node class and NodePool",
        ),
    ),
    ("ssh", NoCounterpart(SSH)),
];
