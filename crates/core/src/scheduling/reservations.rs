//! Reserved capacity within a pass: every new machine that could come out of a reservation holds one of its places, so that
//! two machines do not count on the same one.
//!
//! # Source
//! Karpenter core 1.14: a machine holds a place of *every* reservation that suits it, and gives back those that its
//! requirements come to exclude.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::plan::Reserved;
use super::shape::Shape;
use super::template::Template;
use crate::catalog::Bits;

/// Index of a reservation.
pub(super) type ReservationId = usize;

/// Places of all reservations.
#[derive(Debug)]
pub(super) struct Reservations {
    mode: Reserved,
    ids: BTreeMap<Arc<str>, ReservationId>,
    left: Vec<u32>,
}

/// Why a machine cannot count on reserved capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldUp;

impl Reservations {
    /// The reservations of all pools; where pools differ in what is left, the least counts.
    pub(super) fn of(templates: &[Template], mode: Reserved) -> Self {
        let mut least: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        if mode != Reserved::Uncounted {
            for template in templates {
                for (id, left) in template.catalog.table().reservations() {
                    let known = least.entry(Arc::clone(id)).or_insert(*left);
                    *known = (*known).min(*left);
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

    /// Reservations that machines of these types could come from. Sorted.
    fn suiting(&self, shape: &Shape, template: &Template, types: &Bits) -> Vec<ReservationId> {
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

    /// What a machine of these types would hold.
    ///
    /// # Errors
    /// Reservations suit it and all are taken, or it would lose the last one that it holds; only when `Strict`.
    pub(super) fn holds(
        &self,
        shape: &Shape,
        template: &Template,
        types: &Bits,
        held: &[ReservationId],
    ) -> Result<Vec<ReservationId>, HeldUp> {
        if self.is_empty() || (!shape.is_reserved && held.is_empty()) {
            return Ok(Vec::new());
        }
        let suiting = self.suiting(shape, template, types);
        let any = !suiting.is_empty();
        let has = |id: &ReservationId| held.contains(id) || self.left[*id] > 0;
        let can: Vec<ReservationId> = suiting.into_iter().filter(has).collect();
        if self.mode == Reserved::Strict && can.is_empty() && (any || !held.is_empty()) {
            return Err(HeldUp);
        }
        Ok(can)
    }

    /// Exchanges what a machine holds.
    pub(super) fn exchange(&mut self, held: &[ReservationId], for_these: &[ReservationId]) {
        held.iter().for_each(|id| self.left[*id] += 1);
        for id in for_these {
            self.left[*id] = self.left[*id].saturating_sub(1);
        }
    }
}
