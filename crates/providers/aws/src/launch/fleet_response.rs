//! What EC2 answers to a fleet request: instances, and why overrides gave none. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_sdk_ec2::operation::create_fleet::CreateFleetOutput;
use aws_sdk_ec2::types::{CreateFleetError, CreateFleetInstance};
use mortise_cloudprovider::{CapacityType, LaunchError, Prerequisite, UnavailableOffering};

use crate::failure::{self, SPOT_PREREQUISITE, SPOT_ROLE, SUBNET_FULL};
use crate::instances::{InstanceDescription, InstanceRecord};
use crate::launch::error::{AttemptError, failed_offerings};
use crate::launch::fleet_request::FleetRequest;
use crate::launch::selection::LaunchSelection;
use crate::node_class::CachedNodeClass;
use crate::offerings::unavailable_offerings::{PlacementScope, UnavailableKey};

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
    /// As many as were asked for, or fewer. Sorted by id.
    pub(crate) instances: Vec<InstanceRecord>,
    pub(crate) errors: Vec<FleetError>,
}

/// What was asked for, as far as the errors of the answer need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetSubject<'a> {
    pub(crate) class: &'a CachedNodeClass,
    pub(crate) selection: &'a LaunchSelection<'a>,
    /// Partition of the class's placement group that was asked for.
    pub(crate) partition: Option<i32>,
}

/// Something that is unavailable, and the code that said so.
pub(crate) type Shortage<'a> = (UnavailableKey, &'a str);

impl FleetResponse {
    /// Reads the answer to a request.
    pub(crate) fn parse(answer: &CreateFleetOutput, request: &FleetRequest) -> Self {
        let answered = answer.instances().iter();
        let mut instances: Vec<InstanceRecord> = answered
            .flat_map(|instance| records(instance, request))
            .collect();
        instances.sort_by(|a, b| a.id.cmp(&b.id));
        Self {
            instances,
            errors: answer.errors().iter().map(FleetError::parse).collect(),
        }
    }

    /// A template that the request names does not exist any more.
    pub(crate) fn is_template_gone(&self) -> bool {
        let mut errors = self.errors.iter();
        self.instances.is_empty() && errors.any(|error| failure::is_template_missing(&error.code))
    }

