//! How effects end: what the test and its provider say, where it is not what the simulated cluster does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use mortise_apis::names::ProviderId;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_cloudprovider::{
    CloudError, Instance, LaunchError, LaunchedInstance, ResolvedNodeClass, Retry, ShiftedZone,
};
use mortise_engine::effect::{Effect, EffectError, EffectOutput, InstanceListing, ProviderRef};
use mortise_engine::write::ObjectWrite;
use mortise_state::resource_kinds::ObjectKey;
use serde_json::json;

use super::served;
use crate::cluster::{Cluster, RESERVATION_ID};

/// Name of the provider of test clusters.
pub(super) const PROVIDER: &str = "sim";

/// How effects end, where it is not what the simulated cluster does. Keys of objects are texts, as in [`super::TestCluster::get`].
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Errors of the next launches, in order.
    pub launch_errors: VecDeque<LaunchError>,
    /// Error of every resolution of a node class.
    pub resolve_error: Option<CloudError>,
    /// Error of every termination.
    pub terminate_error: Option<CloudError>,
    /// Pods whose eviction a budget blocks.
    pub blocked: BTreeSet<String>,
    /// Other errors of evictions, by pod.
    pub eviction_errors: BTreeMap<String, EffectError>,
    /// Objects that an admission webhook does not let the service change.
    pub refused_writes: BTreeSet<String>,
    /// What the provider lists instead of the instances of the simulated cloud.
    pub listed: Option<Vec<Instance>>,
    /// Number of instances that the provider fails to tag first.
    pub tag_errors: usize,
    /// Number of writes that fail with a conflict first.
    pub conflicts: usize,
    /// Number of claims that a policy does not let the service create first.
    pub refused_creations: usize,
    /// How long the API server takes to create a claim, in milliseconds.
    pub create_ms: i64,
    /// What the provider says about drift, by claim.
    pub drifted: BTreeMap<String, String>,
    /// When the provider wants to resolve its node classes again, in milliseconds.
    pub again_ms: Option<i64>,
    /// Zones that the provider says are shifted away.
    pub shifted_zones: Vec<ShiftedZone>,
    /// Version and value of the hash that the provider makes of node classes.
    pub class_hash: Option<[&'static str; 2]>,
    /// The provider does not answer when it is asked for its instances. Another provider does, and has none.
    pub mute: bool,
    /// The service crashes after the next effect with this label is executed, before its outcome arrives.
    pub crash_after: Option<&'static str>,
    /// Interruption notices that the service has acknowledged.
    pub(super) acknowledged: Vec<String>,
    /// Instances that lists omit.
    pub(super) unlisted: BTreeSet<ProviderId>,
}

fn throttled() -> CloudError {
    CloudError {
        label: "throttled",
        message: "slow down".to_owned(),
        retry: Retry::Again,
    }
}

fn denied(by: &str) -> EffectError {
    EffectError::Refused {
        code: 403,
        message: format!("denied by a {by}"),
    }
}

impl Answers {
    /// What the test says about an effect; `None` = the simulated cluster executes it.
    pub(super) fn answer(
        &mut self,
        effect: &Effect,
        cluster: &Cluster,
    ) -> Option<Result<EffectOutput, EffectError>> {
        match effect {
            Effect::Write(write) => self.write_error(write, cluster).map(Err),
            Effect::CreateClaim(_) if self.refused_creations > 0 => {
                self.refused_creations -= 1;
                Some(Err(denied("policy")))
            }
            Effect::Evict { pod, .. } => {
                let key = format!("Pod/{pod}");
                if self.blocked.contains(&key) {
                    return Some(Err(EffectError::Blocked("budget".to_owned())));
                }
                self.eviction_errors.get(&key).cloned().map(Err)
            }
            Effect::Launch(_) => {
                let error = self.launch_errors.pop_front()?;
                Some(Err(EffectError::Launch(error)))
            }
            Effect::Resolve(_) => {
                let error = self.resolve_error.clone()?;
                Some(Err(EffectError::Cloud(error)))
            }
            Effect::Terminate { provider, .. } => {
                let is_served = match provider {
                    ProviderRef::OfClass(class) => served().covers(class),
                    ProviderRef::Named(name) => &**name == PROVIDER,
                };
                assert!(is_served, "{provider:?}");
                let error = self.terminate_error.clone()?;
                Some(Err(EffectError::Cloud(error)))
            }
            Effect::FindInstance { .. } if self.mute => Some(Err(EffectError::Cloud(throttled()))),
            Effect::CheckDrift { claim, .. } => {
                let drift = self.drifted.get(&*claim.name()).cloned();
                Some(Ok(EffectOutput::Drift(drift)))
            }
            Effect::TagInstance(_) if self.tag_errors > 0 => {
                self.tag_errors -= 1;
                Some(Err(EffectError::Cloud(throttled())))
            }
            Effect::Acknowledge { notice, .. } => {
                self.acknowledged.push(notice.to_string());
                None
            }
            _ => None,
        }
    }

