//! Asks AWS what the terms of a class select.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_aws_class::spec::Ec2NodeClassSpec;
use mortise_aws_class::status::{Ami, SecurityGroup};
use mortise_cloudprovider::CloudError;

use crate::failure::Failure;
use crate::node_class::amis::{self, AmiError};
use crate::node_class::networks::{self, FoundSubnet};
use crate::offerings::region_offerings::{OfferingsView, RegionOfferings};
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

/// A part of a class that was found, or why it is missing.
pub(crate) type ClassResult<T> = Result<T, UnmetCondition>;

/// What the terms of a class select now, and what nodes of it need to know.
#[derive(Debug)]
pub(crate) struct FoundParts {
    /// Those with the most free addresses first. Not empty.
    pub(crate) subnets: ClassResult<Vec<FoundSubnet>>,
    /// By id. Not empty.
    pub(crate) groups: ClassResult<Vec<SecurityGroup>>,
    /// Newest first. Not empty.
    pub(crate) amis: ClassResult<Vec<Ami>>,
    /// The cluster that nodes join.
    pub(crate) cluster: ClassResult<Arc<ClusterInfo>>,
    /// What the region offers.
    pub(crate) offerings: OfferingsView,
}

/// The services that know what the terms of a class select.
#[derive(Debug)]
pub(crate) struct ClassLookup {
    clients: Arc<AwsClients>,
    cluster: Arc<ClusterInfoCache>,
    offerings: Arc<RegionOfferings>,
    parameters: SsmParameterCache,
}

impl ClassLookup {
    /// Calls nothing yet.
    pub(crate) fn new(
        clients: Arc<AwsClients>,
        cluster: Arc<ClusterInfoCache>,
        offerings: Arc<RegionOfferings>,
    ) -> Self {
        Self {
            parameters: SsmParameterCache::new(Arc::clone(&clients)),
            clients,
            cluster,
            offerings,
        }
    }

    /// All parts of a class.
    /// # Errors
    /// A call failed in a way that passes, so that the conditions of the class stay as they are.
    pub(crate) async fn find(
        &self,
        spec: &Ec2NodeClassSpec,
        now: Timestamp,
    ) -> Result<FoundParts, CloudError> {
        let (subnets, groups, cluster, offerings) = futures::join!(
            networks::subnets(&self.clients, &spec.subnet_selector_terms),
            networks::security_groups(&self.clients, &spec.security_group_selector_terms),
            self.cluster.get(),
            self.offerings.view(),
        );
        let subnets = settle(subnets, "SubnetsNotFound")?.and_then(|found| {
            let none = "SubnetSelector did not match any Subnets";
            some(found, "SubnetsNotFound", none)
        });
        let groups = settle(groups, "SecurityGroupsNotFound")?.and_then(|found| {
            let none = "SecurityGroupSelector did not match any SecurityGroups";
            some(found, "SecurityGroupsNotFound", none)
        });
        let cluster = settle(cluster, "ClusterNotFound")?;
        let offerings = offerings?;
        let amis = self.amis(spec, &cluster, now).await?;
        Ok(FoundParts {
            subnets,
            groups,
            amis,
            cluster,
            offerings,
        })
    }

    async fn amis(
        &self,
        spec: &Ec2NodeClassSpec,
        cluster: &ClassResult<Arc<ClusterInfo>>,
        now: Timestamp,
    ) -> Result<ClassResult<Vec<Ami>>, CloudError> {
        let version = match cluster {
            Ok(cluster) => &*cluster.version,
            Err(problem) if ami_family::alias(spec).is_some() => {
                let message = format!(
                    "the alias depends on the cluster's version, which is unknown: {}",
                    problem.message
                );
                return Ok(Err(UnmetCondition::new("AMIResolutionFailed", message)));
            }
            Err(_) => "",
        };
        match amis::find(&self.clients, &self.parameters, spec, version, now).await {
            Ok(amis) => {
                let none = "AMISelector did not match any AMIs";
                Ok(some(amis, "AMINotFound", none))
            }
            Err(AmiError::Nothing(message)) => Ok(Err(UnmetCondition::new("AMINotFound", message))),
            Err(AmiError::Unsupported(message)) => {
                Ok(Err(UnmetCondition::new("UnsupportedAlias", message)))
            }
            Err(AmiError::Call(failure)) => {
                let hint = if failure.action == "ssm:GetParameter" {
                    "; or select AMIs by id, name or tags"
                } else {
                    ""
                };
                let failed: ClassResult<Vec<Ami>> = settle(Err(failure), "AMIResolutionFailed")?;
                Ok(failed.map_err(|problem| UnmetCondition {
                    message: format!("{}{hint}", problem.message),
                    ..problem
                }))
            }
        }
    }
}

/// A failure that passes ends the attempt; one that does not is the class's condition.
fn settle<T>(
    result: Result<T, Failure>,
    reason: &'static str,
) -> Result<ClassResult<T>, CloudError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(failure) if failure.passes() => Err(failure.into()),
        Err(failure) => Ok(Err(UnmetCondition::new(reason, failure.to_string()))),
    }
}

/// What was found, if that is anything.
fn some<T>(found: Vec<T>, reason: &'static str, none: &str) -> ClassResult<Vec<T>> {
    if found.is_empty() {
        Err(UnmetCondition::new(reason, none))
    } else {
        Ok(found)
    }
}
