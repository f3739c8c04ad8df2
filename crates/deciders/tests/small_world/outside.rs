//! What happens outside of the engine: effects are carried out, pods are bound, machines come and go.

use std::sync::Arc;

use mortise_apis::labels;
use mortise_cloudprovider::InstanceType;
use mortise_engine::effect::{Effect, EffectError, EffectOutput, Outcome};
use mortise_engine::engine::{EffectRequest, EngineInput};
use mortise_engine::write::ObjectWrite;
use serde_json::{Value, json};

use super::objects::{key_of, merge, quantity_milli};
use super::{SmallWorld, Todo};

impl SmallWorld {
    pub(crate) fn carry_out(&mut self, order: EffectRequest) {
        self.effects.push((self.now, Arc::clone(&order.effect)));
        if matches!(*order.effect, Effect::CreateClaim(_)) && self.create_ms > 0 {
            self.later(self.create_ms, Todo::Arrive(order));
        } else {
            self.arrive(&order);
        }
    }

    fn arrive(&mut self, order: &EffectRequest) {
        let effect = &order.effect;
        let result = match &**effect {
            Effect::Event(event) => {
                assert_eq!(mortise_engine::events::fault(event), None);
                self.events.push(event.clone());
                return;
            }
            Effect::CreateClaim(claim) => {
                self.create_claim(&serde_json::to_value(&**claim).unwrap())
            }
            Effect::Write(write) => self.write(write),
            Effect::Delete { target, uid, .. } => {
                let (_, name) = key_of(target).unwrap();
                let known = self.get("NodeClaim", &name).cloned();
                match known {
                    Some(known)
                        if uid
                            .as_ref()
                            .is_none_or(|uid| known["metadata"]["uid"] == **uid) =>
                    {
                        let stamp = self.stamp();
                        self.change(
                            "NodeClaim",
                            &name,
                            &json!({ "metadata": { "deletionTimestamp": stamp } }),
                        );
                        self.later(100, Todo::Drain(name));
                        Ok(EffectOutput::Deleted)
                    }
                    _ => Ok(EffectOutput::Deleted),
                }
            }
            other => panic!("nobody should ask for this here: {other:?}"),
        };
        let outcome = Outcome {
            effect: Arc::clone(effect),
            result,
        };
        self.engine.apply(
            EngineInput::Outcome {
                decider: order.decider,
                term: order.term,
                outcome,
            },
            self.now,
        );
        for check in self.checks.clone() {
            check(self);
        }
    }

    fn create_claim(&mut self, claim: &Value) -> Result<EffectOutput, EffectError> {
        if self.refuse_claims > 0 {
            self.refuse_claims -= 1;
            return Err(EffectError::Refused {
                code: 403,
                message: "denied by a policy".to_owned(),
            });
        }
        let name = claim["metadata"]["name"].as_str().unwrap().to_owned();
        let mut claim = claim.clone();
        let stamp = self.stamp();
        merge(
            &mut claim,
            &json!({ "metadata": { "uid": format!("claim-{name}"), "creationTimestamp": stamp } }),
        );
        self.put("NodeClaim", &name, claim);
        self.later(1_000, Todo::Launch(name));
        Ok(EffectOutput::Written)
    }

    fn write(&mut self, write: &ObjectWrite) -> Result<EffectOutput, EffectError> {
        let (kind, name) = key_of(&write.target).unwrap();
        let Some(known) = self.get(kind, &name) else {
            return Err(EffectError::NotFound(name));
        };
        if let Some(version) = &write.resource_version
            && known["metadata"]["resourceVersion"] != **version
        {
            return Err(EffectError::Conflict(name));
        }
        self.change(kind, &name, &write.edit.render(None).merge);
        Ok(EffectOutput::Written)
    }

    pub(crate) fn do_it(&mut self, todo: &Todo) {
        match todo {
            Todo::Launch(claim) => self.launch(claim),
            Todo::Boot(claim) => self.booted(claim),
            Todo::Schedule => self.schedule(),
            Todo::Drain(claim) => self.drain(claim),
            Todo::Arrive(order) => self.arrive(order),
        }
    }

