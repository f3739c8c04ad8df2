//! A cluster behind the engine that the program runs, with disruption as its only decider. What the decider requests is done at
//! once: writes are applied, a launched node is ready, and a deleted node's pods run where they were nominated to.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use jiff::{SignedDuration, Timestamp};
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::names::{ClaimName, NodeName, ObjectRef, PodKey};
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::resources::Resources;
use mortise_apis::{NodeClaim, NodePool};
use mortise_cloudprovider::{InstanceType, ResolvedNodeClass};
use mortise_deciders::DisruptionDecider;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectOutput, Outcome};
use mortise_engine::engine::{EffectRequest, Engine, EngineInput};
use mortise_planning::settings::Settings;
use mortise_state::ledger::NominationTarget;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::case::{CaseNode, CasePod, ClusterCase, cheapest};

const START: &str = "2026-01-02T00:00:00Z";
/// When everything was created that is there at the start.
const CREATED: &str = "2026-01-01T23:00:00Z";

/// The cluster, and what became of it.
pub(super) struct Cluster {
    pub(super) engine: Engine,
    pub(super) now: Timestamp,
    pool: NodePool,
    types: BTreeMap<Arc<str>, InstanceType>,
    pods: BTreeMap<PodKey, CasePod>,
    /// Pods that were moved, to name what replaces them.
    pub(super) moved: usize,
}

/// What an effect did.
pub(super) enum ExecutedEffect {
    /// A write, or an event.
    Written,
    /// A node was launched.
    Launched,
    /// A node was deleted. Its pods run elsewhere, except those that were nominated nowhere.
    Removed {
        node: NodeName,
        pods: usize,
        lost: usize,
    },
}

fn parsed<T: DeserializeOwned>(value: Value) -> Result<T> {
    Ok(serde_json::from_value(value)?)
}

impl Cluster {
    /// The cluster of a case, as a leader sees it that has read every list.
    pub(super) fn new(case: &ClusterCase, settings: Settings, seed: u64) -> Result<Self> {
        let now: Timestamp = START.parse()?;
        let keys = case.types.iter().flat_map(|each| each.requirements.keys());
        let engine = Engine::new(
            vec![Box::new(DisruptionDecider::new())],
            settings,
            WellKnown::core().with_keys(keys),
            seed,
            now,
        );
        let by_name = |each: &InstanceType| (Arc::clone(&each.name), each.clone());
        let mut cluster = Self {
            engine,
            now,
            pool: case.pool.clone(),
            types: case.types.iter().map(by_name).collect(),
            pods: BTreeMap::new(),
            moved: 0,
        };
        cluster.resolve();
        cluster.put(Object::Pool(Box::new(case.pool.clone())));
        for node in &case.nodes {
            let claim: NodeClaim = parsed(json!({
                "metadata": {"name": format!("nc-{}", node.name), "uid": format!("uid-nc-{}", node.name)},
                "spec": {
                    "nodeClassRef": case.pool.spec.template.spec.node_class_ref,
                    "requirements": [], "expireAfter": "Never",
                },
            }))?;
            cluster.bring_up(claim, node, CREATED)?;
        }
        for pod in &case.pods {
            cluster.run_pod(pod.clone())?;
        }
        cluster.engine.apply(EngineInput::Synced, now);
        cluster.engine.apply(EngineInput::Leading(true), now);
        Ok(cluster)
    }

    /// kube-scheduler asks about a pod, so pods get the nodes that they are nominated to.
    pub(super) fn ask_extender(&mut self) {
        let (pod, at) = ("asks".into(), self.now);
        self.engine.apply(EngineInput::Feasible { pod, at }, at);
    }

    fn resolve(&mut self) {
        let class = NodeClassObject::new(self.pool.node_class_key(), json!({}));
        let resolved = ResolvedNodeClass {
            status: None,
            annotations: BTreeMap::new(),
            finalizer: None,
            instance_types: self.types.values().cloned().collect(),
            again_ms: None,
            shifted_zones: Vec::new(),
        };
        let outcome = Outcome {
            effect: Arc::new(Effect::Resolve(Box::new(class.into()))),
            result: Ok(EffectOutput::Resolved(Arc::new(resolved))),
        };
        let (decider, term) = (DeciderId::NodeClass, self.engine.term());
        let input = EngineInput::Outcome {
            decider,
            term,
            outcome,
        };
        self.engine.apply(input, self.now);
    }

    fn put(&mut self, object: Object) {
        let event = ObjectEvent::Applied(object, EventSource::Watch);
        self.engine.apply(EngineInput::News(event), self.now);
    }

