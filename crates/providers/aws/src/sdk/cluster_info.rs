//! Facts about the cluster that nodes must be told: from the settings, else from its API server, else from EKS.
//!
//! Problem: a cluster need not be EKS's, and EKS need not answer. Invariant: EKS is asked only for what neither the settings nor the
//! API server say, or for the version if it runs the control plane; what cannot change is asked once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::AwsClients;
use super::vpc_cni::VpcCni;
use crate::api_server::ApiServer;
use crate::config::{AwsConfig, PrefixDelegation};
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
    /// What its VPC CNI does; `None` where that is not asked, or no answer has come yet.
    pub(crate) cni: Option<VpcCni>,
}

/// How long the cluster's facts are believed: its version changes while we run, and images follow it.
const FRESH: Duration = Duration::from_secs(5 * 60);
/// How long facts are believed among which something is missing.
const INCOMPLETE: Duration = Duration::from_secs(30);

/// Looks the cluster up on first need, so that a controller that never launches does not depend on EKS, and again every few minutes.
#[derive(Debug)]
pub(crate) struct ClusterInfoCache {
    clients: Arc<AwsClients>,
    config: Arc<AwsConfig>,
    /// The facts, and until when they are believed.
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

    /// The facts. While no one answers, the old ones stay in use.
    pub(crate) async fn get(&self) -> Result<Arc<ClusterInfo>, Failure> {
        let known = self.lock().clone();
        if let Some((until, cluster)) = &known
            && Instant::now() < *until
        {
            return Ok(Arc::clone(cluster));
        }
        let known = known.map(|(_, cluster)| cluster);
        let cluster = match (self.find(known.as_deref()).await, known) {
            (Ok(cluster), _) => Arc::new(cluster),
            (Err(error), Some(cluster)) => {
                tracing::warn!(%error, "failed to describe cluster, the previous result stays in use");
                cluster
            }
            (Err(error), None) => return Err(error),
        };
        let lacks_cni = self.follows_cni() && cluster.cni.is_none();
        let believed = if cluster.service_cidr.is_some() && !lacks_cni {
            FRESH
        } else {
            INCOMPLETE
        };
        *self.lock() = Some((Instant::now() + believed, Arc::clone(&cluster)));
        Ok(cluster)
    }

    /// Sets the facts for a while.
    #[cfg(test)]
    pub(crate) fn assume(&self, cluster: ClusterInfo) {
        let until = Instant::now() + std::time::Duration::from_secs(60);
        *self.lock() = Some((until, Arc::new(cluster)));
    }

    /// Whether pod density is that of the VPC CNI's settings.
    fn follows_cni(&self) -> bool {
        self.config.prefix_delegation == PrefixDelegation::Auto && self.config.api_server.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Arc<ClusterInfo>)>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything but the version and the settings of the CNI is taken over from what is known; those too if there is no answer.
    async fn find(&self, known: Option<&ClusterInfo>) -> Result<ClusterInfo, Failure> {
        let config = &self.config;
        let set = |own: &Option<String>, known: Option<&String>| {
            let known = known.filter(|text| !text.is_empty());
            own.as_ref().or(known).cloned()
        };
        let mut cluster = ClusterInfo {
            endpoint: set(&config.cluster_endpoint, known.map(|each| &each.endpoint))
                .unwrap_or_default(),
            ca_bundle: set(&config.cluster_ca_bundle, known.map(|each| &each.ca_bundle))
                .unwrap_or_default(),
            service_cidr: set(
                &config.service_cidr,
                known.and_then(|each| each.service_cidr.as_ref()),
            ),
            version: config.kubernetes_version.clone().unwrap_or_default(),
            cni: known.and_then(|each| each.cni),
        };
        if let Some(api_server) = &config.api_server {
            self.ask_api_server(&**api_server, &mut cluster).await;
        }
        let has_ca = !cluster.ca_bundle.is_empty() || config.cluster_ca_bundle.is_some();
        let can_join = !cluster.endpoint.is_empty() && has_ca && !cluster.version.is_empty();
        if can_join && cluster.service_cidr.is_some() {
            return Ok(cluster);
        }
        match self.ask_eks(&mut cluster).await {
            Err(error) if can_join => {
                tracing::warn!(%error, "range of Services is unknown, AL2023 nodes cannot be launched; set --service-cidr or MORTISE_SERVICE_CIDR");
            }
            answered => answered?,
        }
        Ok(cluster)
    }

