//! Carrying effects out on the virtual API server and cloud.

use std::sync::Arc;

use mortise_core::cloud::{
    CapacityType, CloudError, InterruptionKind, InterruptionNotice, LaunchError, ResolvedNodeClass,
    Retry, TerminationStatus,
};
use mortise_core::effect::{Effect, EffectError, EffectOutput, InstanceListing, Outcome};
use mortise_core::engine::{EffectRequest, Engine};
use mortise_core::names::{ObjectRef, ProviderId};
use mortise_core::resource_kinds::ObjectKey;
use mortise_core::served_node_classes::ServedNodeClasses;
use mortise_core::values::after;
use serde_json::{Value, json};

use crate::api_server::{is_going, key_of};
use crate::simulation::{Action, Simulation};
use crate::workload_controllers::is_running;

/// Which decision a claim comes from.
const INTENT: &str = "/metadata/annotations/mortise.sh~1intent";

impl Simulation {
    /// How long an effect takes to arrive and be done, in milliseconds.
    pub(crate) fn latency(&mut self, order: &EffectRequest) -> i64 {
        match &*order.effect {
            Effect::Launch(_) => self.rng.millis(800, 2_500),
            Effect::Terminate { .. }
            | Effect::ListInstances
            | Effect::FindInstance { .. }
            | Effect::Resolve(_)
            | Effect::CheckDrift { .. } => self.rng.millis(50, 300),
            Effect::Event(_) => 1,
            _ => self.rng.millis(3, 15),
        }
    }

    pub(crate) fn carry(&mut self, replica: usize, order: EffectRequest) {
        *self.stats.effects.entry(order.effect.label()).or_default() += 1;
        if self.disturbed(replica, &order) {
            return;
        }
        // Who has not the lease any more does nothing, nor does what was asked for in an earlier term.
        let term = self.replicas.get(replica).map(Engine::term);
        let is_licensed = self.has_lease && replica == self.leader && term == Some(order.term);
        let result = if is_licensed {
            self.check_disruption(&order);
            self.done(&order.effect)
        } else {
            let message = "lost leadership".to_owned();
            Err(EffectError::Unavailable(message))
        };
        let outcome = Outcome {
            effect: Arc::clone(&order.effect),
            result,
        };
        self.in_ms(1, Action::Answer(replica, order, Box::new(outcome)));
    }