    fn remove(&mut self, key: ObjectKey) {
        let event = ObjectEvent::Deleted(key, None);
        self.engine.apply(EngineInput::News(event), self.now);
    }

    /// Claim and Node of an instance that is ready.
    fn bring_up(&mut self, claim: NodeClaim, node: &CaseNode, created: &str) -> Result<()> {
        let of = self.types.get(&*node.instance_type);
        let of = of.with_context(|| format!("no type {}", node.instance_type))?;
        let mut all: BTreeMap<String, String> = of
            .requirements
            .iter()
            .filter_map(|own| match own.values() {
                [only] => Some((own.key().to_owned(), only.to_string())),
                _ => None,
            })
            .collect();
        all.extend(claim.metadata.labels.clone().unwrap_or_default());
        let template = self.pool.spec.template.labels();
        all.extend(template.cloned().unwrap_or_default());
        for (key, value) in [
            (labels::TOPOLOGY_ZONE, &*node.zone),
            (labels::CAPACITY_TYPE, &*node.capacity_type),
            (labels::HOSTNAME, &*node.name),
            (labels::NODEPOOL, &*self.pool.name()),
            (labels::REGISTERED, "true"),
            (labels::INITIALIZED, "true"),
        ] {
            all.insert(key.to_owned(), value.to_owned());
        }
        let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": created});
        let conditions = [
            "Launched",
            "Registered",
            "Initialized",
            "Consolidatable",
            "Ready",
        ]
        .map(condition);
        let (capacity, allocatable) = (of.capacity.to_api(), of.allocatable().to_api());
        let id = format!("bench://{}", node.name);
        let mut claim = serde_json::to_value(&claim)?;
        let changes = json!({
            "metadata": {"labels": all, "creationTimestamp": created},
            "status": {"providerID": id, "nodeName": node.name, "capacity": capacity, "allocatable": allocatable, "conditions": conditions},
        });
        json_patch::merge(&mut claim, &changes);
        let object = json!({
            "metadata": {"name": node.name, "uid": format!("uid-{}", node.name), "labels": all, "creationTimestamp": created},
            "spec": {"providerID": id},
            "status": {"capacity": capacity, "allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        self.put(Object::Claim(Box::new(parsed(claim)?)));
        self.put(Object::Node(Box::new(parsed(object)?)));
        Ok(())
    }

    fn run_pod(&mut self, pod: CasePod) -> Result<()> {
        let CasePod {
            name,
            node,
            app,
            requests,
        } = &pod;
        let mut requests = requests.to_api();
        requests.remove("pods");
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": format!("rs-{app}"), "controller": true});
        let mut object = json!({
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": {"app": app},
                "creationTimestamp": CREATED, "ownerReferences": [owner],
            },
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}]},
            "status": {"phase": "Pending"},
        });
        if !node.is_empty() {
            object["spec"]["nodeName"] = json!(node);
            object["status"]["phase"] = json!("Running");
        }
        self.put(Object::Pod(Box::new(parsed(object)?)));
        let key = PodKey {
            namespace: "default".into(),
            name: name.as_str().into(),
        };
        self.pods.insert(key, pod);
        Ok(())
    }

    /// Executes what the decider requests, and delivers the outcome.
    pub(super) fn execute(&mut self, request: &EffectRequest) -> Result<ExecutedEffect> {
        let (done, output) = match &*request.effect {
            Effect::Event(_) => return Ok(ExecutedEffect::Written),
            Effect::Write(write) => {
                let patch = write.edit.render(None).merge;
                self.patch(&write.target, &patch)?;
                (ExecutedEffect::Written, EffectOutput::Written)
            }
            Effect::CreateClaim(claim) => {
                self.launch(claim)?;
                (ExecutedEffect::Launched, EffectOutput::Written)
            }
            Effect::Delete {
                target: ObjectRef::Claim(claim),
                ..
            } => (self.delete(claim)?, EffectOutput::Deleted),
            other => bail!("disruption requests no {}", other.label()),
        };
        let input = EngineInput::Outcome {
            decider: request.decider,
            term: request.term,
            outcome: Outcome {
                effect: Arc::clone(&request.effect),
                result: Ok(output),
            },
        };
        self.engine.apply(input, self.now);
        Ok(done)
    }

    fn patch(&mut self, target: &ObjectRef, patch: &Value) -> Result<()> {
        let snapshot = self.engine.snapshot(self.now);
        match target {
            ObjectRef::Claim(name) => {
                let claim = snapshot.claims.get(&**name).context("no such claim")?;
                let mut value = serde_json::to_value(&**claim)?;
                json_patch::merge(&mut value, patch);
                drop(snapshot);
                self.put(Object::Claim(Box::new(parsed(value)?)));
            }
            ObjectRef::Node(name) => {
                let node = snapshot.named.get(&**name);
                let node = node.and_then(|node| node.node.as_ref());
                let mut value = serde_json::to_value(&**node.context("no such Node")?)?;
                json_patch::merge(&mut value, patch);
                drop(snapshot);
                self.put(Object::Node(Box::new(parsed(value)?)));
            }
            other => bail!("disruption writes no {other}"),
        }
        Ok(())
    }

    /// Launches the cheapest instance that a claim allows.
    fn launch(&mut self, claim: &NodeClaim) -> Result<()> {
        let asked = claim.requirements();
        let offers = self.types.values();
        let offers = offers.filter_map(|of| Some((cheapest(of, &asked)?, of)));
        let offer = offers.min_by_key(|(offering, of)| (offering.price, Arc::clone(&of.name)));
        let (offering, of) = offer.context("the claim allows no type")?;
        let node = CaseNode {
            name: claim.name().to_string(),
            instance_type: of.name.to_string(),
            zone: offering.zone.to_string(),
            capacity_type: offering.capacity_type.as_str().to_owned(),
        };
        let mut claim = claim.clone();
        claim.metadata.uid = Some(format!("uid-nc-{}", node.name));
        self.bring_up(claim, &node, &self.now.to_string())
    }

    /// Deletes a node; its pods end, and others take their place where the ledger has capacity for them.
    fn delete(&mut self, claim: &ClaimName) -> Result<ExecutedEffect> {
        let snapshot = self.engine.snapshot(self.now);
        let object = snapshot.claims.get(&**claim).context("no such claim")?;
        let node = object.status.node_name.as_deref().unwrap_or_default();
        let node = NodeName::from(node);
        let mut pods = Vec::new();
        for pod in &snapshot.named.get(&*node).context("no such node")?.pods {
            let nomination = snapshot.ledger.nomination(&pod.uid);
            let to = match nomination.map(|nomination| &nomination.place) {
                Some(NominationTarget::Node(node)) => node.to_string(),
                Some(NominationTarget::Claim(claim)) => {
                    let claim = snapshot.claims.get(&**claim);
                    let node = claim.and_then(|claim| claim.status.node_name.clone());
                    node.unwrap_or_default().to_string()
                }
                None => String::new(),
            };
            pods.push((pod.key.clone(), to));
        }
        drop(snapshot);
        for (pod, _) in &pods {
            self.remove(ObjectKey::Pod(pod.clone()));
        }
        self.remove(ObjectKey::Node(node.clone()));
        self.remove(ObjectKey::Claim(claim.clone()));
        let count = pods.len();
        let mut lost = 0;
        for (key, to) in pods {
            let mut pod = self.pods.remove(&key).context("no such pod")?;
            self.moved += 1;
            lost += usize::from(to.is_empty());
            pod.name = format!("moved-{:06}", self.moved);
            pod.node = to;
            self.run_pod(pod)?;
        }
        Ok(ExecutedEffect::Removed {
            node,
            pods: count,
            lost,
        })
    }

    /// Lets time pass until the decider is due, `None` = it waits for nothing.
    pub(super) fn sleep(&mut self) -> Option<()> {
        let wake = self.engine.next_wake()?;
        let soonest = self.now.checked_add(SignedDuration::from_millis(1)).ok()?;
        self.now = wake.max(soonest);
        Some(())
    }

    /// Dollars per hour of all nodes.
    pub(super) fn price(&mut self) -> f64 {
        let snapshot = self.engine.snapshot(self.now);
        let prices = snapshot.nodes.values().filter_map(|node| node.price);
        prices.map(|price| price.dollars()).sum()
    }

    /// Number of nodes, and of those whose pods do not fit.
    pub(super) fn nodes(&mut self) -> (usize, usize) {
        let snapshot = self.engine.snapshot(self.now);
        let mut used: BTreeMap<&str, Resources> = BTreeMap::new();
        for pod in self.pods.values() {
            let sum = used.entry(&pod.node).or_insert_with(Resources::zero);
            sum.add_assign(&pod.requests);
        }
        let is_overfull = |(node, used): (&&str, &Resources)| {
            let node = snapshot.named.get(*node);
            node.is_none_or(|node| !used.fits_in(&node.allocatable))
        };
        let overfull = used.iter().filter(|each| is_overfull(*each)).count();
        (snapshot.nodes.len(), overfull)
    }
}
