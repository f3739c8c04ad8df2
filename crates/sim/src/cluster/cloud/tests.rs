//! The simulated cloud keeps the rules of the provider port: its effects, called through a provider.

use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use mortise_apis::labels::WellKnown;
use mortise_apis::names::{ClaimName, NodeClassKey};
use mortise_apis::node_class::{NodeClassKind, NodeClassObject};
use mortise_cloudprovider::conformance::{TestCloud, conformance};
use mortise_cloudprovider::{
    BoxFuture, CloudError, CloudProvider, DriftReason, LaunchRequest, ProviderDescriptor,
    ResolveRequest, ResolvedNodeClass, Retry,
};
use mortise_engine::effect::{Effect, EffectError, EffectOutput, ProviderRef};
use serde_json::{Value, json};

use super::*;
use crate::cluster::{Cluster, execute};
use crate::test_cluster::ordinary_types;

const KIND: NodeClassKind = NodeClassKind {
    group: "sim",
    version: "v1",
    kind: "SimNodeClass",
    plural: "simnodeclasses",
};

struct SimProvider(Mutex<Cluster>);

impl SimProvider {
    fn execute(&self, effect: &Effect) -> Result<EffectOutput, EffectError> {
        execute(effect, &mut self.0.lock().unwrap()).result
    }

    /// A call with the output that belongs to it.
    fn call<'a, T: Send + 'a>(
        &self,
        effect: &Effect,
        output: impl FnOnce(EffectOutput) -> Option<T>,
    ) -> BoxFuture<'a, Result<T, CloudError>> {
        let result = self.execute(effect);
        let error = |message: String| CloudError {
            label: "sim",
            message,
            retry: Retry::Never,
        };
        let result = result.map_err(|found| error(format!("{found:?}")));
        let result = result
            .and_then(|found| output(found).ok_or_else(|| error("another output".to_owned())));
        Box::pin(std::future::ready(result))
    }
}

impl CloudProvider for SimProvider {
    fn descriptor(&self) -> ProviderDescriptor {
        ProviderDescriptor {
            name: "sim",
            node_classes: &[KIND],
            repair_policies: &[],
            tagged_annotations: &[],
            reservation_labels: &[],
            launch_window: None,
        }
    }

    fn well_known(&self) -> WellKnown {
        WellKnown::core()
    }

    fn resolve<'a>(
        &'a self,
        request: &'a ResolveRequest,
    ) -> BoxFuture<'a, Result<ResolvedNodeClass, CloudError>> {
        self.call(
            &Effect::Resolve(Box::new(request.clone())),
            |output| match output {
                EffectOutput::Resolved(resolved) => Some((*resolved).clone()),
                _ => None,
            },
        )
    }

    fn launch<'a>(
        &'a self,
        request: &'a LaunchRequest,
    ) -> BoxFuture<'a, Result<LaunchedInstance, LaunchError>> {
        let result = match self.execute(&Effect::Launch(Box::new(request.clone()))) {
            Ok(EffectOutput::Launched(launched)) => Ok(*launched),
            Err(EffectError::Launch(error)) => Err(error),
            other => panic!("{other:?}"),
        };
        Box::pin(std::future::ready(result))
    }

    fn terminate<'a>(
        &'a self,
        instance: &'a ProviderId,
        claim: &'a str,
    ) -> BoxFuture<'a, Result<TerminationStatus, CloudError>> {
        let effect = Effect::Terminate {
            provider: ProviderRef::Named("sim".into()),
            provider_id: instance.clone(),
            claim: ClaimName::from(claim),
        };
        self.call(&effect, |output| match output {
            EffectOutput::Terminated(status) => Some(status),
            _ => None,
        })
    }

    fn instance<'a>(
        &'a self,
        instance: &'a ProviderId,
    ) -> BoxFuture<'a, Result<Option<Instance>, CloudError>> {
        let cluster = self.0.lock().unwrap();
        let found = cluster.cloud.find(instance, cluster.now());
        drop(cluster);
        Box::pin(std::future::ready(Ok(found)))
    }

    fn list_instances(&self) -> BoxFuture<'_, Result<Vec<Instance>, CloudError>> {
        self.call(&Effect::ListInstances, |output| match output {
            EffectOutput::Instances(listings) => listings.into_iter().next()?.instances.ok(),
            _ => None,
        })
    }

    fn drifted<'a>(
        &'a self,
        _: &'a NodeClaim,
        _: &'a NodeClassObject,
    ) -> BoxFuture<'a, Result<Option<DriftReason>, CloudError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

impl TestCloud for SimProvider {
    fn node_class(&self, _: Option<&Value>) -> NodeClassObject {
        let key = NodeClassKey::new("sim", "SimNodeClass", "default");
        NodeClassObject::new(key, json!({ "metadata": { "name": "default" } }))
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        let mut cluster = self.0.lock().unwrap();
        let ended: Vec<ProviderId> = cluster
            .cloud
            .instances()
            .filter(|(_, instance)| instance.terminates_at.is_some())
            .map(|(id, _)| id.clone())
            .collect();
        for id in ended {
            cluster.cloud.remove(&id);
        }
        Box::pin(std::future::ready(()))
    }

    fn end_instance<'a>(&'a self, instance: &'a ProviderId) -> BoxFuture<'a, ()> {
        self.0.lock().unwrap().cloud.remove(instance);
        Box::pin(std::future::ready(()))
    }
}

#[test]
fn the_simulated_cloud_keeps_the_rules_of_providers() {
    let cloud = Cloud::new(ordinary_types(), 0);
    let cluster = Cluster::with_cloud(cloud, Timestamp::UNIX_EPOCH, 1);
    let provider = SimProvider(Mutex::new(cluster));
    let mut run = Box::pin(conformance(&provider, &provider));
    let Poll::Ready(failures) = run.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it waits");
    };
    assert_eq!(failures, []);
}
