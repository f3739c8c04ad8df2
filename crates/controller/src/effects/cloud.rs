//! Calls to clouds.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_apis::NodeClaim;
use mortise_apis::names::{ClaimName, NodeClassKey, ProviderId};
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::node_class::{NodeClassKind, NodeClassObject};
use mortise_cloudprovider::{
    CloudError, CloudProvider, LaunchError, LaunchRequest, ResolveRequest, ResolvedNodeClass, Retry,
};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{EffectError, EffectOutput, InstanceListing, ProviderRef};

use crate::client::backoff::Backoff;
use crate::metrics::Metrics;

/// A launch may take the cloud this long: a fleet call with its own retries.
const LAUNCH: Duration = Duration::from_secs(120);
/// Any other call.
const CALL: Duration = Duration::from_secs(60);
/// Retries of a call that is worth repeating, before whoever asked decides again. Launches are not repeated here: their
/// decider has a back-off and may by then want something else.
const RETRIES: u32 = 2;

/// Every provider, found by the kind of a node class.
#[derive(Clone)]
pub(crate) struct CloudProviders {
    providers: Arc<[Arc<dyn CloudProvider>]>,
}

impl CloudProviders {
    pub(crate) fn new(providers: Vec<Arc<dyn CloudProvider>>) -> Self {
        Self {
            providers: providers.into(),
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn CloudProvider>> {
        self.providers.iter()
    }

    /// Kinds of node classes of every provider.
    pub(crate) fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        self.providers
            .iter()
            .flat_map(|provider| provider.descriptor().node_classes.iter().copied())
            .collect()
    }

    fn of(&self, class: &NodeClassKey) -> Result<&Arc<dyn CloudProvider>, CloudError> {
        let serves =
            |kind: &NodeClassKind| kind.group == &*class.group && kind.kind == &*class.kind;
        self.providers
            .iter()
            .find(|provider| provider.descriptor().node_classes.iter().any(serves))
            .ok_or_else(|| CloudError {
                label: "no_provider",
                message: format!(
                    "no enabled provider supports node class kind {} in group {:?}",
                    class.kind, class.group
                ),
                retry: Retry::Never,
            })
    }

    fn named(&self, name: &str) -> Result<&Arc<dyn CloudProvider>, CloudError> {
        let mut providers = self.providers.iter();
        providers
            .find(|each| each.descriptor().name == name)
            .ok_or_else(|| CloudError {
                label: "no_provider",
                message: format!("provider {name:?} is not enabled"),
                retry: Retry::Never,
            })
    }

    fn reached(&self, provider: &ProviderRef) -> Result<&Arc<dyn CloudProvider>, CloudError> {
        match provider {
            ProviderRef::OfClass(class) => self.of(class),
            ProviderRef::Named(name) => self.named(name),
        }
    }

    /// Resolves a node class by one call, without a service around it.
    pub(crate) async fn resolve_once(
        &self,
        request: &ResolveRequest,
        limit: Duration,
    ) -> Result<ResolvedNodeClass, CloudError> {
        let provider = self.of(&request.class.key)?;
        let resolved = tokio::time::timeout(limit, provider.resolve(request)).await;
        resolved.unwrap_or_else(|_| Err(too_slow(limit)))
    }

    pub(super) async fn launch(
        &self,
        by: DeciderId,
        request: &LaunchRequest,
        metrics: &Metrics,
    ) -> Result<EffectOutput, EffectError> {
        let provider = match self.of(&request.claim.node_class_key()) {
            Ok(provider) => provider,
            Err(error) => {
                return Err(EffectError::Launch(LaunchError::NodeClassNotReady {
                    message: error.message,
                }));
            }
        };
        let start = Instant::now();
        let result = tokio::time::timeout(LAUNCH, provider.launch(request))
            .await
            .unwrap_or_else(|_| Err(LaunchError::Other(too_slow(LAUNCH))));
        let error = result.as_ref().err().map(launch_error_label);
        metrics.cloud.called(
            by,
            "Create",
            provider.descriptor().name,
            start.elapsed(),
            error,
        );
        let launched = result.map_err(EffectError::Launch)?;
        Ok(EffectOutput::Launched(Box::new(launched)))
    }

    pub(super) async fn terminate(
        &self,
        by: DeciderId,
        provider: &ProviderRef,
        instance: &ProviderId,
        claim: &ClaimName,
        metrics: &Metrics,
    ) -> Result<EffectOutput, EffectError> {
        let provider = self.reached(provider).map_err(EffectError::Cloud)?;
        let result = call(by, "Delete", &**provider, metrics, || {
            provider.terminate(instance, claim)
        })
        .await;
        result
            .map(EffectOutput::Terminated)
            .map_err(EffectError::Cloud)
    }

    pub(super) async fn resolve(
        &self,
        by: DeciderId,
        request: &ResolveRequest,
        metrics: &Metrics,
    ) -> Result<EffectOutput, EffectError> {
        let provider = self.of(&request.class.key).map_err(EffectError::Cloud)?;
        let result = call(by, "GetInstanceTypes", &**provider, metrics, || {
            provider.resolve(request)
        })
        .await;
        result
            .map(|resolved| EffectOutput::Resolved(Arc::new(resolved)))
            .map_err(EffectError::Cloud)
    }

    pub(super) async fn drifted(
        &self,
        by: DeciderId,
        claim: &NodeClaim,
        class: &NodeClassObject,
        metrics: &Metrics,
    ) -> Result<EffectOutput, EffectError> {
        let provider = self.of(&class.key).map_err(EffectError::Cloud)?;
        let result = call(by, "IsDrifted", &**provider, metrics, || {
            provider.drifted(claim, class)
        })
        .await;
        result
            .map(|drift| EffectOutput::Drift(drift.map(|reason| reason.to_string())))
            .map_err(EffectError::Cloud)
    }

    /// Tags the instance of a claim.
    pub(super) async fn tag(
        &self,
        by: DeciderId,
        claim: &NodeClaim,
        metrics: &Metrics,
    ) -> Result<EffectOutput, EffectError> {
        let provider = self
            .of(&claim.node_class_key())
            .map_err(EffectError::Cloud)?;
        let result = call(by, "Tag", &**provider, metrics, || provider.tag(claim)).await;
        result.map(EffectOutput::Tagged).map_err(EffectError::Cloud)
    }

    /// One instance, by its ID.
    pub(super) async fn instance(
        &self,
        by: DeciderId,
        provider: &ProviderRef,
        instance: &ProviderId,
        metrics: &Metrics,
    ) -> Result<EffectOutput, EffectError> {
        let provider = self.reached(provider).map_err(EffectError::Cloud)?;
        let result = call(by, "Get", &**provider, metrics, || {
            provider.instance(instance)
        })
        .await;
        result.map(EffectOutput::Found).map_err(EffectError::Cloud)
    }

    /// The instances of every provider; an error only if no provider could list any.
    pub(super) async fn instances(
        &self,
        by: DeciderId,
        metrics: &Metrics,
    ) -> Result<EffectOutput, EffectError> {
        let asked = self.providers.iter().map(|provider| async move {
            let result = call(by, "List", &**provider, metrics, || {
                provider.list_instances()
            })
            .await;
            InstanceListing {
                provider: provider.descriptor().name.into(),
                serves: ServedNodeClasses::only(provider.descriptor().node_classes),
                reservation_labels: provider.descriptor().reservation_labels,
                instances: result,
            }
        });
        let mut listings = futures::future::join_all(asked).await;
        listings.sort_by(|one, other| one.provider.cmp(&other.provider));
        let mut failed = None;
        for listing in &listings {
            if let Err(error) = &listing.instances {
                tracing::warn!(provider = &*listing.provider, %error, "failed to list instances");
                failed = Some(error);
            }
        }
        match failed {
            Some(error) if listings.iter().all(|listing| listing.instances.is_err()) => {
                Err(EffectError::Cloud(error.clone()))
            }
            _ => Ok(EffectOutput::Instances(listings)),
        }
    }

    pub(super) async fn acknowledge(
        &self,
        by: DeciderId,
        provider: &str,
        notice: &str,
        metrics: &Metrics,
    ) -> Result<EffectOutput, EffectError> {
        let provider = self.named(provider).map_err(EffectError::Cloud)?;
        let result = call(by, "Acknowledge", &**provider, metrics, || {
            provider.acknowledge(notice)
        })
        .await;
        if result.is_ok() {
            metrics.cloud.notice_acknowledged();
        }
        result
            .map(|()| EffectOutput::Acknowledged)
            .map_err(EffectError::Cloud)
    }
}

async fn call<T, F>(
    by: DeciderId,
    method: &'static str,
    provider: &dyn CloudProvider,
    metrics: &Metrics,
    again: impl Fn() -> F,
) -> Result<T, CloudError>
where
    F: Future<Output = Result<T, CloudError>>,
{
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(5));
    loop {
        let start = Instant::now();
        let result = tokio::time::timeout(CALL, again())
            .await
            .unwrap_or_else(|_| Err(too_slow(CALL)));
        let error = result.as_ref().err().map(|error| error.label);
        metrics.cloud.called(
            by,
            method,
            provider.descriptor().name,
            start.elapsed(),
            error,
        );
        match result {
            Err(error) if error.retry == Retry::Again && backoff.failures() < RETRIES => {
                tracing::debug!(provider = provider.descriptor().name, method, %error, "cloud provider request failed, retrying");
                tokio::time::sleep(backoff.next()).await;
            }
            result => return result,
        }
    }
}

fn too_slow(limit: Duration) -> CloudError {
    CloudError {
        label: "timeout",
        message: format!("no response within {} s", limit.as_secs()),
        retry: Retry::Again,
    }
}

/// The error label of Karpenter's metric.
const fn launch_error_label(error: &LaunchError) -> &'static str {
    match error {
        LaunchError::InsufficientCapacity { .. } => "InsufficientCapacityError",
        LaunchError::NodeClassNotReady { .. } => "NodeClassNotReadyError",
        LaunchError::Create { .. } => "CreateError",
        LaunchError::Other(error) => error.label,
    }
}
