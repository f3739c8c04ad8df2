//! What stories begin with: claims, their nodes and pods, and what a cloud announces.

use serde_json::{Value, json};

use super::{GROUP, KIND, TestCluster, merge_into};
use mortise_apis::labels;
use mortise_cloudprovider::{InterruptionKind, InterruptionNotice};
use mortise_engine::engine::EngineInput;
use mortise_state::resource_kinds::EventSource;

/// The driver whose devices machines bring.
const DRIVER: &str = "gpu.test";

impl TestCluster {
    /// A claim as provisioning creates it.
    pub(crate) fn claim(&mut self, name: &str, spec: &Value) {
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

    /// A claim whose pods count on devices of its machine. Nothing else keeps its node from being initialized at once.
    pub(crate) fn claim_with_devices(&mut self, name: &str) {
        self.claim(name, &json!({ "startupTaints": [] }));
        let asked = json!({ labels::REQUESTED_DRA_DRIVERS: DRIVER });
        let key = format!("NodeClaim/{name}");
        self.edit(&key, &json!({ "metadata": { "annotations": asked } }));
    }

    /// The driver publishes the devices of a node.
    pub(crate) fn publish(&mut self, node: &str) {
        self.put(
            &json!({ "kind": "ResourceSlice", "metadata": { "name": node }, "spec": {
                "driver": DRIVER, "nodeName": node, "devices": [{ "name": "gpu-0" }],
                "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            }}),
        );
    }

    /// The node of a claim's machine appears, not ready.
    pub(crate) fn join(&mut self, claim: &str) -> String {
        self.join_with(claim, &json!([{ "type": "Ready", "status": "False" }]))
    }

    /// The node of a claim's machine appears; its kubelet has said nothing yet.
    pub(crate) fn join_silently(&mut self, claim: &str) -> String {
        self.join_with(claim, &json!([]))
    }

    fn join_with(&mut self, claim: &str, conditions: &Value) -> String {
        let object = self.get(&format!("NodeClaim/{claim}"));
        let early = &object["metadata"]["annotations"][labels::PROVIDER_ID];
        let id = object["status"]["providerID"].as_str().or(early.as_str());
        let id = id.unwrap().to_owned();
        let name = format!("node-{claim}");
        self.put(&json!({ "kind": "Node", "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } }, "spec": {
            "providerID": id,
            "taints": [{ "key": labels::UNREGISTERED_TAINT, "effect": "NoExecute" }, { "key": labels::NOT_READY_TAINT, "effect": "NoSchedule" }],
        }, "status": { "conditions": conditions }}));
        name
    }

    /// The kubelet is up; the taints are still there.
    pub(crate) fn report_ready(&mut self, node: &str) {
        let key = format!("Node/{node}");
        let mut value = self.get(&key).clone();
        value["status"] = json!({ "conditions": [{ "type": "Ready", "status": "True" }], "allocatable": { "cpu": "2", "pods": "10" }, "capacity": { "cpu": "2", "pods": "10" } });
        self.store(key, value, EventSource::Watch);
    }

    /// The kubelet is up, and whoever sets start-up taints is done.
    pub(crate) fn ready(&mut self, node: &str) {
        let key = format!("Node/{node}");
        let mut value = self.get(&key).clone();
        value["spec"]["taints"]
            .as_array_mut()
            .unwrap()
            .retain(|taint| taint["key"] != labels::NOT_READY_TAINT && taint["key"] != "boot");
        self.store(key, value, EventSource::Watch);
        self.report_ready(node);
    }

    /// A claim with an initialized node.
    pub(crate) fn up(&mut self, claim: &str, spec: &Value) -> String {
        self.claim(claim, spec);
        self.settle();
        let node = self.join(claim);
        self.settle();
        self.ready(&node);
        self.settle();
        assert!(
            self.is_true(claim, "Initialized"),
            "{claim}: {}",
            self.get(&format!("NodeClaim/{claim}"))
        );
        node
    }

    /// A running pod of a ReplicaSet on a node.
    pub(crate) fn pod(&mut self, name: &str, node: &str, more: &Value) {
        let mut value = json!({ "kind": "Pod", "metadata": {
            "name": name, "namespace": "default", "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true }],
        }, "spec": { "nodeName": node, "terminationGracePeriodSeconds": 30 }, "status": { "phase": "Running", "startTime": self.now.to_string() } });
        merge_into(&mut value, more);
        self.put(&value);
    }

    pub(crate) fn notice(&mut self, id: &str, kind: InterruptionKind, instance: &str) {
        let notice = InterruptionNotice {
            id: id.into(),
            kind,
            instances: vec![instance.into()],
            sent: None,
        };
        self.engine.apply(
            EngineInput::Notice {
                provider: "fake".into(),
                notice,
            },
            self.now,
        );
    }
}