    fn write_error(&mut self, write: &ObjectWrite, cluster: &Cluster) -> Option<EffectError> {
        let key = ObjectKey::from(&write.target);
        cluster.api_server.get(&key)?;
        let body = write.edit.render(None);
        let is_status = |field: &String| field == "status";
        let fields = body.merge.as_object().unwrap();
        let mut fields = fields.keys().map(is_status);
        let is_empty = !fields.any(|is_status| is_status == body.subresource.is_some());
        assert!(!is_empty, "patch of nothing: {write:?}");
        let text = format!("{}/{}", key.kind(), super::objects::name_of(&key));
        if self.refused_writes.contains(&text) {
            return Some(denied("webhook"));
        }
        if self.conflicts > 0 {
            self.conflicts -= 1;
            return Some(EffectError::Conflict(text));
        }
        None
    }

    /// Adds what the provider of the tests says besides the simulated cloud.
    pub(super) fn completed(&self, output: EffectOutput, cluster: &Cluster) -> EffectOutput {
        match output {
            EffectOutput::Launched(launched) => {
                EffectOutput::Launched(Box::new(with_provider_metadata(*launched)))
            }
            EffectOutput::Resolved(resolved) => {
                EffectOutput::Resolved(Arc::new(self.resolved((*resolved).clone())))
            }
            EffectOutput::Instances(_) => EffectOutput::Instances(self.listings(cluster)),
            other => other,
        }
    }

    fn resolved(&self, resolved: ResolvedNodeClass) -> ResolvedNodeClass {
        let mut annotations = BTreeMap::from([("fake.test/hash".to_owned(), "1".to_owned())]);
        if let Some([version, hash]) = self.class_hash {
            let key = "fake.test/fakenodeclass-hash";
            annotations.extend([
                (format!("{key}-version"), version.to_owned()),
                (key.to_owned(), hash.to_owned()),
            ]);
        }
        ResolvedNodeClass {
            status: Some(
                json!({ "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": super::START }] }),
            ),
            annotations,
            finalizer: Some("fake.test/termination"),
            shifted_zones: self.shifted_zones.clone(),
            again_ms: self.again_ms,
            ..resolved
        }
    }

    /// The provider of the tests, which may be mute, and another one that has no instances.
    fn listings(&self, cluster: &Cluster) -> Vec<InstanceListing> {
        let listed = |each: &Instance| !self.unlisted.contains(&each.provider_id);
        let instances = if let Some(instances) = &self.listed {
            Ok(instances.clone())
        } else if self.mute {
            Err(throttled())
        } else {
            let all = cluster.cloud.list(cluster.now()).into_iter();
            Ok(all.filter(listed).collect())
        };
        vec![
            InstanceListing {
                provider: "another".into(),
                serves: ServedNodeClasses::only([]),
                reservation_labels: &[],
                instances: Ok(Vec::new()),
            },
            InstanceListing {
                provider: PROVIDER.into(),
                serves: served(),
                reservation_labels: &[RESERVATION_ID],
                instances,
            },
        ]
    }
}

/// A label that the claim has too, and an annotation that it has too: which one wins is the service's decision.
fn with_provider_metadata(mut launched: LaunchedInstance) -> LaunchedInstance {
    let pair = |key: &str| (key.to_owned(), "provider".to_owned());
    launched.labels.extend([pair("team")]);
    launched.annotations.extend([pair("note")]);
    launched
}
