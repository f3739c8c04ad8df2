//! Launches the instance for a claim: look for one already launched, select, ensure templates, one fleet request, and what it answered.
//!
//! Invariant: a launch is repeatable. The claim's UID is a tag of the instance and the token of the request; a launch that was cut
//! off anywhere is found again by the tag, or answered again by the token, and never made twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::requirements::{Operator, Requirements};
use mortise_apis::resources::resources_of;
use mortise_aws_catalog::expression_values::ReservedTexts;
use mortise_aws_catalog::node_settings::ReservedExpressions;
use mortise_aws_class::labels::{INSTANCE_TENANCY, PLACEMENT_GROUP_PARTITION};
use mortise_cloudprovider::{
    CloudError, InstanceType, LaunchError, LaunchRequest, LaunchedInstance, Offering, Retry,
    UnavailableOffering,
};
use tokio::time::Instant;

use crate::config::AwsConfig;
use crate::failure::{self, Failure, TOKEN_MISMATCH};
use crate::instances::{InstanceCache, InstanceRecord};
use crate::launch::client_tokens::ClientTokens;
use crate::launch::error::{AttemptError, create_error, failed_request, failed_template_call};
use crate::launch::fleet_input::{FleetInput, NodeNetwork, TemplateOverrides};
use crate::launch::fleet_request::FleetRequest;
use crate::launch::fleet_response::{FleetResponse, FleetSubject};
use crate::launch::launched::{InstanceOrigin, launched_instance};
use crate::launch::readiness::check_ready;
use crate::launch::selection::{LaunchDemand, LaunchSelection, choose};
use crate::launch::subnet_addresses::SubnetAddresses;
use crate::launch::templates::LaunchTemplates;
use crate::node_class::{CachedNodeClass, NodeClassResolver};
use crate::offerings::region_offerings::RegionOfferings;
use crate::offerings::reservation_counts::ReservationCounts;
use crate::offerings::unavailable_offerings::{UnavailableKey, UnavailableOfferings};
use crate::sdk::AwsClients;
use crate::sdk::cluster_info::ClusterInfoCache;

/// A claim that is older may have been tried by a process that ended. The token of a younger one protects it alone.
const YOUNG: Duration = Duration::from_secs(10);

/// What launches need of the rest of the provider.
#[derive(Clone, Debug)]
pub(crate) struct LaunchServices {
    pub(crate) clients: Arc<AwsClients>,
    pub(crate) config: Arc<AwsConfig>,
    pub(crate) cluster: Arc<ClusterInfoCache>,
    pub(crate) offerings: Arc<RegionOfferings>,
    pub(crate) unavailable: Arc<UnavailableOfferings>,
    pub(crate) reservations: Arc<ReservationCounts>,
    pub(crate) templates: Arc<LaunchTemplates>,
    pub(crate) classes: Arc<NodeClassResolver>,
    pub(crate) instances: Arc<InstanceCache>,
}

/// Launches instances.
#[derive(Debug)]
pub(crate) struct Launcher {
    services: LaunchServices,
    addresses: SubnetAddresses,
    tokens: ClientTokens,
}

/// A claim to launch an instance for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingLaunch<'a> {
    pub(crate) claim: &'a NodeClaim,
    pub(crate) uid: &'a str,
    pub(crate) class: &'a CachedNodeClass,
    pub(crate) network: NodeNetwork<'a>,
}

impl Launcher {
    /// Calls nothing yet.
    pub(crate) fn new(services: LaunchServices) -> Self {
        Self {
            addresses: SubnetAddresses::default(),
            tokens: ClientTokens::default(),
            services,
        }
    }

    /// The launch templates of the cluster.
    pub(crate) const fn templates(&self) -> &Arc<LaunchTemplates> {
        &self.services.templates
    }

    /// Launches the instance, or finds the one launched before.
    pub(crate) async fn launch(
        &self,
        request: &LaunchRequest,
    ) -> Result<LaunchedInstance, LaunchError> {
        let claim = &*request.claim;
        let reference = &claim.spec.node_class_ref;
        let not_ready = |what: &str| LaunchError::NodeClassNotReady {
            message: format!("{} {:?} {what}", reference.kind, reference.name),
        };
        let object = request
            .node_class
            .as_ref()
            .ok_or_else(|| not_ready("does not exist"))?;
        let uid = claim
            .uid()
            .ok_or_else(|| create_error("InvalidNodeClaim", "the NodeClaim has no UID yet"))?;
        let found = self.services.classes.get(object).await;
        let class = found.map_err(LaunchError::Other)?;
        if class.object.metadata.deletion_timestamp.is_some() {
            return Err(not_ready("is being deleted"));
        }
        if let Some(instance) = self.launched_before(claim, &uid).await? {
            tracing::info!(claim = %claim.name(), instance = instance.id, "found instance that was already launched for nodeclaim");
            self.tokens.done(&uid);
            return self.launched(claim, &class, &instance, None);
        }
        let cluster = self.services.cluster.get().await;
        let cluster = cluster.map_err(|failure| LaunchError::Other(failure.into()))?;
        let pending = PendingLaunch {
            claim,
            uid: &uid,
            class: &class,
            network: NodeNetwork::of(&cluster, &self.services.config),
        };
        self.launch_pending(pending).await
    }

