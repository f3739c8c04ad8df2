//! Claims and pools of another autoscaler: known by name, and otherwise not there.

use std::sync::Arc;

use super::Index;
use crate::resource_kinds::{Object, ObjectKey};
use mortise_apis::names::{NodeClassKey, ObjectRef};
use mortise_apis::node_class::served::ServedNodeClasses;

impl Index {
    /// Says which kinds of node classes this process serves; call it before the first object is applied. Claims and pools
    /// of other kinds stay out of the picture: no decider sees them, nothing counts them.
    #[must_use]
    pub fn serving(mut self, served: ServedNodeClasses) -> Self {
        self.state.served = served;
        self
    }

    /// Whether a Node says that it belongs to another autoscaler's pool.
    #[must_use]
    pub fn is_of_foreign_pool(&self, node: &mortise_apis::k8s::Node) -> bool {
        let pool = node.label(mortise_apis::labels::NODEPOOL);
        pool.is_some_and(|pool| {
            let target = ObjectRef::Pool(pool.into());
            self.state.foreign.contains_key(&target)
        })
    }

    /// Takes an object in if it is another autoscaler's.
    pub(super) fn is_foreign(&mut self, object: &Object) -> bool {
        let (target, class) = match object {
            Object::Claim(claim) => (ObjectRef::Claim(claim.name()), claim.node_class_key()),
            Object::Pool(pool) => (ObjectRef::Pool(pool.name()), pool.node_class_key()),
            _ => return false,
        };
        if self.state.served.covers(&class) {
            self.not_foreign(&target);
            return false;
        }
        // References are immutable, but an object may have been replaced by one of the same name.
        match &target {
            ObjectRef::Claim(name) if self.state.claims.contains(name) => self.claim_gone(name),
            ObjectRef::Pool(name) if self.state.pools.contains_key(name) => self.pool_gone(name),
            _ => {}
        }
        self.remember_foreign(target, class);
        true
    }

    /// Forgets an object that was another autoscaler's. Returns whether it was.
    pub(super) fn foreign_gone(&mut self, key: &ObjectKey) -> bool {
        match key {
            ObjectKey::Claim(name) => self.not_foreign(&ObjectRef::Claim(name.clone())),
            ObjectKey::Pool(name) => self.not_foreign(&ObjectRef::Pool(name.clone())),
            _ => false,
        }
    }

    fn remember_foreign(&mut self, target: ObjectRef, class: NodeClassKey) {
        Arc::make_mut(&mut self.state.foreign).insert(target, class);
    }

    fn not_foreign(&mut self, target: &ObjectRef) -> bool {
        self.state.foreign.contains_key(target)
            && Arc::make_mut(&mut self.state.foreign)
                .remove(target)
                .is_some()
    }
}
