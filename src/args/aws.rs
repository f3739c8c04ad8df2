//! Flags of the AWS provider: those of Karpenter, and where the services of AWS are.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context as _, bail, ensure};
use clap::{ArgAction, Args};
use mortise_aws::{AwsService, PrefixDelegation};
use mortise_aws_catalog::CapacityOptions;
use mortise_process::Millis;

/// Flags of the AWS provider.
#[derive(Args, Clone, Debug)]
pub struct AwsArgs {
    /// aws: cluster name, for tags and user data
    #[arg(long, env = "CLUSTER_NAME", default_value = "")]
    pub cluster_name: String,
    /// aws: API server URL, for user data; default: the one that EKS names
    #[arg(long, env = "CLUSTER_ENDPOINT", default_value = "")]
    pub cluster_endpoint: String,
    /// aws: CA of the API server (base64 of PEM), for user data; default: the one in the kubeconfig or service account
    #[arg(long, env = "CLUSTER_CA_BUNDLE", default_value = "")]
    pub cluster_ca_bundle: String,
    /// aws: address range of Services, for user data; default: the one that the API server names, else EKS
    #[arg(long, env = "MORTISE_SERVICE_CIDR", value_parser = range_of_addresses)]
    pub service_cidr: Option<String>,
    /// aws: no route to IAM and the price list: on-demand prices are the built-in ones, instance profiles are not managed
    #[arg(long, env = "ISOLATED_VPC", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    pub isolated_vpc: bool,
    /// aws: region whose built-in prices are used until the prices of a region without built-in ones are known; default: types without a
    /// price are offered last
    #[arg(long, env = "MORTISE_ASSUMED_PRICE_REGION", value_name = "REGION")]
    pub assumed_price_region: Option<String>,
    /// aws: EKS runs the control plane: the version of the cluster is the one that EKS names, not the API server
    #[arg(long, env = "EKS_CONTROL_PLANE", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    pub eks_control_plane: bool,
    /// aws: name of the SQS queue for interruption messages; default: interruption handling is disabled
    #[arg(long, env = "INTERRUPTION_QUEUE", default_value = "")]
    pub interruption_queue: String,
    /// aws: fraction of memory reserved for the hypervisor
    #[arg(long, env = "VM_MEMORY_OVERHEAD_PERCENT", default_value_t = 0.075)]
    pub vm_memory_overhead_percent: f64,
    /// aws: number of network interfaces that pods do not use
    #[arg(long, env = "RESERVED_ENIS", default_value_t = 0)]
    pub reserved_enis: u32,
    /// aws: the VPC CNI gives nodes blocks of addresses: `auto` reads its DaemonSet `kube-system/aws-node`; nodes of classes without
    /// `maxPods` then have up to 110 pods, 250 from 31 vCPUs on
    #[arg(long, env = "MORTISE_PREFIX_DELEGATION", default_value = "off", value_parser = ["off", "on", "auto"])]
    prefix_delegation: String,
    /// aws: node classes are not checked by dry runs of the calls that launch
    #[arg(long, env = "DISABLE_DRY_RUN", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    pub disable_dry_run: bool,
    /// aws: zones that ARC has shifted away are not used; the cluster must be registered for zonal shift
    #[arg(long, env = "ENABLE_ZONAL_SHIFT", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    pub enable_zonal_shift: bool,
    /// aws: AWS region; default: that of the SDK (AWS_DEFAULT_REGION, the profile, the instance)
    #[arg(long, env = "AWS_REGION")]
    pub aws_region: Option<String>,
    /// aws: feature gates of the provider, name=bool pairs: NodeClassCEL allows expressions in kubelet settings of node classes
    #[arg(long, env = "AWS_FEATURE_GATES", default_value = "NodeClassCEL=false")]
    aws_feature_gates: String,
    #[command(flatten)]
    endpoints: EndpointArgs,
    #[command(flatten)]
    accepted: AcceptedAwsArgs,
}

/// Where the services are. The variables are those of the SDK.
#[derive(Args, Clone, Debug)]
struct EndpointArgs {
    /// aws: endpoint URL of all services, for emulators
    #[arg(long, env = "AWS_ENDPOINT_URL")]
    aws_endpoint_url: Option<String>,
    /// aws: endpoint URL of EC2, such as that of a VPC endpoint; wins over `--aws-endpoint-url`
    #[arg(long, env = "AWS_ENDPOINT_URL_EC2")]
    aws_endpoint_url_ec2: Option<String>,
    /// aws: endpoint URL of SQS
    #[arg(long, env = "AWS_ENDPOINT_URL_SQS")]
    aws_endpoint_url_sqs: Option<String>,
    /// aws: endpoint URL of Systems Manager
    #[arg(long, env = "AWS_ENDPOINT_URL_SSM")]
    aws_endpoint_url_ssm: Option<String>,
    /// aws: endpoint URL of EKS
    #[arg(long, env = "AWS_ENDPOINT_URL_EKS")]
    aws_endpoint_url_eks: Option<String>,
    /// aws: endpoint URL of IAM
    #[arg(long, env = "AWS_ENDPOINT_URL_IAM")]
    aws_endpoint_url_iam: Option<String>,
    /// aws: endpoint URL of the price list
    #[arg(long, env = "AWS_ENDPOINT_URL_PRICING")]
    aws_endpoint_url_pricing: Option<String>,
    /// aws: endpoint URL of ARC zonal shift
    #[arg(long, env = "AWS_ENDPOINT_URL_ARC_ZONAL_SHIFT")]
    aws_endpoint_url_arc_zonal_shift: Option<String>,
    /// aws: endpoints with validated cryptography (FIPS)
    #[arg(long, env = "AWS_USE_FIPS_ENDPOINT", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    aws_use_fips_endpoint: bool,
}

