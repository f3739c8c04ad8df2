//! Ensures that a replacement is cheaper, whichever of its instance types the cloud selects.
//!
//! # Source
//! karpenter-core 5.7 and 5.8, with two differences: after the capacity type is pinned, types without an offering of that
//! capacity type are dropped; and an unknown price never counts as a low one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::candidate::Candidate;
use super::disruption_view::DisruptionView;
use super::rejection::DisruptionRejection;
use crate::reason::{DisruptionBlocker, Reason};
use crate::scheduling::{PlannedClaim, PlannedOffering};
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::{CAPACITY_TYPE, WellKnown};
use mortise_apis::names::ClaimName;
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType};
use mortise_state::catalog::Catalog;

/// Cheaper instance types that a spot node needs to be replaced by another spot node: with fewer, the replacement would be
/// interrupted earlier and replaced again.
const SPOT_TO_SPOT_TYPES: usize = 15;

/// A replacement under a price.
struct PriceFilter<'a> {
    catalog: &'a Catalog,
    known: &'a WellKnown,
    claim: PlannedClaim,
    /// Cheapest types first.
    types: Vec<Arc<InstanceType>>,
}

/// Narrows a planned NodeClaim to instance types that are cheaper than the nodes it replaces, which cost `old`, or reports why none is.
pub fn cheaper(
    claim: PlannedClaim,
    candidates: &[&Candidate],
    old: MicroUsd,
    view: &DisruptionView<'_>,
) -> Result<PlannedClaim, DisruptionRejection> {
    let mut filter = PriceFilter::new(claim, view)?;
    let all_spot = candidates
        .iter()
        .all(|each| each.capacity_type() == Some(CapacityType::Spot));
    if all_spot && filter.allows(CapacityType::Spot) {
        filter.spot_to_spot(candidates, old, view)?;
    } else {
        filter.below(old, old)?;
        filter.pin()?;
    }
    if candidates.len() > 1 {
        filter.not_the_same(&removed_types(candidates), old)?;
    }
    Ok(filter.finish(view.context.settings.max_instance_types))
}

/// The removed nodes that these NodeClaims only repeat, because they are of the same types: one for each NodeClaim, with the most
/// pods. It would be better to keep them.
pub fn repeated<'c>(claims: &[PlannedClaim], candidates: &[&'c Candidate]) -> Vec<&'c ClaimName> {
    let mut repeated: Vec<&ClaimName> = Vec::new();
    for claim in claims {
        let Some(cheapest) = &claim.cheapest else {
            continue;
        };
        let is_same = |each: &&&Candidate| {
            each.node.instance_type() == Some(&*cheapest.instance_type)
                && each.price() <= cheapest.price
                && !repeated.contains(&&each.claim_name)
        };
        let same = candidates.iter().filter(is_same);
        let most = same.max_by_key(|each| (each.cost, std::cmp::Reverse(&each.claim_name)));
        repeated.extend(most.map(|each| &each.claim_name));
    }
    repeated
}

/// Narrows planned NodeClaims to instance types that together cost no more than `limit`, whichever of them the cloud selects,
/// or reports why none do; the nodes that they replace cost `old`. What is left between `limit` and the cheapest types is shared in proportion to their prices.
pub fn cheaper_together(
    claims: Vec<PlannedClaim>,
    candidates: &[&Candidate],
    (old, limit): (MicroUsd, MicroUsd),
    view: &DisruptionView<'_>,
) -> Result<Vec<PlannedClaim>, DisruptionRejection> {
    let mut filters = Vec::with_capacity(claims.len());
    for claim in claims {
        filters.push(PriceFilter::new(claim, view)?);
    }
    let all_spot = candidates
        .iter()
        .all(|each| each.capacity_type() == Some(CapacityType::Spot));
    let mut least = Vec::with_capacity(filters.len());
    for filter in &mut filters {
        if all_spot && filter.allows(CapacityType::Spot) {
            PriceFilter::check_spot_to_spot(view)?;
            filter.claim.requirements = filter.pinned(CapacityType::Spot);
        } else {
            filter.pin()?;
        }
        least.push(filter.least()?);
    }
    let total: i128 = least.iter().map(|price| i128::from(price.0)).sum();
    let left = i128::from(limit.0) - total;
    if left < 0 {
        let new = MicroUsd(i64::try_from(total).unwrap_or(i64::MAX));
        return Err(DisruptionRejection::from_reason(Reason::NotCheaper {
            old,
            new,
        }));
    }
    for (filter, least) in filters.iter_mut().zip(least) {
        let share = left * i128::from(least.0) / total.max(1);
        let most = least + MicroUsd(i64::try_from(share).unwrap_or(0));
        // `below` excludes its limit.
        filter.below(most + MicroUsd(1), old)?;
        if candidates.len() == 1 && all_spot && filter.allows(CapacityType::Spot) {
            filter.keep_spot_types()?;
        }
    }
    let most_types = view.context.settings.max_instance_types;
    let each = filters.into_iter();
    Ok(each.map(|filter| filter.finish(most_types)).collect())
}