    pub(crate) fn done(&mut self, effect: &Effect) -> Result<EffectOutput, EffectError> {
        match effect {
            Effect::CreateClaim(claim) => {
                let key = ObjectKey::Claim(claim.name());
                let value =
                    serde_json::to_value(&**claim).map_err(|error| EffectError::Refused {
                        code: 400,
                        message: error.to_string(),
                    })?;
                match self.store.get(&key) {
                    None => {
                        let created = self.store.create(key.clone(), value, self.now())?;
                        self.show_write(&key, created);
                    }
                    Some(there) if there.pointer(INTENT) == value.pointer(INTENT) => {}
                    Some(_) => {
                        return Err(EffectError::Refused {
                            code: 409,
                            message: format!("{key:?} exists"),
                        });
                    }
                }
                Ok(EffectOutput::Written)
            }
            Effect::Patch(patch) => {
                let key = key_of(&patch.target);
                let mut merge = patch.merge.clone();
                if patch.status {
                    // The status subresource takes nothing else.
                    merge = json!({ "status": merge.get("status").cloned().unwrap_or_default() });
                }
                let written = self
                    .store
                    .patch(&key, &merge, patch.resource_version.as_deref())?;
                if self.store.get(&key).is_some() {
                    self.show_write(&key, written);
                }
                Ok(EffectOutput::Written)
            }
            Effect::Delete {
                target,
                uid,
                grace_seconds,
            } => self.delete(target, uid.as_deref(), *grace_seconds),
            Effect::Evict { pod, uid } => self.evict(&ObjectKey::Pod(pod.clone()), uid),
            Effect::Launch(request) => self.launch(&request.claim),
            Effect::Terminate { provider_id, .. } => {
                Ok(EffectOutput::Terminated(self.terminate(provider_id)))
            }
            Effect::ListInstances => Ok(EffectOutput::Instances(vec![InstanceListing {
                provider: "sim".into(),
                serves: ServedNodeClasses::All,
                machines: Ok(self.cloud.instances()),
            }])),
            Effect::ListPods(node) => {
                let of_node = |pod: &Value| {
                    let name = pod.pointer("/spec/nodeName").and_then(Value::as_str);
                    name == Some(node.as_str())
                };
                let pods = self.store.pods().filter(|(_, pod)| of_node(pod));
                let pods: Vec<_> = pods.map(|(key, pod)| (key.clone(), pod.clone())).collect();
                let count = pods.len();
                for (key, pod) in pods {
                    self.show_write(&ObjectKey::Pod(key), pod);
                }
                Ok(EffectOutput::PodsListed(count))
            }
            Effect::FindInstance { provider_id, .. } => {
                Ok(EffectOutput::Found(self.cloud.instance(provider_id)))
            }
            Effect::Resolve(_) => {
                let instance_types = self.cloud.catalog(self.now());
                Ok(EffectOutput::Resolved(Arc::new(ResolvedNodeClass {
                    status: None,
                    annotations: std::collections::BTreeMap::new(),
                    finalizer: None,
                    instance_types,
                    again_ms: None,
                })))
            }
            Effect::CheckDrift { .. } => Ok(EffectOutput::Drift(None)),
            Effect::Acknowledge { notice, .. } => {
                self.notices.remove(notice);
                Ok(EffectOutput::Acknowledged)
            }
            Effect::Event(event) => {
                self.check_event(event);
                *self.stats.events.entry(event.reason.clone()).or_default() += 1;
                Ok(EffectOutput::Sent)
            }
        }
    }

    fn delete(
        &mut self,
        target: &ObjectRef,
        uid: Option<&str>,
        grace_seconds: Option<i64>,
    ) -> Result<EffectOutput, EffectError> {
        let key = key_of(target);
        match self.store.delete(&key, uid, self.now()) {
            Ok(Some(value)) => {
                self.stopping(&key, &value, grace_seconds);
                self.show_write(&key, value);
                Ok(EffectOutput::Deleted)
            }
            Ok(None) | Err(EffectError::NotFound(_)) => Ok(EffectOutput::Deleted),
            Err(error) => Err(error),
        }
    }

    /// A pod that was asked to go stops after a part of its grace period.
    fn stopping(&mut self, key: &ObjectKey, value: &Value, grace_seconds: Option<i64>) {
        let ObjectKey::Pod(pod) = key else { return };
        let own = value
            .pointer("/spec/terminationGracePeriodSeconds")
            .and_then(Value::as_i64)
            .unwrap_or(30);
        let most = grace_seconds.unwrap_or(own).clamp(1, 30) * 1000;
        let ms = self.rng.millis(500, 3_000).min(most);
        let uid = value
            .pointer("/metadata/uid")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        self.in_ms(ms, Action::PodStopped(pod.clone(), uid));
    }