/// Flags of Karpenter's AWS provider that are accepted for its charts and have no effect.
#[derive(Args, Clone, Debug)]
struct AcceptedAwsArgs {
    /// Accepted without effect; AMIs are resolved every `--nodeclass-resync-interval`
    #[arg(long, env = "AMI_REFRESH_INTERVAL", hide = true, default_value = "1m0s", value_parser = at_least_a_minute)]
    ami_refresh_interval: Millis,
    /// Accepted without effect; subnets are resolved every `--nodeclass-resync-interval`
    #[arg(long, env = "SUBNET_REFRESH_INTERVAL", hide = true, default_value = "1m0s", value_parser = at_least_a_minute)]
    subnet_refresh_interval: Millis,
}

fn at_least_a_minute(text: &str) -> Result<Millis, String> {
    let millis: Millis = text.parse()?;
    if millis.0 < 60_000 {
        return Err("must be at least 1m".to_owned());
    }
    Ok(millis)
}

/// An address and the length of its prefix.
fn range_of_addresses(text: &str) -> Result<String, String> {
    let parts = text.split_once('/').and_then(|(address, length)| {
        let address: IpAddr = address.parse().ok()?;
        let length: u8 = length.parse().ok()?;
        (length <= if address.is_ipv4() { 32 } else { 128 }).then_some(())
    });
    let allowed = "must be an address range such as 10.100.0.0/16 or fd00::/108";
    parts
        .map(|()| text.to_owned())
        .ok_or_else(|| allowed.to_owned())
}

