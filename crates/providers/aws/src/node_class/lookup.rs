//! Asks AWS what the terms of a class select.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_aws_class::spec::{Ec2NodeClass, Ec2NodeClassSpec};
use mortise_aws_class::status::{Ami, CapacityReservation, SecurityGroup};
use mortise_cloudprovider::CloudError;

use crate::failure::Failure;
use crate::node_class::amis::{self, AmiError};
use crate::node_class::cache::PlacementGroup;
use crate::node_class::capacity_reservations;
use crate::node_class::instance_profiles::InstanceProfiles;
use crate::node_class::networks::{self, FoundSubnet};
use crate::node_class::placement_groups::{PlacementGroups, selected};
use crate::offerings::region_offerings::{OfferingsView, RegionOfferings};
use crate::offerings::reservation_counts::ReservationCounts;
use crate::sdk::AwsClients;
use crate::sdk::cluster_info::{ClusterInfo, ClusterInfoCache};
use crate::sdk::ssm_parameter_cache::SsmParameterCache;
use mortise_aws_catalog::ami_family;

/// Why a part of a class is missing: reason and message of its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnmetCondition {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl UnmetCondition {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// Something that a class has, or why it does not have it.
pub(crate) type ClassResult<T> = Result<T, UnmetCondition>;

/// Why a part of a class was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartProblem {
    /// It is not there: its condition is False.
    Unmet(UnmetCondition),
    /// It could not be asked for: what is known of it, and its condition, stay.
    Failed(Failure),
}

impl From<Failure> for PartProblem {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<UnmetCondition> for PartProblem {
    fn from(problem: UnmetCondition) -> Self {
        Self::Unmet(problem)
    }
}

/// A part of a class that was found, or why it was not.
pub(crate) type ClassPart<T> = Result<T, PartProblem>;

/// What the terms of a class select now, and what nodes of it need to know.
#[derive(Debug)]
pub(crate) struct FoundParts {
    /// Those with the most free addresses first. Not empty.
    pub(crate) subnets: ClassPart<Vec<FoundSubnet>>,
    /// By id. Not empty.
    pub(crate) groups: ClassPart<Vec<SecurityGroup>>,
    /// Newest first. Not empty.
    pub(crate) amis: ClassPart<Vec<Ami>>,
    /// `None` for a class that names neither a role nor a profile, and while the profile has not been seen.
    pub(crate) profile: ClassPart<Option<String>>,
    /// `None` for a class that selects none.
    pub(crate) placement_group: ClassPart<Option<PlacementGroup>>,
    /// By id.
    pub(crate) reservations: ClassPart<Vec<CapacityReservation>>,
    /// The cluster that nodes join.
    pub(crate) cluster: ClassPart<Arc<ClusterInfo>>,
    /// What the region offers.
    pub(crate) offerings: OfferingsView,
}

impl FoundParts {
    /// The first call that failed.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        let problems = [
            self.amis.as_ref().err(),
            self.subnets.as_ref().err(),
            self.groups.as_ref().err(),
            self.profile.as_ref().err(),
            self.placement_group.as_ref().err(),
            self.reservations.as_ref().err(),
            self.cluster.as_ref().err(),
        ];
        problems.into_iter().flatten().find_map(|each| match each {
            PartProblem::Failed(failure) => Some(failure),
            PartProblem::Unmet(_) => None,
        })
    }
}

/// Who asks for a class.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asking<'a> {
    /// The class is resolved: its profile is made, and kept for these claims.
    Resolve(&'a [Arc<NodeClaim>]),
    /// Something is launched or compared with it: nothing is made.
    Use,
}

/// The services that know what the terms of a class select.
#[derive(Debug)]
pub(crate) struct ClassLookup {
    clients: Arc<AwsClients>,
    cluster: Arc<ClusterInfoCache>,
    offerings: Arc<RegionOfferings>,
    profiles: Arc<InstanceProfiles>,
    groups: PlacementGroups,
    parameters: SsmParameterCache,
    /// `None` while reserved capacity is switched off.
    reservations: Option<Arc<ReservationCounts>>,
}

impl ClassLookup {
    /// Calls nothing yet. Without `reservations` no class has any.
    pub(crate) fn new(
        clients: Arc<AwsClients>,
        cluster: Arc<ClusterInfoCache>,
        offerings: Arc<RegionOfferings>,
        profiles: Arc<InstanceProfiles>,
        reservations: Option<Arc<ReservationCounts>>,
    ) -> Self {
        Self {
            parameters: SsmParameterCache::new(Arc::clone(&clients)),
            groups: PlacementGroups::new(Arc::clone(&clients)),
            clients,
            cluster,
            offerings,
            profiles,
            reservations,
        }
    }

