//! Zones of a policy with the fewest CPUs, as the new NodeClaims of a pass fill them.
//!
//! # Problem
//! A cloud launches each node where it is cheapest, so that all nodes of a cluster may be in one zone, and all are lost with it.
//!
//! # Rule
//! NodeClaims are examined in order once all pods are placed. One that may go to several zones is pinned to the one in which the NodePools
//! of its policy have the fewest CPUs, of those in which its cheapest instance type costs no more than the policy allows above the cheapest
//! zone; of equal ones to the cheapest, then to the first by name. What is not available is no choice, so a shortage leads to the next zone.
//!
//! # Cost
//! A look-up for each NodeClaim and zone, and one list of offerings by price for each narrowed template and zone.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::narrowed_offerings::NarrowedOfferings;
use super::narrowed_template::NarrowedTemplateId;
use super::plan::SolveOptions;
use super::pool_template::PoolTemplate;
use mortise_apis::values::money::MicroUsd;
use mortise_state::catalog::{Bits, InstanceTypeTable};
use mortise_state::snapshot::{Snapshot, ZoneUses};

/// The offerings of one zone.
#[derive(Debug)]
pub(super) struct ZonalOfferings {
    /// The zone.
    pub(super) zone: Arc<str>,
    /// What it has.
    pub(super) offerings: NarrowedOfferings,
}

/// What narrowed a template further: NodeClaims of one template with the same narrowing have the same offerings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OfferingsId {
    /// All that it allows.
    All,
    /// The on-demand ones.
    OnDemand,
    /// Those that the commitment at this position pays for.
    Commitment(usize),
}

/// What zones have by policy, and what the templates offer in them.
#[derive(Debug)]
pub(super) struct ZoneBalances {
    uses: ZoneUses,
    offerings: BTreeMap<(NarrowedTemplateId, OfferingsId), Arc<[Arc<ZonalOfferings>]>>,
}

impl ZonalOfferings {
    /// The instance types of a NodeClaim that are offered here.
    pub(super) fn types_of(&self, types: &Bits) -> Bits {
        let mut here = types.clone();
        here.and(&self.offerings.types);
        here
    }

    /// By zone, what these kinds and types offer.
    fn by_zone(kinds: &Bits, types: &Bits, table: &InstanceTypeTable) -> Arc<[Arc<Self>]> {
        let mut zones: BTreeMap<&Arc<str>, Bits> = BTreeMap::new();
        for at in kinds.iter() {
            if let Some(kind) = table.kinds().get(at) {
                let of_zone = zones.entry(&kind.zone);
                let of_zone = of_zone.or_insert_with(|| Bits::none(table.kinds().len()));
                of_zone.insert(at);
            }
        }
        let all = zones.into_iter().filter_map(|(zone, kinds)| {
            let offerings = NarrowedOfferings::of(kinds, types.clone(), table)?;
            let zone = Arc::clone(zone);
            Some(Arc::new(Self { zone, offerings }))
        });
        all.collect()
    }
}

impl ZoneBalances {
    /// What the NodePools have without the nodes that the pass removes.
    pub(super) fn new(snapshot: &Snapshot, options: &SolveOptions) -> Self {
        let mut uses = ZoneUses::of(snapshot);
        let gone = options.without.iter();
        for node in gone.filter_map(|key| snapshot.nodes.get(key)) {
            uses.remove(node, snapshot);
        }
        Self {
            uses,
            offerings: BTreeMap::new(),
        }
    }

    /// The zone to which a new NodeClaim with these types goes; `None` if it may go to any. Counts it there. `kinds` and `all` are those
    /// of its narrowed template; `is_enough` says whether these types are enough for it.
    pub(super) fn zone(
        &mut self,
        snapshot: &Snapshot,
        template: &PoolTemplate,
        id: (NarrowedTemplateId, OfferingsId),
        (kinds, all, types): (&Bits, &Bits, &Bits),
        is_enough: impl Fn(&Bits) -> bool,
    ) -> Option<Arc<ZonalOfferings>> {
        let uses = self.uses.of_pool(&template.name, snapshot)?;
        let table = template.catalog.table();
        let known = self.offerings.entry(id);
        let zones = known.or_insert_with(|| ZonalOfferings::by_zone(kinds, all, table));
        let cheapest = |of: &ZonalOfferings| {
            let mut here = of
                .offerings
                .by_price
                .iter()
                .filter(|(at, _)| types.has(*at));
            here.find_map(|(at, offer)| Some((*at, offer.price?)))
        };
        let priced: Vec<(&Arc<ZonalOfferings>, usize, MicroUsd)> = zones
            .iter()
            .filter_map(|of| cheapest(of).map(|(at, price)| (of, at, price)))
            .filter(|(of, ..)| is_enough(&of.types_of(types)))
            .collect();
        let least = priced.iter().map(|(.., price)| *price).min()?;
        let most = uses.increase.limit(least);
        let within = priced.into_iter().filter(|(.., price)| *price <= most);
        let (of, at, _) = within.min_by_key(|(of, _, price)| (uses.cpus_in(&of.zone), *price))?;
        let cpus = template.catalog.types().get(at)?.capacity.cpu;
        uses.add(&of.zone, cpus);
        Some(Arc::clone(of))
    }
}