    fn launch(&mut self, claim: &str) {
        let Some(object) = self.get("NodeClaim", claim).cloned() else {
            return;
        };
        if object["metadata"]["deletionTimestamp"].is_string() {
            return;
        }
        if self.no_capacity {
            // Life cycle would delete a claim for which there is no capacity.
            self.remove("NodeClaim", claim);
            return;
        }
        let allowed = |key: &str| -> Option<Vec<String>> {
            let all = object["spec"]["requirements"].as_array()?;
            let found = all
                .iter()
                .find(|each| each["key"] == key && each["operator"] == "In")?;
            Some(
                found["values"]
                    .as_array()?
                    .iter()
                    .filter_map(|v| v.as_str().map(str::to_owned))
                    .collect(),
            )
        };
        let names = allowed(labels::INSTANCE_TYPE).expect("a claim lists its types");
        let is_in = |key: &str, value: &str| {
            allowed(key).is_none_or(|all| all.iter().any(|each| each == value))
        };
        let mut offers: Vec<(i64, InstanceType, usize)> = Vec::new();
        for each in self
            .types()
            .iter()
            .filter(|each| names.iter().any(|name| *name == *each.name))
        {
            for (at, offering) in each.offerings.iter().enumerate() {
                let fits = is_in(labels::TOPOLOGY_ZONE, &offering.zone)
                    && is_in(labels::CAPACITY_TYPE, offering.capacity_type.as_str());
                if fits && offering.available {
                    offers.push((offering.price.unwrap().0, each.clone(), at));
                }
            }
        }
        offers.sort_by_key(|(price, _, _)| *price);
        let (_, instance, at) = offers.into_iter().next().expect("a claim can be launched");
        let offering = &instance.offerings[at];
        let all_labels = json!({
            labels::INSTANCE_TYPE: &*instance.name,
            labels::TOPOLOGY_ZONE: &*offering.zone,
            labels::CAPACITY_TYPE: offering.capacity_type.as_str(),
            labels::ARCH: "amd64",
            labels::OS: "linux",
        });
        self.delivered(claim, &instance, &all_labels);
        if !self.never_ready {
            self.later(self.boot_ms, Todo::Boot(claim.to_owned()));
        }
    }

    pub(crate) fn wake_scheduler(&mut self) {
        if !self.scheduling {
            self.scheduling = true;
            self.later(20, Todo::Schedule);
        }
    }

    fn cpu_of(pod: &Value) -> i64 {
        let text = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str();
        quantity_milli(text.unwrap())
    }

    pub(crate) fn free(&self, node: &str) -> i64 {
        let all = self.get("Node", node).unwrap()["status"]["allocatable"]["cpu"].as_str();
        let used: i64 = self
            .objects
            .iter()
            .filter(|((kind, _), pod)| *kind == "Pod" && pod["spec"]["nodeName"] == *node)
            .map(|(_, pod)| Self::cpu_of(pod))
            .sum();
        quantity_milli(all.unwrap()) - used
    }

