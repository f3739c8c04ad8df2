//! The calls that the provider can make, and what they need: the source of the controller's policies.
//!
//! # Source
//! The conditions are those of the reference implementation's policies, because accounts that ran it have resources with these tags.
//! Two grants are narrower: launch templates are created on launch templates only, and a queue and a cluster are named.

/// Which policy a grant belongs to. Each stays far below the limit of size, and can be left out by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Launch, tag and terminate instances; launch templates.
    NodeLifecycle,
    /// The role of the nodes and its instance profiles.
    InstanceProfiles,
    /// The cluster itself.
    Cluster,
    /// The queue of interruption messages.
    Interruption,
    /// Zones that are shifted away.
    ZonalShift,
    /// Reads.
    ResourceDiscovery,
}

impl Area {
    /// All of them, in the order of the policies.
    pub(super) const ALL: [Self; 6] = [
        Self::NodeLifecycle,
        Self::InstanceProfiles,
        Self::Cluster,
        Self::Interruption,
        Self::ZonalShift,
        Self::ResourceDiscovery,
    ];

    /// The part of names that says which policy it is.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeLifecycle => "NodeLifecycle",
            Self::InstanceProfiles => "InstanceProfiles",
            Self::Cluster => "Cluster",
            Self::Interruption => "Interruption",
            Self::ZonalShift => "ZonalShift",
            Self::ResourceDiscovery => "ResourceDiscovery",
        }
    }
}

/// The settings of the service with which the provider makes the calls of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// With any.
    Always,
    /// Without `--isolated-vpc`: services that have no private endpoint are called.
    NotIsolated,
    /// With `--interruption-queue`.
    Queue,
    /// With `--enable-zonal-shift`.
    ZonalShift,
}

/// Resources that a grant is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All: the actions know no narrower resource.
    All,
    /// What exists already and a launch refers to: images, snapshots, subnets, security groups, reservations, placement groups.
    LaunchReferences,
    /// What a launch creates.
    Launched,
    /// Launch templates.
    LaunchTemplates,
    /// What a launch creates, and launch templates.
    Created,
    /// Instances.
    Instances,
    /// Instances and launch templates.
    Deletable,
    /// The role of the nodes.
    NodeRole,
    /// Instance profiles of the account.
    InstanceProfiles,
    /// Public parameters, and those that the installation adds.
    Parameters,
    /// The cluster.
    Cluster,
    /// The queue of interruption messages.
    Queue,
}

/// What must hold besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    None,
    /// The call goes to the region of the cluster.
    InRegion,
    /// The resource has the tags of the cluster and of a NodePool.
    Owned,
    /// The call gives the new resource the tags of the cluster and of a NodePool.
    Owning,
    /// The same, and the tags are part of a creation.
    OwningAtCreation,
    /// The instance is owned, and only tags that are known after the launch are set.
    LateTags,
    /// The role is passed to EC2.
    PassedToInstances,
    /// The call gives the new profile the tags of the cluster, the region and a node class.
    ProfileOwning,
    /// The profile has these tags, and the call gives it the same.
    ProfileRetagged,
    /// The profile has these tags.
    ProfileOwned,
}

/// One statement of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// Name of the statement.
    pub sid: &'static str,
    /// Which policy it belongs to.
    pub area: Area,
    /// When it is needed.
    pub when: When,
    /// On which resources.
    pub scope: Scope,
    /// Under which condition.
    pub condition: Condition,
    /// The actions, as IAM names them.
    pub actions: &'static [&'static str],
}

/// Actions that no call is named after, with the calls that need them.
pub const IMPLIED: [(&str, &str); 2] = [
    (
        "iam:PassRole",
        "launches with an instance profile, and iam:AddRoleToInstanceProfile",
    ),
    (
        "iam:TagInstanceProfile",
        "iam:CreateInstanceProfile with tags",
    ),
];

