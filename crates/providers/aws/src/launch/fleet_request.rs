//! The fleet request: one instance or several of the same kind, out of many types and zones, now.

use std::collections::BTreeMap;

use aws_sdk_ec2::operation::create_fleet::CreateFleetOutput;
use aws_sdk_ec2::types::{
    DefaultTargetCapacityType, FleetLaunchTemplateConfigRequest,
    FleetLaunchTemplateOverridesRequest, FleetLaunchTemplateSpecificationRequest,
    FleetOnDemandAllocationStrategy, FleetReservationType, FleetType, OnDemandOptionsRequest,
    ReservedCapacityOptionsRequest, ResourceType, SpotAllocationStrategy, SpotOptionsRequest,
    TagSpecification, TargetCapacitySpecificationRequest,
};
use mortise_cloudprovider::CapacityType;

use crate::failure::Failure;
use crate::launch::filters::ReservationKind;
use crate::launch::launch_price::LaunchPrice;
use crate::sdk::AwsClients;
use crate::sdk::arguments::ec2_tags;

/// One way to fulfil the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) instance_type: String,
    pub(crate) image: String,
    pub(crate) subnet: String,
    pub(crate) zone: String,
    pub(crate) price: Option<LaunchPrice>,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct FleetRequest {
    /// Makes a repetition of the same request harmless.
    pub(crate) token: String,
    /// How many instances.
    pub(crate) count: usize,
    pub(crate) capacity_type: CapacityType,
    /// The kind of reservation to launch into, if it is reserved.
    pub(crate) reservation: Option<ReservationKind>,
    /// Prices were adjusted by the user: our order counts, not EC2's prices.
    pub(crate) by_priority: bool,
    pub(crate) context: Option<String>,
    /// On hardware of one's own.
    pub(crate) dedicated: bool,
    /// Template names with their overrides.
    pub(crate) templates: Vec<(String, Vec<Override>)>,
    /// Tags of instance, volumes and fleet.
    pub(crate) tags: BTreeMap<String, String>,
}

impl FleetRequest {
    /// Sends the request.
    pub(crate) async fn send(&self, clients: &AwsClients) -> Result<CreateFleetOutput, Failure> {
        let call = clients
            .ec2
            .create_fleet()
            .client_token(&self.token)
            .r#type(FleetType::Instant)
            .target_capacity_specification(self.target())
            .set_context(self.context.clone())
            .set_launch_template_configs(Some(self.configs()))
            .set_tag_specifications(Some(self.tag_specifications()))
            .set_spot_options(self.spot_options())
            .set_on_demand_options(self.on_demand_options())
            .set_reserved_capacity_options(self.reserved_capacity_options());
        call.send()
            .await
            .map_err(|error| clients.failure("ec2:CreateFleet", error))
    }

    fn is_spot(&self) -> bool {
        self.capacity_type == CapacityType::Spot
    }

    fn target(&self) -> TargetCapacitySpecificationRequest {
        let kind = match self.reservation {
            Some(ReservationKind::Block) => DefaultTargetCapacityType::CapacityBlock,
            Some(ReservationKind::Interruptible) => DefaultTargetCapacityType::ReservedCapacity,
            // The templates name the reservation, which is an on-demand one.
            Some(ReservationKind::Default) => DefaultTargetCapacityType::OnDemand,
            None if self.is_spot() => DefaultTargetCapacityType::Spot,
            None => DefaultTargetCapacityType::OnDemand,
        };
        TargetCapacitySpecificationRequest::builder()
            .total_target_capacity(i32::try_from(self.count).unwrap_or(i32::MAX))
            .default_target_capacity_type(kind)
            .build()
    }

    fn spot_options(&self) -> Option<SpotOptionsRequest> {
        let strategy = if self.by_priority {
            SpotAllocationStrategy::CapacityOptimizedPrioritized
        } else {
            SpotAllocationStrategy::PriceCapacityOptimized
        };
        self.is_spot().then(|| {
            SpotOptionsRequest::builder()
                .allocation_strategy(strategy)
                .build()
        })
    }

    fn on_demand_options(&self) -> Option<OnDemandOptionsRequest> {
        let strategy = if self.by_priority {
            FleetOnDemandAllocationStrategy::Prioritized
        } else {
            FleetOnDemandAllocationStrategy::LowestPrice
        };
        let special = matches!(
            self.reservation,
            Some(ReservationKind::Block | ReservationKind::Interruptible)
        );
        (!self.is_spot() && !special).then(|| {
            OnDemandOptionsRequest::builder()
                .allocation_strategy(strategy)
                .build()
        })
    }

    fn reserved_capacity_options(&self) -> Option<ReservedCapacityOptionsRequest> {
        (self.reservation == Some(ReservationKind::Interruptible)).then(|| {
            ReservedCapacityOptionsRequest::builder()
                .reservation_types(FleetReservationType::from(
                    "interruptible-capacity-reservation",
                ))
                .build()
        })
    }

    fn configs(&self) -> Vec<FleetLaunchTemplateConfigRequest> {
        self.templates
            .iter()
            .map(|(name, overrides)| config(name, overrides))
            .collect()
    }

    fn tag_specifications(&self) -> Vec<TagSpecification> {
        let tagged = |kind: ResourceType| {
            TagSpecification::builder()
                .resource_type(kind)
                .set_tags(Some(ec2_tags(&self.tags)))
                .build()
        };
        [
            ResourceType::Instance,
            ResourceType::Volume,
            ResourceType::Fleet,
        ]
        .map(tagged)
        .into()
    }
}

fn config(name: &str, overrides: &[Override]) -> FleetLaunchTemplateConfigRequest {
    let template = FleetLaunchTemplateSpecificationRequest::builder()
        .launch_template_name(name)
        .version("$Latest")
        .build();
    let overrides = overrides.iter().map(|each| {
        FleetLaunchTemplateOverridesRequest::builder()
            .instance_type(each.instance_type.as_str().into())
            .image_id(&each.image)
            .subnet_id(&each.subnet)
            .availability_zone(&each.zone)
            .set_priority(each.price.map(LaunchPrice::dollars))
            .build()
    });
    FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(template)
        .set_overrides(Some(overrides.collect()))
        .build()
}
