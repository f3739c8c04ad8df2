//! What a notice means for offerings and reservations.

use std::sync::Arc;

use mortise_cloudprovider::{InterruptionKind, InterruptionNotice};

use super::claimed_instances::ClaimedInstances;
use crate::instances::InstanceCache;
use crate::offerings::reservation_counts::ReservationCounts;
use crate::offerings::unavailability_cause::SPOT_INTERRUPTION;
use crate::offerings::unavailable_offerings::{UnavailableKey, UnavailableOfferings};

/// Where notices are noted.
#[derive(Debug)]
pub(crate) struct NoticeEffects {
    pub(crate) claims: Arc<ClaimedInstances>,
    pub(crate) instances: Arc<InstanceCache>,
    pub(crate) unavailable: Arc<UnavailableOfferings>,
    pub(crate) reservations: Arc<ReservationCounts>,
}

impl NoticeEffects {
    /// A spot instance that is taken marks its offering; an instance whose reservation is reclaimed empties the reservation.
    /// Instances of others mean nothing.
    pub(crate) fn note(&self, notice: &InterruptionNotice) {
        for id in &notice.instances {
            match notice.kind {
                InterruptionKind::SpotInterruption => {
                    let claimed = self
                        .claims
                        .get(id)
                        .and_then(|claimed| claimed.spot_offering);
                    let offering = claimed.or_else(|| self.instances.spot_offering(id));
                    if let Some(offering) = offering {
                        let key = UnavailableKey::Offering(offering);
                        self.unavailable.mark_because(key, SPOT_INTERRUPTION);
                    }
                }
                InterruptionKind::CapacityReservationInterruption => {
                    let claimed = self.claims.get(id);
                    if let Some(reservation) = claimed.and_then(|claimed| claimed.reservation) {
                        self.reservations.exhausted(&reservation);
                    }
                }
                _ => {}
            }
        }
    }
}
