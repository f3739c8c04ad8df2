//! Merging a Node with its NodeClaim into one machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Index;
use crate::ledger::{ExpectedClaim, Fence, FenceReason, LedgerOp};
use crate::snapshot::{NodeDisruptionState, NodeKey, StateNode};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::object_ext::{DISRUPTION_REASON, resources_of};
use mortise_apis::names::{ClaimName, NodeName};
use mortise_apis::resources::Resources;
use mortise_apis::{k8s, labels};

/// Which objects make up a machine. More than one Node with one provider id is an error that lifecycle reports; the first
/// by name stands for the machine.
#[derive(Debug, Default)]
pub(super) struct NodeSources {
    nodes: BTreeSet<NodeName>,
    claim: Option<ClaimName>,
}

impl NodeSources {
    pub(super) const fn claim(&self) -> Option<&ClaimName> {
        self.claim.as_ref()
    }
}

impl Index {
    pub(super) fn node_applied(&mut self, node: k8s::Node) {
        let name = NodeName::from(node.metadata.name.as_deref().unwrap_or_default());
        let key = NodeKey::of_node(&node);
        if let Some(old) = self.node_key_of.insert(name.clone(), key.clone())
            && old != key
        {
            self.detach_node(&name, &old);
        }
        self.nodes.insert(name.clone(), Arc::new(node));
        self.machines
            .entry(key.clone())
            .or_default()
            .nodes
            .insert(name);
        self.dirty.insert(key);
    }

    pub(super) fn node_gone(&mut self, name: &NodeName) {
        self.nodes.remove(name);
        if let Some(key) = self.node_key_of.remove(name) {
            self.detach_node(name, &key);
        }
        self.state.named.remove(name);
    }

    fn detach_node(&mut self, name: &NodeName, key: &NodeKey) {
        if let Some(parts) = self.machines.get_mut(key) {
            parts.nodes.remove(name);
        }
        self.dirty.insert(key.clone());
    }

    pub(super) fn claim_applied(&mut self, claim: NodeClaim) {
        let name = claim.name();
        let key = NodeKey::of_claim(&claim);
        if let Some(old) = self.claim_key_of.insert(name.clone(), key.clone())
            && old != key
        {
            if let Some(parts) = self.machines.get_mut(&old) {
                parts.claim = None;
            }
            self.dirty.insert(old);
        }
        self.read_fence(&claim);
        self.read_promises(&claim);
        self.end_promises(&claim);
        self.read_plan(&claim);
        self.changes.claims.insert(name.clone());
        self.state.claims.insert(name.clone(), Arc::new(claim));
        self.machines.entry(key.clone()).or_default().claim = Some(name);
        self.dirty.insert(key);
    }

    /// What a claim will use counts against its pool's limits from its plan on, until its machine says what it has. The plan
    /// stands on the claim, so that every replica and a restarted process count alike.
    fn read_plan(&mut self, claim: &NodeClaim) {
        let name = claim.name();
        let Some(pool) = claim.pool().filter(|_| !claim.is_measured()) else {
            self.change_ledger(LedgerOp::Settle(name));
            return;
        };
        let known = self.state.ledger.coming().get(&name);
        let capacity = claim
            .planned_capacity()
            .or_else(|| known.and_then(|known| known.capacity.clone()));
        let created = claim.metadata.creation_timestamp.as_ref();
        let from = known.map(|known| known.from);
        let from = from.or_else(|| created.map(|time| time.0));
        self.change_ledger(LedgerOp::Expect(ExpectedClaim {
            claim: name,
            pool,
            capacity,
            object: None,
            from: from.unwrap_or(self.state.taken_at),
        }));
    }

    /// Forgets every promise that stands in no object, and reads the others again.
    pub fn forget_memory(&mut self) {
        Arc::make_mut(&mut self.state.ledger).forget();
        let claims: Vec<_> = self
            .state
            .claims
            .iter()
            .map(|(_, claim)| claim)
            .cloned()
            .collect();
        for claim in claims {
            self.read_fence(&claim);
            self.read_plan(&claim);
            self.read_promises(&claim);
        }
        self.changes.ledger = true;
        self.stale = true;
    }

    /// A fence is written on the claim before it counts, so that every replica and a restarted process know it: an
    /// annotation, or the condition that says why the claim is disrupted.
    fn read_fence(&mut self, claim: &NodeClaim) {
        let annotated = claim.annotation(labels::FENCE).and_then(FenceReason::parse);
        let reason = if claim.metadata.deletion_timestamp.is_some() {
            Some(FenceReason::Draining)
        } else {
            let chosen = claim.is_true(DISRUPTION_REASON);
            annotated.or_else(|| chosen.then_some(FenceReason::Disruption))
        };
        let name = claim.name();
        match reason {
            Some(reason) => {
                let from = self.state.taken_at;
                self.change_ledger(LedgerOp::Fence(Fence {
                    claim: name,
                    reason,
                    from,
                }));
            }
            None => self.change_ledger(LedgerOp::Unfence(name)),
        }
    }

