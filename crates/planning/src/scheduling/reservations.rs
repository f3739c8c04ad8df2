//! Reserved capacity within a pass: each in-flight NodeClaim that can be launched from a reservation holds one of its
//! instances, so that two NodeClaims do not count on the same one.
//!
//! # Source
//! Karpenter core 1.14: a NodeClaim holds an instance of *every* compatible reservation, and releases those that its
//! requirements come to exclude.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::narrowed_template::NarrowedTemplate;
use super::plan::ReservedCapacityMode;
use super::pool_template::PoolTemplate;
use mortise_state::catalog::Bits;
use mortise_state::snapshot::Snapshot;

/// Index of a reservation.
pub(super) type ReservationId = usize;

/// Remaining instances of all reservations.
#[derive(Debug)]
pub(super) struct Reservations {
    mode: ReservedCapacityMode,
    ids: BTreeMap<Arc<str>, ReservationId>,
    left: Vec<u32>,
}

/// No instance of a compatible reservation is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReservationsExhausted;

impl Reservations {
    /// The reservations of all NodePools; where catalogs differ in the remaining instances, the smallest number counts. NodeClaims of
    /// earlier passes that are not launched yet hold theirs: the cloud does not count them.
    pub(super) fn new(
        templates: &[PoolTemplate],
        mode: ReservedCapacityMode,
        snapshot: &Snapshot,
    ) -> Self {
        let mut least: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        if mode != ReservedCapacityMode::Uncounted {
            for template in templates {
                for (id, left) in template.catalog.table().reservations() {
                    let known = least.entry(Arc::clone(id)).or_insert(*left);
                    *known = (*known).min(*left);
                }
            }
        }
        if !least.is_empty() {
            let claims = snapshot
                .nodes
                .values()
                .filter_map(|node| node.claim.as_ref());
            for claim in claims.filter(|claim| claim.provider_id().is_none()) {
                let specs = claim.spec.requirements.iter();
                for id in specs.flat_map(|spec| spec.values.iter().flatten()) {
                    if let Some(left) = least.get_mut(id.as_str()) {
                        *left = left.saturating_sub(1);
                    }
                }
            }
        }
        let ids = least.keys().cloned().enumerate();
        Self {
            mode,
            ids: ids.map(|(at, id)| (id, at)).collect(),
            left: least.into_values().collect(),
        }
    }

    /// Whether there are any to count.
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The reservation of a name.
    pub(super) fn get(&self, id: &str) -> Option<ReservationId> {
        self.ids.get(id).copied()
    }

    /// Reservations with these instance types. Sorted.
    fn suiting(
        &self,
        shape: &NarrowedTemplate,
        template: &PoolTemplate,
        types: &Bits,
    ) -> Vec<ReservationId> {
        let table = template.catalog.table();
        let kinds = shape.kinds.iter().filter_map(|at| table.kinds().get(at));
        let mut all: Vec<ReservationId> = kinds
            .filter(|kind| kind.types.meets(types))
            .filter_map(|kind| self.get(kind.reservation.as_deref()?))
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The reservations that a NodeClaim with these instance types would hold.
    ///
    /// # Errors
    /// Reservations are compatible and all are used, or it would lose the last one that it holds; only when `Strict`.
    pub(super) fn claimable(
        &self,
        shape: &NarrowedTemplate,
        template: &PoolTemplate,
        types: &Bits,
        held: &[ReservationId],
    ) -> Result<Vec<ReservationId>, ReservationsExhausted> {
        if self.is_empty() || (!shape.is_reserved && held.is_empty()) {
            return Ok(Vec::new());
        }
        let suiting = self.suiting(shape, template, types);
        let any = !suiting.is_empty();
        let has = |id: &ReservationId| held.contains(id) || self.left[*id] > 0;
        let can: Vec<ReservationId> = suiting.into_iter().filter(has).collect();
        if self.mode == ReservedCapacityMode::Strict && can.is_empty() && (any || !held.is_empty())
        {
            return Err(ReservationsExhausted);
        }
        Ok(can)
    }

    /// Exchanges the reservations that a NodeClaim holds.
    pub(super) fn exchange(&mut self, held: &[ReservationId], for_these: &[ReservationId]) {
        held.iter().for_each(|id| self.left[*id] += 1);
        for id in for_these {
            self.left[*id] = self.left[*id].saturating_sub(1);
        }
    }
}
