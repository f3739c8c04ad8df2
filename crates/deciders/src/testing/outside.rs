//! The outside of the test world: what carrying out an effect does to its objects and machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use super::{TestCluster, TestInstance, merge_into, object, ours, ref_key};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::ProviderId;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::Resources;
use mortise_apis::values::after;
use mortise_cloudprovider::{
    CapacityType, CloudError, Instance, InstanceType, LaunchError, LaunchRequest, LaunchedInstance,
    Offering, ResolvedNodeClass, Retry, TerminationStatus,
};
use mortise_engine::effect::{Effect, EffectError, EffectOutput, InstanceListing, ProviderRef};
use mortise_engine::engine::EngineInput;
use mortise_engine::freshness::WatchState;
use mortise_engine::write::ObjectWrite;
use mortise_state::resource_kinds::{EventSource, ObjectEvent, ObjectKind};

/// Name of the provider of these tests.
const PROVIDER: &str = "fake";

impl TestCluster {
    /// Creates an object that no watch shows.
    pub(crate) fn put_unseen(&mut self, mut value: Value) {
        self.count += 1;
        value["metadata"]["resourceVersion"] = self.count.to_string().into();
        self.objects.insert(super::key_of(&value), value);
    }

    /// A watch says how it is; from the first time on it may be old.
    pub(crate) fn watch_is(&mut self, kind: ObjectKind, state: WatchState) {
        self.engine
            .apply(EngineInput::Watch { kind, state }, self.now);
    }

    pub(super) fn carry_out(&mut self, effect: &Effect) -> Result<EffectOutput, EffectError> {
        if let Effect::Event(event) = effect {
            assert_eq!(mortise_engine::events::fault(event), None);
            self.events.push(event.clone());
            return Ok(EffectOutput::Sent);
        }
        let target = effect
            .target()
            .map(|target| target.to_string())
            .unwrap_or_default();
        self.done.push(format!("{} {target}", effect.label()));
        match effect {
            Effect::Write(write) => self.write(write),
            Effect::Delete {
                target,
                uid,
                grace_seconds,
            } => {
                let key = ref_key(target);
                let Some(value) = self.objects.get(&key) else {
                    return Ok(EffectOutput::Deleted);
                };
                if uid
                    .as_ref()
                    .is_some_and(|uid| value["metadata"]["uid"] != **uid)
                {
                    return Err(EffectError::Conflict("other UID".to_owned()));
                }
                self.mark_deleted(
                    &key,
                    grace_seconds.map(|seconds| seconds * 1_000),
                    EventSource::Write,
                );
                Ok(EffectOutput::Deleted)
            }
            Effect::Evict { pod, .. } => {
                let key = format!("Pod/{pod}");
                if self.blocked.contains(&key) {
                    return Err(EffectError::Blocked("budget".to_owned()));
                }
                if let Some(error) = self.eviction_errors.get(&key) {
                    return Err(error.clone());
                }
                let grace = self.get(&key)["spec"]["terminationGracePeriodSeconds"]
                    .as_i64()
                    .unwrap_or(30);
                self.mark_deleted(&key, Some(grace * 1_000), EventSource::Watch);
                Ok(EffectOutput::Evicted)
            }
            Effect::Launch(request) => self
                .launch(request)
                .map(|machine| EffectOutput::Launched(Box::new(machine)))
                .map_err(EffectError::Launch),
            Effect::Terminate {
                provider_id,
                provider,
                ..
            } => {
                let reached = match provider {
                    ProviderRef::OfClass(class) => ours().covers(class),
                    ProviderRef::Named(name) => &**name == PROVIDER,
                };
                assert!(reached, "{provider:?}");
                if let Some(error) = &self.terminate_error {
                    return Err(EffectError::Cloud(error.clone()));
                }
                Ok(EffectOutput::Terminated(self.terminate(provider_id)))
            }
            Effect::ListInstances => Ok(EffectOutput::Instances(self.listings())),
            Effect::ListPods(node) => {
                let of_node = |(key, pod): &(&String, &Value)| {
                    key.starts_with("Pod/") && pod["spec"]["nodeName"] == **node
                };
                let pods = self.objects.iter().filter(of_node);
                let pods: Vec<_> = pods.map(|(key, pod)| object(key, pod)).collect();
                let count = pods.len();
                for pod in pods {
                    self.tell(ObjectEvent::Applied(pod, EventSource::Write));
                }
                Ok(EffectOutput::PodsListed(count))
            }
            Effect::FindInstance { provider_id, .. } => {
                if self.mute {
                    return Err(EffectError::Cloud(mute()));
                }
                let id: &str = provider_id;
                let machine = self.machines.get_key_value(id);
                Ok(EffectOutput::Found(machine.map(instance)))
            }
            Effect::Resolve(_) => {
                let mut answer = ResolvedNodeClass {
                    again_ms: self.again_ms,
                    ..resolved()
                };
                if let Some([version, hash]) = self.class_hash {
                    let key = "fake.test/fakenodeclass-hash";
                    answer.annotations.extend([
                        (format!("{key}-version"), version.to_owned()),
                        (key.to_owned(), hash.to_owned()),
                    ]);
                }
                Ok(EffectOutput::Resolved(Arc::new(answer)))
            }
            Effect::CheckDrift { claim, .. } => Ok(EffectOutput::Drift(
                self.drifted.get(&*claim.name()).cloned(),
            )),
            Effect::Acknowledge { notice, .. } => {
                self.acknowledged.push(notice.to_string());
                Ok(EffectOutput::Acknowledged)
            }
            Effect::CreateClaim(claim) => self.create(claim),
            Effect::Event(_) => Ok(EffectOutput::Sent),
        }
    }

