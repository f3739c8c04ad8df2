//! The provider behind the core's port: state, and one line per question.

use std::sync::Arc;

use mortise_core::apis::nodeclaim::NodeClaim;
use mortise_core::cloud::{
    BoxFuture, CloudError, CloudProvider, Instance, InterruptionNotice, LaunchError, LaunchRequest,
    LaunchedInstance, NodeClassKind, NodeClassObject, RepairPolicy, ResolvedNodeClass,
    TerminationStatus,
};
use mortise_core::labels::WellKnown;
use mortise_core::names::ProviderId;

use crate::api::cluster::ClusterInfoCache;
use crate::api::ssm_parameter_cache::SsmParameterCache;
use crate::api::{Api, NoRegion};
use crate::catalog::{self, Catalog, CatalogError};
use crate::client_tokens::ClientTokens;
use crate::config::AwsConfig;
use crate::failure::Failure;
use crate::instance_cache::InstanceCache;
use crate::interruption_queue::InterruptionQueue;
use crate::launch_templates::Templates;
use crate::node_class_cache::NodeClassCache;
use crate::region_offerings::RegionOfferings;
use crate::unavailable_offerings::UnavailableOfferings;

/// Node classes of this provider.
pub const KINDS: [NodeClassKind; 1] = [NodeClassKind {
    group: mortise_core::labels::aws::GROUP,
    version: "v1",
    kind: "EC2NodeClass",
    plural: "ec2nodeclasses",
}];

/// Conditions of nodes that call for repair, with how long they may last in seconds.
/// # Source
/// The node conditions of EKS's node monitoring agent, with the reference implementation's times.
const REPAIR: [(&str, &str, i64); 7] = [
    ("Ready", "False", 1800),
    ("Ready", "Unknown", 1800),
    ("AcceleratedHardwareReady", "False", 600),
    ("StorageReady", "False", 1800),
    ("NetworkingReady", "False", 1800),
    ("KernelReady", "False", 1800),
    ("ContainerRuntimeReady", "False", 1800),
];

/// EC2 machines.
#[derive(Debug)]
pub struct AwsProvider {
    pub(crate) api: Api,
    pub(crate) config: AwsConfig,
    pub(crate) market: RegionOfferings,
    pub(crate) cluster: ClusterInfoCache,
    pub(crate) parameters: SsmParameterCache,
    pub(crate) classes: NodeClassCache,
    pub(crate) templates: Templates,
    pub(crate) machines: InstanceCache,
    pub(crate) attempts: ClientTokens,
    pub(crate) unavailable: UnavailableOfferings,
    pub(crate) queue: InterruptionQueue,
}

/// Why the provider cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A setting is missing.
    #[error("no cluster name is set: give --cluster-name or CLUSTER_NAME")]
    NoClusterName,
    /// There is no region.
    #[error(transparent)]
    NoRegion(#[from] NoRegion),
    /// The tables beside EC2's own description cannot be read.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// EC2 does not answer.
    #[error(transparent)]
    Call(#[from] Failure),
    /// The interruption queue cannot be read.
    #[error(transparent)]
    Queue(#[from] CloudError),
}

impl AwsProvider {
    /// Connects: finds region, credentials and queue, and reads what the region sells, which shows that they work.
    /// # Errors
    /// What is missing, where it was looked for, and how to mend it.
    pub async fn connect(config: AwsConfig) -> Result<Self, StartError> {
        Self::connect_with(config, catalog::embedded_catalog()?).await
    }

    /// As [`Self::connect`], with other tables for what EC2 itself does not describe.
    /// # Errors
    /// As [`Self::connect`].
    pub async fn connect_with(config: AwsConfig, tables: Arc<Catalog>) -> Result<Self, StartError> {
        if config.cluster_name.is_empty() {
            return Err(StartError::NoClusterName);
        }
        let api = Api::new(&config).await?;
        let market = RegionOfferings::new(tables, &api.region);
        let connected = Self {
            api,
            config,
            market,
            cluster: ClusterInfoCache::default(),
            parameters: SsmParameterCache::default(),
            classes: NodeClassCache::default(),
            templates: Templates::default(),
            machines: InstanceCache::default(),
            attempts: ClientTokens::default(),
            unavailable: UnavailableOfferings::default(),
            queue: InterruptionQueue::default(),
        };
        let queue = connected.config.interruption_queue.as_deref();
        if let Some(queue) = queue.filter(|name| !name.is_empty()) {
            connected.queue_url(queue).await?;
        }
        connected.market.view(&connected.api).await?;
        tracing::info!(
            region = connected.api.region,
            cluster = connected.config.cluster_name,
            "connected to EC2"
        );
        Ok(connected)
    }

    /// Region that the provider works in.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.api.region
    }
}

impl CloudProvider for AwsProvider {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn node_class_kinds(&self) -> &'static [NodeClassKind] {
        &KINDS
    }

    fn well_known(&self) -> WellKnown {
        WellKnown::aws()
    }

    fn resolve<'a>(
        &'a self,
        class: &'a NodeClassObject,
    ) -> BoxFuture<'a, Result<ResolvedNodeClass, CloudError>> {
        Box::pin(self.resolve_class(class))
    }

    fn launch<'a>(
        &'a self,
        request: &'a LaunchRequest,
    ) -> BoxFuture<'a, Result<LaunchedInstance, LaunchError>> {
        Box::pin(self.launch_claim(request))
    }

    fn terminate<'a>(
        &'a self,
        machine: &'a ProviderId,
        _claim: &'a str,
    ) -> BoxFuture<'a, Result<TerminationStatus, CloudError>> {
        Box::pin(self.terminate_machine(machine))
    }

    fn instance<'a>(
        &'a self,
        machine: &'a ProviderId,
    ) -> BoxFuture<'a, Result<Option<Instance>, CloudError>> {
        Box::pin(self.find_machine(machine))
    }

    fn list_instances(&self) -> BoxFuture<'_, Result<Vec<Instance>, CloudError>> {
        Box::pin(self.list_machines())
    }

    fn drifted<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: &'a NodeClassObject,
    ) -> BoxFuture<'a, Result<Option<String>, CloudError>> {
        Box::pin(self.drift_of(claim, class))
    }

    fn notices(&self) -> Option<BoxFuture<'_, Result<Vec<InterruptionNotice>, CloudError>>> {
        let name = self
            .config
            .interruption_queue
            .as_deref()
            .filter(|name| !name.is_empty())?;
        Some(Box::pin(self.receive(name)))
    }

    fn acknowledge<'a>(&'a self, notice: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        match self.config.interruption_queue.as_deref() {
            Some(name) => Box::pin(self.delete_message(name, notice)),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        REPAIR
            .map(|(condition, status, toleration_seconds)| RepairPolicy {
                condition,
                status,
                toleration_seconds,
            })
            .into()
    }
}
