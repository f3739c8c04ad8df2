//! Launches the instance for a claim: look for one already launched, select, ensure templates, one fleet request, and what it answered.
//!
//! Invariant: a launch is repeatable. The claim's UID is a tag of the instance and the token of the request; a launch that was cut
//! off anywhere is found again by the tag, or answered again by the token, and never made twice.

use std::sync::Arc;

use futures::future::try_join_all;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::resources_of;
use mortise_cloudprovider::{
    CloudError, InstanceType, LaunchError, LaunchRequest, LaunchedInstance, Offering, Retry,
    UnavailableOffering,
};

use crate::config::AwsConfig;
use crate::failure::{self, Failure, TOKEN_MISMATCH};
use crate::instances::{InstanceCache, InstanceRecord};
use crate::launch::client_tokens::ClientTokens;
use crate::launch::error::{AttemptError, create_error, failed_call};
use crate::launch::fleet_input::FleetInput;
use crate::launch::fleet_request::FleetRequest;
use crate::launch::fleet_response::FleetResponse;
use crate::launch::launched::launched_instance;
use crate::launch::selection::{LaunchSelection, choose};
use crate::launch::templates::LaunchTemplates;
use crate::node_class::{CachedNodeClass, NodeClassResolver};
use crate::offerings::region_offerings::RegionOfferings;
use crate::offerings::unavailable_offerings::{UnavailableKey, UnavailableOfferings};
use crate::sdk::AwsClients;
use crate::sdk::cluster_info::ClusterInfoCache;

/// Launches instances.
#[derive(Debug)]
pub(crate) struct Launcher {
    clients: Arc<AwsClients>,
    config: Arc<AwsConfig>,
    cluster: Arc<ClusterInfoCache>,
    offerings: Arc<RegionOfferings>,
    unavailable: Arc<UnavailableOfferings>,
    classes: Arc<NodeClassResolver>,
    instances: Arc<InstanceCache>,
    templates: LaunchTemplates,
    tokens: ClientTokens,
}

/// A claim to launch an instance for.
#[derive(Clone, Copy, Debug)]
struct PendingLaunch<'a> {
    claim: &'a NodeClaim,
    uid: &'a str,
    class: &'a CachedNodeClass,
}

impl Launcher {
    /// Calls nothing yet.
    pub(crate) fn new(
        clients: Arc<AwsClients>,
        config: Arc<AwsConfig>,
        cluster: Arc<ClusterInfoCache>,
        offerings: Arc<RegionOfferings>,
        unavailable: Arc<UnavailableOfferings>,
        classes: Arc<NodeClassResolver>,
        instances: Arc<InstanceCache>,
    ) -> Self {
        Self {
            templates: LaunchTemplates::new(Arc::clone(&clients), Arc::clone(&config)),
            tokens: ClientTokens::default(),
            clients,
            config,
            cluster,
            offerings,
            unavailable,
            classes,
            instances,
        }
    }

    /// Deletes all launch templates of a class that is being deleted.
    pub(crate) async fn delete_templates(&self, class: &str) -> Result<(), CloudError> {
        self.templates.delete_all(class).await
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
        let class = self.classes.get(object).await.map_err(LaunchError::Other)?;
        if class.object.metadata.deletion_timestamp.is_some() {
            return Err(not_ready("is being deleted"));
        }
        let found = self.instances.of_claim(&uid).await;
        if let Some(instance) = found.map_err(|failure| LaunchError::Other(failure.into()))? {
            tracing::info!(claim = %claim.name(), instance = instance.id, "found instance that was already launched for nodeclaim");
            self.tokens.done(&uid);
            return self.launched(claim, &class, &instance);
        }
        if let Some(message) = &class.not_ready {
            return Err(LaunchError::NodeClassNotReady {
                message: message.clone(),
            });
        }
        let pending = PendingLaunch {
            claim,
            uid: &uid,
            class: &class,
        };
        match self.attempt(pending).await {
            // The template was deleted between our check and the request: created again, once.
            Err(AttemptError::TemplateGone) => {
                self.templates.forget();
                self.attempt(pending).await.map_err(LaunchError::from)
            }
            other => other.map_err(LaunchError::from),
        }
    }