    pub(super) fn claim_gone(&mut self, name: &ClaimName) {
        self.state.claims.remove(name);
        self.changes.claims.insert(name.clone());
        if let Some(key) = self.claim_key_of.remove(name) {
            if let Some(parts) = self.machines.get_mut(&key) {
                parts.claim = None;
            }
            self.dirty.insert(key);
        }
        Arc::make_mut(&mut self.state.ledger).forget_claim(name);
        self.changes.ledger = true;
    }

    /// Rebuilds the machines that changed.
    pub(super) fn rebuild(&mut self) {
        for key in std::mem::take(&mut self.dirty) {
            self.changes.nodes.insert(key.clone());
            let Some(parts) = self.machines.get(&key) else {
                continue;
            };
            let claim = parts
                .claim
                .as_ref()
                .and_then(|name| self.state.claims.get(name))
                .cloned();
            let node = parts
                .nodes
                .first()
                .and_then(|name| self.nodes.get(name))
                .cloned();
            if claim.is_none() && node.is_none() {
                self.machines.remove(&key);
                self.state.remove_node(&key);
                continue;
            }
            let mut merged = self.merge(key, node, claim);
            merged.duplicate_nodes = parts.nodes.iter().skip(1).cloned().collect();
            self.state.insert_node(Arc::new(merged));
        }
    }

    fn merge(
        &self,
        key: NodeKey,
        node: Option<Arc<k8s::Node>>,
        claim: Option<Arc<NodeClaim>>,
    ) -> StateNode {
        let has = |label: &str| {
            node.as_ref()
                .and_then(|node| node.metadata.labels.as_ref())
                .is_some_and(|all| all.get(label).is_some_and(|v| v == "true"))
        };
        let registered = claim.is_none() || has(labels::REGISTERED);
        let initialized = claim.is_none() || (registered && has(labels::INITIALIZED));
        let of_claim = || claim.as_ref().map(|claim| claim.labels_of_machine());
        let of_node = || {
            node.as_ref()
                .map(|node| node.metadata.labels.clone().unwrap_or_default())
        };
        let labels = if registered {
            of_node().or_else(of_claim)
        } else {
            of_claim().or_else(of_node)
        }
        .unwrap_or_default();
        let status = claim.as_ref().map(|claim| &claim.status);
        let node_status = node.as_ref().map(|node| &node.status);
        let capacity = filled(
            node_status.map(|s| &s.capacity),
            status.and_then(|s| s.capacity.as_ref()),
            initialized,
        );
        let allocatable = filled(
            node_status.map(|s| &s.allocatable),
            status.and_then(|s| s.allocatable.as_ref()),
            initialized,
        );
        let taints =
            StateNode::taints_of(node.as_deref(), claim.as_deref(), registered, initialized);
        let pods: Vec<_> = node
            .as_ref()
            .and_then(|node| {
                self.pods_of
                    .get(node.metadata.name.as_deref().unwrap_or_default())
            })
            .into_iter()
            .flatten()
            .filter_map(|pod| self.state.pods.get(pod).cloned())
            .collect();
        let mut used = Resources::default();
        let mut daemon_used = Resources::default();
        for pod in &pods {
            used.add_assign(&pod.class.requests);
            if pod.is_daemon() {
                daemon_used.add_assign(&pod.class.requests);
            }
        }
        let deleting = claim.as_ref().is_some_and(|claim| {
            claim.metadata.deletion_timestamp.is_some() || claim.is_instance_terminating()
        }) || node
            .as_ref()
            .is_some_and(|node| node.metadata.deletion_timestamp.is_some());
        let guarded = pods
            .iter()
            .any(|pod| !pod.class.anti_affinity.required.is_empty());
        let mut machine = StateNode {
            key,
            node,
            claim,
            labels: Arc::new(labels),
            taints,
            capacity,
            allocatable,
            pods,
            used,
            daemon_used,
            has_anti_affinity_pods: guarded,
            registered,
            initialized,
            deleting,
            duplicate_nodes: Vec::new(),
            price: None,
            disruption_state: NodeDisruptionState::default(),
        };
        machine.price = self.price(&machine);
        machine.disruption_state = NodeDisruptionState::of(&machine);
        machine
    }

    fn price(&self, machine: &StateNode) -> Option<mortise_apis::values::money::MicroUsd> {
        let class = machine.claim.as_ref()?.node_class_key();
        let pool = machine.label(labels::NODEPOOL).unwrap_or_default();
        let overlaid = self.state.overlaid_catalogs.get(pool);
        let catalog = overlaid.or_else(|| self.state.catalogs.get(&class))?;
        let capacity_type =
            mortise_cloudprovider::CapacityType::parse(machine.label(labels::CAPACITY_TYPE)?)?;
        catalog.price(machine.instance_type()?, machine.zone()?, capacity_type)
    }
}

/// What the Node says; before it is initialized, what it does not say yet is filled from the claim.
fn filled(
    own: Option<&BTreeMap<String, Quantity>>,
    promised: Option<&BTreeMap<String, Quantity>>,
    initialized: bool,
) -> Resources {
    let own = own.map(resources_of).unwrap_or_default();
    let Some(promised) = promised.map(resources_of).filter(|_| !initialized) else {
        return own;
    };
    let mut filled = own;
    for (name, amount) in promised.iter() {
        if filled.get(name) == 0 {
            filled.set(name, amount);
        }
    }
    filled
}
