//! Making the machine for a claim: look for one already made, choose, ensure templates, one fleet request, and what it answered.
//!
//! Invariant: a launch is repeatable. The claim's UID is a tag of the machine and the token of the request; a launch that was cut
//! off anywhere is found again by the tag, or answered again by the token, and never made twice.

use std::collections::BTreeMap;

use mortise_core::apis::hash::EC2_NODE_CLASS_HASH_VERSION;
use mortise_core::apis::nodeclaim::NodeClaim;
use mortise_core::cloud::{
    CapacityType, CloudError, InstanceType, LaunchError, LaunchRequest, LaunchedInstance, Offering,
    Retry, UnavailableOffering,
};
use mortise_core::labels;
use mortise_core::object_ext::resources_of;
use mortise_core::requirements::{Operator, Requirements};

use crate::failure::{self, Failure, SPOT_ROLE, SUBNET_FULL, TOKEN_MISMATCH};
use crate::fleet::FleetResponse;
use crate::fleet_input::FleetInput;
use crate::instance_cache::InstanceRecord;
use crate::instance_type::EFA;
use crate::launch_selection::{LaunchSelection, choose};
use crate::node_class_cache::CachedNodeClass;
use crate::provider::AwsProvider;
use crate::tags;

pub(crate) fn create(reason: &str, message: impl Into<String>) -> LaunchError {
    LaunchError::Create {
        reason: reason.to_owned(),
        message: message.into(),
    }
}

/// Whether the claim must be on hardware of its own: the usual kind is not allowed.
fn is_dedicated(asked: &Requirements) -> bool {
    asked
        .get(labels::aws::INSTANCE_TENANCY)
        .is_some_and(|tenancy| !tenancy.has("default"))
}

/// A failed call as the end of a launch: with a reason when it will fail again, as an error to repeat otherwise.
pub(crate) fn refused(failure: Failure) -> LaunchError {
    if failure.passes() || failure.label() == "credentials" {
        return LaunchError::Other(failure.into());
    }
    let (reason, message) = failure::launch_reason(&failure.code, &failure.message);
    create(reason, format!("{message}; {}", failure.action))
}

impl AwsProvider {
    /// Makes the machine, or finds the one made before.
    pub(crate) async fn launch_claim(
        &self,
        request: &LaunchRequest,
    ) -> Result<LaunchedInstance, LaunchError> {
        let claim = &*request.claim;
        let reference = &claim.spec.node_class_ref;
        let object = request
            .node_class
            .as_ref()
            .ok_or_else(|| LaunchError::NodeClassNotReady {
                message: format!("{} {:?} does not exist", reference.kind, reference.name),
            })?;
        let uid = claim
            .uid()
            .ok_or_else(|| create("InvalidNodeClaim", "the NodeClaim has no UID yet"))?;
        let class = self.class(object).await.map_err(LaunchError::Other)?;
        if class.object.metadata.deletion_timestamp.is_some() {
            return Err(LaunchError::NodeClassNotReady {
                message: format!("{} {:?} is being deleted", reference.kind, reference.name),
            });
        }
        if let Some(machine) = self
            .machine_of(&uid)
            .await
            .map_err(|failure| LaunchError::Other(failure.into()))?
        {
            tracing::info!(claim = %claim.name(), instance = machine.id, "found instance that was already launched for nodeclaim");
            self.attempts.done(&uid);
            return self.launched(claim, &class, &machine);
        }
        if let Some(message) = &class.not_ready {
            return Err(LaunchError::NodeClassNotReady {
                message: message.clone(),
            });
        }
        match self.try_launch(claim, &uid, &class).await {
            // The template went between our look and the request: made anew, once.
            Err(Attempted::TemplateGone) => {
                self.templates.forget();
                self.try_launch(claim, &uid, &class).await
            }
            other => other,
        }
        .map_err(|attempted| match attempted {
            Attempted::TemplateGone => create(
                "LaunchTemplateNotFound",
                "Launch template used for instance launch wasn't found",
            ),
            Attempted::Ended(error) => error,
        })
    }

