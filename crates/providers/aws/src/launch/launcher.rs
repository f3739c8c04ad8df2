//! Launches the instance for a claim: look for one already launched, select, ensure templates, one fleet request, and what it answered.
//!
//! Invariant: a launch is repeatable. The claim's UID is a tag of the instance and the token of the request; a launch that was cut
//! off anywhere is found again by the tag, or answered again by the token, and never made twice. Claims of a batch have the token of
//! the batch for that: their instances have it as a tag, and each claim gets one that no other claim has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::resources_of;
use mortise_aws_catalog::expression_values::ReservedTexts;
use mortise_aws_catalog::node_settings::ReservedExpressions;
use mortise_aws_class::labels::INSTANCE_TENANCY;
use mortise_cloudprovider::{
    CapacityType, CloudError, InstanceType, LaunchBatch, LaunchError, LaunchRequest,
    LaunchedInstance, Offering, Retry, UnavailableOffering,
};
use tokio::time::Instant;

use crate::config::AwsConfig;
use crate::failure::{self, Failure, SUBNET_FULL, TOKEN_MISMATCH};
use crate::instances::{InstanceCache, InstanceRecord};
use crate::launch::batch_request;
use crate::launch::batch_results::{LaunchResult, LaunchedBatches};
use crate::launch::client_tokens::ClientTokens;
use crate::launch::error::{
    AttemptError, create_error, failed_request, failed_template_call, with_end,
};
use crate::launch::fleet_input::{FleetInput, NodeNetwork, TemplateOverrides};
use crate::launch::fleet_request::FleetRequest;
use crate::launch::fleet_response::{FleetResponse, FleetSubject};
use crate::launch::launched::{InstanceOrigin, launched_instance};
use crate::launch::partition;
use crate::launch::pending_launch::{LaunchMember, PendingLaunch, assign};
use crate::launch::readiness::check_ready;
use crate::launch::selection::{LaunchDemand, LaunchSelection, choose};
use crate::launch::subnet_addresses::SubnetAddresses;
use crate::launch::templates::LaunchTemplates;
use crate::node_class::{CachedNodeClass, NodeClassResolver};
use crate::offerings::region_offerings::RegionOfferings;
use crate::offerings::reservation_counts::ReservationCounts;
use crate::offerings::unavailable_offerings::{UnavailableKey, UnavailableOfferings};
use crate::sdk::AwsClients;
use crate::sdk::cluster_info::{ClusterInfo, ClusterInfoCache};
use crate::tags;

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
    batches: LaunchedBatches,
}

