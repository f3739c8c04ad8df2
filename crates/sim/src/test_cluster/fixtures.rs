//! Claims, nodes and pods. By hand, each call is one step of a component outside of the service; automatically, pods of apps run
//! on nodes that register and drain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{ObjectRef, ProviderId};
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::values::after;
use mortise_cloudprovider::{InstanceType, InterruptionKind, InterruptionNotice};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, Outcome};
use mortise_engine::engine::EngineInput;
use mortise_state::resource_kinds::{ObjectKey, ObjectKind};
use serde_json::{Value, json};

use super::answers::PROVIDER;
use super::node_automation::{NodeStep, RejectingExtender};
use super::{GROUP, KIND, TestCluster, merge_into};
use crate::clock::{Action, StoreEvent};
use crate::cluster::{FIRST_IMAGE, execute, mark_node_ready, node_name};

/// The driver whose devices instances have.
const DRIVER: &str = "gpu.test";
/// From the creation of a claim to its launch.
const LAUNCH_MS: i64 = 1_000;
/// From the deletion of a claim to the first eviction.
const DRAIN_MS: i64 = 100;
/// Interval between two attempts to drain.
const DRAIN_RETRY_MS: i64 = 1_000;

impl TestCluster {
    /// One node class and one NodePool, both called `default`.
    pub fn put_default_pool(&mut self) {
        self.put(&json!({ "kind": KIND, "metadata": { "name": "default" } }));
        self.put(&json!({ "kind": "NodePool", "metadata": { "name": "default" }, "spec": {
            "disruption": { "consolidateAfter": "30s" },
            "template": { "spec": { "nodeClassRef": { "group": GROUP, "kind": KIND, "name": "default" } } },
        }}));
    }

    /// A claim of the NodePool `default`, as provisioning creates it; `spec` is merged into its specification.
    pub fn claim(&mut self, name: &str, spec: &Value) {
        let mut value = json!({ "kind": "NodeClaim", "metadata": {
            "name": name, "labels": { labels::NODEPOOL: "default", "team": "a" },
            "annotations": { "note": "x", "mortise.sh/nominated-pods": "u" }, "finalizers": [labels::TERMINATION_FINALIZER],
        }, "spec": {
            "nodeClassRef": { "group": GROUP, "kind": KIND, "name": "default" },
            "taints": [{ "key": "own", "effect": "NoSchedule" }],
            "startupTaints": [{ "key": "boot", "effect": "NoSchedule" }],
            "resources": { "requests": { "cpu": "1" } },
        }});
        merge_into(&mut value["spec"], spec);
        self.put(&value);
    }

    /// A claim whose pods use devices of its node. Nothing else delays the initialization of the node.
    pub fn claim_with_devices(&mut self, name: &str) {
        self.claim(name, &json!({ "startupTaints": [] }));
        let drivers = json!({ labels::REQUESTED_DRA_DRIVERS: DRIVER });
        let key = format!("NodeClaim/{name}");
        self.edit(&key, &json!({ "metadata": { "annotations": drivers } }));
    }