    /// The instance of an earlier attempt, by this process or one that ended. It is searched for only where there may be one.
    async fn launched_before(
        &self,
        claim: &NodeClaim,
        uid: &str,
    ) -> Result<Option<InstanceRecord>, LaunchError> {
        let created = claim.metadata.creation_timestamp.as_ref();
        let age = created.map(|created| Timestamp::now().duration_since(created.0));
        let is_young = age.is_some_and(|age| age.unsigned_abs() < YOUNG);
        if is_young && !self.tokens.is_known(uid) {
            return Ok(None);
        }
        let found = self.services.instances.of_claim(uid).await;
        found.map_err(|failure| LaunchError::Other(failure.into()))
    }

    /// Launches the instance of a claim that has none.
    pub(crate) async fn launch_pending(
        &self,
        pending: PendingLaunch<'_>,
    ) -> Result<LaunchedInstance, LaunchError> {
        check_ready(&pending.class.object)?;
        if let Some(message) = &pending.class.not_ready {
            return Err(LaunchError::NodeClassNotReady {
                message: message.clone(),
            });
        }
        if pending.class.subnets.is_empty() {
            let message = "Error resolving instance types";
            return Err(create_error("InstanceTypeResolutionFailed", message));
        }
        match self.attempt(pending).await {
            // The template was deleted between our check and the request: created again, once.
            Err(AttemptError::TemplateGone(_)) => {
                self.attempt(pending).await.map_err(LaunchError::from)
            }
            other => other.map_err(LaunchError::from),
        }
    }

    async fn attempt(&self, pending: PendingLaunch<'_>) -> Result<LaunchedInstance, AttemptError> {
        let PendingLaunch {
            claim,
            uid,
            class,
            network,
        } = pending;
        let asked = claim.requirements();
        let requests = claim.spec.requests().map(resources_of).unwrap_or_default();
        let demand = LaunchDemand {
            asked: &asked,
            requests: &requests,
            best_effort: self.services.config.min_values_best_effort,
        };
        let known = mortise_aws_class::labels::well_known();
        let is_asked = |each: &InstanceType| asked.is_compatible(&each.requirements, &known);
        let types = self.services.classes.offered_to(class, is_asked);
        let selection = choose(&types, demand)?;
        let reserved = self.reserved_texts(class, &selection);
        let input = FleetInput {
            config: &self.services.config,
            region: &self.services.clients.region,
            network,
            claim,
            uid,
            class,
            selection: &selection,
            requests: &requests,
            dedicated: is_dedicated(&asked),
            partition: partition(class, &asked),
            reserved: &reserved,
        };
        let subnets = self.addresses.take(class, &input.addresses());
        let templates = input.templates(&subnets).map_err(AttemptError::from);
        let sent = match templates {
            Ok(templates) => self.send(&input, templates).await,
            Err(error) => Err(error),
        };
        let used = sent.as_ref().ok().and_then(|response| {
            let instance = response.instance.as_ref()?;
            instance.subnet.clone()
        });
        let is_unused = |id: &str| used.as_deref() != Some(id);
        let unused = subnets.values().filter(|each| is_unused(&each.id));
        self.addresses.give_back(unused);
        self.settle(&input, &sent?)
    }

    /// What the class's expressions for reserved amounts give for the types that were selected.
    fn reserved_texts(
        &self,
        class: &CachedNodeClass,
        selection: &LaunchSelection<'_>,
    ) -> BTreeMap<Arc<str>, ReservedTexts> {
        let none = ReservedExpressions::default();
        let settings = &class.settings;
        if settings.kube_reserved_expressions == none
            && settings.system_reserved_expressions == none
        {
            return BTreeMap::new();
        }
        let types = selection.candidates.iter().map(|each| each.instance_type);
        types
            .filter_map(|each| {
                let texts = self
                    .services
                    .offerings
                    .reserved_texts(&each.name, settings)?;
                Some((Arc::clone(&each.name), texts))
            })
            .collect()
    }

    /// Has the templates made and sends the request.
    async fn send(
        &self,
        input: &FleetInput<'_>,
        templates: Vec<TemplateOverrides>,
    ) -> Result<FleetResponse, AttemptError> {
        let ensured = templates
            .iter()
            .map(|each| self.services.templates.ensure(&each.template));
        let names = try_join_all(ensured).await.map_err(failed_template_call)?;
        let overrides = templates.into_iter().map(|each| each.overrides);
        let token = self.tokens.token(input.uid);
        let request = input.request(token, names.into_iter().zip(overrides).collect());
        let response = match request.send(&self.services.clients).await {
            Ok(answer) => FleetResponse::parse(&answer, &request),
            Err(failure) => return Err(self.refused(input.uid, &request, failure)),
        };
        if response.is_template_gone() {
            self.forget_templates(&request);
        }
        Ok(response)
    }

    fn forget_templates(&self, request: &FleetRequest) {
        let names = request.templates.iter().map(|(name, _)| &**name);
        self.services.templates.forget(names);
    }

