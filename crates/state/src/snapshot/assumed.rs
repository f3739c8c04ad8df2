//! The cluster as it will be once what is promised has happened: claims that are being created are machines, and pods with a
//! promise are on their machine.
//!
//! kube-scheduler assumes a pod on its node from the moment it has chosen it, before the API server knows. A question about
//! other pods is answered here in the same way: a promised pod counts wherever a bound one would, in resources, host ports,
//! volumes, spread constraints and affinity in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{NodeKey, Pod, Snapshot, StateNode};
use crate::ledger::{LedgerOp, Nomination, NominationTarget};
use mortise_apis::names::Uid;

impl Snapshot {
    /// The same with a machine for every claim that is asked for and that no object shows yet.
    ///
    /// Cost: the number of such claims.
    #[must_use]
    pub fn with_coming(&self) -> Self {
        let mut view = self.clone();
        for (name, coming) in self.ledger.coming() {
            let Some(claim) = coming.object.as_ref() else {
                continue; // it is among the claims already
            };
            if self.claims.contains(name) {
                continue;
            }
            view.claims.insert(name.clone(), Arc::clone(claim));
            view.insert_node(Arc::new(StateNode::coming(claim)));
        }
        view
    }

    /// The machine that a promise names.
    #[must_use]
    pub fn machine_at(&self, place: &NominationTarget) -> Option<&Arc<StateNode>> {
        match place {
            NominationTarget::Node(name) => self.node(name),
            NominationTarget::Claim(name) => self.node_of_claim(name),
        }
    }

    /// The same with these promises kept: each pod is on its machine, and no longer where it was. A promise whose machine is
    /// unknown, goes, or has less room than it promised (once it is initialized) is left as it is, as is one whose pod is
    /// bound to a machine that stays.
    ///
    /// Cost: the number of promises, and a copy of the touched machines.
    #[must_use]
    pub fn assume<'a>(&self, promises: impl Iterator<Item = &'a Arc<Nomination>>) -> Self {
        let mut view = self.clone();
        let mut arrivals: BTreeMap<NodeKey, Vec<&'a Nomination>> = BTreeMap::new();
        for promise in promises {
            if let Some(machine) = self.machine_at(&promise.place).filter(|it| stays(self, it)) {
                let all = arrivals.entry(machine.key.clone()).or_default();
                all.push(promise);
            }
        }
        let mut departures: BTreeMap<NodeKey, BTreeSet<Uid>> = BTreeMap::new();
        let mut assumed = BTreeMap::new();
        for (key, promises) in &arrivals {
            let Some(machine) = self.nodes.get(&**key) else {
                continue;
            };
            let mut changed = StateNode::clone(machine);
            for promise in promises {
                let Some(pod) = self.waiting_pod(promise) else {
                    continue;
                };
                if machine.initialized && !pod.class.requests.fits_in(&changed.free()) {
                    continue;
                }
                view.pending.remove(&pod.key);
                view.pod_labels.leave(pod);
                view.pod_labels.join_at(pod, &promise.place);
                if let Some(old) = pod.node.as_ref().and_then(|node| self.node(node)) {
                    let left = departures.entry(old.key.clone()).or_default();
                    left.insert(pod.uid.clone());
                }
                changed.used.add_assign(&pod.class.requests);
                changed.has_anti_affinity_pods |= !pod.class.anti_affinity.required.is_empty();
                changed.pods.push(Arc::clone(pod));
                assumed.insert(pod.uid.clone(), promise.place.clone());
            }
            changed.pods.sort_by(|a, b| a.key.cmp(&b.key));
            view.insert_node(Arc::new(changed));
        }
        for (key, left) in departures {
            if let Some(node) = view.nodes.get(&*key) {
                let mut changed = StateNode::clone(node);
                // What it used stays counted: a machine that is left takes nothing new.
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

    /// The pod of a promise, unless it is on that machine already.
    fn waiting_pod(&self, promise: &Nomination) -> Option<&Arc<Pod>> {
        let pod = self.pods.get(&promise.pod);
        let pod = pod.filter(|pod| pod.uid == promise.uid)?;
        let there = self.machine_at(&promise.place)?;
        let here = pod.node.as_ref().and_then(|node| self.node(node));
        let has_arrived = here.is_some_and(|here| here.key == there.key);
        (!has_arrived).then_some(pod)
    }
}

/// The machine is neither going nor about to go.
fn stays(snapshot: &Snapshot, machine: &StateNode) -> bool {
    let fenced = machine
        .claim_name()
        .is_some_and(|claim| snapshot.ledger.fence(&claim).is_some());
    !machine.deleting && !fenced
}