    fn evict(&mut self, key: &ObjectKey, uid: &str) -> Result<EffectOutput, EffectError> {
        let Some(pod) = self.store.get(key).cloned() else {
            return Ok(EffectOutput::Evicted);
        };
        if is_going(&pod) {
            return Ok(EffectOutput::Evicted);
        }
        let budgets: Vec<(ObjectKey, i64)> = self
            .store
            .iter()
            .filter(|(key, pdb)| matches!(key, ObjectKey::Pdb(_)) && selects(pdb, &pod))
            .map(|(key, pdb)| {
                (
                    key.clone(),
                    pdb.pointer("/status/disruptionsAllowed")
                        .and_then(Value::as_i64)
                        .unwrap_or(0),
                )
            })
            .collect();
        if budgets.len() > 1 {
            return Err(EffectError::MultipleBudgets(format!("{key:?}")));
        }
        if let Some((budget, allowed)) = budgets.first()
            && is_running(&pod)
        {
            if *allowed <= 0 {
                self.stats.evictions_refused += 1;
                return Err(EffectError::Blocked(format!("{budget:?}")));
            }
            self.write(
                budget,
                &json!({ "status": { "disruptionsAllowed": allowed - 1 } }),
            );
        }
        self.stats.evictions += 1;
        let ObjectKey::Pod(name) = key else {
            return Ok(EffectOutput::Evicted);
        };
        self.delete(&ObjectRef::Pod(name.clone()), Some(uid), None)
            .map(|_| EffectOutput::Evicted)
    }

    fn launch(
        &mut self,
        claim: &mortise_core::apis::nodeclaim::NodeClaim,
    ) -> Result<EffectOutput, EffectError> {
        let now = self.now();
        match self.cloud.launch(claim, now, &mut self.rng) {
            Ok((launched, new)) => {
                if new {
                    self.stats.nodes_launched += 1;
                    let ms = self.rng.millis(15_000, 35_000);
                    self.in_ms(ms, Action::NodeAppears(launched.provider_id.clone()));
                }
                Ok(EffectOutput::Launched(Box::new(launched)))
            }
            Err(error) => {
                if matches!(error, LaunchError::InsufficientCapacity { .. }) {
                    self.stats.shortages += 1;
                }
                Err(EffectError::Launch(error))
            }
        }
    }

    fn terminate(&mut self, id: &ProviderId) -> TerminationStatus {
        let known = self.cloud.machine(id).map(|machine| machine.ends);
        match known {
            None => TerminationStatus::Gone,
            Some(Some(_)) => TerminationStatus::Started,
            Some(None) => {
                let ms = self.rng.millis(5_000, 20_000);
                let at = after(self.now(), ms);
                self.cloud.end(id, at);
                self.at(at, Action::MachineGone(id.clone()));
                TerminationStatus::Started
            }
        }
    }

    /// The cloud announces that it takes a spot machine back, and does so two minutes later. `false`: there is none.
    pub fn interrupt_one(&mut self) -> bool {
        let spot: Vec<ProviderId> = self
            .cloud
            .machines()
            .filter(|(_, machine)| {
                machine.capacity_type == CapacityType::Spot && machine.ends.is_none()
            })
            .map(|(id, _)| id.clone())
            .collect();
        let pick = usize::try_from(self.rng.below(spot.len() as u64)).unwrap_or(0);
        let Some(id) = spot.get(pick) else {
            return false;
        };
        self.stats.interruptions += 1;
        let at = after(self.now(), 120_000);
        self.at(at, Action::MachineGone(id.clone()));
        let instance = id.rsplit('/').next().unwrap_or_default();
        let notice = InterruptionNotice {
            id: format!("notice-{}-{instance}", self.now().as_millisecond()).into(),
            kind: InterruptionKind::SpotInterruption,
            instances: vec![instance.into()],
            sent: Some(self.now()),
        };
        self.notify(notice);
        true
    }

    /// What a provider says when it cannot be asked; used by fault tests.
    #[must_use]
    pub fn unreachable() -> CloudError {
        CloudError {
            label: "unreachable",
            message: "the virtual cloud does not answer".to_owned(),
            retry: Retry::Again,
        }
    }
}

fn selects(pdb: &Value, pod: &Value) -> bool {
    let wanted = pdb
        .pointer("/spec/selector/matchLabels")
        .and_then(Value::as_object);
    let labels = pod.pointer("/metadata/labels");
    let same = |(key, value): (&String, &Value)| labels.and_then(|all| all.get(key)) == Some(value);
    pdb.pointer("/metadata/namespace") == pod.pointer("/metadata/namespace")
        && wanted.is_some_and(|wanted| wanted.iter().all(same))
}