    /// Why EC2 refused the whole request.
    fn refused(&self, uid: &str, request: &FleetRequest, failure: Failure) -> AttemptError {
        if failure::is_template_missing(&failure.code) {
            self.forget_templates(request);
            return AttemptError::TemplateGone(format!("{}: {}", failure.code, failure.message));
        }
        if failure.code != TOKEN_MISMATCH {
            return failed_request(failure).into();
        }
        // An earlier request, perhaps of an earlier process, had the same token and other contents. Its instance becomes visible
        // soon, or there is none and the next token is free.
        let message = if self.tokens.unsettled(uid) {
            "an earlier request for this NodeClaim launched no instance; retrying"
        } else {
            "an earlier request for this NodeClaim is known to EC2, its instance is not visible yet"
        };
        LaunchError::Other(CloudError {
            label: "unsettled",
            message: message.to_owned(),
            retry: Retry::Again,
        })
        .into()
    }

    /// Notes what EC2 answered: an instance, and what is unavailable.
    fn settle(
        &self,
        input: &FleetInput<'_>,
        response: &FleetResponse,
    ) -> Result<LaunchedInstance, AttemptError> {
        let FleetInput {
            claim,
            uid,
            class,
            selection,
            ..
        } = *input;
        let subject = FleetSubject {
            class,
            selection,
            partition: input.partition,
        };
        let unavailable = response.unavailable(subject);
        for (key, cause) in &unavailable {
            if let UnavailableKey::Subnet(subnet) = key {
                self.addresses.is_full(subnet);
            }
            self.services.unavailable.mark_because(key.clone(), cause);
        }
        for id in response.exhausted(subject) {
            self.services.reservations.exhausted(&id);
        }
        if let Some(instance) = &response.instance {
            self.tokens.done(uid);
            self.services.instances.launched(instance);
            tracing::info!(claim = %claim.name(), instance = instance.id, instance_type = instance.instance_type, zone = instance.zone, capacity_type = %instance.capacity_type, "launched instance");
            let place = selection.place(&instance.instance_type, &instance.zone);
            let reservation = place.and_then(|(_, offering)| offering.reservation.as_ref());
            if let Some((id, _)) = reservation {
                self.services.reservations.launched(id, Instant::now());
            }
            return Ok(self.launched(claim, class, instance, place)?);
        }
        self.tokens.answered(uid);
        let offerings: Vec<UnavailableOffering> = unavailable
            .into_iter()
            .filter_map(|(key, _)| match key {
                UnavailableKey::Offering(offering) | UnavailableKey::Placed(offering, _) => {
                    Some(offering)
                }
                UnavailableKey::CapacityType(_) | UnavailableKey::Subnet(_) => None,
            })
            .collect();
        Err(response.failure(offerings))
    }

    /// What the claim learns of its instance, which was launched as the offering of a type if that is remembered.
    fn launched(
        &self,
        claim: &NodeClaim,
        class: &CachedNodeClass,
        instance: &InstanceRecord,
        place: Option<(&InstanceType, &Offering)>,
    ) -> Result<LaunchedInstance, LaunchError> {
        let name = &*instance.instance_type;
        let remembered = place.map(|(instance_type, _)| instance_type.clone());
        let is_it = |each: &InstanceType| *each.name == *name;
        let of_class = || self.services.classes.offered_to(class, is_it).pop();
        // The class may have lost the instance's zone, or EC2's list its type, since the launch.
        let offerings = &self.services.offerings;
        let found = remembered
            .or_else(of_class)
            .or_else(|| offerings.instance_type(name, &class.settings, &instance.zone));
        let instance_type = found.ok_or_else(|| {
            let message = format!("instance type {name} of {} is not known", instance.id);
            create_error("InstanceTypeResolutionFailed", message)
        })?;
        let origin = InstanceOrigin {
            class,
            instance_type: &instance_type,
            offering: place.map(|(_, offering)| offering),
            partition: partition(class, &claim.requirements()),
        };
        Ok(launched_instance(claim, origin, instance))
    }
}

#[cfg(test)]
impl Launcher {
    /// Free addresses as launches estimate them.
    pub(crate) const fn addresses(&self) -> &SubnetAddresses {
        &self.addresses
    }
}

/// Whether the claim must be on hardware of its own: the usual kind is not allowed.
fn is_dedicated(asked: &Requirements) -> bool {
    asked
        .get(INSTANCE_TENANCY)
        .is_some_and(|tenancy| !tenancy.has("default"))
}

/// The partition of the class's placement group that the instance goes to, if the claim asks for some: the first one, as texts.
/// # Source
/// The reference implementation's choice; EC2 allows seven partitions, for which texts and numbers have the same order.
fn partition(class: &CachedNodeClass, asked: &Requirements) -> Option<i32> {
    class.placement_group.as_ref()?;
    let wanted = asked.get(PLACEMENT_GROUP_PARTITION)?;
    if wanted.operator() != Operator::In {
        return None;
    }
    wanted.values().first()?.parse().ok()
}

#[cfg(test)]
mod tests;