    fn create(&mut self, claim: &NodeClaim) -> Result<EffectOutput, EffectError> {
        let key = format!("NodeClaim/{}", claim.name());
        if self.refused_creations > 0 {
            self.refused_creations -= 1;
            return Err(EffectError::Refused {
                code: 403,
                message: "denied by a policy".to_owned(),
            });
        }
        if !self.has(&key) {
            let mut value = serde_json::to_value(claim).unwrap();
            value["kind"] = json!("NodeClaim");
            self.put(&value);
        }
        Ok(EffectOutput::Written)
    }

    fn write(&mut self, write: &ObjectWrite) -> Result<EffectOutput, EffectError> {
        let key = ref_key(&write.target);
        let Some(mut value) = self.objects.get(&key).cloned() else {
            return Err(EffectError::NotFound(key));
        };
        if self.refused_writes.contains(&key) {
            return Err(EffectError::Refused {
                code: 403,
                message: "denied by a webhook".to_owned(),
            });
        }
        let outdated = write
            .resource_version
            .as_ref()
            .is_some_and(|version| value["metadata"]["resourceVersion"] != **version);
        if outdated || self.conflicts > 0 {
            self.conflicts = self.conflicts.saturating_sub(1);
            return Err(EffectError::Conflict(key));
        }
        let body = write.edit.render(None);
        let mut merge = body.merge;
        let fields = merge.as_object_mut().unwrap();
        fields.retain(|field, _| (field == "status") == body.subresource.is_some());
        assert!(!fields.is_empty(), "patch of nothing: {write:?}");
        merge_into(&mut value, &merge);
        if merge["metadata"]["labels"][labels::INITIALIZED] == "true" {
            self.judge_initialization(&value);
        }
        self.store(key, value, EventSource::Write);
        Ok(EffectOutput::Written)
    }

    fn launch(&mut self, request: &LaunchRequest) -> Result<LaunchedInstance, LaunchError> {
        if let Some(error) = self.launch_errors.pop_front() {
            return Err(error);
        }
        let uid = request.claim.metadata.uid.clone().unwrap();
        let found = self
            .machines
            .iter()
            .find(|(_, machine)| machine.uid == uid)
            .map(|(id, _)| id.clone());
        let id = found.unwrap_or_else(|| {
            self.launched += 1;
            let id = format!("fake:///zone-a/i-{}", self.launched);
            self.machines.insert(
                id.clone(),
                TestInstance {
                    claim: request.claim.name().to_string(),
                    uid,
                    created: self.now,
                    ends: None,
                },
            );
            id
        });
        let amounts: BTreeMap<String, _> =
            BTreeMap::from([("cpu".to_owned(), Quantity("2".to_owned()))]);
        let given = [
            (labels::INSTANCE_TYPE, "small"),
            (labels::TOPOLOGY_ZONE, "zone-a"),
            (labels::CAPACITY_TYPE, "spot"),
            ("team", "provider"),
        ];
        Ok(LaunchedInstance {
            provider_id: id.into(),
            image_id: Some("image-1".to_owned()),
            labels: given
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            annotations: BTreeMap::from([("note".to_owned(), "provider".to_owned())]),
            capacity: amounts.clone(),
            allocatable: amounts,
        })
    }