/// The texts that Go reads as a bool.
fn bool_of_go(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// What a flag gives; an empty text is as good as nothing.
fn given(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

impl AwsArgs {
    /// Rejects what cannot work.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let endpoint = &self.cluster_endpoint;
        let is_url = endpoint.starts_with("https://") || endpoint.starts_with("http://");
        ensure!(
            endpoint.is_empty() || is_url,
            "--cluster-endpoint (CLUSTER_ENDPOINT): {endpoint:?}: must be a URL such as https://example.eks.amazonaws.com"
        );
        self.allows_expressions()?;
        let urls = self.service_endpoints();
        for url in urls.values().chain(&self.endpoint_url()) {
            ensure!(
                url.starts_with("https://") || url.starts_with("http://"),
                "--aws-endpoint-url, --aws-endpoint-url-SERVICE (AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_SERVICE): {url:?}: must be a URL such as https://vpce-1.ec2.us-east-1.vpce.amazonaws.com"
            );
        }
        Ok(())
    }

    /// URL of the API server in the user data of nodes.
    pub(crate) fn endpoint_of_cluster(&self) -> Option<String> {
        given(&self.cluster_endpoint)
    }

    /// The region, if one is set; an empty variable does not count.
    pub(crate) fn region(&self) -> Option<String> {
        given(self.aws_region.as_deref().unwrap_or_default())
    }

    /// Endpoint of all services.
    pub(crate) fn endpoint_url(&self) -> Option<String> {
        given(
            self.endpoints
                .aws_endpoint_url
                .as_deref()
                .unwrap_or_default(),
        )
    }

    /// Whether endpoints with validated cryptography are called.
    pub(crate) fn use_fips(&self) -> bool {
        self.endpoints.aws_use_fips_endpoint
    }

    /// Endpoints of single services.
    pub(crate) fn service_endpoints(&self) -> BTreeMap<AwsService, String> {
        let EndpointArgs {
            aws_endpoint_url: _,
            aws_use_fips_endpoint: _,
            aws_endpoint_url_ec2,
            aws_endpoint_url_sqs,
            aws_endpoint_url_ssm,
            aws_endpoint_url_eks,
            aws_endpoint_url_iam,
            aws_endpoint_url_pricing,
            aws_endpoint_url_arc_zonal_shift,
        } = &self.endpoints;
        let all = [
            (AwsService::Ec2, aws_endpoint_url_ec2),
            (AwsService::Sqs, aws_endpoint_url_sqs),
            (AwsService::Ssm, aws_endpoint_url_ssm),
            (AwsService::Eks, aws_endpoint_url_eks),
            (AwsService::Iam, aws_endpoint_url_iam),
            (AwsService::Pricing, aws_endpoint_url_pricing),
            (AwsService::ZonalShift, aws_endpoint_url_arc_zonal_shift),
        ];
        let set = all
            .into_iter()
            .map(|(service, url)| Some((service, given(url.as_deref()?)?)));
        set.flatten().collect()
    }

    /// The gate `NodeClassCEL`.
    fn allows_expressions(&self) -> anyhow::Result<bool> {
        let mut on = false;
        let pairs = self.aws_feature_gates.split(',').map(str::trim);
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').with_context(|| {
                format!("--aws-feature-gates: {pair:?} is not Name=true or Name=false")
            })?;
            if name.trim() != "NodeClassCEL" {
                bail!("--aws-feature-gates: there is no gate {name:?}; there is NodeClassCEL");
            }
            on = bool_of_go(value.trim()).with_context(|| {
                format!("--aws-feature-gates: {name}={value:?}: allowed are true and false")
            })?;
        }
        Ok(on)
    }

    /// Where pod density comes from.
    pub(crate) fn prefix_delegation(&self) -> PrefixDelegation {
        match &*self.prefix_delegation {
            "on" => PrefixDelegation::On,
            "auto" => PrefixDelegation::Auto,
            _ => PrefixDelegation::Off,
        }
    }

    /// What changes the resources that nodes have for pods.
    ///
    /// # Errors
    /// A feature gate of the provider that does not exist or is not a bool.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the share is clamped to 0..1 before it becomes millionths"
    )]
    pub fn shape(&self) -> anyhow::Result<CapacityOptions> {
        let ppm = (self.vm_memory_overhead_percent.clamp(0.0, 1.0) * 1e6).round();
        Ok(CapacityOptions {
            vm_overhead_ppm: ppm as i64,
            reserved_enis: i64::from(self.reserved_enis),
            // What the CNI does is found out later.
            prefix_delegation: false,
            expressions: self.allows_expressions()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse;
    use super::*;

    #[test]
    fn every_service_has_an_endpoint_of_its_own() {
        let flags = [
            "ec2",
            "sqs",
            "ssm",
            "eks",
            "iam",
            "pricing",
            "arc-zonal-shift",
        ]
        .map(|service| format!("--aws-endpoint-url-{service}=https://{service}.test"));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let args = parse(&flags).unwrap();
        let endpoints = args.aws.service_endpoints();
        assert_eq!(endpoints.len(), 7);
        assert_eq!(
            endpoints[&AwsService::ZonalShift],
            "https://arc-zonal-shift.test"
        );
        assert_eq!(args.aws.endpoint_url(), None);
        args.config().unwrap();
    }

    #[test]
    fn bad_values_name_flag_and_what_is_allowed() {
        for range in ["10.0.0.0", "10.0.0.0/33", "x/8", "fd00::/129"] {
            let error = parse(&["--service-cidr", range]).unwrap_err();
            assert!(error.contains("10.100.0.0/16"), "{error}");
        }
        for range in ["10.0.0.0/8", "fd00::/108"] {
            parse(&["--service-cidr", range]).unwrap();
        }
        for (flags, part) in [
            (&["--cluster-endpoint=example.com"][..], "CLUSTER_ENDPOINT"),
            (&["--aws-endpoint-url-ec2=vpce"], "AWS_ENDPOINT_URL"),
            (&["--aws-feature-gates=NodeClassCel=true"], "NodeClassCEL"),
            (
                &["--aws-feature-gates=NodeClassCEL=maybe"],
                "true and false",
            ),
        ] {
            let error = parse(flags).unwrap().config().unwrap_err().to_string();
            assert!(error.contains(part), "{flags:?}: {error}");
        }
    }

    #[test]
    fn pod_density_follows_the_cni_on_request_only() {
        let by = |flags: &[&str]| parse(flags).unwrap().aws.prefix_delegation();
        assert_eq!(by(&[]), PrefixDelegation::Off);
        assert_eq!(by(&["--prefix-delegation=on"]), PrefixDelegation::On);
        assert_eq!(by(&["--prefix-delegation=auto"]), PrefixDelegation::Auto);
        parse(&["--prefix-delegation=yes"]).unwrap_err();
    }

    #[test]
    fn switches_of_karpenter_are_on_when_named() {
        let off = parse(&[]).unwrap().aws;
        assert!(!off.isolated_vpc && !off.eks_control_plane && !off.enable_zonal_shift);
        let on = parse(&["--isolated-vpc", "--enable-zonal-shift=true"]);
        let on = on.unwrap();
        assert!(on.aws.isolated_vpc && on.aws.enable_zonal_shift);
        on.config().unwrap();
        let gate = parse(&["--aws-feature-gates=NodeClassCEL=true"]).unwrap();
        assert!(gate.aws.shape().unwrap().expressions);
        assert!(!off.shape().unwrap().expressions);
    }
}
