//! Which Node and NodeClaim objects form one node, and which nodes must be merged again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::snapshot::NodeKey;
use mortise_apis::k8s;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, NodeName};

/// The objects that form one node. Several Nodes with one provider ID are an error, which the lifecycle reports; the first by
/// name represents the node.
#[derive(Debug, Default)]
pub(super) struct NodeSources {
    nodes: BTreeSet<NodeName>,
    claim: Option<ClaimName>,
}

impl NodeSources {
    /// Name of the NodeClaim.
    pub(super) const fn claim(&self) -> Option<&ClaimName> {
        self.claim.as_ref()
    }

    /// Name of the Node that represents the node.
    pub(super) fn node(&self) -> Option<&NodeName> {
        self.nodes.first()
    }

    /// Names of the other Nodes.
    pub(super) fn duplicate_nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.nodes.iter().skip(1)
    }
}

/// Node objects, and the objects of each node.
#[derive(Debug, Default)]
pub(super) struct NodeIndex {
    objects: BTreeMap<NodeName, Arc<k8s::Node>>,
    key_by_node: BTreeMap<NodeName, NodeKey>,
    key_by_claim: BTreeMap<ClaimName, NodeKey>,
    sources: BTreeMap<NodeKey, NodeSources>,
    /// Nodes to merge again.
    dirty: BTreeSet<NodeKey>,
}

impl NodeIndex {
    /// Adds or replaces a Node.
    pub(super) fn insert_node(&mut self, node: k8s::Node) {
        let name = NodeName::from(node.metadata.name.as_deref().unwrap_or_default());
        let key = NodeKey::from_node(&node);
        if let Some(old) = self.key_by_node.insert(name.clone(), key.clone())
            && old != key
        {
            self.detach_node(&name, &old);
        }
        self.objects.insert(name.clone(), Arc::new(node));
        let sources = self.sources.entry(key.clone()).or_default();
        sources.nodes.insert(name);
        self.dirty.insert(key);
    }

    /// Removes a Node.
    pub(super) fn remove_node(&mut self, name: &NodeName) {
        self.objects.remove(name);
        if let Some(key) = self.key_by_node.remove(name) {
            self.detach_node(name, &key);
        }
    }

    fn detach_node(&mut self, name: &NodeName, key: &NodeKey) {
        if let Some(sources) = self.sources.get_mut(key) {
            sources.nodes.remove(name);
        }
        self.dirty.insert(key.clone());
    }

    /// Adds or replaces a NodeClaim.
    pub(super) fn insert_claim(&mut self, claim: &NodeClaim) {
        let name = claim.name();
        let key = NodeKey::from_claim(claim);
        if let Some(old) = self.key_by_claim.insert(name.clone(), key.clone())
            && old != key
        {
            self.detach_claim(old);
        }
        self.sources.entry(key.clone()).or_default().claim = Some(name);
        self.dirty.insert(key);
    }

    /// Removes a NodeClaim.
    pub(super) fn remove_claim(&mut self, name: &ClaimName) {
        if let Some(key) = self.key_by_claim.remove(name) {
            self.detach_claim(key);
        }
    }

    fn detach_claim(&mut self, key: NodeKey) {
        if let Some(sources) = self.sources.get_mut(&key) {
            sources.claim = None;
        }
        self.dirty.insert(key);
    }

    /// Marks the node of a Node name to be merged again.
    pub(super) fn mark(&mut self, node: &NodeName) {
        if let Some(key) = self.key_by_node.get(node) {
            self.dirty.insert(key.clone());
        }
    }

    /// Marks every node to be merged again.
    pub(super) fn mark_all(&mut self) {
        self.dirty.extend(self.sources.keys().cloned());
    }

    /// Returns the nodes to merge again, and clears the marks.
    pub(super) fn take_marked(&mut self) -> BTreeSet<NodeKey> {
        std::mem::take(&mut self.dirty)
    }

    /// The objects of a node.
    pub(super) fn sources(&self, key: &str) -> Option<&NodeSources> {
        self.sources.get(key)
    }

    /// Forgets a node without objects.
    pub(super) fn remove(&mut self, key: &str) {
        self.sources.remove(key);
    }

    /// A Node object.
    pub(super) fn object(&self, name: &str) -> Option<&Arc<k8s::Node>> {
        self.objects.get(name)
    }

    /// Key of the node of a Node name.
    pub(super) fn key(&self, node: &str) -> Option<&NodeKey> {
        self.key_by_node.get(node)
    }

    /// NodeClaim of the node of a Node name.
    pub(super) fn claim(&self, node: &NodeName) -> Option<&ClaimName> {
        self.sources.get(self.key_by_node.get(node)?)?.claim()
    }

    /// Whether a NodeClaim and a Node name belong to the same node.
    pub(super) fn is_same_node(&self, claim: &ClaimName, node: &NodeName) -> bool {
        let key = self.key_by_claim.get(claim);
        key.is_some() && key == self.key_by_node.get(node)
    }
}
