//! The provider port for kwok, over a Kubernetes client.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::names::ProviderId;
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::schema::conditions::ConditionStatus;
use mortise_apis::values::GoDuration;
use mortise_cloudprovider::{
    BoxFuture, CapacityType, CloudError, CloudProvider, DriftReason, Instance, InstanceDetails,
    InstanceType, LaunchError, LaunchRequest, LaunchedInstance, ProviderDescriptor, ProviderWorker,
    RepairPolicy, ResolveRequest, ResolvedNodeClass, Retry, TerminationStatus,
};
use mortise_kwok_class::object::KwokNodeClass;
use tracing::{info, warn};

use crate::catalog::{self, TypesFileError};
use crate::node::{self, PREFIX};

/// First backoff after a failed node creation; it doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Page size of Node lists: a parsed Node takes some 60 KiB, and of a thousand not all are needed at a time.
const PAGE: u32 = 50;

/// Cloud provider whose instances are Node objects.
#[derive(Clone)]
pub struct KwokProvider {
    client: kube::Client,
    types: Arc<Vec<InstanceType>>,
}

impl KwokProvider {
    /// A provider with the built-in catalog or, if a path is given, that of the file.
    ///
    /// # Errors
    /// The catalog file cannot be read or is invalid.
    pub fn new(client: kube::Client, types_file: Option<&Path>) -> Result<Self, TypesFileError> {
        let types = match types_file {
            Some(path) => catalog::from_file(path)?,
            None => catalog::instance_types(),
        };
        Ok(Self {
            client,
            types: Arc::new(types),
        })
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Creates the Nodes that a killed process did not create: those of launched claims without a Node. Lists are retried
    /// while the API server is busy or unavailable.
    ///
    /// # Errors
    /// The API server rejects the list of claims or nodes.
    pub(crate) async fn recover(&self) -> Result<(), kube::Error> {
        let mut wait = RETRY_MIN;
        loop {
            match self.create_missing_nodes().await {
                Err(error) if !is_rejection(&error) => {
                    info!(%error, retry_in = ?wait, "failed to list missing nodes, retrying");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(RETRY_MAX);
                }
                result => return result,
            }
        }
    }

    async fn create_missing_nodes(&self) -> Result<(), kube::Error> {
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        let nodes = self.nodes().list_metadata(&ListParams::default()).await?;
        let known: std::collections::BTreeSet<_> = nodes
            .items
            .into_iter()
            .filter_map(|node| node.metadata.name)
            .collect();
        for claim in claims.list(&ListParams::default()).await? {
            let is_missing = claim.provider_id().is_some_and(|id| id.starts_with(PREFIX))
                && claim.metadata.deletion_timestamp.is_none()
                && !claim.is_true("Registered")
                && !known.contains(&node::node_name(&claim));
            if is_missing && let Ok((chosen, offering)) = node::choose_offering(&claim, &self.types)
            {
                let node = node::node_of(&claim, chosen, offering);
                info!(nodeclaim = %claim.name(), "creating missing node");
                self.create_later(node, claim.name().to_string(), Duration::ZERO);
            }
        }
        Ok(())
    }

    /// Creates the Node after a delay and retries while its claim exists: the claim may be deleted in the meantime, and an
    /// admission policy may reject the Node for some time.
    fn create_later(&self, node: Node, claim: String, delay: Duration) {
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let mut wait = RETRY_MIN;
            // A launch without delay was requested just now.
            let mut is_needed = delay.is_zero() || this.is_needed(&claim).await;
            while is_needed && let Err(error) = this.create(&node).await {
                warn!(nodeclaim = claim, %error, retry_in = ?wait, "failed to create node");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(RETRY_MAX);
                is_needed = this.is_needed(&claim).await;
            }
        });
    }

    /// The claim exists and is not being deleted, or the API server cannot be reached.
    async fn is_needed(&self, claim: &str) -> bool {
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        match claims.get_opt(claim).await {
            Ok(found) => found.is_some_and(|found| found.metadata.deletion_timestamp.is_none()),
            Err(error) => {
                warn!(nodeclaim = claim, %error, "failed to read nodeclaim");
                true
            }
        }
    }

    async fn create(&self, node: &Node) -> Result<(), kube::Error> {
        match self.nodes().create(&PostParams::default(), node).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn launch_claim(&self, request: &LaunchRequest) -> Result<LaunchedInstance, LaunchError> {
        let claim = &request.claim;
        let Some(class) = &request.node_class else {
            let message = format!(
                "node class {} does not exist",
                claim.spec.node_class_ref.name
            );
            return Err(LaunchError::InsufficientCapacity {
                message,
                unavailable: Vec::new(),
                again_ms: None,
                missing: None,
            });
        };
        let class: KwokNodeClass =
            serde_json::from_value((*class.object).clone()).map_err(|error| {
                LaunchError::NodeClassNotReady {
                    message: format!("node class cannot be read: {error}"),
                }
            })?;
        let ready = class
            .status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Ready");
        if let Some(ready) = ready.filter(|ready| ready.status == ConditionStatus::False) {
            return Err(LaunchError::NodeClassNotReady {
                message: ready.message.clone(),
            });
        }
        let (chosen, offering) = node::choose_offering(claim, &self.types)?;
        let node = node::node_of(claim, chosen, offering);
        let launched = node::launched(claim, &node);
        let delay = class
            .spec
            .node_registration_delay
            .as_ref()
            .and_then(|text| GoDuration::parse(text.as_str()).ok());
        let delay = delay
            .and_then(|delay| u64::try_from(delay.as_nanos()).ok())
            .map_or(Duration::ZERO, Duration::from_nanos);
        self.create_later(node, claim.name().to_string(), delay);
        Ok(launched)
    }
}

