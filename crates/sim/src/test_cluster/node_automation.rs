//! Automatic nodes, for tests of deciders that place pods: a claim is launched after a second, registered and initialized as
//! soon as its kubelet has created the Node, and drained when it is deleted, without the deciders that would do so.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::k8s;
use mortise_state::snapshot::Snapshot;

use crate::clock::EventQueue;
use crate::cluster::{Extender, KubeScheduler};

/// What happens to a claim next.
#[derive(Clone, Debug)]
pub(super) enum NodeStep {
    Launch(String),
    Drain(String),
}

/// State and faults of the automation.
#[derive(Default)]
pub struct NodeAutomation {
    /// Every launch fails: the claim is deleted.
    pub no_capacity: bool,
    /// Instances never create their Nodes.
    pub never_ready: bool,
    /// Nodes that boot from now on have this CPU, regardless of their type.
    pub cpu_of_nodes: Option<&'static str>,
    /// kube-scheduler does nothing.
    pub scheduler_is_down: bool,
    /// kube-scheduler rejects the pods of these apps on every node, and names the nodes.
    pub rejected_apps: BTreeSet<String>,
    /// kube-scheduler leaves nodes to the pods that are nominated to them, as with the extender where a node holds one pod.
    pub keeps_nominations: bool,
    pub(super) is_on: bool,
    pub(super) scheduler: KubeScheduler,
    pub(super) steps: EventQueue<NodeStep>,
}

/// Rejects the pods of some apps on every node, and others on nodes that are kept for nominated pods.
pub(super) struct RejectingExtender {
    pub(super) apps: BTreeSet<String>,
    pub(super) keeps_nominations: bool,
}

impl Extender for RejectingExtender {
    fn filter(
        &self,
        snapshot: &Arc<Snapshot>,
        _: Timestamp,
        pod: &k8s::Pod,
        nodes: &[String],
    ) -> Vec<String> {
        let labels = pod.metadata.labels.as_ref();
        let app = labels.and_then(|all| all.get("app"));
        if app.is_some_and(|app| self.apps.contains(app)) {
            return Vec::new();
        }
        let is_own = |uid: &str| pod.metadata.uid.as_deref() == Some(uid);
        let is_left_to_others = |name: &str| {
            let claim = snapshot.node(name).and_then(|node| node.claim_name());
            let mut kept = snapshot
                .ledger
                .nominations_of_node(Some(name), claim.as_deref());
            self.keeps_nominations && kept.any(|each| !is_own(&each.uid))
        };
        let free = nodes.iter().filter(|name| !is_left_to_others(name));
        free.cloned().collect()
    }

    fn prioritize(
        &self,
        _: &Arc<Snapshot>,
        _: Timestamp,
        _: &k8s::Pod,
        _: &[String],
    ) -> Vec<(String, i64)> {
        Vec::new()
    }
}
