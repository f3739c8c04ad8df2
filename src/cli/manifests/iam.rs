//! `mortise manifests iam`: roles and policies in an AWS account.

use clap::{Args, ValueEnum};
use mortise_aws_class::install::{AccountFacts, Identity, Installation, plain};

use super::yaml;

/// How what an account needs is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IamFormat {
    /// A template for `aws cloudformation deploy`
    Cloudformation,
    /// A configuration of the AWS provider
    Terraform,
    /// Names and policy documents of one account
    Json,
}

/// How the service proves to the account who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IdentityForm {
    /// EKS Pod Identity
    PodIdentity,
    /// IAM roles for service accounts
    Irsa,
}

/// AWS: roles of the controller and of the nodes, with exactly the permissions that the service uses
#[derive(Args)]
pub(super) struct IamArgs {
    /// Name of the EKS cluster; a parameter of the template and of the configuration, with this default
    #[arg(long, env = "CLUSTER_NAME")]
    cluster_name: String,
    /// Form
    #[arg(long, value_enum, default_value = "cloudformation")]
    format: IamFormat,
    /// How the service account gets the controller's role
    #[arg(long, value_enum, default_value = "pod-identity")]
    identity: IdentityForm,
    /// Role of the nodes [default: KarpenterNodeRole-CLUSTER]
    #[arg(long, value_name = "NAME")]
    node_role: Option<String>,
    /// Role of the controller [default: MortiseController-CLUSTER]
    #[arg(long, value_name = "NAME")]
    controller_role: Option<String>,
    /// Queue of interruption messages; empty: none [default: the cluster's name]
    #[arg(long, env = "INTERRUPTION_QUEUE", value_name = "NAME")]
    interruption_queue: Option<String>,
    /// Namespace of the service
    #[arg(long, default_value = "kube-system")]
    namespace: String,
    /// Service account of the service
    #[arg(long, default_value = "mortise", value_name = "NAME")]
    service_account: String,
    /// irsa: issuer of the cluster's service account tokens, without https://
    #[arg(long, value_name = "HOST/PATH")]
    oidc_provider: Option<String>,
    /// The service runs with --isolated-vpc: no permissions for instance profiles and prices
    #[arg(long)]
    isolated_vpc: bool,
    /// The service runs with --enable-zonal-shift
    #[arg(long)]
    enable_zonal_shift: bool,
    /// Image parameters of node classes outside of /aws/service/, such as /golden/* (repeatable)
    #[arg(long = "ssm-parameter", value_name = "NAME")]
    ssm_parameters: Vec<String>,
    /// json: region of the cluster
    #[arg(long, required_if_eq("format", "json"))]
    region: Option<String>,
    /// json: number of the account
    #[arg(long, required_if_eq("format", "json"))]
    account: Option<String>,
}

/// The name in templates, so that it follows the parameter.
const CLUSTER: &str = "${ClusterName}";

impl IamArgs {
    fn installation(&self) -> Installation {
        let of_cluster = |own: &Option<String>, begin: &str| {
            own.clone().unwrap_or_else(|| format!("{begin}{CLUSTER}"))
        };
        let queue = of_cluster(&self.interruption_queue, "");
        Installation {
            cluster: self.cluster_name.clone(),
            node_role: of_cluster(&self.node_role, "KarpenterNodeRole-"),
            controller_role: of_cluster(&self.controller_role, "MortiseController-"),
            queue: Some(queue).filter(|name| !name.is_empty()),
            namespace: self.namespace.clone(),
            service_account: self.service_account.clone(),
            identity: match self.identity {
                IdentityForm::PodIdentity => Identity::PodIdentity,
                IdentityForm::Irsa => Identity::Irsa,
            },
            oidc_provider: self.oidc_provider.clone(),
            isolated_vpc: self.isolated_vpc,
            zonal_shift: self.enable_zonal_shift,
            parameters: self.ssm_parameters.clone(),
        }
    }

    /// What is written.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let installation = self.installation();
        installation.check()?;
        match self.format {
            IamFormat::Cloudformation => yaml(&installation.cloud_formation()),
            IamFormat::Terraform => Ok(installation.terraform()),
            IamFormat::Json => {
                let account = AccountFacts {
                    region: self.region.clone().unwrap_or_default(),
                    account: self.account.clone().unwrap_or_default(),
                };
                Ok(format!("{:#}", plain(&installation, &account)?))
            }
        }
    }
}
