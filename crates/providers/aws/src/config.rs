//! Settings of the AWS provider, as the command line and the environment give them.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_aws_catalog::CapacityOptions;

use crate::api_server::ApiServer;

/// A service that can have an endpoint of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AwsService {
    /// EC2.
    Ec2,
    /// Systems Manager.
    Ssm,
    /// SQS.
    Sqs,
    /// EKS.
    Eks,
    /// IAM.
    Iam,
    /// The price list.
    Pricing,
    /// ARC zonal shift.
    ZonalShift,
}

impl AwsService {
    /// The service of an action such as `ec2:CreateFleet`.
    pub(crate) fn of_action(action: &str) -> Option<Self> {
        Some(match action.split_once(':')?.0 {
            "ec2" => Self::Ec2,
            "ssm" => Self::Ssm,
            "sqs" => Self::Sqs,
            "eks" => Self::Eks,
            "iam" => Self::Iam,
            "pricing" => Self::Pricing,
            "arc-zonal-shift" => Self::ZonalShift,
            _ => return None,
        })
    }
}

/// Whether the VPC CNI gives each address slot of an interface a block of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefixDelegation {
    /// It does not, or `kubelet.maxPods` of the classes accounts for it.
    #[default]
    Off,
    /// It does.
    On,
    /// As its DaemonSet says.
    Auto,
}

/// Settings of the AWS provider. Empty options are found out: the region by the SDK's usual chain, the cluster's facts from its API
/// server and from EKS.
#[derive(Clone, Debug, Default)]
pub struct AwsConfig {
    /// Name of the cluster. `--cluster-name`, `CLUSTER_NAME`.
    pub cluster_name: String,
    /// Region. `AWS_REGION`.
    pub region: Option<String>,
    /// Another place for all services, such as an emulator. `AWS_ENDPOINT_URL`.
    pub endpoint_url: Option<String>,
    /// Places of single services, such as VPC endpoints; they win over `endpoint_url`. `--aws-endpoint-url-ec2`,
    /// `AWS_ENDPOINT_URL_EC2`, ...
    pub service_endpoints: BTreeMap<AwsService, String>,
    /// Endpoints with validated cryptography. `--aws-use-fips-endpoint`, `AWS_USE_FIPS_ENDPOINT`.
    pub use_fips: bool,
    /// The API server of the cluster; `None`: EKS is asked for everything that the settings leave out.
    pub api_server: Option<Arc<dyn ApiServer>>,
    /// URL of the API server. `--cluster-endpoint`, `CLUSTER_ENDPOINT`.
    pub cluster_endpoint: Option<String>,
    /// CA certificate of the API server, base64 of PEM. `--cluster-ca-bundle`, `CLUSTER_CA_BUNDLE`.
    pub cluster_ca_bundle: Option<String>,
    /// Address range of services, for AL2023 nodes. `--service-cidr`, `MORTISE_SERVICE_CIDR`.
    pub service_cidr: Option<String>,
    /// Address of the cluster's DNS service, for nodes whose class names none.
    pub cluster_dns: Option<String>,
    /// Nodes and pods have IPv6 addresses: the address of the cluster's DNS service is one.
    pub ipv6: bool,
    /// Kubernetes version, such as `1.36`; images with an alias follow it.
    pub kubernetes_version: Option<String>,
    /// Name of the queue with interruption notices. `--interruption-queue`, `INTERRUPTION_QUEUE`.
    pub interruption_queue: Option<String>,
    /// No route to the services that have no private endpoint, IAM and the price list. `--isolated-vpc`, `ISOLATED_VPC`.
    pub isolated_vpc: bool,
    /// Region whose embedded prices stand for this region's until those are read, as newer or better known ones. `None`: the region's own
    /// embedded prices do; types that these lack have no price and are offered last. `--assumed-price-region`,
    /// `MORTISE_ASSUMED_PRICE_REGION`.
    pub assumed_price_region: Option<String>,
    /// The control plane is EKS's: its version is asked there. `--eks-control-plane`, `EKS_CONTROL_PLANE`.
    pub eks_control_plane: bool,
    /// Nothing is written, not even what a node class needs to be resolved: instance profiles, launch templates of dry runs.
    pub read_only: bool,
    /// Node classes are not checked by dry runs. `--disable-dry-run`, `DISABLE_DRY_RUN`.
    pub disable_dry_run: bool,
    /// Zones that ARC has shifted away are not used. `--enable-zonal-shift`, `ENABLE_ZONAL_SHIFT`.
    pub zonal_shift: bool,
    /// Capacity reservations are used. The feature gate `ReservedCapacity`.
    pub reserved_capacity: bool,
    /// Fewer values than a requirement's `minValues` are better than no instance. `--min-values-policy`, `MIN_VALUES_POLICY`.
    pub min_values_best_effort: bool,
    /// `--vm-memory-overhead-percent` and `--reserved-enis`.
    pub shape: CapacityOptions,
    /// Where pod density comes from. `--prefix-delegation`, `MORTISE_PREFIX_DELEGATION`.
    pub prefix_delegation: PrefixDelegation,
}
