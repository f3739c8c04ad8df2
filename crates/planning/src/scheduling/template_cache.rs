//! Templates of NodePools that several passes over one snapshot share.
//!
//! What disruption asks is nearly the same again and again: the same cluster without this node, or without that one. The templates
//! of NodePools would be nearly half of the time of such a pass, and do not depend on the question.

use std::sync::{Mutex, PoisonError};

use super::pool_template::{PoolTemplate, UnusablePool};
use super::resource_vector::ResourceDimensions;
use mortise_state::snapshot::Snapshot;

/// Most sets of templates that are kept. Questions differ by the extended resources that their pods request.
const MOST: usize = 4;

/// Templates of the NodePools of a snapshot. Passes over other snapshots must have another one.
#[derive(Debug, Default)]
pub struct TemplateCache(Mutex<Vec<KeptTemplates>>);

#[derive(Debug)]
struct KeptTemplates {
    generation: u64,
    dimensions: ResourceDimensions,
    best_effort: bool,
    usable: Vec<PoolTemplate>,
    unusable: Vec<UnusablePool>,
}

impl TemplateCache {
    /// The templates as they are before a pass, usable ones and others.
    ///
    /// # Cost
    /// A copy, except for the first pass with these resources.
    pub(super) fn templates(
        &self,
        snapshot: &Snapshot,
        dimensions: &ResourceDimensions,
        best_effort: bool,
        build: impl FnOnce() -> (Vec<PoolTemplate>, Vec<UnusablePool>),
    ) -> (Vec<PoolTemplate>, Vec<UnusablePool>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().find(|kept| {
            kept.generation == snapshot.generation
                && kept.best_effort == best_effort
                && kept.dimensions == *dimensions
        });
        if let Some(kept) = known {
            return (kept.usable.clone(), kept.unusable.clone());
        }
        let (usable, unusable) = build();
        if all.len() >= MOST {
            all.remove(0);
        }
        all.push(KeptTemplates {
            generation: snapshot.generation,
            dimensions: dimensions.clone(),
            best_effort,
            usable: usable.clone(),
            unusable: unusable.clone(),
        });
        (usable, unusable)
    }
}