/// Narrows a planned NodeClaim to instance types that were decided before.
pub fn narrow_to(
    claim: PlannedClaim,
    decided: &[Arc<str>],
    view: &DisruptionView<'_>,
) -> PlannedClaim {
    let pool = view.snapshot().pools.get(&claim.pool);
    let Some(catalog) = pool.and_then(|pool| view.snapshot().catalog_of(pool)) else {
        return claim;
    };
    let types = claim
        .instance_types
        .iter()
        .filter(|name| decided.contains(name))
        .filter_map(|name| catalog.get(name).cloned())
        .collect();
    let filter = PriceFilter {
        catalog,
        known: &view.snapshot().well_known,
        claim,
        types,
    };
    filter.finish(view.context.settings.max_instance_types)
}

/// The lowest price of the removed nodes of each instance type.
fn removed_types<'c>(candidates: &[&'c Candidate]) -> BTreeMap<&'c str, MicroUsd> {
    let mut removed: BTreeMap<&str, MicroUsd> = BTreeMap::new();
    for candidate in candidates {
        let (Some(name), Some(price)) = (candidate.node.instance_type(), candidate.price()) else {
            continue;
        };
        removed
            .entry(name)
            .and_modify(|least| *least = price.min(*least))
            .or_insert(price);
    }
    removed
}

impl<'a> PriceFilter<'a> {
    /// A filter that keeps all instance types of the claim.
    fn new(claim: PlannedClaim, view: &DisruptionView<'a>) -> Result<Self, DisruptionRejection> {
        let pool = view.snapshot().pools.get(&claim.pool);
        let catalog = pool.and_then(|pool: &Arc<NodePool>| view.snapshot().catalog_of(pool));
        let Some(catalog) = catalog else {
            let pool = claim.pool;
            let blocker = DisruptionBlocker::PoolNotFound { pool };
            return Err(DisruptionRejection::from_reason(blocker));
        };
        let types = claim.instance_types.iter();
        let types = types
            .filter_map(|name| catalog.get(name).cloned())
            .collect();
        Ok(Self {
            catalog,
            known: &view.snapshot().well_known,
            claim,
            types,
        })
    }

    fn allows(&self, capacity_type: CapacityType) -> bool {
        let asked = self.claim.requirements.get(CAPACITY_TYPE);
        asked.is_none_or(|asked| asked.has(capacity_type.as_str()))
    }

    /// The highest price of each instance type; nothing if a commitment pays for all of them.
    fn worst(&self, asked: &Requirements) -> Vec<Option<MicroUsd>> {
        let kinds = self.catalog.table().kinds_meeting(asked, self.known);
        let is_paid = self.claim.paid_by.is_some();
        let of = |each: &Arc<InstanceType>| {
            let price = self.catalog.worst_of(&each.name, &kinds)?;
            Some(if is_paid { MicroUsd(0) } else { price })
        };
        self.types.iter().map(of).collect()
    }

    /// The least of the highest prices of the types: what the claim costs if the cloud selects its cheapest type.
    fn least(&self) -> Result<MicroUsd, DisruptionRejection> {
        let worst = self.worst(&self.claim.requirements);
        let least = worst.into_iter().flatten().min();
        let unknown = || DisruptionRejection::from_reason(Reason::UnknownReplacementPrice);
        least.ok_or_else(unknown)
    }

    /// The instance types whose highest price satisfies a condition.
    fn kept(
        &self,
        worst: &[Option<MicroUsd>],
        wanted: impl Fn(MicroUsd) -> bool,
    ) -> Vec<Arc<InstanceType>> {
        let both = self.types.iter().zip(worst);
        let kept = both.filter(|(_, price)| price.is_some_and(&wanted));
        kept.map(|(each, _)| Arc::clone(each)).collect()
    }

    /// Keeps instance types whose highest price is below `limit`. `old` is for the rejection.
    fn below(&mut self, limit: MicroUsd, old: MicroUsd) -> Result<(), DisruptionRejection> {
        let worst = self.worst(&self.claim.requirements);
        let cheapest = worst.iter().flatten().min().copied();
        self.types = self.kept(&worst, |price| price < limit);
        if self.types.is_empty() {
            let reason = match cheapest {
                Some(new) => Reason::NotCheaper { old, new },
                None => Reason::UnknownReplacementPrice,
            };
            return Err(DisruptionRejection::from_reason(reason));
        }
        self.check_min_values()
    }

    fn check_min_values(&self) -> Result<(), DisruptionRejection> {
        self.catalog
            .check_min_values(&self.types, &self.claim.requirements)
            .map_err(|short| {
                let labels = short.keys().map(ToString::to_string).collect();
                DisruptionRejection::from_reason(DisruptionBlocker::PriceMinValues { labels })
            })
    }