    fn terminate(&mut self, id: &ProviderId) -> TerminationStatus {
        self.judge_termination(id);
        let (now, exit_ms) = (self.now, self.machine_exit_ms);
        let Some(machine) = self.machines.get_mut(&**id) else {
            return TerminationStatus::Gone;
        };
        if exit_ms == 0 {
            self.machines.remove(&**id);
            return TerminationStatus::Gone;
        }
        machine.ends.get_or_insert_with(|| after(now, exit_ms));
        TerminationStatus::Started
    }

    /// A machine may end when no pod that a drain deals with is left on its registered node.
    fn judge_termination(&mut self, id: &ProviderId) {
        let of_machine = |node: &&Value| {
            node["spec"]["providerID"] == **id
                && node["metadata"]["labels"][labels::REGISTERED] == "true"
        };
        let Some(node) = self.objects.values().find(of_machine) else {
            return;
        };
        if !self.machines.contains_key(&**id) {
            return;
        }
        let name = node["metadata"]["name"].clone();
        let left: Vec<&String> = self
            .objects
            .iter()
            .filter(|(key, pod)| key.starts_with("Pod/") && pod["spec"]["nodeName"] == name)
            .map(|(key, _)| key)
            .collect();
        if !left.is_empty() {
            self.violations.push(format!("{id} ended with {left:?}"));
        }
    }

    /// A node is initialized when nothing is missing any more, whichever write says so.
    fn judge_initialization(&mut self, node: &Value) {
        let name = &node["metadata"]["name"];
        let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
        let conditions = list(&node["status"]["conditions"]);
        let mut missing = Vec::new();
        if !conditions
            .iter()
            .any(|own| own["type"] == "Ready" && own["status"] == "True")
        {
            missing.push("readiness".to_owned());
        }
        let taints = list(&node["spec"]["taints"]);
        let waits = [labels::NOT_READY_TAINT, labels::UNREGISTERED_TAINT, "boot"];
        let waits = taints
            .iter()
            .filter(|taint| waits.iter().any(|key| taint["key"] == *key));
        missing.extend(waits.map(|taint| taint["key"].to_string()));
        let drivers = node["metadata"]["annotations"][labels::REQUESTED_DRA_DRIVERS].as_str();
        for driver in drivers.into_iter().flat_map(|all| all.split(',')) {
            let is_own = |slice: &Value| {
                slice["spec"]["driver"] == driver && slice["spec"]["nodeName"] == *name
            };
            if !self.objects.values().any(is_own) {
                missing.push(format!("devices of {driver}"));
            }
        }
        if !missing.is_empty() {
            self.violations
                .push(format!("{name} was initialized without {missing:?}"));
        }
    }

    /// The provider of these tests, which may be mute, and another one that has no machines.
    fn listings(&self) -> Vec<InstanceListing> {
        let machines = if self.mute {
            Err(mute())
        } else {
            Ok(self.instances())
        };
        vec![
            InstanceListing {
                provider: "another".into(),
                serves: ServedNodeClasses::only([]),
                machines: Ok(Vec::new()),
            },
            InstanceListing {
                provider: PROVIDER.into(),
                serves: ours(),
                machines,
            },
        ]
    }

    fn instances(&self) -> Vec<Instance> {
        let listed = |(id, _): &(&String, &TestInstance)| !self.unlisted.contains(*id);
        self.machines.iter().filter(listed).map(instance).collect()
    }
}

fn mute() -> CloudError {
    CloudError {
        label: "throttled",
        message: "slow down".to_owned(),
        retry: Retry::Again,
    }
}

fn instance((id, machine): (&String, &TestInstance)) -> Instance {
    Instance {
        provider_id: id.as_str().into(),
        claim: Some(machine.claim.clone()),
        created: Some(machine.created),
        terminating: machine.ends.is_some(),
    }
}

fn resolved() -> ResolvedNodeClass {
    let offering = |zone: &str| Offering {
        zone: zone.into(),
        capacity_type: CapacityType::Spot,
        price: None,
        available: true,
        reservation: None,
        labels: Vec::new(),
    };
    let small = InstanceType {
        name: "small".into(),
        requirements: Requirements::new(),
        capacity: Resources::new(2_000, 1 << 30),
        overhead: Resources::default(),
        offerings: vec![offering("zone-a")],
        devices: Arc::default(),
    };
    ResolvedNodeClass {
        status: Some(
            json!({ "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z" }] }),
        ),
        annotations: BTreeMap::from([("fake.test/hash".to_owned(), "1".to_owned())]),
        finalizer: Some("fake.test/termination"),
        instance_types: vec![small],
        again_ms: None,
    }
}
