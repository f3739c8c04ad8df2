//! The provider behind the core's port: composes its components, and delegates.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::ProviderId;
use mortise_apis::node_class::NodeClassObject;
use mortise_aws_class::labels;
use mortise_cloudprovider::{
    BoxFuture, CloudError, CloudProvider, DriftReason, Instance, InterruptionNotice, LaunchError,
    LaunchRequest, LaunchedInstance, ProviderDescriptor, RepairPolicy, ResolveRequest,
    ResolvedNodeClass, TerminationStatus,
};

use crate::config::AwsConfig;
use crate::failure::Failure;
use crate::instances::{InstanceCache, ShiftedZones, TAGGED_ANNOTATIONS};
use crate::interruption::InterruptionQueue;
use crate::launch::Launcher;
use crate::node_class::{self, NodeClassResolver};
use crate::offerings::region_offerings::RegionOfferings;
use crate::offerings::reservation_counts::ReservationCounts;
use crate::offerings::unavailable_offerings::UnavailableOfferings;
use crate::sdk::cluster_info::ClusterInfoCache;
use crate::sdk::{AwsClients, NoRegion};
use mortise_aws_catalog::{self as catalog, Ec2Catalog, Ec2CatalogError};

/// Conditions of nodes that call for repair, with how long they may last in seconds.
/// # Source
/// The node conditions of EKS's node monitoring agent, with the reference implementation's times.
const REPAIR: [RepairPolicy; 7] = [
    repair("Ready", "False", 1800),
    repair("Ready", "Unknown", 1800),
    repair("AcceleratedHardwareReady", "False", 600),
    repair("StorageReady", "False", 1800),
    repair("NetworkingReady", "False", 1800),
    repair("KernelReady", "False", 1800),
    repair("ContainerRuntimeReady", "False", 1800),
];

/// Labels of NodeClaims and Nodes whose instance runs in a capacity reservation.
const RESERVATION_LABELS: [&str; 3] = [
    labels::CAPACITY_RESERVATION_ID,
    labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
    labels::CAPACITY_RESERVATION_TYPE,
];

const fn repair(
    condition: &'static str,
    status: &'static str,
    toleration_seconds: i64,
) -> RepairPolicy {
    RepairPolicy {
        condition,
        status,
        toleration_seconds,
    }
}

/// EC2 instances.
#[derive(Debug)]
pub struct AwsProvider {
    clients: Arc<AwsClients>,
    classes: Arc<NodeClassResolver>,
    launcher: Launcher,
    instances: Arc<InstanceCache>,
    /// `None` when no queue is set.
    queue: Option<InterruptionQueue>,
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
    /// The tables that complete EC2's own description cannot be read.
    #[error(transparent)]
    Ec2Catalog(#[from] Ec2CatalogError),
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
    /// What is missing, where it was expected, and how to fix it.
    pub async fn connect(config: AwsConfig) -> Result<Self, StartError> {
        Self::connect_with(config, catalog::embedded_catalog()?).await
    }

    /// As [`Self::connect`], with other tables for what EC2 itself does not describe.
    /// # Errors
    /// As [`Self::connect`].
    pub async fn connect_with(
        config: AwsConfig,
        tables: Arc<Ec2Catalog>,
    ) -> Result<Self, StartError> {
        if config.cluster_name.is_empty() {
            return Err(StartError::NoClusterName);
        }
        let (clients, config) = (Arc::new(AwsClients::new(&config).await?), Arc::new(config));
        let offerings = Arc::new(RegionOfferings::new(Arc::clone(&clients), tables));
        let connected = Self::compose(clients, &config, &offerings);
        if let Some(queue) = &connected.queue {
            queue.url().await?;
        }
        offerings.view().await?;
        tracing::info!(
            region = connected.region(),
            cluster = config.cluster_name,
            "connected to EC2"
        );
        Ok(connected)
    }

    /// Gives each component what it needs. Calls nothing.
    fn compose(
        clients: Arc<AwsClients>,
        config: &Arc<AwsConfig>,
        offerings: &Arc<RegionOfferings>,
    ) -> Self {
        let unavailable = Arc::new(UnavailableOfferings::default());
        let cluster = ClusterInfoCache::new(Arc::clone(&clients), Arc::clone(config));
        let cluster = Arc::new(cluster);
        let classes = Arc::new(NodeClassResolver::new(
            Arc::clone(&clients),
            Arc::clone(config),
            Arc::clone(&cluster),
            Arc::clone(offerings),
            Arc::clone(&unavailable),
        ));
        let instances = Arc::new(InstanceCache::new(
            &clients,
            Arc::clone(config),
            Arc::new(ReservationCounts::default()),
            Arc::new(ShiftedZones::default()),
        ));
        let queue_name = config.interruption_queue.as_ref();
        Self {
            queue: queue_name.filter(|name| !name.is_empty()).map(|name| {
                InterruptionQueue::new(
                    Arc::clone(&clients),
                    name.clone(),
                    Arc::clone(&instances),
                    Arc::clone(&unavailable),
                )
            }),
            launcher: Launcher::new(
                Arc::clone(&clients),
                Arc::clone(config),
                cluster,
                Arc::clone(offerings),
                unavailable,
                Arc::clone(&classes),
                Arc::clone(&instances),
            ),
            clients,
            classes,
            instances,
        }
    }

    /// Region that the provider works in.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.clients.region
    }