    /// If the cloud could still choose between spot and on-demand, the capacity type is pinned: a failed spot launch must
    /// not become a more expensive on-demand node.
    fn pin(&mut self) -> Result<(), DisruptionRejection> {
        if !(self.allows(CapacityType::Spot) && self.allows(CapacityType::OnDemand)) {
            return Ok(());
        }
        for capacity_type in [CapacityType::Spot, CapacityType::OnDemand] {
            let pinned = self.pinned(capacity_type);
            let kept = self.kept(&self.worst(&pinned), |_| true);
            if !kept.is_empty() {
                self.claim.requirements = pinned;
                self.types = kept;
                return self.check_min_values();
            }
        }
        Ok(())
    }

    fn pinned(&self, capacity_type: CapacityType) -> Requirements {
        let mut pinned = self.claim.requirements.clone();
        pinned.add(Requirement::is(CAPACITY_TYPE, capacity_type.as_str()));
        pinned
    }

    fn spot_to_spot(
        &mut self,
        candidates: &[&Candidate],
        old: MicroUsd,
        view: &DisruptionView<'_>,
    ) -> Result<(), DisruptionRejection> {
        Self::check_spot_to_spot(view)?;
        self.claim.requirements = self.pinned(CapacityType::Spot);
        self.below(old, old)?;
        if candidates.len() > 1 {
            return Ok(());
        }
        self.keep_spot_types()
    }

    /// Whether spot nodes may replace spot nodes at all.
    fn check_spot_to_spot(view: &DisruptionView<'_>) -> Result<(), DisruptionRejection> {
        if view.context.settings.gates.spot_to_spot_consolidation {
            return Ok(());
        }
        let blocker = DisruptionBlocker::SpotToSpotDisabled;
        Err(DisruptionRejection::from_reason(blocker))
    }

    /// Keeps as many of the cheapest types as the replacement of a single spot node must have, if there are enough.
    fn keep_spot_types(&mut self) -> Result<(), DisruptionRejection> {
        let count = self.types.len();
        if count < SPOT_TO_SPOT_TYPES {
            let blocker = DisruptionBlocker::SpotToSpotTypes {
                required: SPOT_TO_SPOT_TYPES,
                count,
            };
            return Err(DisruptionRejection::from_reason(blocker));
        }
        self.sort();
        let needed = self
            .catalog
            .types_needed(&self.types, &self.claim.requirements)
            .unwrap_or(count);
        self.types.truncate(needed.max(SPOT_TO_SPOT_TYPES));
        Ok(())
    }

    /// A replacement of an instance type that is also removed must be cheaper than the cheapest removed node of that type:
    /// otherwise keeping that node and removing only the others is better.
    fn not_the_same(
        &mut self,
        removed: &BTreeMap<&str, MicroUsd>,
        old: MicroUsd,
    ) -> Result<(), DisruptionRejection> {
        let limit = self
            .types
            .iter()
            .filter_map(|each| removed.get(&*each.name))
            .min()
            .copied();
        limit.map_or(Ok(()), |limit| self.below(limit, old))
    }

    fn sort(&mut self) {
        let offers = self.catalog.offers(&self.claim.requirements, self.known);
        let rank: BTreeMap<Arc<str>, usize> = offers
            .into_iter()
            .enumerate()
            .map(|(at, offer)| (Arc::clone(&offer.instance_type.name), at))
            .collect();
        let at = |each: &Arc<InstanceType>| rank.get(&each.name).copied().unwrap_or(usize::MAX);
        self.types.sort_by_key(at);
    }

    /// The NodeClaim with the remaining instance types, cheapest first.
    fn finish(mut self, most_types: usize) -> PlannedClaim {
        self.sort();
        let needed = self
            .catalog
            .types_needed(&self.types, &self.claim.requirements)
            .unwrap_or(0);
        self.types.truncate(most_types.max(needed));
        let first = self.types.first().map(|each| Arc::clone(&each.name));
        let offers = self.catalog.offers(&self.claim.requirements, self.known);
        let cheapest = offers
            .into_iter()
            .find(|offer| Some(&offer.instance_type.name) == first.as_ref());
        self.claim.cheapest = cheapest.map(|offer| PlannedOffering {
            instance_type: Arc::clone(&offer.instance_type.name),
            zone: offer.zone,
            capacity_type: offer.capacity_type,
            price: offer.price,
        });
        let offered = |capacity_type: &CapacityType| {
            let mut offerings = self.types.iter().flat_map(|each| &each.offerings);
            offerings.any(|each| each.available && each.capacity_type == *capacity_type)
        };
        let possible = [
            CapacityType::Reserved,
            CapacityType::Spot,
            CapacityType::OnDemand,
        ];
        self.claim.capacity_types = possible
            .into_iter()
            .filter(|each| self.allows(*each) && offered(each))
            .collect();
        self.claim.most = self
            .types
            .iter()
            .fold(Resources::zero(), |most, each| most.max(&each.capacity));
        self.claim.instance_types = self
            .types
            .into_iter()
            .map(|each| Arc::clone(&each.name))
            .collect();
        self.claim
    }
}