/// Everything that the provider can call.
pub const GRANTS: [Grant; 19] = [
    Grant {
        sid: "LaunchWithExistingResources",
        area: Area::NodeLifecycle,
        when: When::Always,
        scope: Scope::LaunchReferences,
        condition: Condition::None,
        actions: &["ec2:CreateFleet", "ec2:RunInstances"],
    },
    Grant {
        sid: "LaunchWithOwnTemplates",
        area: Area::NodeLifecycle,
        when: When::Always,
        scope: Scope::LaunchTemplates,
        condition: Condition::Owned,
        actions: &["ec2:CreateFleet", "ec2:RunInstances"],
    },
    Grant {
        sid: "LaunchWithOwnTags",
        area: Area::NodeLifecycle,
        when: When::Always,
        scope: Scope::Launched,
        condition: Condition::Owning,
        actions: &["ec2:CreateFleet", "ec2:RunInstances"],
    },
    Grant {
        sid: "CreateOwnTemplates",
        area: Area::NodeLifecycle,
        when: When::Always,
        scope: Scope::LaunchTemplates,
        condition: Condition::Owning,
        actions: &["ec2:CreateLaunchTemplate"],
    },
    Grant {
        sid: "TagAtCreation",
        area: Area::NodeLifecycle,
        when: When::Always,
        scope: Scope::Created,
        condition: Condition::OwningAtCreation,
        actions: &["ec2:CreateTags"],
    },
    Grant {
        sid: "TagOwnInstances",
        area: Area::NodeLifecycle,
        when: When::Always,
        scope: Scope::Instances,
        condition: Condition::LateTags,
        actions: &["ec2:CreateTags"],
    },
    Grant {
        sid: "DeleteOwn",
        area: Area::NodeLifecycle,
        when: When::Always,
        scope: Scope::Deletable,
        condition: Condition::Owned,
        actions: &["ec2:DeleteLaunchTemplate", "ec2:TerminateInstances"],
    },
    Grant {
        sid: "PassNodeRole",
        area: Area::InstanceProfiles,
        when: When::Always,
        scope: Scope::NodeRole,
        condition: Condition::PassedToInstances,
        actions: &["iam:PassRole"],
    },
    Grant {
        sid: "CreateOwnProfiles",
        area: Area::InstanceProfiles,
        when: When::NotIsolated,
        scope: Scope::InstanceProfiles,
        condition: Condition::ProfileOwning,
        actions: &["iam:CreateInstanceProfile"],
    },
    Grant {
        sid: "RetagOwnProfiles",
        area: Area::InstanceProfiles,
        when: When::NotIsolated,
        scope: Scope::InstanceProfiles,
        condition: Condition::ProfileRetagged,
        actions: &["iam:TagInstanceProfile"],
    },
    Grant {
        sid: "ChangeOwnProfiles",
        area: Area::InstanceProfiles,
        when: When::NotIsolated,
        scope: Scope::InstanceProfiles,
        condition: Condition::ProfileOwned,
        actions: &[
            "iam:AddRoleToInstanceProfile",
            "iam:DeleteInstanceProfile",
            "iam:RemoveRoleFromInstanceProfile",
        ],
    },
    Grant {
        sid: "ReadProfiles",
        area: Area::InstanceProfiles,
        when: When::NotIsolated,
        scope: Scope::InstanceProfiles,
        condition: Condition::None,
        actions: &["iam:GetInstanceProfile"],
    },
    Grant {
        sid: "ListProfiles",
        area: Area::InstanceProfiles,
        when: When::NotIsolated,
        scope: Scope::All,
        condition: Condition::None,
        actions: &["iam:ListInstanceProfiles"],
    },
    Grant {
        sid: "ReadCluster",
        area: Area::Cluster,
        when: When::Always,
        scope: Scope::Cluster,
        condition: Condition::None,
        actions: &["eks:DescribeCluster"],
    },
    Grant {
        sid: "ReadInterruptionQueue",
        area: Area::Interruption,
        when: When::Queue,
        scope: Scope::Queue,
        condition: Condition::None,
        actions: &["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"],
    },
    Grant {
        sid: "ReadZonalShifts",
        area: Area::ZonalShift,
        when: When::ZonalShift,
        scope: Scope::All,
        condition: Condition::None,
        actions: &["arc-zonal-shift:GetManagedResource"],
    },
    Grant {
        sid: "ReadRegion",
        area: Area::ResourceDiscovery,
        when: When::Always,
        scope: Scope::All,
        condition: Condition::InRegion,
        actions: &[
            "ec2:DescribeCapacityReservations",
            "ec2:DescribeImages",
            "ec2:DescribeInstanceStatus",
            "ec2:DescribeInstanceTypeOfferings",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeInstances",
            "ec2:DescribeLaunchTemplates",
            "ec2:DescribePlacementGroups",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeSpotPriceHistory",
            "ec2:DescribeSubnets",
        ],
    },
    Grant {
        sid: "ReadImageParameters",
        area: Area::ResourceDiscovery,
        when: When::Always,
        scope: Scope::Parameters,
        condition: Condition::None,
        actions: &["ssm:GetParameter"],
    },
    Grant {
        sid: "ReadPrices",
        area: Area::ResourceDiscovery,
        when: When::NotIsolated,
        scope: Scope::All,
        condition: Condition::None,
        actions: &["pricing:GetProducts"],
    },
];