    async fn try_launch(
        &self,
        claim: &NodeClaim,
        uid: &str,
        class: &CachedNodeClass,
    ) -> Result<LaunchedInstance, Attempted> {
        let asked = claim.requirements();
        let requests = claim.spec.requests().map(resources_of).unwrap_or_default();
        let marks = self.marks(class);
        let usable = |each: &InstanceType, offering: &Offering| {
            marks.allow(each, offering) && class.image(&each.name).is_some()
        };
        let choice = choose(&class.types, &asked, &requests, usable).ok_or_else(|| {
            LaunchError::InsufficientCapacity {
                message: "all requested instance types were unavailable during launch".to_owned(),
                unavailable: Vec::new(),
            }
        })?;
        let order = FleetInput {
            claim,
            uid,
            class,
            choice: &choice,
            requests: &requests,
            dedicated: is_dedicated(&asked),
        };
        let fleet = self.fleet(&order).await?;
        match self.create_fleet(&fleet).await {
            Ok(answer) => self.settle_answer(claim, uid, class, &choice, answer),
            Err(failure) if failure::is_template_missing(&failure.code) => {
                Err(Attempted::TemplateGone)
            }
            Err(failure) if failure.code == TOKEN_MISMATCH => {
                // An earlier request, perhaps of an earlier process, had the same token and other contents. Its machine shows up
                // soon, or there is none and the next token is free.
                let message = if self.attempts.unsettled(uid) {
                    "an earlier request for this NodeClaim launched no instance; retrying"
                } else {
                    "an earlier request for this NodeClaim is known to EC2, its instance is not visible yet"
                };
                Err(LaunchError::Other(CloudError {
                    label: "unsettled",
                    message: message.to_owned(),
                    retry: Retry::Again,
                })
                .into())
            }
            Err(failure) => Err(refused(failure).into()),
        }
    }

    /// What the fleet answered: a machine, or why there is none.
    fn settle_answer(
        &self,
        claim: &NodeClaim,
        uid: &str,
        class: &CachedNodeClass,
        choice: &LaunchSelection<'_>,
        answer: FleetResponse,
    ) -> Result<LaunchedInstance, Attempted> {
        let mut unavailable = Vec::new();
        for error in &answer.errors {
            if error.code == SPOT_ROLE {
                self.unavailable.mark_capacity_type(CapacityType::Spot);
            }
            if error.code == SUBNET_FULL {
                error
                    .subnet
                    .iter()
                    .for_each(|subnet| self.unavailable.mark_subnet(subnet));
            } else if let (true, Some(instance_type), Some(zone)) = (
                failure::is_shortage(&error.code),
                &error.instance_type,
                self.zone_of(class, error),
            ) {
                let each = UnavailableOffering {
                    instance_type: instance_type.as_str().into(),
                    zone: zone.as_str().into(),
                    capacity_type: choice.capacity_type,
                };
                self.unavailable.mark_offering(each.clone());
                unavailable.push(each);
            }
        }
        if let Some(machine) = answer.machine {
            self.attempts.done(uid);
            self.machines.launched(&machine);
            tracing::info!(claim = %claim.name(), instance = machine.id, instance_type = machine.instance_type, zone = machine.zone, capacity_type = %machine.capacity_type, "launched instance");
            return Ok(self.launched(claim, class, &machine)?);
        }
        self.attempts.answered(uid);
        unavailable.sort();
        unavailable.dedup();
        let said = |error: &crate::fleet::FleetError| format!("{}: {}", error.code, error.message);
        let mut texts: Vec<String> = answer.errors.iter().map(said).collect();
        texts.dedup();
        texts.truncate(3); // one cause usually repeats for every type
        if answer
            .errors
            .iter()
            .any(|error| failure::is_template_missing(&error.code))
        {
            return Err(Attempted::TemplateGone);
        }
        match answer
            .errors
            .iter()
            .find(|error| !failure::is_shortage(&error.code))
        {
            Some(error) => {
                let (reason, message) = failure::launch_reason(&error.code, &error.message);
                Err(create(reason, message).into())
            }
            None if texts.is_empty() => Err(create(
                "LaunchFailed",
                "EC2 launched no instance and returned no reason",
            )
            .into()),
            None => Err(LaunchError::InsufficientCapacity {
                message: texts.join("; "),
                unavailable,
            }
            .into()),
        }
    }

