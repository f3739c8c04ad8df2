//! What the files hold as a snapshot, so that admission can check one object together with the others.

use std::collections::BTreeSet;
use std::sync::Arc;

use mortise_apis::karpenter::nodeoverlay::NodeOverlay;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::node_pool_policy::NodePoolPolicy;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use mortise_state::snapshot::Snapshot;
use serde_json::Value;

use super::LintOptions;
use mortise_webhooks::admission::GroupVersionKind;

/// A snapshot of the objects. One that cannot be read is left out: what is wrong with it is said where it stands.
pub(super) fn build<'a>(
    objects: impl Iterator<Item = (&'a GroupVersionKind, &'a Value)>,
    options: &LintOptions,
) -> Snapshot {
    let mut index = Index::new(options.well_known.clone(), false, options.from);
    // Classes that stand nowhere have the instance types of their kind all the same.
    let mut classes: BTreeSet<NodeClassKey> = options
        .crds
        .kinds()
        .iter()
        .map(|kind| NodeClassKey::new(kind.group, kind.kind, ""))
        .collect();
    for (kind, object) in objects {
        let served = |group: &str, name: &str| {
            let mut kinds = options.crds.kinds().iter();
            kinds.any(|each| each.group == group && each.kind == name)
        };
        if served(&kind.group, &kind.kind) {
            let name = object.pointer("/metadata/name").and_then(Value::as_str);
            let key = NodeClassKey::new(
                kind.group.as_str(),
                kind.kind.as_str(),
                name.unwrap_or_default(),
            );
            classes.insert(key.clone());
            let class = NodeClassObject::new(key, object.clone());
            index.apply(ObjectEvent::Applied(class.into(), EventSource::Watch));
        } else if kind.kind == "NodePool"
            && object["spec"].is_object() // the API server takes none without
            && let Ok(pool) = serde_json::from_value::<NodePool>(object.clone())
        {
            let key = pool.node_class_key();
            if served(&key.group, &key.kind) {
                classes.insert(key);
            }
            index.apply(ObjectEvent::Applied(
                Object::Pool(Box::new(pool)),
                EventSource::Watch,
            ));
        } else if kind.kind == "NodeOverlay"
            && let Ok(overlay) = serde_json::from_value::<NodeOverlay>(object.clone())
        {
            let overlay = Object::Overlay(Box::new(overlay));
            index.apply(ObjectEvent::Applied(overlay, EventSource::Watch));
        } else if kind.kind == "NodePoolPolicy"
            && let Ok(policy) = serde_json::from_value::<NodePoolPolicy>(object.clone())
        {
            let policy = Object::Policy(Box::new(policy));
            index.apply(ObjectEvent::Applied(policy, EventSource::Watch));
        }
    }
    if let Some(catalog) = &options.catalog {
        for class in &classes {
            index.set_catalog(class, Arc::clone(catalog));
        }
    }
    index.set_synced();
    index.freeze(options.from)
}