impl Launcher {
    /// Calls nothing yet.
    pub(crate) fn new(services: LaunchServices) -> Self {
        Self {
            addresses: SubnetAddresses::default(),
            tokens: ClientTokens::default(),
            batches: LaunchedBatches::default(),
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
        let launched = match &request.batch {
            Some(batch) => self.launch_of_batch(batch, &uid, &class).await,
            None => self.launch_alone(claim, &uid, &class).await,
        };
        let mut launched =
            launched.map_err(|error| with_end(error, self.services.unavailable.again_ms()))?;
        partition::complete(&mut launched, &class, &self.services.instances).await;
        Ok(launched)
    }

    /// Launches the instance of a claim by a request of its own, or finds the one launched before.
    async fn launch_alone(
        &self,
        claim: &NodeClaim,
        uid: &str,
        class: &CachedNodeClass,
    ) -> LaunchResult {
        if let Some(instance) = self.launched_before(claim, uid).await? {
            tracing::info!(claim = %claim.name(), instance = instance.id, "found instance that was already launched for nodeclaim");
            self.tokens.done(uid);
            return self.launched(claim, class, &instance, None);
        }
        let cluster = self.cluster().await?;
        let network = NodeNetwork::of(&cluster, &self.services.config);
        let pending = PendingLaunch::of_claim(LaunchMember { claim, uid }, class, network);
        let mut results = self.launch_pending(pending).await;
        results.pop().unwrap_or_else(|| Err(no_answer()))
    }

    /// The result for one claim of a batch. Whoever asks first launches for all; should it give up, the next one does.
    async fn launch_of_batch(
        &self,
        batch: &LaunchBatch,
        uid: &str,
        class: &CachedNodeClass,
    ) -> LaunchResult {
        let shared = self.batches.of(&batch.token);
        let mut results = shared.lock().await;
        if let Some(result) = results.take(uid) {
            return result;
        }
        let uids: Vec<_> = batch.claims.iter().map(|claim| claim.uid()).collect();
        let members: Vec<LaunchMember<'_>> = batch
            .claims
            .iter()
            .zip(&uids)
            .filter_map(|(claim, uid)| {
                Some(LaunchMember {
                    claim,
                    uid: uid.as_deref()?,
                })
            })
            .filter(|member| !results.has(member.uid))
            .collect();
        let of_claims = batch.taken.iter().chain(results.instances());
        let taken = of_claims
            .filter_map(|id| tags::instance_id(id).map(str::to_owned))
            .collect();
        let launched = self.launch_batch(batch, &members, taken, class).await;
        for (member, result) in members.iter().zip(launched) {
            results.insert(member.uid, result);
        }
        results.take(uid).unwrap_or_else(|| Err(no_answer()))
    }

    /// Launches for the claims of a batch that have no instance. The results are in their order.
    async fn launch_batch(
        &self,
        batch: &LaunchBatch,
        members: &[LaunchMember<'_>],
        mut taken: BTreeSet<String>,
        class: &CachedNodeClass,
    ) -> Vec<LaunchResult> {
        let to_all = |error: &LaunchError| members.iter().map(|_| Err(error.clone())).collect();
        let found = match self.launched_in_batch(batch, members, &taken).await {
            Ok(found) => found,
            Err(error) => return to_all(&error),
        };
        taken.extend(found.iter().flatten().map(|instance| instance.id.clone()));
        let missing: Vec<LaunchMember<'_>> = members
            .iter()
            .zip(&found)
            .filter(|(_, found)| found.is_none())
            .map(|(member, _)| *member)
            .collect();
        let mut launched = match missing.split_first() {
            None => Vec::new(),
            Some((first, others)) => {
                let cluster = match self.cluster().await {
                    Ok(cluster) => cluster,
                    Err(error) => return to_all(&error),
                };
                let pending = PendingLaunch {
                    first: *first,
                    others,
                    token: &batch.token,
                    batch: Some(&*batch.token),
                    taken: &taken,
                    class,
                    network: NodeNetwork::of(&cluster, &self.services.config),
                };
                self.launch_pending(pending).await
            }
        }
        .into_iter();
        let of_member = |(member, found): (&LaunchMember<'_>, Option<InstanceRecord>)| match found {
            Some(instance) => {
                tracing::info!(claim = %member.claim.name(), instance = instance.id, "found instance that was already launched for nodeclaim");
                self.launched(member.claim, class, &instance, None)
            }
            None => launched.next().unwrap_or_else(|| Err(no_answer())),
        };
        members.iter().zip(found).map(of_member).collect()
    }

    /// The instances of an earlier attempt to launch a batch, by claim. They are searched for only where there may be some.
    async fn launched_in_batch(
        &self,
        batch: &LaunchBatch,
        members: &[LaunchMember<'_>],
        taken: &BTreeSet<String>,
    ) -> Result<Vec<Option<InstanceRecord>>, LaunchError> {
        let is_new = members.iter().all(|member| is_young(member.claim));
        if is_new && taken.is_empty() && !self.tokens.is_known(&batch.token) {
            return Ok(members.iter().map(|_| None).collect());
        }
        let found = self.services.instances.of_batch(&batch.token).await;
        let found = found.map_err(|failure| LaunchError::Other(failure.into()))?;
        let answered = batch_request::answered(&found);
        self.tokens.answered_before(&batch.token, answered);
        Ok(assign(batch, members, taken, &found))
    }

    async fn cluster(&self) -> Result<Arc<ClusterInfo>, LaunchError> {
        let cluster = self.services.cluster.get().await;
        cluster.map_err(|failure| LaunchError::Other(failure.into()))
    }

    /// The instance of an earlier attempt, by this process or one that ended. It is searched for only where there may be one.
    async fn launched_before(
        &self,
        claim: &NodeClaim,
        uid: &str,
    ) -> Result<Option<InstanceRecord>, LaunchError> {
        if is_young(claim) && !self.tokens.is_known(uid) {
            return Ok(None);
        }
        let found = self.services.instances.of_claim(uid).await;
        found.map_err(|failure| LaunchError::Other(failure.into()))
    }

    /// Launches instances for claims that have none. The results are in the order of the claims.
    pub(crate) async fn launch_pending(&self, pending: PendingLaunch<'_>) -> Vec<LaunchResult> {
        let launched = match self.check(pending) {
            Err(error) => Err(error),
            Ok(()) => match self.attempt(pending).await {
                // The template was deleted between our check and the request: created again, once.
                Err(AttemptError::TemplateGone(_)) => self.attempt(pending).await,
                other => other,
            }
            .map_err(LaunchError::from),
        };
        launched.unwrap_or_else(|error| pending.members().map(|_| Err(error.clone())).collect())
    }

    fn check(&self, pending: PendingLaunch<'_>) -> Result<(), LaunchError> {
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
        Ok(())
    }

    async fn attempt(&self, pending: PendingLaunch<'_>) -> Result<Vec<LaunchResult>, AttemptError> {
        let PendingLaunch { class, network, .. } = pending;
        let LaunchMember { claim, uid } = pending.first;
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
        if selection.capacity_type == CapacityType::Reserved && !pending.others.is_empty() {
            return Ok(self.launch_one_by_one(pending).await);
        }
        let reserved = self.reserved_texts(class, &selection);
        let input = FleetInput {
            config: &self.services.config,
            region: &self.services.clients.region,
            network,
            claim,
            uid,
            count: pending.count(),
            batch: pending.batch,
            class,
            selection: &selection,
            requests: &requests,
            dedicated: is_dedicated(&asked),
            partition: partition::asked_for(class, &asked),
            reserved: &reserved,
        };
        let subnets = self.addresses.take(class, &input.addresses());
        let templates = input.templates(&subnets).map_err(AttemptError::from);
        let sent = match templates {
            Ok(templates) => self.send(&input, pending.token, templates).await,
            Err(error) => Err(error),
        };
        let launched = sent.as_ref().map(|response| &*response.instances);
        let used = |id: &str| {
            let instances = launched.unwrap_or_default().iter();
            let there = instances.filter(|each| each.subnet.as_deref() == Some(id));
            there.count()
        };
        let unused: Vec<_> = subnets
            .values()
            .map(|each| each.without(used(&each.id), pending.count()))
            .collect();
        self.addresses.give_back(&unused);
        self.settle(pending, &input, &sent?)
    }

    /// A reservation may have room for some of the claims only: each is launched by a request of its own.
    async fn launch_one_by_one(&self, pending: PendingLaunch<'_>) -> Vec<LaunchResult> {
        let mut results = Vec::new();
        for member in pending.members() {
            let alone = Box::pin(self.launch_pending(pending.alone(member)));
            results.extend(alone.await);
        }
        results
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
        token: &str,
        templates: Vec<TemplateOverrides>,
    ) -> Result<FleetResponse, AttemptError> {
        let ensured = templates
            .iter()
            .map(|each| self.services.templates.ensure(&each.template));
        let names = try_join_all(ensured).await.map_err(failed_template_call)?;
        let overrides = templates.into_iter().map(|each| each.overrides);
        let own_token = self.tokens.token(token);
        let request = input.request(own_token, names.into_iter().zip(overrides).collect());
        let response = match request.send(&self.services.clients).await {
            Ok(answer) => FleetResponse::parse(&answer, &request),
            Err(failure) => return Err(self.refused(token, &request, failure)),
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
    fn refused(&self, token: &str, request: &FleetRequest, failure: Failure) -> AttemptError {
        if failure::is_template_missing(&failure.code) {
            self.forget_templates(request);
            return AttemptError::TemplateGone(format!("{}: {}", failure.code, failure.message));
        }
        if failure.code != TOKEN_MISMATCH {
            return failed_request(failure).into();
        }
        // An earlier request, perhaps of an earlier process, had the same token and other contents. Its instance becomes visible
        // soon, or there is none and the next token is free.
        let message = if self.tokens.unsettled(token) {
            "an earlier request for this NodeClaim launched no instance; retrying"
        } else {
            "an earlier request for this NodeClaim is known to EC2, its instance is not visible yet"
        };
        unsettled(message).into()
    }

    /// Notes what EC2 answered: instances, and what is unavailable.
    fn settle(
        &self,
        pending: PendingLaunch<'_>,
        input: &FleetInput<'_>,
        response: &FleetResponse,
    ) -> Result<Vec<LaunchResult>, AttemptError> {
        let FleetInput {
            class, selection, ..
        } = *input;
        let subject = FleetSubject {
            class,
            selection,
            partition: input.partition,
        };
        let mut unavailable = response.unavailable(subject);
        for (key, _) in &unavailable {
            if let UnavailableKey::Subnet(subnet) = key {
                self.addresses.is_full(subnet);
            }
        }
        // A full subnet is no lack of capacity in its zone while another one has room.
        unavailable.retain(|(key, cause)| match key {
            UnavailableKey::Offering(offering) | UnavailableKey::Placed(offering, _) => {
                *cause != SUBNET_FULL || !self.addresses.has_room(class, &offering.zone)
            }
            UnavailableKey::CapacityType(_) | UnavailableKey::Subnet(_) => true,
        });
        for (key, cause) in &unavailable {
            self.services.unavailable.mark_because(key.clone(), cause);
        }
        for id in response.exhausted(subject) {
            self.services.reservations.exhausted(&id);
        }
        let offerings: Vec<UnavailableOffering> = unavailable
            .into_iter()
            .filter_map(|(key, _)| match key {
                UnavailableKey::Offering(offering) | UnavailableKey::Placed(offering, _) => {
                    Some(offering)
                }
                UnavailableKey::CapacityType(_) | UnavailableKey::Subnet(_) => None,
            })
            .collect();
        let launched = response.instances.iter();
        let launched = launched.filter(|each| !pending.taken.contains(&each.id));
        let mut instances = launched.peekable();
        if instances.peek().is_none() {
            self.tokens.answered(pending.token);
            return Err(if response.instances.is_empty() {
                response.failure(offerings)
            } else {
                // An earlier process asked for as many, for others of the batch.
                unsettled("EC2 answered with instances of other NodeClaims; retrying").into()
            });
        }
        if pending.batch.is_none() {
            self.tokens.done(pending.token);
        }
        let of_member = |member: LaunchMember<'_>| match instances.next() {
            Some(instance) => self.settle_instance(member.claim, input, instance),
            None => Err(response.failure(offerings.clone()).into()),
        };
        Ok(pending.members().map(of_member).collect())
    }

    /// Notes the instance that a claim got.
    fn settle_instance(
        &self,
        claim: &NodeClaim,
        input: &FleetInput<'_>,
        instance: &InstanceRecord,
    ) -> LaunchResult {
        let groups = input.class.groups.iter().map(|group| group.id.clone());
        self.services.instances.launched(&InstanceRecord {
            groups: groups.collect(),
            ..instance.clone()
        });
        tracing::info!(claim = %claim.name(), instance = instance.id, instance_type = instance.instance_type, zone = instance.zone, capacity_type = %instance.capacity_type, "launched instance");
        let place = input
            .selection
            .place(&instance.instance_type, &instance.zone);
        let reservation = place.and_then(|(_, offering)| offering.reservation.as_ref());
        if let Some((id, _)) = reservation {
            self.services.reservations.launched(id, Instant::now());
        }
        self.launched(claim, input.class, instance, place)
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
            partition: partition::asked_for(class, &claim.requirements()),
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

/// A claim that no process but this one can have tried.
fn is_young(claim: &NodeClaim) -> bool {
    let created = claim.metadata.creation_timestamp.as_ref();
    let age = created.map(|created| Timestamp::now().duration_since(created.0));
    age.is_some_and(|age| age.unsigned_abs() < YOUNG)
}

/// Whether there is an instance is not known yet.
fn unsettled(message: &str) -> LaunchError {
    LaunchError::Other(CloudError {
        label: "unsettled",
        message: message.to_owned(),
        retry: Retry::Again,
    })
}

/// Every claim has a result: whoever sees this has found a defect.
fn no_answer() -> LaunchError {
    LaunchError::Other(CloudError {
        label: "unanswered",
        message: "the launch ended without a result for this NodeClaim".to_owned(),
        retry: Retry::Again,
    })
}

/// Whether the claim must be on hardware of its own: the usual kind is not allowed.
fn is_dedicated(asked: &Requirements) -> bool {
    asked
        .get(INSTANCE_TENANCY)
        .is_some_and(|tenancy| !tenancy.has("default"))
}

#[cfg(test)]
mod tests;
