//! Services and controllers: which pods they select.

use std::sync::Arc;

use super::Ingested;
use crate::index::Index;
use crate::resource_kinds::Watched as _;
use mortise_apis::k8s::{
    ReplicaSet, ReplicationController, SelectingKind, SelectingSpec, Service, StatefulSet,
};
use mortise_apis::names::NamespacedName;

fn store(index: &mut Index, kind: SelectingKind, name: NamespacedName, spec: &SelectingSpec) {
    Arc::make_mut(&mut index.state.workloads).insert(kind, name, spec);
    index.changes.cluster_objects = true;
}

fn forget(index: &mut Index, kind: SelectingKind, name: &NamespacedName) {
    Arc::make_mut(&mut index.state.workloads).remove(kind, name);
    index.changes.cluster_objects = true;
}

macro_rules! ingest_selectors {
    ($($type:ident),*) => {
        $(impl Ingested for $type {
            fn applied(index: &mut Index, object: Self) {
                store(index, SelectingKind::$type, object.key(), &object.spec);
            }

            fn deleted(index: &mut Index, name: &NamespacedName) {
                forget(index, SelectingKind::$type, name);
            }
        })*
    };
}
ingest_selectors!(Service, ReplicationController, ReplicaSet, StatefulSet);