    /// A class is resolved until it is deleted; then it is released, and its launch templates are deleted.
    async fn resolve_class(
        &self,
        request: &ResolveRequest,
    ) -> Result<ResolvedNodeClass, CloudError> {
        let class = node_class::parse(&request.class)?;
        if class.metadata.deletion_timestamp.is_none() {
            return self.classes.resolve(class).await;
        }
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let released = self.classes.release(name);
        self.launcher.delete_templates(name).await?;
        Ok(released)
    }

    async fn drift(
        &self,
        claim: &NodeClaim,
        object: &NodeClassObject,
    ) -> Result<Option<DriftReason>, CloudError> {
        let class = self.classes.get(object).await?;
        self.instances.drift(claim, &class).await
    }
}

impl CloudProvider for AwsProvider {
    fn descriptor(&self) -> ProviderDescriptor {
        ProviderDescriptor {
            name: "aws",
            node_classes: const { &[mortise_aws_class::spec::KIND] },
            repair_policies: &REPAIR,
            tagged_annotations: &TAGGED_ANNOTATIONS,
            reservation_labels: &RESERVATION_LABELS,
        }
    }

    fn well_known(&self) -> WellKnown {
        labels::well_known()
    }

    fn resolve<'a>(
        &'a self,
        request: &'a ResolveRequest,
    ) -> BoxFuture<'a, Result<ResolvedNodeClass, CloudError>> {
        Box::pin(self.resolve_class(request))
    }

    fn launch<'a>(
        &'a self,
        request: &'a LaunchRequest,
    ) -> BoxFuture<'a, Result<LaunchedInstance, LaunchError>> {
        Box::pin(self.launcher.launch(request))
    }

    fn terminate<'a>(
        &'a self,
        instance: &'a ProviderId,
        _claim: &'a str,
    ) -> BoxFuture<'a, Result<TerminationStatus, CloudError>> {
        Box::pin(self.instances.terminate(instance))
    }

    fn instance<'a>(
        &'a self,
        instance: &'a ProviderId,
    ) -> BoxFuture<'a, Result<Option<Instance>, CloudError>> {
        Box::pin(self.instances.get(instance))
    }

    fn list_instances(&self) -> BoxFuture<'_, Result<Vec<Instance>, CloudError>> {
        Box::pin(self.instances.list())
    }

    fn drifted<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: &'a NodeClassObject,
    ) -> BoxFuture<'a, Result<Option<DriftReason>, CloudError>> {
        Box::pin(self.drift(claim, class))
    }

    fn tag<'a>(
        &'a self,
        claim: &'a NodeClaim,
    ) -> BoxFuture<'a, Result<BTreeMap<String, String>, CloudError>> {
        Box::pin(self.instances.tag(claim))
    }

    fn notices(&self) -> Option<BoxFuture<'_, Result<Vec<InterruptionNotice>, CloudError>>> {
        let queue = self.queue.as_ref()?;
        Some(Box::pin(queue.receive()))
    }

    fn acknowledge<'a>(&'a self, notice: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        match &self.queue {
            Some(queue) => Box::pin(queue.delete(notice)),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }
}
