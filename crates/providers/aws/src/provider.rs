//! The provider behind the core's port: composes its components, and delegates.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::ProviderId;
use mortise_apis::node_class::NodeClassObject;
use mortise_aws_class::labels;
use mortise_cloudprovider::{
    BoxFuture, CloudError, CloudProvider, DriftReason, Instance, LaunchError, LaunchRequest,
    LaunchWindow, LaunchedInstance, NoticeSource, ProviderDescriptor, ProviderGauge,
    ProviderWorker, RepairPolicy, ResolveRequest, ResolvedNodeClass, TerminationStatus,
    UnavailableCapacity,
};

use crate::config::AwsConfig;
use crate::failure::Failure;
use crate::instances::{InstanceCache, TAGGED_ANNOTATIONS};
use crate::interruption::{Interruptions, NoticeEffects};
use crate::launch::templates::LaunchTemplates;
use crate::launch::{DryRuns, LaunchServices, Launcher};
use crate::node_class::instance_profiles::InstanceProfiles;
use crate::node_class::{NodeClassResolver, ResolverParts};
use crate::offerings::availability::Moment;
use crate::offerings::prices::Prices;
use crate::offerings::region_offerings::RegionOfferings;
use crate::offerings::unavailable_offerings::UnavailableOfferings;
use crate::sdk::cluster_info::ClusterInfoCache;
use crate::sdk::{AwsClients, NoRegion};
use crate::tags;
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

