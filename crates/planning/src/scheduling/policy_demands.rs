//! What NodePoolPolicies ask of new NodeClaims: to be what a commitment pays for, on-demand, or in one zone.
//!
//! NodeClaims are examined in order, and each counts for the next. A commitment comes first: what it pays for is on-demand, and counts for the
//! share. Then comes the share, and the zone is chosen among what is left.

use std::sync::Arc;

use super::commitments::{CommitmentRoom, PayingCommitment};
use super::narrowed_offerings::{NarrowedOfferings, TemplateOfferings};
use super::on_demand_share::OnDemandShares;
use super::plan::SolveOptions;
use super::zone_balance::{OfferingsId, ZoneBalances};
use mortise_apis::labels;
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_cloudprovider::CapacityType;
use mortise_state::catalog::{Bits, PricedOffering};
use mortise_state::snapshot::Snapshot;

/// What the policies ask of new NodeClaims, as those of a pass use it up.
#[derive(Debug)]
pub(super) struct PolicyDemands {
    shares: OnDemandShares,
    commitments: CommitmentRoom,
    zones: ZoneBalances,
}

/// What a NodeClaim may be launched as.
pub(super) struct AllowedOfferings {
    pub(super) kinds: Bits,
    pub(super) types: Bits,
    /// Its types, the cheapest first, at most as many as a NodeClaim may have.
    pub(super) by_price: Vec<(usize, PricedOffering)>,
    /// The commitment that pays for them.
    pub(super) paid_by: Option<PayingCommitment>,
}

/// The on-demand offerings that a NodeClaim is limited to.
struct LimitedOfferings {
    offerings: Arc<NarrowedOfferings>,
    types: Bits,
    /// The commitment that pays for them.
    paid_by: Option<PayingCommitment>,
}

impl PolicyDemands {
    /// Those of a pass: the nodes that it removes count for nothing.
    pub(super) fn new(snapshot: &Snapshot, options: &SolveOptions) -> Self {
        Self {
            shares: OnDemandShares::new(snapshot, options),
            commitments: CommitmentRoom::new(snapshot, options),
            zones: ZoneBalances::new(snapshot, options),
        }
    }

    /// What a NodeClaim with these types may be launched as; pins its requirements to it, and counts it. `is_enough` says whether types, and one
    /// value of a key, are enough for its minValues.
    pub(super) fn narrow(
        &mut self,
        (snapshot, options): (&Snapshot, &SolveOptions),
        of: TemplateOfferings<'_>,
        mut types: Bits,
        requirements: &mut Requirements,
        is_enough: impl Fn(&Bits, (&Requirements, &str)) -> bool,
    ) -> AllowedOfferings {
        let limited = self.limited(snapshot, of, &types, requirements, &is_enough);
        if let Some(limited) = &limited {
            types.and(&limited.types);
        }
        let (kinds, all, by_price, id) = match &limited {
            None => (of.kinds, of.types, of.by_price, OfferingsId::All),
            Some(LimitedOfferings {
                offerings, paid_by, ..
            }) => (
                &offerings.kinds,
                &offerings.types,
                offerings.by_price.as_slice(),
                paid_by
                    .as_ref()
                    .map_or(OfferingsId::OnDemand, |by| OfferingsId::Commitment(by.at)),
            ),
        };
        let offered = (kinds, all, &types);
        let zone = self
            .zones
            .zone(snapshot, of.template, (of.id, id), offered, |left| {
                is_enough(left, (requirements, labels::TOPOLOGY_ZONE))
            });
        let (kinds, by_price) = match &zone {
            None => (kinds.clone(), options.cheapest(by_price, &types)),
            Some(zone) => {
                types = zone.types_of(&types);
                let pinned = Requirement::is(labels::TOPOLOGY_ZONE, Arc::clone(&zone.zone));
                requirements.add(pinned);
                (
                    zone.offerings.kinds.clone(),
                    options.cheapest(&zone.offerings.by_price, &types),
                )
            }
        };
        AllowedOfferings {
            kinds,
            types,
            by_price,
            paid_by: limited.and_then(|limited| limited.paid_by),
        }
    }

    /// The on-demand offerings that a NodeClaim is limited to, because a commitment pays for them or the policy of its NodePool asks for
    /// them; `None` if it is not, or minValues forbid it. Pins its requirements to them.
    fn limited(
        &mut self,
        snapshot: &Snapshot,
        of: TemplateOfferings<'_>,
        types: &Bits,
        requirements: &mut Requirements,
        is_enough: &impl Fn(&Bits, (&Requirements, &str)) -> bool,
    ) -> Option<LimitedOfferings> {
        let paid = self.commitments.offerings(snapshot, of, types, |left| {
            is_enough(left, (requirements, labels::CAPACITY_TYPE))
        });
        let limited = if let Some(paid) = paid {
            self.commitments.take(&paid);
            self.shares
                .count_on_demand(snapshot, of.template, paid.cheapest);
            requirements.add_all(&paid.requirements);
            LimitedOfferings {
                offerings: paid.offerings,
                types: paid.types,
                paid_by: Some(paid.by),
            }
        } else {
            let offerings = self.shares.limit(snapshot, of, types)?;
            let mut left = types.clone();
            left.and(&offerings.types);
            if !is_enough(&left, (requirements, labels::CAPACITY_TYPE)) {
                return None;
            }
            LimitedOfferings {
                offerings,
                types: left,
                paid_by: None,
            }
        };
        let pinned = CapacityType::OnDemand.as_str();
        requirements.add(Requirement::is(labels::CAPACITY_TYPE, pinned));
        Some(limited)
    }
}
