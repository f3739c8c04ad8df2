//! Node overlays that contradict each other.
//!
//! # Source
//! karpenter-core 7.3: overlays apply by weight, then by name from the last to the first. One that sets the price of an
//! offering, or the same resource of a type, that an overlay of equal weight has set already is rejected as a whole.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::apis::nodeoverlay::NodeOverlay;
use crate::catalog::Catalog;
use crate::labels;
use crate::objects::requirements_of;
use crate::requirements::{Requirement, Requirements};
use crate::snapshot::Snapshot;

/// Another overlay that is about the same things with the same right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Its name.
    pub name: Arc<str>,
    /// Instance types of which both change the price of the same offering.
    pub price: usize,
    /// Instance types of which both set the same resource.
    pub capacity: usize,
    /// Those resources, sorted.
    pub resources: Vec<String>,
}

impl NodeOverlay {
    /// Name of the object.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    /// Which instance types and offerings it is about.
    #[must_use]
    pub fn requirements(&self) -> Requirements {
        requirements_of(&self.spec.requirements)
    }

    const fn sets_price(&self) -> bool {
        self.spec.price.is_some() || self.spec.price_adjustment.is_some()
    }

    fn resources(&self) -> BTreeSet<&str> {
        let capacity = self.spec.capacity.iter().flatten();
        capacity.map(|(name, _)| name.as_str()).collect()
    }
}

/// The overlays of a snapshot that conflict with this one, by name. The one itself is left out, and so are those that are
/// being deleted.
///
/// # Cost
/// For each other overlay of equal weight that sets the same things: one pass over the instance types that both may be about,
/// for each pool with labels of its own.
#[must_use]
pub fn rivals(snapshot: &Snapshot, overlay: &NodeOverlay) -> Vec<Rival> {
    let weight = overlay.spec.weight.unwrap_or(0);
    let (own, resources) = (overlay.requirements(), overlay.resources());
    let name = overlay.name();
    let views = views(snapshot);
    let mut found = Vec::new();
    for (other_name, other) in snapshot.overlays.iter() {
        let same = other.spec.weight.unwrap_or(0) == weight && *other_name != name;
        if !same || other.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let both_price = overlay.sets_price() && other.sets_price();
        let both_set: Vec<String> = other
            .resources()
            .intersection(&resources)
            .map(|name| (*name).to_owned())
            .collect();
        if !both_price && both_set.is_empty() {
            continue;
        }
        let theirs = other.requirements();
        let (mut price, mut capacity) = (BTreeSet::new(), BTreeSet::new());
        for (catalog, pool) in &views {
            for common in catalog.common(pool, &own, &theirs) {
                if both_price && common.offering {
                    price.insert(Arc::clone(&common.name));
                }
                if !both_set.is_empty() {
                    capacity.insert(common.name);
                }
            }
        }
        if !price.is_empty() || !capacity.is_empty() {
            found.push(Rival {
                name: Arc::clone(other_name),
                price: price.len(),
                capacity: capacity.len(),
                resources: both_set,
            });
        }
    }
    found
}

/// Each catalogue with the labels that a pool adds to its types. Without pools, the catalogues alone.
fn views(snapshot: &Snapshot) -> Vec<(&Arc<Catalog>, Requirements)> {
    let mut views: Vec<(&Arc<Catalog>, Requirements)> = Vec::new();
    for pool in snapshot.pools.values() {
        let Some(catalog) = snapshot.catalog_of(pool) else {
            continue;
        };
        let mut labels_of_pool = Requirements::new();
        for (key, value) in pool.spec.template.labels().into_iter().flatten() {
            labels_of_pool.add(Requirement::is(key.as_str(), value.as_str()));
        }
        labels_of_pool.add(Requirement::is(labels::NODEPOOL, &*pool.name()));
        views.push((catalog, labels_of_pool));
    }
    if views.is_empty() {
        let mut seen = BTreeSet::new();
        for catalog in snapshot.catalogs.values() {
            if seen.insert(catalog.version()) {
                views.push((catalog, Requirements::new()));
            }
        }
    }
    views
}