    /// What the errors say is unavailable now. Sorted, unique.
    pub(crate) fn unavailable(&self, subject: FleetSubject<'_>) -> Vec<Shortage<'_>> {
        let errors = self.errors.iter();
        let mut all: Vec<Shortage<'_>> = errors
            .flat_map(|error| {
                let keys = error.unavailable(subject).into_iter();
                keys.map(|key| (key, &*error.code))
            })
            .collect();
        all.sort();
        all.dedup_by(|a, b| a.0 == b.0);
        all
    }

    /// Ids of the reservations that the errors say are used up. Sorted, unique.
    pub(crate) fn exhausted(&self, subject: FleetSubject<'_>) -> BTreeSet<Arc<str>> {
        let errors = self.errors.iter();
        let short = errors.filter(|error| failure::is_shortage(&error.code));
        short
            .filter_map(|error| error.reservation(subject))
            .collect()
    }

    /// Why there is no instance. A lack of capacity counts only when there is no other cause.
    pub(crate) fn failure(&self, unavailable: Vec<UnavailableOffering>) -> AttemptError {
        let errors = &self.errors;
        let gone = errors
            .iter()
            .find(|error| failure::is_template_missing(&error.code));
        if let Some(error) = gone {
            return AttemptError::TemplateGone(error.text());
        }
        let mut texts: Vec<String> = Vec::new();
        for text in errors.iter().map(FleetError::text) {
            if !texts.contains(&text) {
                texts.push(text); // one cause usually repeats for every type
            }
        }
        let texts = texts.join("; ");
        if errors.is_empty() {
            return failed_offerings("EC2 launched no instance and returned no reason").into();
        }
        if !errors.iter().all(|error| failure::is_shortage(&error.code)) {
            return failed_offerings(&texts).into();
        }
        LaunchError::InsufficientCapacity {
            message: format!("with fleet error(s), {texts}"),
            unavailable,
            again_ms: None,
            missing: errors.iter().find_map(FleetError::missing),
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

    fn text(&self) -> String {
        format!("{}: {}", self.code, self.message)
    }

    /// What the account has to have first.
    fn missing(&self) -> Option<Prerequisite> {
        (self.code == SPOT_ROLE).then_some(SPOT_PREREQUISITE)
    }

    /// What the error says is unavailable. Without the role for spot instances, the whole capacity type is; of a reservation it says
    /// nothing beyond its count.
    fn unavailable(&self, subject: FleetSubject<'_>) -> Vec<UnavailableKey> {
        if subject.selection.capacity_type == CapacityType::Reserved {
            return Vec::new();
        }
        if self.code == SPOT_ROLE {
            return vec![UnavailableKey::CapacityType(CapacityType::Spot)];
        }
        let group = subject.class.placement_group.as_ref();
        if let (true, Some(group)) = (failure::is_spread_limit(&self.message), group) {
            return self.spread_limit(subject, &group.id);
        }
        if !failure::is_shortage(&self.code) {
            return Vec::new();
        }
        let offering = self.offering(subject).map(|offering| match group {
            None => UnavailableKey::Offering(offering),
            Some(group) => {
                let scope = PlacementScope {
                    group: Arc::from(&*group.id),
                    partition: subject.partition.map(|each| Arc::from(each.to_string())),
                };
                UnavailableKey::Placed(offering, scope)
            }
        });
        let full = self.subnet.clone().filter(|_| self.code == SUBNET_FULL);
        let subnet = full.map(UnavailableKey::Subnet);
        offering.into_iter().chain(subnet).collect()
    }

    /// A spread group takes no more instances in the zone, of whatever type.
    fn spread_limit(&self, subject: FleetSubject<'_>, group: &str) -> Vec<UnavailableKey> {
        let Some(zone) = self.zone(subject.class) else {
            return Vec::new();
        };
        let candidates = subject.selection.candidates.iter();
        candidates
            .map(|candidate| {
                let offering = UnavailableOffering {
                    instance_type: Arc::clone(&candidate.instance_type.name),
                    zone: Arc::from(&*zone),
                    capacity_type: subject.selection.capacity_type,
                };
                let scope = PlacementScope {
                    group: Arc::from(group),
                    partition: None,
                };
                UnavailableKey::Placed(offering, scope)
            })
            .collect()
    }

    /// The offering that was asked for, if the error names it.
    fn offering(&self, subject: FleetSubject<'_>) -> Option<UnavailableOffering> {
        Some(UnavailableOffering {
            instance_type: self.instance_type.as_deref()?.into(),
            zone: self.zone(subject.class)?.into(),
            capacity_type: subject.selection.capacity_type,
        })
    }

    /// The reservation that was asked for.
    fn reservation(&self, subject: FleetSubject<'_>) -> Option<Arc<str>> {
        let zone = self.zone(subject.class)?;
        let (_, offering) = subject
            .selection
            .place(self.instance_type.as_deref()?, &zone)?;
        offering.reservation.as_ref().map(|(id, _)| Arc::clone(id))
    }

    fn zone(&self, class: &CachedNodeClass) -> Option<String> {
        let of_subnet = || {
            let mut subnets = class.subnets.iter();
            subnets
                .find(|each| Some(&each.subnet.id) == self.subnet.as_ref())
                .map(|each| each.subnet.zone.clone())
        };
        self.zone.clone().or_else(of_subnet)
    }
}

/// The instances of one override; none when EC2 does not say what and where they are.
fn records(instance: &CreateFleetInstance, request: &FleetRequest) -> Vec<InstanceRecord> {
    let ids = instance.instance_ids().iter();
    ids.filter_map(|id| record(id, instance, request)).collect()
}

fn record(
    id: &str,
    instance: &CreateFleetInstance,
    request: &FleetRequest,
) -> Option<InstanceRecord> {
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
    let image = chosen.and_then(|chosen| chosen.image_id());
    let instance_type = instance
        .instance_type()
        .or_else(|| chosen.and_then(|chosen| chosen.instance_type()))?
        .as_str()
        .to_owned();
    Some(InstanceRecord {
        id: id.to_owned(),
        instance_type,
        zone,
        capacity_type: request.capacity_type,
        reservation: None,
        subnet,
        image: image.map(str::to_owned),
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
                "LaunchFailed: Launch templates not found when creating fleet request: Instance launch failed",
            ),
            (
                &[shortage, "InvalidAMIID.NotFound"],
                "AMINotFound: AMI used for instance launch either does not exist or you don't have permissions to use it",
            ),
            (
                &[shortage, shortage, "UnfulfillableCapacity"],
                "insufficient capacity: with fleet error(s), InsufficientInstanceCapacity: said; UnfulfillableCapacity: said",
            ),
            (&[], "LaunchFailed: Instance launch failed"),
        ] {
            let response = FleetResponse {
                instances: Vec::new(),
                errors: codes.iter().map(|code| error(code)).collect(),
            };
            let failure = LaunchError::from(response.failure(Vec::new()));
            assert_eq!(failure.to_string(), expected, "{codes:?}");
        }
    }

    #[test]
    fn an_instance_is_in_the_zone_of_its_subnet() {
        let request = FleetRequest {
            count: 1,
            token: "u".to_owned(),
            capacity_type: CapacityType::Spot,
            reservation: None,
            by_priority: false,
            context: None,
            dedicated: false,
            templates: vec![(
                "t".to_owned(),
                vec![Override {
                    instance_type: "m5.large".to_owned(),
                    image: "ami-1".to_owned(),
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
            FleetResponse::parse(&answer, &request).instances.pop()
        };
        let instance = answered("subnet-1").unwrap();
        assert_eq!(
            (&*instance.id, &*instance.instance_type, &*instance.zone),
            ("i-1", "m5.large", "us-east-1a")
        );
        assert_eq!(answered("subnet-2"), None, "its zone is not known");
    }
}