/// A final response of the API server: any 4xx except "too many requests".
fn is_rejection(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

/// Classifies a failed call to the API server.
fn cloud_error(error: kube::Error) -> CloudError {
    let (label, retry) = if is_rejection(&error) {
        ("refused", Retry::Never)
    } else {
        ("unreachable", Retry::Again)
    };
    CloudError {
        label,
        message: error.to_string(),
        retry,
    }
}

/// The kubelet reports that the node is not ready.
const UNREADY: RepairPolicy = RepairPolicy {
    condition: "Ready",
    status: "False",
    toleration_seconds: 600,
};

/// The kubelet reports nothing.
const UNREACHABLE: RepairPolicy = RepairPolicy {
    status: "Unknown",
    ..UNREADY
};

impl CloudProvider for KwokProvider {
    fn descriptor(&self) -> ProviderDescriptor {
        ProviderDescriptor {
            name: "kwok",
            node_classes: const { &[mortise_kwok_class::object::KIND] },
            repair_policies: &[UNREADY, UNREACHABLE],
            tagged_annotations: &[],
            reservation_labels: &[],
            launch_window: None,
        }
    }

    fn well_known(&self) -> WellKnown {
        mortise_kwok_class::labels::well_known()
    }

    fn workers(&self) -> Vec<ProviderWorker> {
        let this = self.clone();
        let run = async move {
            if let Err(error) = this.recover().await {
                warn!(%error, "failed to list missing nodes, their NodeClaims are deleted after --registration-timeout");
            }
        };
        vec![ProviderWorker {
            name: "missing-nodes",
            run: run.boxed(),
        }]
    }

    fn resolve<'a>(
        &'a self,
        _request: &'a ResolveRequest,
    ) -> BoxFuture<'a, Result<ResolvedNodeClass, CloudError>> {
        let types = (*self.types).clone();
        async move {
            Ok(ResolvedNodeClass {
                status: None,
                annotations: std::collections::BTreeMap::new(),
                finalizer: None,
                instance_types: types,
                shifted_zones: Vec::new(),
                again_ms: None,
            })
        }
        .boxed()
    }

    fn launch<'a>(
        &'a self,
        request: &'a LaunchRequest,
    ) -> BoxFuture<'a, Result<LaunchedInstance, LaunchError>> {
        self.launch_claim(request).boxed()
    }

    /// An instance is its Node: while the Node is being deleted the instance counts as terminated, and the finalizer of the
    /// Node decides when the object is removed.
    fn terminate<'a>(
        &'a self,
        provider_id: &'a ProviderId,
        _claim: &'a str,
    ) -> BoxFuture<'a, Result<TerminationStatus, CloudError>> {
        async move {
            let Some(name) = provider_id.strip_prefix(PREFIX) else {
                return Ok(TerminationStatus::Gone);
            };
            match self
                .nodes()
                .get_metadata_opt(name)
                .await
                .map_err(cloud_error)?
            {
                Some(node) if node.metadata.deletion_timestamp.is_none() => {}
                Some(_) | None => return Ok(TerminationStatus::Gone),
            }
            match self.nodes().delete(name, &DeleteParams::default()).await {
                Ok(_) => Ok(TerminationStatus::Started),
                Err(kube::Error::Api(status)) if status.is_not_found() => {
                    Ok(TerminationStatus::Gone)
                }
                Err(error) => Err(cloud_error(error)),
            }
        }
        .boxed()
    }

    fn instance<'a>(
        &'a self,
        provider_id: &'a ProviderId,
    ) -> BoxFuture<'a, Result<Option<Instance>, CloudError>> {
        async move {
            let Some(name) = provider_id.strip_prefix(PREFIX) else {
                return Ok(None);
            };
            let node = self.nodes().get_opt(name).await.map_err(cloud_error)?;
            Ok(node.as_ref().and_then(instance_of))
        }
        .boxed()
    }

    /// An instance is its Node: one whose Node is being deleted is omitted, as in [`KwokProvider::terminate`].
    fn list_instances(&self) -> BoxFuture<'_, Result<Vec<Instance>, CloudError>> {
        async move {
            let nodes = self.nodes();
            let mut found = Vec::new();
            let mut page = ListParams::default().limit(PAGE);
            loop {
                let listed = nodes.list(&page).await.map_err(cloud_error)?;
                found.extend(listed.items.iter().filter_map(instance_of));
                match listed.metadata.continue_ {
                    Some(next) if !next.is_empty() => page = page.continue_token(&next),
                    _ => return Ok(found),
                }
            }
        }
        .boxed()
    }

    fn drifted<'a>(
        &'a self,
        _claim: &'a NodeClaim,
        _class: &'a NodeClassObject,
    ) -> BoxFuture<'a, Result<Option<DriftReason>, CloudError>> {
        async { Ok(None) }.boxed()
    }
}

/// The instance of a Node; `None` if another provider launched it, or if it is being deleted.
fn instance_of(node: &Node) -> Option<Instance> {
    if node.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let id = node.spec.as_ref()?.provider_id.as_deref()?;
    id.starts_with(PREFIX).then(|| Instance {
        provider_id: ProviderId::from(id),
        claim: node::claim_of(node).map(|claim| claim.to_string()),
        batch: None,
        created: node.metadata.creation_timestamp.as_ref().map(|time| time.0),
        terminating: false,
        details: details_of(node),
    })
}

/// What the labels of a Node say of its instance.
fn details_of(node: &Node) -> InstanceDetails {
    let label = |key: &str| node.metadata.labels.as_ref()?.get(key).cloned();
    let capacity_type = label(labels::CAPACITY_TYPE);
    InstanceDetails {
        instance_type: label(labels::INSTANCE_TYPE),
        zone: label(labels::TOPOLOGY_ZONE),
        capacity_type: capacity_type.as_deref().and_then(CapacityType::parse),
        reservation: None,
        image: None,
    }
}

#[cfg(test)]
mod tests;
