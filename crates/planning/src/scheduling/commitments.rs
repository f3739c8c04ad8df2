//! What is paid for in advance, as the new NodeClaims of a pass use it up.
//!
//! # Problem
//! A node that a commitment pays for costs nothing more, whatever its list price, and however cheap spot capacity is. But only while
//! the commitment has room: the next one has its full price.
//!
//! # Rule
//! NodeClaims are examined in order once all pods are placed. One becomes on-demand, of the instance types that a commitment pays for,
//! if the cheapest of them that holds its pods fits into what is left of the commitment as a whole. The first commitment in the order of
//! use that has room counts. How pods are packed is decided by list prices: what is paid for is used by other pods too.
//!
//! # Cost
//! A look-up for each NodeClaim and commitment, and one list of offerings by price for each narrowed template and commitment.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::narrowed_offerings::{NarrowedOfferings, TemplateOfferings};
use super::narrowed_template::NarrowedTemplateId;
use super::plan::{PlannedClaim, SolveOptions};
use mortise_apis::labels::{CAPACITY_TYPE, TOPOLOGY_ZONE};
use mortise_apis::requirements::Requirements;
use mortise_apis::values::money::MicroUsd;
use mortise_state::catalog::Bits;
use mortise_state::snapshot::{CommitmentsLeft, PaidCapacity, Snapshot};

/// The commitment that pays for a planned NodeClaim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PayingCommitment {
    /// Its NodePoolPolicy.
    pub policy: Arc<str>,
    /// Its name in the policy.
    pub name: Arc<str>,
    /// Its position among all commitments of the snapshot.
    pub at: usize,
}

/// What is left of commitments, and what they pay for of the templates.
#[derive(Debug)]
pub(super) struct CommitmentRoom {
    left: Option<CommitmentsLeft>,
    offerings: BTreeMap<(NarrowedTemplateId, usize), Option<Arc<NarrowedOfferings>>>,
}

/// What a commitment pays for of a NodeClaim.
pub(super) struct PaidOfferings {
    /// The commitment.
    pub(super) by: PayingCommitment,
    /// Its requirements.
    pub(super) requirements: Requirements,
    /// Its offerings.
    pub(super) offerings: Arc<NarrowedOfferings>,
    /// Those instance types that fit into what is left.
    pub(super) types: Bits,
    /// The cheapest of them, by position.
    pub(super) cheapest: usize,
    /// Its price.
    price: MicroUsd,
}

impl CommitmentRoom {
    /// What is left without the nodes that the pass removes.
    pub(super) fn new(snapshot: &Snapshot, options: &SolveOptions) -> Self {
        let left = options.commitments.clone().or_else(|| {
            let all = snapshot.commitments()?;
            Some(all.left_without(|node| options.without.contains(node)))
        });
        Self {
            left: left.filter(CommitmentsLeft::is_anything),
            offerings: BTreeMap::new(),
        }
    }

    /// What the first commitment with room pays for of a NodeClaim; `is_enough` says whether these types are enough for it.
    pub(super) fn offerings(
        &mut self,
        snapshot: &Snapshot,
        offered: TemplateOfferings<'_>,
        types: &Bits,
        is_enough: impl Fn(&Bits) -> bool,
    ) -> Option<PaidOfferings> {
        let left = self.left.as_ref()?;
        let (template, table) = (offered.template, offered.template.catalog.table());
        for (at, of) in left.iter() {
            if !of.is_for(&template.name) || !of.is_met_by(offered.requirements, table) {
                continue;
            }
            let known = self.offerings.entry((offered.id, at));
            let offerings = known.or_insert_with(|| offerings(snapshot, offered, of));
            let Some(offerings) = offerings else { continue };
            let affordable = offerings.by_price.iter().filter_map(|(at_type, offer)| {
                let price = offer.price.filter(|price| left.has_room(at, *price))?;
                types.has(*at_type).then_some((*at_type, price))
            });
            let mut paid = Bits::none(table.type_count());
            let mut first = None;
            for (at_type, price) in affordable {
                paid.insert(at_type);
                first = first.or(Some((at_type, price)));
            }
            if let Some((cheapest, price)) = first
                && is_enough(&paid)
            {
                return Some(PaidOfferings {
                    by: PayingCommitment {
                        policy: Arc::clone(&of.policy),
                        name: Arc::clone(&of.commitment.name),
                        at,
                    },
                    requirements: of.commitment.requirements.clone(),
                    offerings: Arc::clone(offerings),
                    types: paid,
                    cheapest,
                    price,
                });
            }
        }
        None
    }

    /// Counts a NodeClaim that is launched so.
    pub(super) fn take(&mut self, paid: &PaidOfferings) {
        if let Some(left) = &mut self.left {
            left.take(paid.by.at, paid.price);
        }
    }
}

/// The price of a planned NodeClaim that a commitment pays for, and the positions of all that may pay for it; `None` for others.
pub(crate) fn payable(
    claim: &PlannedClaim,
    left: &CommitmentsLeft,
    snapshot: &Snapshot,
) -> Option<(MicroUsd, Arc<[usize]>)> {
    claim.paid_by.as_ref()?;
    let cheapest = claim.cheapest.as_ref()?;
    let catalog = snapshot.catalog_of(snapshot.pools.get(&claim.pool)?)?;
    let of_type = &catalog.get(&cheapest.instance_type)?.requirements;
    let value = |key: &str| match key {
        TOPOLOGY_ZONE => Some(Arc::clone(&cheapest.zone)),
        CAPACITY_TYPE => Some(cheapest.capacity_type.as_str().into()),
        _ => {
            let known = of_type.get(key).or_else(|| claim.requirements.get(key))?;
            known.values().first().cloned()
        }
    };
    let pays = |of: &PaidCapacity| {
        let mut asked = of.commitment.requirements.iter();
        of.is_for(&claim.pool)
            && asked.all(|own| {
                value(own.key()).map_or_else(|| own.allows_absence(), |value| own.has(&value))
            })
    };
    let paying = left.iter().filter(|(_, of)| pays(of));
    Some((cheapest.price?, paying.map(|(at, _)| at).collect()))
}

/// The on-demand offerings of a template that a commitment pays for; `None` without any.
fn offerings(
    snapshot: &Snapshot,
    offered: TemplateOfferings<'_>,
    of: &PaidCapacity,
) -> Option<Arc<NarrowedOfferings>> {
    let table = offered.template.catalog.table();
    let asked = &of.commitment.requirements;
    let mut kinds = offered.on_demand_kinds();
    kinds.and(&table.kinds_meeting(asked, &snapshot.well_known));
    let mut types = offered.types.clone();
    types.and(&table.having(asked));
    NarrowedOfferings::of(kinds, types, table).map(Arc::new)
}