    /// Binds pending pods first-fit by CPU, and marks those that fit nowhere. It knows nothing of fences.
    fn schedule(&mut self) {
        self.scheduling = false;
        if self.scheduler_is_away {
            return;
        }
        for name in self.names("Pod") {
            let pod = self.get("Pod", &name).cloned().unwrap();
            if pod["spec"]["nodeName"].is_string() {
                continue;
            }
            let app = pod["metadata"]["labels"]["app"]
                .as_str()
                .unwrap_or_default();
            let refused = self.refused_apps.contains(app);
            let nodes = self.names("Node");
            let message = format!("no node of {} is suitable", nodes.join(" "));
            let said = &pod["status"]["conditions"][0]["message"];
            let spoken = pod["status"]["conditions"].is_array();
            let is_news = !spoken || (refused && *said != *message);
            let fits = nodes.into_iter().filter(|_| !refused).find(|node| {
                let taints = self.get("Node", node).unwrap()["spec"]["taints"].clone();
                let open = taints.as_array().is_none_or(Vec::is_empty);
                let selector = pod["spec"]["nodeSelector"].as_object();
                let labels = &self.get("Node", node).unwrap()["metadata"]["labels"];
                let selected =
                    selector.is_none_or(|all| all.iter().all(|(key, value)| labels[key] == *value));
                open && selected && self.free(node) >= Self::cpu_of(&pod)
            });
            if let Some(node) = fits {
                let stamp = self.stamp();
                self.change(
                    "Pod",
                    &name,
                    &json!({ "spec": { "nodeName": node }, "status": { "phase": "Running", "startTime": stamp, "conditions": [{ "type": "Ready", "status": "True" }] } }),
                );
            } else if is_news {
                let stamp = self.stamp();
                let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message, "lastTransitionTime": stamp });
                self.change(
                    "Pod",
                    &name,
                    &json!({ "status": { "conditions": [condition] } }),
                );
            }
        }
        // Binding changed pods, which is no reason to look again.
        self.refresh_pdbs();
    }

    fn drain(&mut self, claim: &str) {
        if self.get("NodeClaim", claim).is_none() {
            return;
        }
        let pods: Vec<String> = self.bound().remove(claim).into_iter().flatten().collect();
        for name in pods {
            let pod = self.get("Pod", &name).cloned().unwrap();
            if self.blocking_pdb(&pod).is_some() {
                continue;
            }
            self.remove("Pod", &name);
            let app = pod["metadata"]["labels"]["app"]
                .as_str()
                .unwrap()
                .to_owned();
            let cpu = Self::cpu_of(&pod);
            let keep = json!({ "metadata": { "annotations": pod["metadata"]["annotations"] }, "spec": { "nodeSelector": pod["spec"]["nodeSelector"] } });
            self.pods(&app, 1, cpu, &keep);
            self.refresh_pdbs();
        }
        if self.bound().contains_key(claim) {
            self.later(1_000, Todo::Drain(claim.to_owned()));
            return;
        }
        self.remove("Node", claim);
        self.remove("NodeClaim", claim);
    }

    /// A budget for an app that keeps so many pods.
    pub(crate) fn pdb(&mut self, app: &str, min_available: i64) {
        self.put(
            "PodDisruptionBudget",
            &format!("default/{app}"),
            json!({
                "metadata": { "name": app, "namespace": "default", "uid": format!("pdb-{app}") },
                "spec": { "selector": { "matchLabels": { "app": app } }, "minAvailable": min_available },
                "status": {},
            }),
        );
        self.refresh_pdbs();
    }

    fn refresh_pdbs(&mut self) {
        for name in self.names("PodDisruptionBudget") {
            let pdb = self.get("PodDisruptionBudget", &name).cloned().unwrap();
            let app = &pdb["spec"]["selector"]["matchLabels"]["app"];
            let healthy = self
                .objects
                .iter()
                .filter(|((kind, _), pod)| {
                    *kind == "Pod"
                        && pod["metadata"]["labels"]["app"] == *app
                        && pod["spec"]["nodeName"].is_string()
                })
                .count();
            let allowed = (i64::try_from(healthy).unwrap()
                - pdb["spec"]["minAvailable"].as_i64().unwrap())
            .max(0);
            if pdb["status"]["disruptionsAllowed"] != allowed {
                self.change(
                    "PodDisruptionBudget",
                    &name,
                    &json!({ "status": { "disruptionsAllowed": allowed } }),
                );
            }
        }
    }

    fn blocking_pdb(&self, pod: &Value) -> Option<String> {
        let mut names = self.names("PodDisruptionBudget");
        names.retain(|name| {
            let pdb = self.get("PodDisruptionBudget", name).unwrap();
            pdb["spec"]["selector"]["matchLabels"]["app"] == pod["metadata"]["labels"]["app"]
                && pdb["status"]["disruptionsAllowed"] == 0
        });
        names.into_iter().next()
    }
}
