//! NodeClaims.

use std::sync::Arc;

use super::Ingested;
use crate::index::{Index, foreign};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ClaimName, ObjectRef};

impl Ingested for NodeClaim {
    fn applied(index: &mut Index, claim: Self) {
        let name = claim.name();
        if foreign::update(
            &mut index.state,
            ObjectRef::Claim(name.clone()),
            claim.node_class_key(),
        ) {
            // References are immutable, but an object may have been replaced by one of the same name.
            if index.state.claims.contains(&name) {
                delete(index, &name);
            }
            return;
        }
        index.nodes.insert_claim(&claim);
        index.restore_fence(&claim);
        index.restore_nominations(&claim);
        index.shorten_nominations_when_ready(&claim);
        index.restore_expected_claim(&claim);
        index.changes.claims.insert(name.clone());
        index.state.claims.insert(name, Arc::new(claim));
    }

    fn deleted(index: &mut Index, name: &ClaimName) {
        if !foreign::remove(&mut index.state, &ObjectRef::Claim(name.clone())) {
            delete(index, name);
        }
    }
}

fn delete(index: &mut Index, name: &ClaimName) {
    index.state.claims.remove(name);
    index.changes.claims.insert(name.clone());
    index.nodes.remove_claim(name);
    Arc::make_mut(&mut index.state.ledger).remove_claim(name);
    index.changes.ledger = true;
}
