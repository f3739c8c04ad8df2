//! One machine: the merge of a Node and a NodeClaim (`reference`: karpenter-core 3.3).

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;

use super::{NodeDisruptionState, Pod};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, NodeName, PoolName, ProviderId};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::{k8s, labels, taints};

/// Key of a machine: its provider id once it has one, else the name of its claim or node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey(Arc<str>);

impl NodeKey {
    /// The key that a claim gives.
    #[must_use]
    pub fn of_claim(claim: &NodeClaim) -> Self {
        match claim.machine_id() {
            Some(id) => Self(id.into()),
            None => Self(
                format!(
                    "claim/{}",
                    claim.metadata.name.as_deref().unwrap_or_default()
                )
                .into(),
            ),
        }
    }

    /// The key that a Node gives.
    #[must_use]
    pub fn of_node(node: &k8s::Node) -> Self {
        match node.provider_id() {
            Some(id) => Self(id.into()),
            None => {
                Self(format!("node/{}", node.metadata.name.as_deref().unwrap_or_default()).into())
            }
        }
    }
}

impl Borrow<str> for NodeKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::ops::Deref for NodeKey {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One machine, coming, here, or going.
#[derive(Clone, Debug)]
pub struct StateNode {
    /// Key in [`super::Snapshot::nodes`].
    pub key: NodeKey,
    /// The Node object, once it exists.
    pub node: Option<Arc<k8s::Node>>,
    /// The NodeClaim object; `None` for a node that is not ours.
    pub claim: Option<Arc<NodeClaim>>,
    /// Labels that count for scheduling: the claim's until registered, the Node's after.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Taints that count for scheduling. Ephemeral and start-up taints of a node that is still coming up are left out.
    pub taints: Vec<Taint>,
    /// Capacity, by the Node or, before it is initialized, filled from the claim.
    pub capacity: Resources,
    /// What pods can use.
    pub allocatable: Resources,
    /// Pods on it, not terminal. Sorted by key.
    pub pods: Vec<Arc<Pod>>,
    /// Sum of requests of `pods`.
    pub used: Resources,
    /// Sum of requests of the DaemonSet pods among `pods`.
    pub daemon_used: Resources,
    /// Some of `pods` keep others away: they have required anti-affinity.
    pub has_anti_affinity_pods: bool,
    /// The Node carries the registered label (or there is no claim).
    pub registered: bool,
    /// The Node carries the initialized label (or there is no claim).
    pub initialized: bool,
    /// Node or claim is being deleted, or its instance is terminating.
    pub deleting: bool,
    /// Further Nodes with the same provider id; such a machine is not registered.
    pub duplicate_nodes: Vec<NodeName>,
    /// Price of its offering; `None` when unknown.
    pub price: Option<MicroUsd>,
    /// How long it will be there, and whom it holds.
    pub disruption_state: NodeDisruptionState,
}

impl StateNode {
    /// A machine that is asked for: its claim is being created, and no object shows it yet.
    #[must_use]
    pub fn coming(claim: &Arc<NodeClaim>) -> Self {
        let mut machine = Self {
            key: NodeKey::of_claim(claim),
            node: None,
            claim: Some(Arc::clone(claim)),
            labels: Arc::new(claim.labels_of_machine()),
            taints: Self::taints_of(None, Some(claim), false, false),
            capacity: Resources::default(),
            allocatable: Resources::default(),
            pods: Vec::new(),
            used: Resources::default(),
            daemon_used: Resources::default(),
            has_anti_affinity_pods: false,
            registered: false,
            initialized: false,
            deleting: false,
            duplicate_nodes: Vec::new(),
            price: None,
            disruption_state: NodeDisruptionState::default(),
        };
        machine.disruption_state = NodeDisruptionState::of(&machine);
        machine
    }

    /// The taints that count for scheduling: the claim's until registered, the Node's after; while a managed node is not
    /// initialized, taints that will go without anybody's help (known ephemeral ones and start-up taints) do not count.
    #[must_use]
    pub fn taints_of(
        node: Option<&k8s::Node>,
        claim: Option<&NodeClaim>,
        registered: bool,
        initialized: bool,
    ) -> Vec<Taint> {
        let of_node = node
            .map(|node| node.spec.taints.clone())
            .unwrap_or_default();
        let Some(claim) = claim else { return of_node };
        let all = if registered {
            of_node
        } else {
            claim.spec.taints.clone().unwrap_or_default()
        };
        if initialized {
            return all;
        }
        let startup = claim.spec.startup_taints.as_deref().unwrap_or_default();
        all.into_iter()
            .filter(|taint| {
                !taints::is_ephemeral(taint)
                    && !startup.iter().any(|each| taints::matches(each, taint))
            })
            .collect()
    }

