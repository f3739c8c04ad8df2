//! What EC2 answers to a fleet request: an instance, or why each override gave none. Pure.

use aws_sdk_ec2::operation::create_fleet::CreateFleetOutput;
use aws_sdk_ec2::types::{CreateFleetError, CreateFleetInstance};
use mortise_cloudprovider::{CapacityType, LaunchError, UnavailableOffering};

use crate::failure::{self, SPOT_ROLE, SUBNET_FULL};
use crate::instances::{InstanceDescription, InstanceRecord};
use crate::launch::error::{AttemptError, create_error};
use crate::launch::fleet_request::FleetRequest;
use crate::node_class::CachedNodeClass;
use crate::offerings::unavailable_offerings::UnavailableKey;

/// Why one override gave no instance.
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
    pub(crate) instance: Option<InstanceRecord>,
    pub(crate) errors: Vec<FleetError>,
}

impl FleetResponse {
    /// Reads the answer to a request.
    pub(crate) fn parse(answer: &CreateFleetOutput, request: &FleetRequest) -> Self {
        let mut instances = answer.instances().iter();
        Self {
            instance: instances.find_map(|instance| record(instance, request)),
            errors: answer.errors().iter().map(FleetError::parse).collect(),
        }
    }

    /// What the errors say is unavailable now. Sorted, unique.
    pub(crate) fn unavailable(
        &self,
        class: &CachedNodeClass,
        capacity_type: CapacityType,
    ) -> Vec<UnavailableKey> {
        let errors = self.errors.iter();
        let mut all: Vec<UnavailableKey> = errors
            .flat_map(|error| error.unavailable(class, capacity_type))
            .collect();
        all.sort();
        all.dedup();
        all
    }

    /// Why there is no instance. A lack of capacity counts only when there is no other cause.
    pub(crate) fn failure(&self, unavailable: Vec<UnavailableOffering>) -> AttemptError {
        let errors = &self.errors;
        if errors
            .iter()
            .any(|error| failure::is_template_missing(&error.code))
        {
            return AttemptError::TemplateGone;
        }
        if let Some(error) = errors
            .iter()
            .find(|error| !failure::is_shortage(&error.code))
        {
            let (reason, message) = failure::launch_reason(&error.code, &error.message);
            return create_error(reason, message).into();
        }
        let mut texts: Vec<String> = errors
            .iter()
            .map(|error| format!("{}: {}", error.code, error.message))
            .collect();
        texts.dedup();
        texts.truncate(3); // one cause usually repeats for every type
        if texts.is_empty() {
            return create_error(
                "LaunchFailed",
                "EC2 launched no instance and returned no reason",
            )
            .into();
        }
        let message = texts.join("; ");
        LaunchError::InsufficientCapacity {
            message,
            unavailable,
        }
        .into()
    }
}