    /// Fills in what the API server says. What it does not answer may still come from EKS.
    async fn ask_api_server(&self, api_server: &dyn ApiServer, cluster: &mut ClusterInfo) {
        // Where EKS runs the control plane, its version is the one that images are made for.
        if cluster.version.is_empty() && !self.config.eks_control_plane {
            match api_server.version().await {
                Ok(version) => cluster.version = version,
                Err(error) => tracing::warn!(%error, "failed to read version of API server"),
            }
        }
        if cluster.service_cidr.is_none() {
            match api_server.service_ranges().await {
                Ok(ranges) => cluster.service_cidr = ranges.into_iter().next(),
                Err(error) => tracing::warn!(%error, "failed to read ranges of Services"),
            }
        }
        if self.follows_cni() {
            match api_server.vpc_cni().await {
                Ok(environment) => {
                    cluster.cni = Some(VpcCni::of(&environment.unwrap_or_default()));
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to read settings of the VPC CNI, pod density stays as it was");
                }
            }
        }
    }

    /// Fills in what is missing.
    async fn ask_eks(&self, cluster: &mut ClusterInfo) -> Result<(), Failure> {
        let call = self.clients.eks.describe_cluster();
        let answer = call
            .name(&self.config.cluster_name)
            .send()
            .await
            .map_err(|error| self.clients.failure("eks:DescribeCluster", error))?;
        let Some(found) = answer.cluster else {
            return Ok(());
        };
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
        if cluster.service_cidr.is_none() {
            cluster.service_cidr = network.and_then(|network| {
                let v4 = network.service_ipv4_cidr.clone();
                v4.or_else(|| network.service_ipv6_cidr.clone())
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use mortise_cloudprovider::BoxFuture;
    use serde_json::{Value, json};

    use super::*;
    use crate::api_server::ApiServerError;
    use crate::facts::api::wire::{ApiCall, ApiError};
    use crate::facts::api::{Answers, clients};

    /// EKS: its answer, and how often it was asked.
    #[derive(Debug)]
    struct Eks {
        cluster: Option<Value>,
        asked: AtomicUsize,
    }

    impl Answers for Eks {
        fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
            assert_eq!(call.op, "DescribeCluster");
            self.asked.fetch_add(1, Ordering::Relaxed);
            let cluster = self.cluster.clone();
            let cut = || ApiError::Transport("no route".to_owned());
            cluster
                .map(|cluster| json!({ "cluster": cluster }))
                .ok_or_else(cut)
        }
    }

    #[derive(Debug)]
    struct Server {
        version: Mutex<Option<&'static str>>,
        range: Option<&'static str>,
        /// Value of `ENABLE_PREFIX_DELEGATION`; `None`: no answer.
        prefixes: Mutex<Option<&'static str>>,
    }

    impl ApiServer for Server {
        fn version(&self) -> BoxFuture<'_, Result<String, ApiServerError>> {
            let version = *self.version.lock().unwrap();
            let answer = version.map(str::to_owned);
            let answer = answer.ok_or_else(|| ApiServerError("busy".to_owned()));
            Box::pin(std::future::ready(answer))
        }

        fn service_ranges(&self) -> BoxFuture<'_, Result<Vec<String>, ApiServerError>> {
            let ranges = self.range.map(str::to_owned).into_iter().collect();
            Box::pin(std::future::ready(Ok(ranges)))
        }

        fn vpc_cni(
            &self,
        ) -> BoxFuture<'_, Result<Option<BTreeMap<String, String>>, ApiServerError>> {
            let value = *self.prefixes.lock().unwrap();
            let name = "ENABLE_PREFIX_DELEGATION".to_owned();
            let answer = value.map(|value| Some(BTreeMap::from([(name, value.to_owned())])));
            let answer = answer.ok_or_else(|| ApiServerError("busy".to_owned()));
            Box::pin(std::future::ready(answer))
        }
    }

    fn eks() -> Value {
        json!({
            "endpoint": "https://eks", "version": "1.30", "certificateAuthority": { "data": "Y2E=" },
            "kubernetesNetworkConfig": { "serviceIpv4Cidr": "172.20.0.0/16" },
        })
    }

    struct Asked {
        eks: Arc<Eks>,
        server: Arc<Server>,
        cache: ClusterInfoCache,
    }

    impl Asked {
        fn new(
            eks: Option<Value>,
            server: (Option<&'static str>, Option<&'static str>),
            config: AwsConfig,
        ) -> Self {
            let eks = Arc::new(Eks {
                cluster: eks,
                asked: AtomicUsize::new(0),
            });
            let server = Arc::new(Server {
                version: Mutex::new(server.0),
                range: server.1,
                prefixes: Mutex::new(None),
            });
            let config = AwsConfig {
                cluster_name: "blue".to_owned(),
                api_server: Some(Arc::clone(&server) as Arc<dyn ApiServer>),
                ..config
            };
            let clients = Arc::new(clients(Arc::clone(&eks) as Arc<dyn Answers>));
            Self {
                eks,
                server,
                cache: ClusterInfoCache::new(clients, Arc::new(config)),
            }
        }

