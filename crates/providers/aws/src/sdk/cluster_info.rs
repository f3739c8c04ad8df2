//! Facts about the cluster that nodes must be told: from the settings, else from EKS.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::AwsClients;
use crate::config::AwsConfig;
use crate::failure::Failure;

/// What nodes must know of their cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterInfo {
    /// URL of the API server.
    pub(crate) endpoint: String,
    /// CA certificate, base64 of PEM; may be empty.
    pub(crate) ca_bundle: String,
    /// Address range of services.
    pub(crate) service_cidr: Option<String>,
    /// Kubernetes version, such as `1.36`.
    pub(crate) version: String,
}

/// How long the cluster's facts are believed: its version changes while we run, and images follow it.
const FRESH: Duration = Duration::from_secs(5 * 60);

/// Looks the cluster up on first need, so that a controller that never launches does not depend on EKS, and again every few minutes.
#[derive(Debug)]
pub(crate) struct ClusterInfoCache {
    clients: Arc<AwsClients>,
    config: Arc<AwsConfig>,
    found: Mutex<Option<(Instant, Arc<ClusterInfo>)>>,
}

impl ClusterInfoCache {
    /// Knows nothing yet, and calls nothing.
    pub(crate) const fn new(clients: Arc<AwsClients>, config: Arc<AwsConfig>) -> Self {
        Self {
            clients,
            config,
            found: Mutex::new(None),
        }
    }

    /// The facts. EKS is asked only when the settings leave something out; while it does not answer, the old facts stay in use.
    pub(crate) async fn get(&self) -> Result<Arc<ClusterInfo>, Failure> {
        let known = self.lock().clone();
        if let Some((at, cluster)) = &known
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(cluster));
        }
        let cluster = match (find(&self.clients, &self.config).await, known) {
            (Ok(cluster), _) => Arc::new(cluster),
            (Err(error), Some((_, cluster))) => {
                tracing::warn!(%error, "failed to describe cluster, the previous result stays in use");
                cluster
            }
            (Err(error), None) => return Err(error),
        };
        *self.lock() = Some((Instant::now(), Arc::clone(&cluster)));
        Ok(cluster)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Arc<ClusterInfo>)>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn find(clients: &AwsClients, config: &AwsConfig) -> Result<ClusterInfo, Failure> {
    let AwsConfig {
        cluster_endpoint,
        cluster_ca_bundle,
        service_cidr,
        kubernetes_version,
        ..
    } = config;
    let mut cluster = ClusterInfo {
        endpoint: cluster_endpoint.clone().unwrap_or_default(),
        ca_bundle: cluster_ca_bundle.clone().unwrap_or_default(),
        service_cidr: service_cidr.clone(),
        version: kubernetes_version.clone().unwrap_or_default(),
    };
    if !cluster.endpoint.is_empty()
        && cluster_ca_bundle.is_some()
        && cluster.service_cidr.is_some()
        && !cluster.version.is_empty()
    {
        return Ok(cluster);
    }
    let answer = clients
        .eks
        .describe_cluster()
        .name(&config.cluster_name)
        .send()
        .await
        .map_err(|error| clients.failure("eks:DescribeCluster", error))?;
    if let Some(found) = answer.cluster {
        let network = found.kubernetes_network_config.as_ref();
        let or = |set: &mut String, found: Option<String>| {
            if set.is_empty() {
                *set = found.unwrap_or_default();
            }
        };
        or(&mut cluster.endpoint, found.endpoint);
        or(
            &mut cluster.ca_bundle,
            found
                .certificate_authority
                .and_then(|authority| authority.data),
        );
        or(&mut cluster.version, found.version);
        cluster.service_cidr = cluster.service_cidr.or_else(|| {
            network?
                .service_ipv4_cidr
                .clone()
                .or_else(|| network?.service_ipv6_cidr.clone())
        });
    }
    Ok(cluster)
}
