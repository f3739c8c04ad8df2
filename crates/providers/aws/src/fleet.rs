//! The fleet request: one machine, out of many types and zones, now.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{
    CreateFleetError, DefaultTargetCapacityType, FleetLaunchTemplateConfigRequest,
    FleetLaunchTemplateOverridesRequest, FleetLaunchTemplateSpecificationRequest,
    FleetOnDemandAllocationStrategy, FleetType, OnDemandOptionsRequest, ResourceType,
    SpotAllocationStrategy, SpotOptionsRequest, TagSpecification,
    TargetCapacitySpecificationRequest,
};
use mortise_core::cloud::CapacityType;
use mortise_core::money::MicroUsd;

use crate::failure::Failure;
use crate::instance_cache::InstanceRecord;
use crate::launch_templates::tags;
use crate::provider::AwsProvider;

/// One way to fulfil the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) instance_type: String,
    pub(crate) subnet: String,
    pub(crate) zone: String,
    pub(crate) price: Option<MicroUsd>,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct FleetRequest {
    /// Makes a repetition of the same request harmless.
    pub(crate) token: String,
    pub(crate) capacity_type: CapacityType,
    /// Prices were adjusted by the user: our order counts, not EC2's prices.
    pub(crate) by_priority: bool,
    pub(crate) context: Option<String>,
    /// On hardware of one's own.
    pub(crate) dedicated: bool,
    /// Template names with their overrides.
    pub(crate) templates: Vec<(String, Vec<Override>)>,
    /// Tags of machine, volumes and fleet.
    pub(crate) tags: BTreeMap<String, String>,
}

/// Why one override gave no machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FleetError {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) instance_type: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) subnet: Option<String>,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct FleetResponse {
    pub(crate) machine: Option<InstanceRecord>,
    pub(crate) errors: Vec<FleetError>,
}

impl AwsProvider {
    /// Sends the request.
    pub(crate) async fn create_fleet(
        &self,
        fleet: &FleetRequest,
    ) -> Result<FleetResponse, Failure> {
        let spot = fleet.capacity_type == CapacityType::Spot;
        let kind = if spot {
            DefaultTargetCapacityType::Spot
        } else {
            DefaultTargetCapacityType::OnDemand
        };
        let tagged = |kind: ResourceType| {
            TagSpecification::builder()
                .resource_type(kind)
                .set_tags(Some(tags(&fleet.tags)))
                .build()
        };
        let target = TargetCapacitySpecificationRequest::builder()
            .total_target_capacity(1)
            .default_target_capacity_type(kind)
            .build();
        let mut call = self
            .api
            .ec2
            .create_fleet()
            .client_token(&fleet.token)
            .r#type(FleetType::Instant)
            .target_capacity_specification(target)
            .set_context(fleet.context.clone())
            .set_launch_template_configs(Some(
                fleet
                    .templates
                    .iter()
                    .map(|(name, overrides)| config(name, overrides, fleet.by_priority))
                    .collect(),
            ))
            .set_tag_specifications(Some(
                [
                    ResourceType::Instance,
                    ResourceType::Volume,
                    ResourceType::Fleet,
                ]
                .map(tagged)
                .into(),
            ));
        call = if spot {
            let strategy = if fleet.by_priority {
                SpotAllocationStrategy::CapacityOptimizedPrioritized
            } else {
                SpotAllocationStrategy::PriceCapacityOptimized
            };
            call.spot_options(
                SpotOptionsRequest::builder()
                    .allocation_strategy(strategy)
                    .build(),
            )
        } else {
            let strategy = if fleet.by_priority {
                FleetOnDemandAllocationStrategy::Prioritized
            } else {
                FleetOnDemandAllocationStrategy::LowestPrice
            };
            call.on_demand_options(
                OnDemandOptionsRequest::builder()
                    .allocation_strategy(strategy)
                    .build(),
            )
        };
        let answer = call
            .send()
            .await
            .map_err(|error| self.api.failure("ec2:CreateFleet", error))?;
        let overrides = || fleet.templates.iter().flat_map(|(_, overrides)| overrides);
        let machine = answer.instances().iter().find_map(|instance| {
            let id = instance.instance_ids().first()?.clone();
            let chosen = instance
                .launch_template_and_overrides()
                .and_then(|each| each.overrides());
            let subnet = instance
                .subnet_id()
                .or_else(|| chosen.and_then(|chosen| chosen.subnet_id()))
                .map(str::to_owned);
            let of_subnet = || {
                overrides()
                    .find(|each| Some(&each.subnet) == subnet.as_ref())
                    .map(|each| each.zone.clone())
            };
            let zone = instance
                .availability_zone()
                .or_else(|| chosen.and_then(|chosen| chosen.availability_zone()))
                .map(str::to_owned)
                .or_else(of_subnet)?;
            let instance_type = instance
                .instance_type()
                .or_else(|| chosen.and_then(|chosen| chosen.instance_type()))?
                .as_str()
                .to_owned();
            Some(InstanceRecord {
                id,
                instance_type,
                zone,
                capacity_type: fleet.capacity_type,
                subnet,
                image: None,
                dedicated: fleet.dedicated,
                groups: Vec::new(),
            })
        });
        Ok(FleetResponse {
            machine,
            errors: answer.errors().iter().map(error).collect(),
        })
    }
}

fn config(
    name: &str,
    overrides: &[Override],
    by_priority: bool,
) -> FleetLaunchTemplateConfigRequest {
    let template = FleetLaunchTemplateSpecificationRequest::builder()
        .launch_template_name(name)
        .version("$Latest")
        .build();
    let overrides = overrides.iter().map(|each| {
        FleetLaunchTemplateOverridesRequest::builder()
            .instance_type(each.instance_type.as_str().into())
            .subnet_id(&each.subnet)
            .availability_zone(&each.zone)
            .set_priority(each.price.filter(|_| by_priority).map(MicroUsd::dollars))
            .build()
    });
    FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(template)
        .set_overrides(Some(overrides.collect()))
        .build()
}

fn error(error: &CreateFleetError) -> FleetError {
    let chosen = error
        .launch_template_and_overrides()
        .and_then(|each| each.overrides());
    FleetError {
        code: error.error_code().unwrap_or_default().to_owned(),
        message: error.error_message().unwrap_or_default().to_owned(),
        instance_type: chosen
            .and_then(|chosen| chosen.instance_type())
            .map(|each| each.as_str().to_owned()),
        zone: chosen
            .and_then(|chosen| chosen.availability_zone())
            .map(str::to_owned),
        subnet: chosen
            .and_then(|chosen| chosen.subnet_id())
            .map(str::to_owned),
    }
}