    /// The Node's name once registered, else the claim's.
    #[must_use]
    pub fn name(&self) -> &str {
        let node = self
            .node
            .as_ref()
            .and_then(|node| node.metadata.name.as_deref());
        let claim = self
            .claim
            .as_ref()
            .and_then(|claim| claim.metadata.name.as_deref());
        if self.registered {
            node.or(claim)
        } else {
            claim.or(node)
        }
        .unwrap_or_default()
    }

    /// Names of all its Nodes: more than one is an error that lifecycle reports.
    pub(super) fn node_names(&self) -> impl Iterator<Item = NodeName> {
        self.node_name()
            .into_iter()
            .chain(self.duplicate_nodes.iter().cloned())
    }

    /// Name of the Node object.
    #[must_use]
    pub fn node_name(&self) -> Option<NodeName> {
        self.node
            .as_ref()?
            .metadata
            .name
            .as_deref()
            .map(NodeName::from)
    }

    /// Name of the NodeClaim object.
    #[must_use]
    pub fn claim_name(&self) -> Option<ClaimName> {
        self.claim
            .as_ref()?
            .metadata
            .name
            .as_deref()
            .map(ClaimName::from)
    }

    /// Names of the Node object and of the NodeClaim object.
    #[must_use]
    pub fn names(&self) -> (Option<&str>, Option<&str>) {
        (
            self.node
                .as_ref()
                .and_then(|node| node.metadata.name.as_deref()),
            self.claim
                .as_ref()
                .and_then(|claim| claim.metadata.name.as_deref()),
        )
    }

    /// Provider id of the machine.
    #[must_use]
    pub fn provider_id(&self) -> Option<ProviderId> {
        let of_claim = self.claim.as_ref().and_then(|claim| claim.provider_id());
        of_claim
            .or_else(|| self.node.as_ref().and_then(|node| node.provider_id()))
            .map(ProviderId::from)
    }

    /// It has a claim: we made it, we may end it.
    #[must_use]
    pub const fn is_managed(&self) -> bool {
        self.claim.is_some()
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// Pool it belongs to.
    #[must_use]
    pub fn pool(&self) -> Option<PoolName> {
        self.label(labels::NODEPOOL).map(PoolName::from)
    }

    /// Instance type name.
    #[must_use]
    pub fn instance_type(&self) -> Option<&str> {
        self.label(labels::INSTANCE_TYPE)
    }

    /// Zone name.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.label(labels::TOPOLOGY_ZONE)
    }

    /// When the claim (or else the node) was created.
    #[must_use]
    pub fn created(&self) -> Option<Timestamp> {
        let claim = self
            .claim
            .as_ref()
            .and_then(|claim| claim.metadata.creation_timestamp.as_ref());
        claim
            .or_else(|| {
                self.node
                    .as_ref()
                    .and_then(|node| node.metadata.creation_timestamp.as_ref())
            })
            .map(|time| time.0)
    }

    /// Room left, before promises.
    #[must_use]
    pub fn free(&self) -> Resources {
        self.allocatable.sub(&self.used)
    }

    /// The Node condition `Ready` is `True`.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.node.as_ref().is_some_and(|node| {
            node.condition("Ready")
                .is_some_and(|condition| condition.status == "True")
        })
    }

    /// Annotation `karpenter.sh/do-not-disrupt: "true"` on the Node, or on the claim (also after registration: unlike upstream).
    #[must_use]
    pub fn do_not_disrupt(&self) -> bool {
        let on = |annotations: Option<&BTreeMap<String, String>>| {
            annotations
                .and_then(|all| all.get(labels::DO_NOT_DISRUPT))
                .is_some_and(|value| value == "true")
        };
        on(self
            .node
            .as_ref()
            .and_then(|node| node.metadata.annotations.as_ref()))
            || on(self
                .claim
                .as_ref()
                .and_then(|claim| claim.metadata.annotations.as_ref()))
    }

    /// Pods that would have to find another place.
    pub fn reschedulable(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().filter(|pod| pod.is_reschedulable())
    }
}