    async fn attempt(&self, pending: PendingLaunch<'_>) -> Result<LaunchedInstance, AttemptError> {
        let PendingLaunch { claim, uid, class } = pending;
        let asked = claim.requirements();
        let requests = claim.spec.requests().map(resources_of).unwrap_or_default();
        let unavailable = class.unavailable(&self.unavailable);
        let usable = |each: &InstanceType, offering: &Offering| {
            unavailable.allow(each, offering) && class.image(&each.name).is_some()
        };
        let selection = choose(&class.types, &asked, &requests, usable).ok_or_else(|| {
            LaunchError::InsufficientCapacity {
                message: "all requested instance types were unavailable during launch".to_owned(),
                unavailable: Vec::new(),
            }
        })?;
        let cluster = self.cluster.get().await;
        let cluster = cluster.map_err(|failure| LaunchError::Other(failure.into()))?;
        let input = FleetInput {
            config: &self.config,
            cluster: &cluster,
            claim,
            uid,
            class,
            selection: &selection,
            requests: &requests,
            dedicated: is_dedicated(&asked),
        };
        let request = self.prepare(&input).await?;
        match request.send(&self.clients).await {
            Ok(answer) => self.settle(
                pending,
                &selection,
                &FleetResponse::parse(&answer, &request),
            ),
            Err(failure) => Err(self.refused(uid, failure)),
        }
    }

    /// The fleet request for a claim: all its templates exist when it is returned.
    async fn prepare(&self, input: &FleetInput<'_>) -> Result<FleetRequest, LaunchError> {
        let templates = input.templates(|subnet| self.unavailable.is_subnet_full(subnet))?;
        let ensured = templates
            .iter()
            .map(|each| self.templates.ensure(&each.template));
        let names = try_join_all(ensured).await.map_err(failed_call)?;
        let overrides = templates.into_iter().map(|each| each.overrides);
        let token = self.tokens.token(input.uid);
        Ok(input.request(token, names.into_iter().zip(overrides).collect()))
    }

    /// Why EC2 refused the whole request.
    fn refused(&self, uid: &str, failure: Failure) -> AttemptError {
        if failure::is_template_missing(&failure.code) {
            return AttemptError::TemplateGone;
        }
        if failure.code != TOKEN_MISMATCH {
            return failed_call(failure).into();
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
        pending: PendingLaunch<'_>,
        selection: &LaunchSelection<'_>,
        response: &FleetResponse,
    ) -> Result<LaunchedInstance, AttemptError> {
        let PendingLaunch { claim, uid, class } = pending;
        let unavailable = response.unavailable(class, selection.capacity_type);
        for key in &unavailable {
            self.unavailable.mark(key.clone());
        }
        if let Some(instance) = &response.instance {
            self.tokens.done(uid);
            self.instances.launched(instance);
            tracing::info!(claim = %claim.name(), instance = instance.id, instance_type = instance.instance_type, zone = instance.zone, capacity_type = %instance.capacity_type, "launched instance");
            return Ok(self.launched(claim, class, instance)?);
        }
        self.tokens.answered(uid);
        let offerings: Vec<UnavailableOffering> = unavailable
            .into_iter()
            .filter_map(|key| match key {
                UnavailableKey::Offering(offering) => Some(offering),
                UnavailableKey::CapacityType(_) | UnavailableKey::Subnet(_) => None,
            })
            .collect();
        Err(response.failure(offerings))
    }

    /// What the claim learns of its instance.
    fn launched(
        &self,
        claim: &NodeClaim,
        class: &CachedNodeClass,
        instance: &InstanceRecord,
    ) -> Result<LaunchedInstance, LaunchError> {
        // The class may have lost the instance's zone, or EC2's list its type, since the launch.
        let found = class.instance_type(&instance.instance_type).cloned();
        let found = found.or_else(|| {
            self.offerings
                .instance_type(&instance.instance_type, &class.settings, &instance.zone)
        });
        let instance_type = found.ok_or_else(|| {
            create_error(
                "InstanceTypeResolutionFailed",
                format!(
                    "instance type {} of {} is not known",
                    instance.instance_type, instance.id
                ),
            )
        })?;
        Ok(launched_instance(claim, class, &instance_type, instance))
    }
}

/// Whether the claim must be on hardware of its own: the usual kind is not allowed.
fn is_dedicated(asked: &Requirements) -> bool {
    asked
        .get(mortise_aws_class::labels::INSTANCE_TENANCY)
        .is_some_and(|tenancy| !tenancy.has("default"))
}
