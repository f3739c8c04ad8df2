//! Whether the controller may launch with a class: AWS is asked to do it without doing it.
//!
//! The launch template is made for good: EC2 checks what is in a template only when something is launched from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_config::retry::RetryConfig;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::types::{
    DefaultTargetCapacityType, FleetLaunchTemplateConfigRequest,
    FleetLaunchTemplateOverridesRequest, FleetLaunchTemplateSpecificationRequest,
    FleetOnDemandAllocationStrategy, FleetType, InstanceNetworkInterfaceSpecification,
    LaunchTemplateSpecification, OnDemandOptionsRequest, ResourceType, TagSpecification,
    TargetCapacitySpecificationRequest,
};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::resources::Resources;
use mortise_aws_class::spec::Ec2NodeClassSpec;
use mortise_aws_class::status::Subnet;
use mortise_cloudprovider::{BoxFuture, CapacityType, InstanceType, LaunchError};

use crate::config::AwsConfig;
use crate::failure::{self, Failure};
use crate::launch::fleet_input::{FleetInput, NodeNetwork};
use crate::launch::probe_type::{self, is_dedicated};
use crate::launch::selection::LaunchSelection;
use crate::launch::template::LaunchTemplate;
use crate::launch::templates::LaunchTemplates;
use crate::node_class::launch_trial::{LaunchTrial, Verdict};
use crate::node_class::{CachedNodeClass, UnmetCondition};
use crate::sdk::AwsClients;
use crate::sdk::arguments::ec2_tags;
use crate::sdk::cluster_info::ClusterInfo;
use crate::tags;
use mortise_aws_catalog::instance_type_info::InstanceTypeInfo;

/// What EC2 answers to a dry run that it would have done.
const PASSED: &str = "DryRunOperation";
/// What it says of a profile that it does not know.
const NO_PROFILE: &str = "Invalid IAM Instance Profile name";

/// Reason of user data that EC2 does not take.
const TOO_LARGE: &str = "UserDataSizeLimitExceeded";

/// Why a step was not passed.
type StepResult = Result<(), Verdict>;

/// Asks AWS.
#[derive(Debug)]
pub(crate) struct DryRuns {
    clients: Arc<AwsClients>,
    config: Arc<AwsConfig>,
    templates: Arc<LaunchTemplates>,
}

/// What is tried: one type, in the subnets of the class.
#[derive(Clone, Copy, Debug)]
struct Probe<'a> {
    class: &'a CachedNodeClass,
    instance_type: &'a InstanceType,
    /// Name of the launch template.
    template: &'a str,
}

impl LaunchTrial for DryRuns {
    fn run<'a>(
        &'a self,
        class: &'a CachedNodeClass,
        cluster: &'a ClusterInfo,
        known: &'a [InstanceTypeInfo],
        pools: &'a [Arc<NodePool>],
    ) -> BoxFuture<'a, Verdict> {
        Box::pin(self.tried(class, cluster, known, pools))
    }
}

impl DryRuns {
    /// Calls nothing yet.
    pub(crate) const fn new(
        clients: Arc<AwsClients>,
        config: Arc<AwsConfig>,
        templates: Arc<LaunchTemplates>,
    ) -> Self {
        Self {
            clients,
            config,
            templates,
        }
    }

    /// Whether a type that the pools are likely to launch can be launched with the class.
    async fn tried(
        &self,
        class: &CachedNodeClass,
        cluster: &ClusterInfo,
        known: &[InstanceTypeInfo],
        pools: &[Arc<NodePool>],
    ) -> Verdict {
        let Some(instance_type) = probe_type::choose(class, known, pools) else {
            return Verdict::RefusedForNow(UnmetCondition::new(
                "NoCompatibleAMI",
                "none of the selected AMIs boots an instance type that can be launched with this class; select an AMI of another architecture, or allow other instance types in the NodePools",
            ));
        };
        let template = match self.template(class, cluster, instance_type, is_dedicated(pools)) {
            Ok(template) => template,
            Err(verdict) => return verdict,
        };
        let name = match self.templates.ensure(&template).await {
            Ok(name) => name,
            Err(failure) => return refused_template(failure),
        };
        let probe = Probe {
            class,
            instance_type,
            template: &name,
        };
        match self.steps(probe).await {
            Err(Verdict::Unknown(Some(failure))) if failure::is_template_missing(&failure.code) => {
                // Another actor deleted the template after it was seen: it is made again the next time.
                self.templates.forget([&*name]);
                Verdict::Unknown(None)
            }
            Err(verdict) => verdict,
            Ok(()) => Verdict::Passed,
        }
    }

