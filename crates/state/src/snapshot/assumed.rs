//! The expected cluster state: NodeClaims that are being created are nodes, and nominated pods run on their target.
//!
//! kube-scheduler assumes a pod on its node as soon as it has selected the node, before the API server knows. Requests about
//! other pods are answered here in the same way: a nominated pod counts like a bound one, in resources, host ports, volumes,
//! spread constraints and affinity in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{NodeKey, Pod, Snapshot, StateNode};
use crate::ledger::{LedgerOp, Nomination, NominationTarget};
use mortise_apis::names::Uid;

impl Snapshot {
    /// This snapshot with a node for every expected NodeClaim that no object shows yet.
    ///
    /// Cost: the number of such NodeClaims.
    #[must_use]
    pub fn with_expected_claims(&self) -> Self {
        let mut view = self.clone();
        for (name, expected) in self.ledger.expected_claims() {
            let Some(claim) = expected.object.as_ref() else {
                continue; // it is among the claims already
            };
            if self.claims.contains(name) {
                continue;
            }
            view.claims.insert(name.clone(), Arc::clone(claim));
            view.insert_node(Arc::new(StateNode::from_expected_claim(claim)));
        }
        view
    }

    /// The node of a nomination target.
    #[must_use]
    pub fn node_at(&self, place: &NominationTarget) -> Option<&Arc<StateNode>> {
        match place {
            NominationTarget::Node(name) => self.node(name),
            NominationTarget::Claim(name) => self.node_of_claim(name),
        }
    }

    /// This snapshot with these nominations applied: each pod is on its target, and no longer on its present node. A nomination
    /// is skipped if its node is unknown, is being deleted or fenced, or has too little free capacity (once it is initialized),
    /// or if its pod is on that node already.
    ///
    /// Cost: the number of nominations, and a copy of the changed nodes.
    #[must_use]
    pub fn assume<'a>(&self, nominations: impl Iterator<Item = &'a Arc<Nomination>>) -> Self {
        let mut view = self.clone();
        let mut arrivals: BTreeMap<NodeKey, Vec<&'a Nomination>> = BTreeMap::new();
        for nomination in nominations {
            if let Some(node) = self
                .node_at(&nomination.place)
                .filter(|it| accepts_pods(self, it))
            {
                let all = arrivals.entry(node.key.clone()).or_default();
                all.push(nomination);
            }
        }
        let mut departures: BTreeMap<NodeKey, BTreeSet<Uid>> = BTreeMap::new();
        let mut assumed = BTreeMap::new();
        for (key, nominations) in &arrivals {
            let Some(node) = self.nodes.get(&**key) else {
                continue;
            };
            let mut changed = StateNode::clone(node);
            for nomination in nominations {
                let Some(pod) = self.pod_to_move(nomination) else {
                    continue;
                };
                if node.initialized && !pod.class.requests.fits_in(&changed.free()) {
                    continue;
                }
                view.pending.remove(&pod.key);
                view.pod_labels.remove(pod);
                view.pod_labels.add_at(pod, &nomination.place);
                if let Some(old) = pod.node.as_ref().and_then(|node| self.node(node)) {
                    let left = departures.entry(old.key.clone()).or_default();
                    left.insert(pod.uid.clone());
                }
                changed.used.add_assign(&pod.class.requests);
                changed.has_anti_affinity_pods |= !pod.class.anti_affinity.required.is_empty();
                changed.pods.push(Arc::clone(pod));
                assumed.insert(pod.uid.clone(), nomination.place.clone());
            }
            changed.pods.sort_by(|a, b| a.key.cmp(&b.key));
            view.insert_node(Arc::new(changed));
        }
        for (key, left) in departures {
            if let Some(node) = view.nodes.get(&*key) {
                let mut changed = StateNode::clone(node);
                // Resources of pods that left stay counted: nothing new is placed on such a node.
                changed.pods.retain(|pod| !left.contains(&pod.uid));
                view.insert_node(Arc::new(changed));
            }
        }
        let ledger = Arc::make_mut(&mut view.ledger);
        for uid in assumed.keys() {
            ledger.apply(LedgerOp::Withdraw(uid.clone()));
        }
        view.assumed = Arc::new(assumed);
        view
    }

    /// The pod of a nomination, unless it is on that node already.
    fn pod_to_move(&self, nomination: &Nomination) -> Option<&Arc<Pod>> {
        let pod = self.pods.get(&nomination.pod);
        let pod = pod.filter(|pod| pod.uid == nomination.uid)?;
        let there = self.node_at(&nomination.place)?;
        let here = pod.node.as_ref().and_then(|node| self.node(node));
        let has_arrived = here.is_some_and(|here| here.key == there.key);
        (!has_arrived).then_some(pod)
    }
}

/// Whether the node is neither being deleted nor fenced.
fn accepts_pods(snapshot: &Snapshot, node: &StateNode) -> bool {
    let fenced = node
        .claim_name()
        .is_some_and(|claim| snapshot.ledger.fence(&claim).is_some());
    !node.deleting && !fenced
}