    /// The driver publishes the devices of a node.
    pub fn publish_devices(&mut self, node: &str) {
        self.put(
            &json!({ "kind": "ResourceSlice", "metadata": { "name": node }, "spec": {
                "driver": DRIVER, "nodeName": node, "devices": [{ "name": "gpu-0" }],
                "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            }}),
        );
    }

    /// The kubelet of a claim's instance creates its Node, `node-<claim>`, which is not ready.
    pub fn join(&mut self, claim: &str) -> String {
        self.join_with(claim, &json!([{ "type": "Ready", "status": "False" }]))
    }

    /// The same; the kubelet has not reported any condition.
    pub fn join_silently(&mut self, claim: &str) -> String {
        self.join_with(claim, &json!([]))
    }

    fn join_with(&mut self, claim: &str, conditions: &Value) -> String {
        let object = self.get(&format!("NodeClaim/{claim}"));
        let early = &object["metadata"]["annotations"][labels::PROVIDER_ID];
        let id = object["status"]["providerID"].as_str().or(early.as_str());
        let id = id.unwrap().to_owned();
        let name = format!("node-{claim}");
        self.put(&json!({ "kind": "Node", "metadata": { "name": name, "labels": { labels::HOSTNAME: name } }, "spec": {
            "providerID": id,
            "taints": [{ "key": labels::UNREGISTERED_TAINT, "effect": "NoExecute" }, { "key": labels::NOT_READY_TAINT, "effect": "NoSchedule" }],
        }, "status": { "conditions": conditions }}));
        name
    }

    /// The kubelet reports its node as ready; the taints are still there.
    pub fn report_ready(&mut self, node: &str) {
        let amounts = json!({ "cpu": "2", "memory": "1Gi", "pods": "10" });
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let status = json!({ "conditions": ready, "allocatable": amounts, "capacity": amounts });
        self.edit(&format!("Node/{node}"), &json!({ "status": status }));
    }

    /// The kubelet reports its node as ready, and whoever sets start-up taints has removed them.
    pub fn ready(&mut self, node: &str) {
        let key = format!("Node/{node}");
        let mut taints = self.get(&key)["spec"]["taints"].clone();
        let left = taints.as_array_mut().unwrap();
        left.retain(|taint| taint["key"] != labels::NOT_READY_TAINT && taint["key"] != "boot");
        self.edit(&key, &json!({ "spec": { "taints": taints } }));
        self.report_ready(node);
    }

    /// A claim with an initialized node, whose name is returned.
    ///
    /// # Panics
    /// The deciders of the test do not initialize it.
    pub fn up(&mut self, claim: &str, spec: &Value) -> String {
        self.claim(claim, spec);
        self.settle();
        let node = self.join(claim);
        self.settle();
        self.ready(&node);
        self.settle();
        let object = self.get(&format!("NodeClaim/{claim}"));
        assert!(self.is_true(claim, "Initialized"), "{claim}: {object}");
        node
    }

    /// A running pod of a ReplicaSet on a node.
    pub fn pod(&mut self, name: &str, node: &str, more: &Value) {
        let started = self.now().to_string();
        let mut value = json!({ "kind": "Pod", "metadata": {
            "name": name, "namespace": "default",
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true }],
        }, "spec": { "nodeName": node, "terminationGracePeriodSeconds": 30 }, "status": { "phase": "Running", "startTime": started } });
        merge_into(&mut value, more);
        self.put(&value);
    }

    /// The cloud announces an interruption of an instance: `i-00000001` is the first one that was launched.
    pub fn notice(&mut self, id: &str, kind: InterruptionKind, instance: &str) {
        self.send_notice(InterruptionNotice {
            id: Some(id.into()),
            kind,
            instances: vec![instance.into()],
            sent: None,
            starts: None,
        });
    }

    /// The same, with every detail.
    pub fn send_notice(&mut self, notice: InterruptionNotice) {
        let provider = PROVIDER.into();
        let now = self.now();
        self.engine
            .apply(EngineInput::Notice { provider, notice }, now);
    }

    /// kube-scheduler asks the extender for this pod, and gets a node.
    pub fn ask_extender(&mut self, pod: &str) {
        let at = self.now();
        let pod = pod.into();
        self.engine.apply(EngineInput::Feasible { pod, at }, at);
    }

    // Automatic nodes.

    /// Starts kube-scheduler, and launches, registers and drains claims from now on. Instances and Nodes are named as their
    /// claims are. Node classes are resolved without their decider.
    pub fn automate_nodes(&mut self) {
        self.automation.is_on = true;
        self.cluster.cloud.name_by_claims();
        self.resolve_classes();
    }

    /// Plans what follows an executed effect.
    pub(super) fn automate(&mut self, effect: &Effect) {
        if !self.automation.is_on {
            return;
        }
        match effect {
            Effect::CreateClaim(claim) => {
                let step = NodeStep::Launch(claim.name().to_string());
                self.plan_automation(LAUNCH_MS, step);
            }
            Effect::Delete {
                target: ObjectRef::Claim(claim),
                ..
            } => self.plan_drain(claim.as_str(), DRAIN_MS),
            _ => {}
        }
    }

    /// Starts to drain a claim in `ms` milliseconds.
    pub fn plan_drain(&mut self, claim: &str, ms: i64) {
        self.plan_automation(ms, NodeStep::Drain(claim.to_owned()));
    }

    fn plan_automation(&mut self, ms: i64, step: NodeStep) {
        self.automation
            .steps
            .plan(after(self.cluster.now(), ms), step);
    }

    pub(super) fn perform_automation(&mut self, step: &NodeStep) {
        match step {
            NodeStep::Launch(claim) => self.launch(claim),
            NodeStep::Drain(claim) => self.drain(claim),
        }
        self.deliver();
    }

    /// Answers for the decider of node classes, to a process that has just started.
    pub(super) fn resolve_classes(&mut self) {
        if !self.automation.is_on {
            return;
        }
        let all = self.cluster.api_server.iter();
        let classes: Vec<NodeClassObject> = all
            .filter_map(|(key, object)| match key {
                ObjectKey::NodeClass(key) => {
                    Some(NodeClassObject::new(key.clone(), object.clone()))
                }
                _ => None,
            })
            .collect();
        for class in classes {
            let effect = Effect::Resolve(Box::new(class.into()));
            let outcome = Outcome {
                result: execute(&effect, &mut self.cluster).result,
                effect: Arc::new(effect),
            };
            let (decider, term) = (DeciderId::NodeClass, self.engine.term());
            let input = EngineInput::Outcome {
                decider,
                term,
                outcome,
            };
            let now = self.now();
            self.engine.apply(input, now);
        }
    }

    // kube-scheduler.

    /// Shows changes to kube-scheduler.
    pub(super) fn observe(&mut self, changes: &[StoreEvent]) {
        if !self.automation.is_on {
            return;
        }
        let clock = &mut self.cluster.clock;
        self.automation.scheduler.observe(changes, clock);
        let is_pod = |each: &StoreEvent| matches!(each.key, ObjectKey::Pod(_) | ObjectKey::Pdb(_));
        if changes.iter().any(is_pod) {
            self.update_budgets();
        }
    }

    pub(super) fn schedule(&mut self) {
        if self.automation.scheduler_is_down {
            return;
        }
        let snapshot = self.snapshot();
        let scheduler = &mut self.automation.scheduler;
        let apps = self.automation.rejected_apps.clone();
        scheduler.name_nodes(!apps.is_empty());
        scheduler.set_extender(Box::new(RejectingExtender {
            apps,
            keeps_nominations: self.automation.keeps_nominations,
        }));
        scheduler.cycle(&snapshot, &mut self.cluster);
    }

    // The lifecycle of a claim.

    /// A running node of a type without pods; its claim has the same name.
    pub fn running_node(&mut self, name: &str, of: &str, pool: &str) {
        let mut claim = json!({
            "kind": "NodeClaim",
            "metadata": {
                "name": name, "labels": { labels::NODEPOOL: pool, labels::HOSTNAME: name },
                "finalizers": [labels::TERMINATION_FINALIZER],
            },
            "spec": { "nodeClassRef": { "group": super::GROUP, "kind": super::KIND, "name": "default" }, "requirements": [] },
        });
        self.put(&claim);
        claim["metadata"]["uid"] =
            self.get(&format!("NodeClaim/{name}"))["metadata"]["uid"].clone();
        let of = json!({ "key": labels::INSTANCE_TYPE, "operator": "In", "values": [of] });
        claim["spec"]["requirements"] = json!([of]);
        let claim: NodeClaim = serde_json::from_value(claim).unwrap();
        let id = self.launch_instance(&claim).unwrap();
        self.boot(&id);
        self.deliver();
    }

    fn launch(&mut self, name: &str) {
        let key = format!("NodeClaim/{name}");
        let object = self.get(&key);
        if object.is_null() || object["metadata"]["deletionTimestamp"].is_string() {
            return;
        }
        if self.automation.no_capacity {
            self.erase(&key);
            return;
        }
        let claim: NodeClaim = serde_json::from_value(object.clone()).unwrap();
        let id = self
            .launch_instance(&claim)
            .expect("a claim can be launched");
        let ms = self.cluster.timing.boot.from_ms;
        self.cluster.clock.in_ms(ms, Action::CreateNode(id));
    }

    /// Launches the instance of a claim and writes the claim's status.
    fn launch_instance(&mut self, claim: &NodeClaim) -> Option<ProviderId> {
        let now = self.now();
        let random = &mut self.cluster.clock.random;
        let launched = self
            .cluster
            .cloud
            .launch_alone(claim, FIRST_IMAGE, now, random)
            .0
            .ok()?;
        let launched_condition = self.true_condition("Launched");
        let name = claim.name();
        self.edit(
            &format!("NodeClaim/{name}"),
            &json!({
                "metadata": { "labels": launched.labels },
                "status": {
                    "providerID": launched.provider_id.as_str(), "nodeName": name.as_str(),
                    "capacity": launched.capacity, "allocatable": launched.allocatable,
                    "conditions": [launched_condition],
                },
            }),
        );
        Some(launched.provider_id)
    }

    /// The kubelet of an instance creates its Node, which is registered and initialized.
    pub(super) fn boot(&mut self, id: &ProviderId) {
        let name = node_name(id).to_string();
        if !self.automation.is_on || !self.has(&format!("NodeClaim/{name}")) {
            return;
        }
        self.kubelets.create_node(id, &mut self.cluster);
        mark_node_ready(id, &mut self.cluster);
        let mut node = json!({
            "metadata": { "labels": { labels::REGISTERED: "true", labels::INITIALIZED: "true" } },
            "spec": { "taints": null },
        });
        if let Some(cpu) = self.automation.cpu_of_nodes {
            node["status"] = json!({ "allocatable": { "cpu": cpu } });
        }
        self.edit(&format!("Node/{name}"), &node);
        let conditions: Vec<Value> = [
            "Launched",
            "Registered",
            "Initialized",
            "Consolidatable",
            "Ready",
        ]
        .into_iter()
        .map(|each| self.true_condition(each))
        .collect();
        let status = json!({ "status": { "conditions": conditions } });
        self.edit(&format!("NodeClaim/{name}"), &status);
    }

    /// The instance of a claim creates its Node, which is ready: for tests in which instances never do.
    pub fn boot_late(&mut self, claim: &str) {
        let id = &self.get(&format!("NodeClaim/{claim}"))["status"]["providerID"];
        let id = ProviderId::from(id.as_str().unwrap());
        self.boot(&id);
    }

    fn drain(&mut self, claim: &str) {
        if !self.has(&format!("NodeClaim/{claim}")) {
            return;
        }
        for pod in self.bound().remove(claim).into_iter().flatten() {
            if !self.has_exhausted_budget(&pod) {
                self.replace_pod(&pod);
            }
        }
        if self.bound().contains_key(claim) {
            self.plan_drain(claim, DRAIN_RETRY_MS);
            return;
        }
        let id = self.get(&format!("NodeClaim/{claim}"))["status"]["providerID"].clone();
        self.erase(&format!("Node/{claim}"));
        self.erase(&format!("NodeClaim/{claim}"));
        if let Some(id) = id.as_str() {
            self.cluster.cloud.remove(&id.into());
        }
    }

    // Workloads of automatic nodes.

    /// A ready node class `default` and a ready NodePool `default` without a limit of disruptions.
    pub fn put_automatic_pool(&mut self) {
        self.put(&json!({ "kind": KIND, "metadata": { "name": "default" } }));
        self.automate_nodes();
        self.pool("default", &json!({}));
    }

    /// A NodePool that is ready and does not limit disruptions, or the existing one, changed by `patch`.
    pub fn pool(&mut self, name: &str, patch: &Value) {
        let key = format!("NodePool/{name}");
        if self.has(&key) {
            self.edit(&key, patch);
            return;
        }
        let ready = self.true_condition("Ready");
        let mut pool = json!({
            "kind": "NodePool",
            "metadata": { "name": name },
            "spec": {
                "template": { "spec": { "nodeClassRef": { "group": GROUP, "kind": KIND, "name": "default" }, "requirements": [] } },
                "disruption": { "consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{ "nodes": "100%" }] },
            },
            "status": { "conditions": [ready] },
        });
        merge_into(&mut pool, patch);
        self.put(&pool);
    }

    /// Pods of an app, each with this CPU in milli and as many MiB, changed by `patch`.
    pub fn pods(&mut self, app: &str, count: usize, cpu: i64, patch: &Value) {
        for _ in 0..count {
            self.created_pods += 1;
            let mut pod = json!({
                "kind": "Pod",
                "metadata": {
                    "name": format!("{app}-{:05}", self.created_pods), "namespace": "default", "labels": { "app": app },
                    "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": format!("rs-{app}"), "controller": true }],
                },
                "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": format!("{cpu}m"), "memory": format!("{cpu}Mi") } } }] },
                "status": { "phase": "Pending" },
            });
            merge_into(&mut pod, patch);
            self.put(&pod);
        }
    }

    /// Removes pods of an app, the last ones first, and no controller re-creates them.
    pub fn scale_down(&mut self, app: &str, by: usize) {
        let prefix = format!("default/{app}-");
        let mut names = self.names("Pod");
        names.retain(|name| name.starts_with(&prefix));
        for name in names.iter().rev().take(by) {
            self.erase(&format!("Pod/{name}"));
        }
    }

    /// A pod stops, and its owner creates another one with the same containers, annotations and node selector.
    pub(super) fn replace_pod(&mut self, name: &str) {
        let key = format!("Pod/{name}");
        let pod = self.get(&key).clone();
        self.erase(&key);
        let app = pod["metadata"]["labels"]["app"].as_str().unwrap();
        let patch = json!({
            "metadata": { "annotations": pod["metadata"]["annotations"] },
            "spec": { "nodeSelector": pod["spec"]["nodeSelector"], "containers": pod["spec"]["containers"] },
        });
        self.pods(app, 1, 0, &patch);
    }

    /// Pods that are bound, by Node.
    #[must_use]
    pub fn bound(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in self.cluster.api_server.of_kind(ObjectKind::Pod) {
            if let Some(node) = pod["spec"]["nodeName"].as_str() {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                let names = all.entry(node.to_owned()).or_default();
                names.insert(format!("default/{name}"));
            }
        }
        all
    }

    /// Number of pods that are not bound.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.names("Pod").len() - self.bound().values().map(BTreeSet::len).sum::<usize>()
    }

    /// Instance types of the cloud.
    #[must_use]
    pub fn types(&self) -> Vec<InstanceType> {
        self.cluster.cloud.catalog(self.now())
    }

    /// Instance types of the Nodes, sorted.
    #[must_use]
    pub fn node_types(&self) -> Vec<String> {
        let nodes = self.cluster.api_server.of_kind(ObjectKind::Node);
        let mut all: Vec<String> = nodes
            .map(|node| {
                let of = node["metadata"]["labels"][labels::INSTANCE_TYPE].as_str();
                of.unwrap_or("?").to_owned()
            })
            .collect();
        all.sort();
        all
    }

    /// Price of all Nodes per hour, in micro-dollars.
    #[must_use]
    pub fn bill(&self) -> i64 {
        let nodes = self.cluster.api_server.of_kind(ObjectKind::Node);
        nodes
            .filter_map(|node| {
                let id = node["spec"]["providerID"].as_str()?;
                Some(self.cluster.cloud.instance(&id.into())?.price.0)
            })
            .sum()
    }

    // Disruption budgets.

    /// A disruption budget for an app that keeps a number of pods.
    pub fn pdb(&mut self, app: &str, min_available: i64) {
        self.put(&json!({
            "kind": "PodDisruptionBudget",
            "metadata": { "name": app, "namespace": "default" },
            "spec": { "selector": { "matchLabels": { "app": app } }, "minAvailable": min_available },
            "status": {},
        }));
    }

    /// Updates the allowed disruptions of every budget; the caller delivers them.
    pub(super) fn update_budgets(&mut self) {
        let budgets: Vec<Value> = self
            .cluster
            .api_server
            .of_kind(ObjectKind::Pdb)
            .cloned()
            .collect();
        for budget in budgets {
            let app = &budget["spec"]["selector"]["matchLabels"]["app"];
            let pods = self
                .cluster
                .api_server
                .of_kind(ObjectKind::Pod)
                .filter(|pod| {
                    pod["metadata"]["labels"]["app"] == *app && pod["spec"]["nodeName"].is_string()
                });
            let healthy = i64::try_from(pods.count()).unwrap_or(0);
            let least = budget["spec"]["minAvailable"].as_i64().unwrap_or(0);
            let name = budget["metadata"]["name"].as_str().unwrap_or_default();
            let key = super::objects::key(&format!("PodDisruptionBudget/default/{name}"));
            let allowed = json!({ "disruptionsAllowed": (healthy - least).max(0) });
            self.cluster.write(&key, &json!({ "status": allowed }));
        }
    }

    pub(super) fn has_exhausted_budget(&self, pod: &str) -> bool {
        let pod = self.get(&format!("Pod/{pod}"));
        self.cluster
            .api_server
            .of_kind(ObjectKind::Pdb)
            .any(|budget| {
                budget["spec"]["selector"]["matchLabels"]["app"] == pod["metadata"]["labels"]["app"]
                    && budget["status"]["disruptionsAllowed"] == 0
            })
    }
}