        async fn get(&self) -> ClusterInfo {
            ClusterInfo::clone(&*self.cache.get().await.unwrap())
        }

        fn calls(&self) -> usize {
            self.eks.asked.load(Ordering::Relaxed)
        }
    }

    fn elsewhere() -> AwsConfig {
        AwsConfig {
            cluster_endpoint: Some("https://mine".to_owned()),
            cluster_ca_bundle: Some("bWluZQ==".to_owned()),
            ..AwsConfig::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_without_eks_is_described_by_its_api_server() {
        let asked = Asked::new(None, (Some("1.36"), Some("10.96.0.0/12")), elsewhere());
        let found = asked.get().await;
        assert_eq!(found.version, "1.36");
        assert_eq!(found.service_cidr.as_deref(), Some("10.96.0.0/12"));
        assert_eq!(asked.calls(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn eks_is_asked_once_for_what_is_missing_and_the_version_follows_the_api_server() {
        let asked = Asked::new(Some(eks()), (Some("1.35"), None), AwsConfig::default());
        let found = asked.get().await;
        assert_eq!((&*found.version, &*found.endpoint), ("1.35", "https://eks"));
        assert_eq!(found.service_cidr.as_deref(), Some("172.20.0.0/16"));
        *asked.server.version.lock().unwrap() = Some("1.36");
        assert_eq!(asked.get().await.version, "1.35");
        tokio::time::advance(FRESH).await;
        assert_eq!(asked.get().await.version, "1.36");
        assert_eq!(asked.calls(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn eks_says_the_version_of_its_control_plane() {
        let config = AwsConfig {
            eks_control_plane: true,
            ..AwsConfig::default()
        };
        let asked = Asked::new(Some(eks()), (Some("1.36"), Some("10.0.0.0/16")), config);
        let found = asked.get().await;
        assert_eq!(found.version, "1.30");
        assert_eq!(found.service_cidr.as_deref(), Some("10.0.0.0/16"));
        tokio::time::advance(FRESH).await;
        asked.get().await;
        assert_eq!(asked.calls(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_range_does_not_keep_other_families_from_joining_and_is_asked_for_again_soon()
    {
        let asked = Asked::new(None, (Some("1.36"), None), elsewhere());
        assert_eq!(asked.get().await.service_cidr, None);
        tokio::time::advance(INCOMPLETE).await;
        asked.get().await;
        assert_eq!(asked.calls(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_cni_is_followed_if_the_settings_say_so() {
        let server = (Some("1.36"), Some("10.96.0.0/12"));
        let asked = Asked::new(None, server, elsewhere());
        *asked.server.prefixes.lock().unwrap() = Some("true");
        assert_eq!(asked.get().await.cni, None, "not asked");
        let follows = AwsConfig {
            prefix_delegation: PrefixDelegation::Auto,
            ..elsewhere()
        };
        let asked = Asked::new(None, server, follows);
        let has_prefixes = async || asked.get().await.cni.map(|cni| cni.prefix_delegation);
        assert_eq!(has_prefixes().await, None, "no answer yet");
        *asked.server.prefixes.lock().unwrap() = Some("true");
        tokio::time::advance(INCOMPLETE).await;
        assert_eq!(has_prefixes().await, Some(true));
        *asked.server.prefixes.lock().unwrap() = None;
        tokio::time::advance(FRESH).await;
        assert_eq!(has_prefixes().await, Some(true), "no answer");
        *asked.server.prefixes.lock().unwrap() = Some("false");
        tokio::time::advance(FRESH).await;
        assert_eq!(has_prefixes().await, Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn without_any_answer_the_old_facts_stay_and_new_ones_are_an_error() {
        let asked = Asked::new(None, (None, Some("10.0.0.0/16")), elsewhere());
        let error = asked.cache.get().await.unwrap_err();
        assert_eq!(error.action, "eks:DescribeCluster");
        *asked.server.version.lock().unwrap() = Some("1.36");
        assert_eq!(asked.get().await.version, "1.36");
        *asked.server.version.lock().unwrap() = None;
        tokio::time::advance(FRESH).await;
        assert_eq!(asked.get().await.version, "1.36");
    }

    #[tokio::test(start_paused = true)]
    async fn settings_win() {
        let config = AwsConfig {
            service_cidr: Some("10.1.0.0/16".to_owned()),
            kubernetes_version: Some("1.34".to_owned()),
            ..elsewhere()
        };
        let asked = Asked::new(None, (Some("1.36"), Some("10.96.0.0/12")), config);
        let found = asked.get().await;
        assert_eq!(found.version, "1.34");
        assert_eq!(found.service_cidr.as_deref(), Some("10.1.0.0/16"));
        assert_eq!(found.endpoint, "https://mine");
    }
}