/// Launches of the same shape that are tried again together.
/// # Source
/// The reference implementation's window for fleet requests, and EC2's examples of instant fleets, which stay below a thousand.
const LAUNCH_WINDOW: LaunchWindow = LaunchWindow {
    quiet_ms: 35,
    longest_ms: 1_000,
    most: 500,
};

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
    profiles: Arc<InstanceProfiles>,
    pub(crate) launcher: Launcher,
    instances: Arc<InstanceCache>,
    interruptions: Interruptions,
    pub(crate) moment: Moment,
    pub(crate) unavailable: Arc<UnavailableOfferings>,
    /// Zonal shifts of this cluster are watched; `None` when they are switched off.
    shifted_cluster: Option<String>,
    offerings: Arc<RegionOfferings>,
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
    /// Prices are to be assumed that do not fit.
    #[error("{0}")]
    AssumedPrices(String),
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
        let prices = Prices::new(Arc::clone(&clients), &config);
        let prices = prices.map_err(|error| StartError::AssumedPrices(error.to_string()))?;
        let offerings = RegionOfferings::new(Arc::clone(&clients), tables, Arc::new(prices));
        let offerings = Arc::new(offerings);
        let connected = Self::compose(clients, &config, &offerings);
        connected.interruptions.check().await?;
        offerings.view().await?;
        tracing::info!(
            region = connected.region(),
            cluster = config.cluster_name,
            "connected to EC2"
        );
        Ok(connected)
    }

    /// Gives each component what it needs. Calls nothing.
    pub(crate) fn compose(
        clients: Arc<AwsClients>,
        config: &Arc<AwsConfig>,
        offerings: &Arc<RegionOfferings>,
    ) -> Self {
        let unavailable = Arc::new(UnavailableOfferings::default());
        let moment = Moment::default();
        let cluster = ClusterInfoCache::new(Arc::clone(&clients), Arc::clone(config));
        let cluster = Arc::new(cluster);
        let profiles = InstanceProfiles::new(Arc::clone(&clients), Arc::clone(config));
        let profiles = Arc::new(profiles);
        let templates = LaunchTemplates::new(Arc::clone(&clients), Arc::clone(config));
        let templates = Arc::new(templates);
        let trial = DryRuns::new(
            Arc::clone(&clients),
            Arc::clone(config),
            Arc::clone(&templates),
        );
        let classes = Arc::new(NodeClassResolver::new(ResolverParts {
            clients: Arc::clone(&clients),
            config: Arc::clone(config),
            cluster: Arc::clone(&cluster),
            offerings: Arc::clone(offerings),
            unavailable: Arc::clone(&unavailable),
            profiles: Arc::clone(&profiles),
            moment: moment.clone(),
            trial: Arc::new(trial),
        }));
        let instances = Arc::new(InstanceCache::new(
            &clients,
            Arc::clone(config),
            Arc::clone(&moment.reservations),
            Arc::clone(&moment.shifted),
        ));
        let effects = NoticeEffects {
            claims: Arc::default(),
            instances: Arc::clone(&instances),
            unavailable: Arc::clone(&unavailable),
            reservations: Arc::clone(&moment.reservations),
        };
        let queue = config.interruption_queue.as_ref();
        Self {
            interruptions: Interruptions::new(&clients, queue, effects),
            launcher: Launcher::new(LaunchServices {
                clients: Arc::clone(&clients),
                config: Arc::clone(config),
                cluster,
                offerings: Arc::clone(offerings),
                unavailable: Arc::clone(&unavailable),
                reservations: Arc::clone(&moment.reservations),
                templates,
                classes: Arc::clone(&classes),
                instances: Arc::clone(&instances),
            }),
            clients,
            classes,
            profiles,
            instances,
            moment,
            unavailable,
            shifted_cluster: config.zonal_shift.then(|| config.cluster_name.clone()),
            offerings: Arc::clone(offerings),
        }
    }

    /// Region that the provider works in.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.clients.region
    }

    /// A class is resolved until it is deleted; then, once no claim uses it, what was made for it is deleted.
    pub(crate) async fn resolve_class(
        &self,
        request: &ResolveRequest,
        now: Timestamp,
    ) -> Result<ResolvedNodeClass, CloudError> {
        self.interruptions
            .claims
            .note(&request.class.key, &request.claims);
        self.launcher.templates().works();
        let metadata = &request.class.metadata;
        if metadata.deletion_timestamp.is_none() {
            return self.classes.resolve(request, now).await;
        }
        let name = metadata.name.as_deref().unwrap_or_default();
        let released = self.classes.release(name);
        if request.claims.is_empty() {
            let uid = metadata.uid.as_deref().unwrap_or_default();
            self.profiles.release(name, uid).await?;
            self.launcher.templates().delete_all(name).await?;
        }
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
            launch_window: Some(LAUNCH_WINDOW),
        }
    }

    fn well_known(&self) -> WellKnown {
        labels::well_known()
    }

    fn resolve<'a>(
        &'a self,
        request: &'a ResolveRequest,
    ) -> BoxFuture<'a, Result<ResolvedNodeClass, CloudError>> {
        Box::pin(self.resolve_class(request, Timestamp::now()))
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
        Box::pin(async move {
            let status = self.instances.terminate(instance).await?;
            if let (TerminationStatus::Started, Some(id)) = (&status, tags::instance_id(instance)) {
                self.interruptions.terminated(id);
            }
            Ok(status)
        })
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

    fn workers(&self) -> Vec<ProviderWorker> {
        let templates = ProviderWorker {
            name: "launch-templates",
            run: Box::pin(Arc::clone(self.launcher.templates()).keep_clean()),
        };
        let own = self.profiles.collector().into_iter().chain([templates]);
        own.chain(self.reading_workers()).collect()
    }

    fn reading_workers(&self) -> Vec<ProviderWorker> {
        let shifts = self.shifted_cluster.iter().map(|cluster| ProviderWorker {
            name: "zonal-shifts",
            run: Box::pin(
                Arc::clone(&self.moment.shifted).watch(Arc::clone(&self.clients), cluster.clone()),
            ),
        });
        shifts.chain(self.offerings.price_workers()).collect()
    }

    fn unavailable(&self) -> Vec<UnavailableCapacity> {
        let now = Timestamp::now();
        let shifts = self.moment.shifted.snapshot(now);
        [self.unavailable.snapshot(now), shifts].concat()
    }

    fn gauges(&self) -> Vec<ProviderGauge> {
        let prices = self.offerings.price_state().gauges(Timestamp::now());
        let calls = self.clients.budget.gauges();
        let shifts = self.moment.shifted.gauge().into_iter().collect();
        [prices, self.unavailable.gauges(), shifts, calls].concat()
    }

    fn notices(&self) -> Vec<Arc<dyn NoticeSource>> {
        self.interruptions.sources()
    }

    fn acknowledge<'a>(&'a self, notice: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        Box::pin(self.interruptions.acknowledge(notice))
    }
}
