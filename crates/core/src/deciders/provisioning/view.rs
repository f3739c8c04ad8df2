//! The cluster as a solve should see it: pods with a promise on a machine that is coming have a place already.
//!
//! Solving them again could give their room to a pod that comes before them in the order, and leave them with nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ledger::{Held, Place};
use crate::names::{ClaimName, Uid};
use crate::snapshot::{NodeKey, Pod, Snapshot, StateNode};

/// The snapshot without the pods that wait for a machine that is coming. Their promises stay, so their room is taken.
///
/// Cost: the number of promises, and a copy of the touched parts of the tables.
pub(in crate::deciders) fn without_promised(snapshot: &Snapshot) -> Snapshot {
    let mut view = snapshot.clone();
    let mut going: BTreeSet<NodeKey> = BTreeSet::new();
    let kept = snapshot.ledger.on_claims();
    let kept = kept.filter(|(claim, held)| is_kept(claim, held, snapshot));
    for promise in kept.flat_map(|(_, held)| held.promises()) {
        let pending = snapshot.pending.get(&promise.pod);
        if pending.is_some_and(|pod| pod.uid == promise.uid) {
            view.pending.remove(&promise.pod);
            continue;
        }
        let node = snapshot
            .pods
            .get(&promise.pod)
            .and_then(|pod| snapshot.node(pod.node.as_ref()?));
        if let Some(node) = node.filter(|node| node.deleting) {
            going.insert(node.key.clone());
        }
    }
    for key in going {
        if let Some(node) = snapshot.nodes.get(&*key) {
            let mut left = StateNode::clone(node);
            let goes = |pod: &&Arc<Pod>| is_promised(&pod.uid, snapshot);
            let going = node.pods.iter().filter(goes);
            going.for_each(|pod| view.crowds.leave(pod));
            left.pods.retain(|pod| !is_promised(&pod.uid, snapshot));
            view.put_machine(Arc::new(left));
        }
    }
    view
}

/// The pod has a promise on a machine that is still coming and not about to go; or on one that has just come up and still has
/// room for everybody who is promised some: the scheduler is about to find it, and another place would only leave that
/// machine emptier than it was bought for.
pub(super) fn is_promised(pod: &Uid, snapshot: &Snapshot) -> bool {
    let Some(promise) = snapshot.ledger.nomination(pod) else {
        return false;
    };
    let Place::Claim(name) = &promise.place else {
        return false;
    };
    let held = snapshot.ledger.room_on(None, Some(name)).next();
    held.is_some_and(|held| is_kept(name, held, snapshot))
}

/// The same of all promises on a claim.
fn is_kept(name: &ClaimName, held: &Held, snapshot: &Snapshot) -> bool {
    if snapshot.ledger.fence(name).is_some() {
        return false;
    }
    match snapshot.node_of_claim(name) {
        Some(machine) if machine.deleting => false,
        Some(machine) => !machine.initialized || held.all().fits_in(&machine.free()),
        None => snapshot.ledger.coming().contains_key(name),
    }
}