    fn zone_of(&self, class: &CachedNodeClass, error: &crate::fleet::FleetError) -> Option<String> {
        let of_subnet = || {
            class
                .subnets
                .iter()
                .find(|each| Some(&each.subnet.id) == error.subnet.as_ref())
                .map(|each| each.subnet.zone.clone())
        };
        error.zone.clone().or_else(of_subnet)
    }

    /// What the claim learns of its machine.
    fn launched(
        &self,
        claim: &NodeClaim,
        class: &CachedNodeClass,
        machine: &InstanceRecord,
    ) -> Result<LaunchedInstance, LaunchError> {
        // The class may have lost the machine's zone, or EC2's list its type, since the launch.
        let found = class.instance_type(&machine.instance_type).cloned();
        let found = found.or_else(|| {
            self.market
                .instance_type(&machine.instance_type, &class.shape, &machine.zone)
        });
        let instance_type = &found.ok_or_else(|| {
            create(
                "InstanceTypeResolutionFailed",
                format!(
                    "instance type {} of {} is not known",
                    machine.instance_type, machine.id
                ),
            )
        })?;
        let requests = claim.spec.requests().map(resources_of).unwrap_or_default();
        let (mut capacity, mut allocatable) =
            (instance_type.capacity.clone(), instance_type.allocatable());
        if requests.extended(EFA) == 0 && class.shape.interfaces.is_empty() {
            capacity.set(EFA, 0); // the machine could have some, this one was made without
            allocatable.set(EFA, 0);
        }
        let mut annotations = BTreeMap::new();
        if let Some(hash) = &class.hash {
            annotations.insert(tags::CLASS_HASH.to_owned(), hash.clone());
            annotations.insert(
                tags::CLASS_HASH_VERSION.to_owned(),
                EC2_NODE_CLASS_HASH_VERSION.to_owned(),
            );
        }
        annotations.extend(
            class
                .profile
                .iter()
                .map(|profile| (tags::INSTANCE_PROFILE.to_owned(), profile.clone())),
        );
        Ok(LaunchedInstance {
            provider_id: tags::provider_id(&machine.zone, &machine.id).into(),
            image_id: machine.image.clone().or_else(|| {
                class
                    .image(&machine.instance_type)
                    .map(|ami| ami.id.clone())
            }),
            labels: machine_labels(instance_type, class, machine),
            annotations,
            capacity: capacity.to_api(),
            allocatable: allocatable.to_api(),
        })
    }
}

/// Labels of the machine: every label of which its type has exactly one value, and where and how it was bought.
fn machine_labels(
    instance_type: &InstanceType,
    class: &CachedNodeClass,
    machine: &InstanceRecord,
) -> BTreeMap<String, String> {
    let single = instance_type.requirements.iter().filter_map(|each| {
        match (each.operator(), each.values()) {
            (Operator::In, [value]) => Some((each.key().to_owned(), value.to_string())),
            _ => None,
        }
    });
    let mut all: BTreeMap<String, String> = single.collect();
    all.insert(labels::TOPOLOGY_ZONE.to_owned(), machine.zone.clone());
    all.insert(
        labels::CAPACITY_TYPE.to_owned(),
        machine.capacity_type.as_str().to_owned(),
    );
    let tenancy = if machine.dedicated {
        "dedicated"
    } else {
        "default"
    };
    all.insert(labels::aws::INSTANCE_TENANCY.to_owned(), tenancy.to_owned());
    let zone_id = class
        .subnets
        .iter()
        .find(|each| each.subnet.zone == machine.zone)
        .and_then(|each| each.subnet.zone_id.clone());
    match zone_id {
        Some(id) => all.insert(labels::aws::ZONE_ID.to_owned(), id),
        None => all.remove(labels::aws::ZONE_ID),
    };
    all
}

/// How one attempt ended without a machine.
enum Attempted {
    /// The template has gone.
    TemplateGone,
    /// For good, or for this time.
    Ended(LaunchError),
}

impl From<LaunchError> for Attempted {
    fn from(error: LaunchError) -> Self {
        Self::Ended(error)
    }
}