    async fn steps(&self, probe: Probe<'_>) -> StepResult {
        self.create_fleet(probe).await?;
        self.run_instances(probe).await
    }

    /// The template that a launch of the type would use.
    fn template(
        &self,
        class: &CachedNodeClass,
        cluster: &ClusterInfo,
        instance_type: &InstanceType,
        dedicated: bool,
    ) -> Result<LaunchTemplate, Verdict> {
        let nothing = LaunchSelection {
            capacity_type: CapacityType::OnDemand,
            reservation: None,
            candidates: Vec::new(),
        };
        let input = FleetInput {
            config: &self.config,
            region: &self.clients.region,
            network: NodeNetwork::of(cluster, &self.config),
            claim: &NodeClaim::default(),
            uid: "",
            count: 1,
            batch: None,
            class,
            selection: &nothing,
            requests: &Resources::zero(),
            dedicated,
            partition: None,
            reserved: &BTreeMap::new(),
        };
        input.template_of(instance_type).map_err(invalid)
    }

    async fn create_fleet(&self, probe: Probe<'_>) -> StepResult {
        let overrides = probe.subnets().iter().map(|subnet| {
            FleetLaunchTemplateOverridesRequest::builder()
                .instance_type((&*probe.instance_type.name).into())
                .subnet_id(&subnet.id)
                .build()
        });
        let template = FleetLaunchTemplateSpecificationRequest::builder()
            .launch_template_name(probe.template)
            .version("$Latest")
            .build();
        let config = FleetLaunchTemplateConfigRequest::builder()
            .launch_template_specification(template)
            .set_overrides(Some(overrides.collect()))
            .build();
        let kinds = [
            ResourceType::Fleet,
            ResourceType::Instance,
            ResourceType::Volume,
        ];
        let call = self
            .clients
            .ec2
            .create_fleet()
            .dry_run(true)
            .r#type(FleetType::Instant)
            .launch_template_configs(config)
            .on_demand_options(
                OnDemandOptionsRequest::builder()
                    .allocation_strategy(FleetOnDemandAllocationStrategy::LowestPrice)
                    .build(),
            )
            .target_capacity_specification(
                TargetCapacitySpecificationRequest::builder()
                    .default_target_capacity_type(DefaultTargetCapacityType::OnDemand)
                    .total_target_capacity(1)
                    .build(),
            )
            .set_tag_specifications(Some(self.tagged(probe.class, kinds)))
            .customize()
            .config_override(once());
        match self.passed("ec2:CreateFleet", call.send().await) {
            Ok(()) => Ok(()),
            Err(failure) if is_refused(&failure) => Err(Verdict::Refused(not_authorized(
                "CreateFleetAuthCheckFailed",
                "Controller isn't authorized to call ec2:CreateFleet",
                &failure,
            ))),
            Err(failure) => Err(unknown(failure)),
        }
    }

    /// One subnet that is accepted is enough. Of those that are not, the first one's reason counts.
    async fn run_instances(&self, probe: Probe<'_>) -> StepResult {
        let mut first = None;
        for subnet in probe.subnets() {
            match self.run_in(probe, subnet).await {
                Ok(()) => return Ok(()),
                Err(failure) => first = first.or(Some(failure)),
            }
        }
        let Some(failure) = first else {
            return Ok(());
        };
        let spec = &probe.class.object.spec;
        Err(if is_refused(&failure) {
            Verdict::Refused(not_authorized(
                "RunInstancesAuthCheckFailed",
                "Controller isn't authorized to call ec2:RunInstances",
                &failure,
            ))
        } else if failure.message.contains(NO_PROFILE) {
            match &spec.instance_profile {
                Some(name) => Verdict::RefusedForNow(UnmetCondition::new(
                    "InstanceProfileNotFound",
                    format!("Instance profile {name:?} not found"),
                )),
                // Ours was made a moment ago, and is not visible everywhere yet.
                None => Verdict::Unknown(None),
            }
        } else {
            unknown(failure)
        })
    }

    async fn run_in(&self, probe: Probe<'_>, subnet: &Subnet) -> Result<(), Failure> {
        let kinds = [
            ResourceType::Instance,
            ResourceType::NetworkInterface,
            ResourceType::Volume,
        ];
        let template = LaunchTemplateSpecification::builder()
            .launch_template_name(probe.template)
            .version("$Latest")
            .build();
        let call = self
            .clients
            .ec2
            .run_instances()
            .dry_run(true)
            .min_count(1)
            .max_count(1)
            .instance_type((&*probe.instance_type.name).into())
            .launch_template(template)
            .set_network_interfaces(Some(interfaces(&probe.class.object.spec, subnet)))
            .set_tag_specifications(Some(self.tagged(probe.class, kinds)))
            .customize()
            .config_override(once());
        self.passed("ec2:RunInstances", call.send().await)
    }