    /// All parts of a class.
    /// # Errors
    /// It is not known what the region offers.
    pub(crate) async fn find(
        &self,
        class: &Ec2NodeClass,
        asking: Asking<'_>,
        now: Timestamp,
    ) -> Result<FoundParts, CloudError> {
        let spec = &class.spec;
        let (subnets, groups, profile, placement_group, reservations, based, offerings) = futures::join!(
            networks::subnets(&self.clients, &spec.subnet_selector_terms),
            networks::security_groups(&self.clients, &spec.security_group_selector_terms),
            self.profile(class, asking),
            self.placement_group(spec),
            self.reservations(spec, now),
            self.cluster_and_amis(spec, now),
            self.offerings.view(),
        );
        let (cluster, amis) = based;
        Ok(FoundParts {
            subnets: some(
                subnets,
                "SubnetsNotFound",
                "SubnetSelector did not match any Subnets",
            ),
            groups: some(
                groups,
                "SecurityGroupsNotFound",
                "SecurityGroupSelector did not match any SecurityGroups",
            ),
            amis,
            profile,
            placement_group,
            reservations,
            cluster,
            offerings: offerings?,
        })
    }

    async fn profile(&self, class: &Ec2NodeClass, asking: Asking<'_>) -> ClassPart<Option<String>> {
        match asking {
            Asking::Resolve(claims) => Ok(self.profiles.ensure(class, claims).await?),
            Asking::Use => Ok(InstanceProfiles::known(class)),
        }
    }

    async fn placement_group(&self, spec: &Ec2NodeClassSpec) -> ClassPart<Option<PlacementGroup>> {
        let Some(selector) = &spec.placement_group_selector else {
            return Ok(None);
        };
        match self.groups.get(selector).await {
            Ok(Some(group)) => Ok(Some(group)),
            Ok(None) => {
                let message = format!("Placement group \"{}\" not found", selected(selector));
                Err(UnmetCondition::new("PlacementGroupNotFound", message).into())
            }
            Err(failure) => {
                tracing::warn!(group = selected(selector), error = %failure, "failed to resolve placement group");
                let message = "Failed to resolve placement group";
                Err(UnmetCondition::new("PlacementGroupResolutionFailed", message).into())
            }
        }
    }

    async fn reservations(
        &self,
        spec: &Ec2NodeClassSpec,
        now: Timestamp,
    ) -> ClassPart<Vec<CapacityReservation>> {
        let terms = spec.capacity_reservation_selector_terms.as_deref();
        match (&self.reservations, terms) {
            (Some(counts), Some(terms)) if !terms.is_empty() => {
                Ok(capacity_reservations::find(&self.clients, terms, counts, now).await?)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The images follow the cluster's version.
    async fn cluster_and_amis(
        &self,
        spec: &Ec2NodeClassSpec,
        now: Timestamp,
    ) -> (ClassPart<Arc<ClusterInfo>>, ClassPart<Vec<Ami>>) {
        let cluster = match self.cluster.get().await {
            Ok(cluster) => Ok(cluster),
            Err(failure) if failure.passes() => Err(PartProblem::Failed(failure)),
            Err(failure) => {
                Err(UnmetCondition::new("ClusterResolutionFailed", failure.to_string()).into())
            }
        };
        let version = match &cluster {
            Ok(cluster) => &*cluster.version,
            Err(PartProblem::Failed(failure)) if ami_family::alias(spec).is_some() => {
                let amis = Err(PartProblem::Failed(failure.clone()));
                return (cluster, amis);
            }
            Err(PartProblem::Unmet(problem)) if ami_family::alias(spec).is_some() => {
                let message = format!(
                    "the alias depends on the cluster's version, which is unknown: {}",
                    problem.message
                );
                let amis = Err(UnmetCondition::new("AMIResolutionFailed", message).into());
                return (cluster, amis);
            }
            Err(_) => "",
        };
        let amis = self.amis(spec, version, now).await;
        (cluster, amis)
    }

    async fn amis(
        &self,
        spec: &Ec2NodeClassSpec,
        version: &str,
        now: Timestamp,
    ) -> ClassPart<Vec<Ami>> {
        match amis::find(&self.clients, &self.parameters, spec, version, now).await {
            Ok(amis) => some(
                Ok(amis),
                "AMINotFound",
                "AMISelector did not match any AMIs",
            ),
            Err(AmiError::Nothing(message)) => {
                Err(UnmetCondition::new("AMINotFound", message).into())
            }
            Err(AmiError::Unsupported(message)) => {
                Err(UnmetCondition::new("UnsupportedAlias", message).into())
            }
            Err(AmiError::Call(failure)) => Err(failure.into()),
        }
    }
}

/// What was found, if that is anything.
fn some<T>(found: Result<Vec<T>, Failure>, reason: &'static str, none: &str) -> ClassPart<Vec<T>> {
    match found? {
        found if found.is_empty() => Err(UnmetCondition::new(reason, none).into()),
        found => Ok(found),
    }
}
