//! Services and controllers: which pods they select, and the templates of those that buffers may refer to.

use std::sync::Arc;

use super::Ingested;
use crate::index::{Index, demand};
use crate::resource_kinds::Watched;
use crate::snapshot::{Rollout, TemplateKey, TemplateKind};
use mortise_apis::k8s::workload::PodSelector;
use mortise_apis::k8s::{
    Deployment, PodTemplate, ReplicaSet, ReplicationController, SelectingKind, Service, StatefulSet,
};
use mortise_apis::names::NamespacedName;

fn store(
    index: &mut Index,
    kind: SelectingKind,
    name: NamespacedName,
    selector: Option<&PodSelector>,
) {
    Arc::make_mut(&mut index.state.workloads).insert(kind, name, selector);
    index.changes.cluster_objects = true;
}

fn forget(index: &mut Index, kind: SelectingKind, name: &NamespacedName) {
    Arc::make_mut(&mut index.state.workloads).remove(kind, name);
    index.changes.cluster_objects = true;
}

/// Stores the template of a workload. Without `spec.replicas` it has one, as the API server would set.
fn store_template(
    index: &mut Index,
    kind: TemplateKind,
    name: NamespacedName,
    (template, replicas): (&PodTemplate, Option<i32>),
) {
    let replicas = replicas.unwrap_or(1);
    demand::store_template(index, kind, name, template, Some(replicas), 0);
}

fn forget_template(index: &mut Index, kind: TemplateKind, name: &NamespacedName) {
    demand::remove_template(
        index,
        &TemplateKey {
            kind,
            name: name.clone(),
        },
    );
}

macro_rules! ingest_selectors {
    ($($type:ident),*) => {
        $(impl Ingested for $type {
            fn applied(index: &mut Index, object: Self) {
                store(index, SelectingKind::$type, object.key(), object.spec.selector.as_ref());
            }

            fn deleted(index: &mut Index, name: &NamespacedName) {
                forget(index, SelectingKind::$type, name);
            }
        })*
    };
}
ingest_selectors!(Service, ReplicationController);

macro_rules! ingest_scalable_selectors {
    ($($type:ident),*) => {
        $(impl Ingested for $type {
            fn applied(index: &mut Index, object: Self) {
                let pods = (&object.spec.template, object.spec.replicas);
                store_template(index, TemplateKind::$type, object.key(), pods);
                store(index, SelectingKind::$type, object.key(), object.spec.selector.as_ref());
            }

            fn deleted(index: &mut Index, name: &NamespacedName) {
                forget_template(index, TemplateKind::$type, name);
                forget(index, SelectingKind::$type, name);
            }
        })*
    };
}
ingest_scalable_selectors!(ReplicaSet, StatefulSet);

impl Ingested for Deployment {
    fn applied(index: &mut Index, object: Self) {
        let pods = (&object.spec.template, object.spec.replicas);
        store_template(index, TemplateKind::Deployment, object.key(), pods);
        if let Some(rollouts) = &mut index.state.rollouts {
            let rollout = Arc::new(Rollout::of(&object));
            let before = Arc::make_mut(rollouts).insert(object.key(), Arc::clone(&rollout));
            // Its status changes with every pod; what it says of a drain does not.
            let is_news = before.is_none_or(|before| !before.is_like(&rollout));
            index.changes.cluster_objects |= is_news;
        }
    }

    fn deleted(index: &mut Index, name: &NamespacedName) {
        forget_template(index, TemplateKind::Deployment, name);
        if let Some(rollouts) = &mut index.state.rollouts {
            Arc::make_mut(rollouts).remove(name);
            index.changes.cluster_objects = true;
        }
    }
}