    /// A dry run never succeeds: what passes is an error of its own.
    fn passed<T, E, R>(
        &self,
        action: &'static str,
        result: Result<T, SdkError<E, R>>,
    ) -> Result<(), Failure>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
        R: std::fmt::Debug + 'static,
    {
        match result.map_err(|error| self.clients.failure(action, error)) {
            Ok(_) => Ok(()),
            Err(failure) if failure.code == PASSED => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn tagged(&self, class: &CachedNodeClass, kinds: [ResourceType; 3]) -> Vec<TagSpecification> {
        let cluster = &self.config.cluster_name;
        let mut tags: BTreeMap<String, String> = class.object.spec.tags.clone().unwrap_or_default();
        tags.extend([
            (tags::cluster_tag(cluster), tags::OWNED.to_owned()),
            (tags::EKS_CLUSTER.to_owned(), cluster.clone()),
            (tags::NODEPOOL.to_owned(), String::new()),
            (tags::NODE_CLASS.to_owned(), class.name().to_owned()),
        ]);
        let of = |kind| {
            TagSpecification::builder()
                .resource_type(kind)
                .set_tags(Some(ec2_tags(&tags)))
                .build()
        };
        kinds.into_iter().map(of).collect()
    }
}

impl<'a> Probe<'a> {
    fn subnets(&self) -> &'a [Subnet] {
        &self.class.object.status.subnets
    }
}

/// The network interfaces of the class in a subnet.
fn interfaces(
    spec: &Ec2NodeClassSpec,
    subnet: &Subnet,
) -> Vec<InstanceNetworkInterfaceSpecification> {
    let of = || InstanceNetworkInterfaceSpecification::builder().subnet_id(&subnet.id);
    let own = spec.network_interfaces.as_deref().unwrap_or_default();
    if own.is_empty() {
        return vec![of().device_index(0).build()];
    }
    own.iter()
        .map(|each| {
            of().network_card_index(each.network_card_index)
                .device_index(each.device_index)
                .interface_type(&each.interface_type)
                .build()
        })
        .collect()
}

/// Settings of a call that is made once: its answer is an error, which the SDK would take for a reason to repeat it.
fn once() -> aws_sdk_ec2::config::Builder {
    aws_sdk_ec2::config::Builder::new().retry_config(RetryConfig::disabled())
}

fn is_refused(failure: &Failure) -> bool {
    failure.code == "UnauthorizedOperation"
}

fn not_authorized(reason: &'static str, base: &str, failure: &Failure) -> UnmetCondition {
    let said = format!("{}: {}", failure.code, failure.message);
    let (_, classified) = failure::launch_reason(&said);
    UnmetCondition::new(reason, format!("{base}: {classified}"))
}

/// A failure that says nothing about the class. One that passes is not worth a word.
fn unknown(failure: Failure) -> Verdict {
    Verdict::Unknown(Some(failure).filter(|failure| !failure.passes()))
}

fn refused_template(failure: Failure) -> Verdict {
    if is_refused(&failure) {
        return Verdict::Refused(not_authorized(
            "CreateLaunchTemplateAuthCheckFailed",
            "Controller isn't authorized to call ec2:CreateLaunchTemplate",
            &failure,
        ));
    }
    if failure.message.contains("User data is limited to") {
        return Verdict::Refused(not_authorized(
            TOO_LARGE,
            "ec2:CreateLaunchTemplate rejected the rendered user data as too large",
            &failure,
        ));
    }
    unknown(failure)
}

/// A class from which no template can be made, because of what it says.
fn invalid(error: LaunchError) -> Verdict {
    match error {
        LaunchError::Create { reason, message } if reason == TOO_LARGE => {
            Verdict::RefusedForNow(UnmetCondition::new(TOO_LARGE, message))
        }
        LaunchError::Create { message, .. } => {
            Verdict::RefusedForNow(UnmetCondition::new("UserDataInvalid", message))
        }
        other => {
            tracing::warn!(error = %other, "no launch template can be made to validate a node class");
            Verdict::Unknown(None)
        }
    }
}

#[cfg(test)]
mod tests;