impl FleetError {
    fn parse(error: &CreateFleetError) -> Self {
        let chosen = error
            .launch_template_and_overrides()
            .and_then(|each| each.overrides());
        Self {
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

    /// What the error says is unavailable. Without the role for spot instances, the whole capacity type is.
    fn unavailable(
        &self,
        class: &CachedNodeClass,
        capacity_type: CapacityType,
    ) -> Vec<UnavailableKey> {
        let role =
            (self.code == SPOT_ROLE).then_some(UnavailableKey::CapacityType(CapacityType::Spot));
        let place = if self.code == SUBNET_FULL {
            self.subnet.clone().map(UnavailableKey::Subnet)
        } else {
            self.offering(class, capacity_type)
                .filter(|_| failure::is_shortage(&self.code))
                .map(UnavailableKey::Offering)
        };
        role.into_iter().chain(place).collect()
    }

    /// The offering that was asked for, if the error names it.
    fn offering(
        &self,
        class: &CachedNodeClass,
        capacity_type: CapacityType,
    ) -> Option<UnavailableOffering> {
        let of_subnet = || {
            class
                .subnets
                .iter()
                .find(|each| Some(&each.subnet.id) == self.subnet.as_ref())
                .map(|each| each.subnet.zone.clone())
        };
        let zone = self.zone.clone().or_else(of_subnet)?;
        Some(UnavailableOffering {
            instance_type: self.instance_type.as_deref()?.into(),
            zone: zone.into(),
            capacity_type,
        })
    }
}

/// The instance; `None` when EC2 does not say what and where it is.
fn record(instance: &CreateFleetInstance, request: &FleetRequest) -> Option<InstanceRecord> {
    let id = instance.instance_ids().first()?.clone();
    let chosen = instance
        .launch_template_and_overrides()
        .and_then(|each| each.overrides());
    let subnet = instance
        .subnet_id()
        .or_else(|| chosen.and_then(|chosen| chosen.subnet_id()))
        .map(str::to_owned);
    let of_subnet = || {
        request
            .templates
            .iter()
            .flat_map(|(_, overrides)| overrides)
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
        capacity_type: request.capacity_type,
        reservation: None,
        subnet,
        image: None,
        dedicated: request.dedicated,
        groups: Vec::new(),
        described: InstanceDescription::default(),
    })
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::{
        FleetLaunchTemplateOverrides, InstanceType, LaunchTemplateAndOverridesResponse,
    };

    use super::*;
    use crate::launch::fleet_request::Override;

    fn error(code: &str) -> FleetError {
        FleetError {
            code: code.to_owned(),
            message: "said".to_owned(),
            instance_type: None,
            zone: None,
            subnet: None,
        }
    }

    #[test]
    fn another_cause_than_capacity_is_reported_first() {
        let shortage = "InsufficientInstanceCapacity";
        for (codes, expected) in [
            (
                &[shortage, "InvalidLaunchTemplateName.NotFoundException"][..],
                "LaunchTemplateNotFound: Launch template used for instance launch wasn't found",
            ),
            (
                &[shortage, "InvalidAMIID.NotFound"],
                "AMINotFound: AMI used for instance launch not found (InvalidAMIID.NotFound: said)",
            ),
            (
                &[shortage, shortage, "UnfulfillableCapacity"],
                "insufficient capacity: InsufficientInstanceCapacity: said; UnfulfillableCapacity: said",
            ),
            (
                &[],
                "LaunchFailed: EC2 launched no instance and returned no reason",
            ),
        ] {
            let response = FleetResponse {
                instance: None,
                errors: codes.iter().map(|code| error(code)).collect(),
            };
            let failure = LaunchError::from(response.failure(Vec::new()));
            assert_eq!(failure.to_string(), expected, "{codes:?}");
        }
    }

    #[test]
    fn an_instance_is_in_the_zone_of_its_subnet() {
        let request = FleetRequest {
            token: "u".to_owned(),
            capacity_type: CapacityType::Spot,
            by_priority: false,
            context: None,
            dedicated: false,
            templates: vec![(
                "t".to_owned(),
                vec![Override {
                    instance_type: "m5.large".to_owned(),
                    subnet: "subnet-1".to_owned(),
                    zone: "us-east-1a".to_owned(),
                    price: None,
                }],
            )],
            tags: std::collections::BTreeMap::new(),
        };
        let answered = |subnet: &str| {
            let overrides = FleetLaunchTemplateOverrides::builder().subnet_id(subnet);
            let chosen = LaunchTemplateAndOverridesResponse::builder()
                .overrides(overrides.build())
                .build();
            let instance = CreateFleetInstance::builder()
                .instance_ids("i-1")
                .instance_type(InstanceType::M5Large)
                .launch_template_and_overrides(chosen)
                .build();
            let answer = CreateFleetOutput::builder().instances(instance).build();
            FleetResponse::parse(&answer, &request).instance
        };
        let instance = answered("subnet-1").unwrap();
        assert_eq!(
            (&*instance.id, &*instance.instance_type, &*instance.zone),
            ("i-1", "m5.large", "us-east-1a")
        );
        assert_eq!(answered("subnet-2"), None, "its zone is not known");
    }
}
