//! A Node merged with its NodeClaim.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;

use super::{NodeDisruptionState, Pod, ProtectingAnnotation};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, NodeName, PoolName, ProviderId};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::{k8s, labels, taints};

/// Key of a node: its provider ID once it has one, otherwise the name of its NodeClaim or Node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey(Arc<str>);

impl NodeKey {
    /// The key of a NodeClaim.
    #[must_use]
    pub fn from_claim(claim: &NodeClaim) -> Self {
        match claim.instance_id() {
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

    /// The key of a Node.
    #[must_use]
    pub fn from_node(node: &k8s::Node) -> Self {
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

/// One node: planned, existing or terminating.
#[derive(Clone, Debug)]
pub struct StateNode {
    /// Key in [`super::Snapshot::nodes`].
    pub key: NodeKey,
    /// The Node object, once it exists.
    pub node: Option<Arc<k8s::Node>>,
    /// The NodeClaim object; `None` for an unmanaged node.
    pub claim: Option<Arc<NodeClaim>>,
    /// Labels that count for scheduling: the NodeClaim's until registration, the Node's afterwards.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Taints that count for scheduling. Ephemeral and startup taints of a node that is not initialized are left out.
    pub taints: Vec<Taint>,
    /// Capacity of the Node. Before initialization, missing resources are filled from the NodeClaim.
    pub capacity: Resources,
    /// Resources that pods can use.
    pub allocatable: Resources,
    /// Bound pods that are not terminal. Sorted by key.
    pub pods: Vec<Arc<Pod>>,
    /// Sum of requests of `pods`.
    pub used: Resources,
    /// Sum of requests of the DaemonSet pods among `pods`.
    pub daemon_used: Resources,
    /// Some of `pods` have required anti-affinity.
    pub has_anti_affinity_pods: bool,
    /// The Node carries the registered label (or there is no claim).
    pub registered: bool,
    /// The Node carries the initialized label (or there is no claim).
    pub initialized: bool,
    /// Node or claim is being deleted, its instance is terminating, or it is replaced before an announced interruption.
    pub deleting: bool,
    /// Further Nodes with the same provider ID; such a node is not registered.
    pub duplicate_nodes: Vec<NodeName>,
    /// Cluster Autoscaler may not remove it, and its annotations are respected.
    pub is_scale_down_disabled: bool,
    /// Price of its offering; `None` when unknown.
    pub price: Option<MicroUsd>,
    /// Positions of the commitments that may pay for it, among those of the snapshot.
    pub paid_by: Arc<[usize]>,
    /// What its objects and pods mean for disruption and packing.
    pub disruption_state: NodeDisruptionState,
}

impl StateNode {
    /// The node of a NodeClaim that is being created and that no object shows yet.
    #[must_use]
    pub fn from_expected_claim(claim: &Arc<NodeClaim>) -> Self {
        let mut expected = Self {
            key: NodeKey::from_claim(claim),
            node: None,
            claim: Some(Arc::clone(claim)),
            labels: Arc::new(claim.node_labels()),
            taints: Self::scheduling_taints(None, Some(claim), false, false),
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
            is_scale_down_disabled: false,
            price: None,
            paid_by: Arc::default(),
            disruption_state: NodeDisruptionState::default(),
        };
        expected.disruption_state = NodeDisruptionState::new(&expected);
        expected
    }

    /// Taints that count for scheduling: the NodeClaim's until registration, the Node's afterwards. While a managed node is not
    /// initialized, taints that other components remove (known ephemeral ones and startup taints) do not count.
    #[must_use]
    pub fn scheduling_taints(
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

    /// The Node's name once registered, otherwise the NodeClaim's.
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

    /// Names of all its Nodes: more than one is an error, which the lifecycle reports.
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

    /// Provider ID of the instance.
    #[must_use]
    pub fn provider_id(&self) -> Option<ProviderId> {
        let of_claim = self.claim.as_ref().and_then(|claim| claim.provider_id());
        of_claim
            .or_else(|| self.node.as_ref().and_then(|node| node.provider_id()))
            .map(ProviderId::from)
    }

    /// Whether it has a NodeClaim: mortise launched it and may delete it.
    #[must_use]
    pub const fn is_managed(&self) -> bool {
        self.claim.is_some()
    }

    /// Whether Cluster Autoscaler removes it, or is about to: pods that are moved there move again.
    #[must_use]
    pub fn is_removed_by_cluster_autoscaler(&self) -> bool {
        let mut taints = self.node.iter().flat_map(|node| &node.spec.taints);
        taints.any(|taint| labels::CLUSTER_AUTOSCALER_REMOVES.contains(&&*taint.key))
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// Name of its NodePool.
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

    /// When the NodeClaim (or without one, the Node) was created.
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

    /// Free capacity, nominations not subtracted.
    #[must_use]
    pub fn free(&self) -> Resources {
        self.allocatable.sub(&self.used)
    }

    /// The Node condition `Ready` is `True`.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.disruption_state.ready
    }

    /// The annotation that keeps it from being disrupted; `None`: it may be.
    #[must_use]
    pub fn protecting_annotation(&self) -> Option<ProtectingAnnotation> {
        if self.has_do_not_disrupt() {
            return Some(ProtectingAnnotation::DoNotDisrupt);
        }
        let is_disabled = self.is_scale_down_disabled;
        is_disabled.then_some(ProtectingAnnotation::ScaleDownDisabled)
    }

    /// Whether an annotation keeps it from being disrupted.
    #[must_use]
    pub fn do_not_disrupt(&self) -> bool {
        self.protecting_annotation().is_some()
    }

    /// Annotation `karpenter.sh/do-not-disrupt: "true"` on the Node, or on the NodeClaim (also after registration, unlike
    /// Karpenter).
    fn has_do_not_disrupt(&self) -> bool {
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

    /// Pods that must be rescheduled if the node is deleted.
    pub fn reschedulable(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().filter(|pod| pod.is_reschedulable())
    }
}
