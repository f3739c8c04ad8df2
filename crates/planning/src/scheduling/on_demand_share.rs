//! The share of on-demand capacity that NodePoolPolicies ask for, as the new NodeClaims of a pass use it up.
//!
//! # Problem
//! Pods that may run on spot capacity get it, as it is cheaper, and all of it can be reclaimed at the same time.
//!
//! # Rule
//! NodeClaims are examined in order once all pods are placed. One that may be spot or on-demand becomes on-demand if as much on-demand
//! capacity would be missing otherwise. One whose pods allow spot alone, or for which no on-demand offering is left, stays as it is.
//!
//! # Cost
//! A look-up for each NodeClaim, and one list of offerings by price for each narrowed template that becomes on-demand.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::narrowed_offerings::{NarrowedOfferings, TemplateOfferings};
use super::narrowed_template::NarrowedTemplateId;
use super::plan::SolveOptions;
use super::pool_template::PoolTemplate;
use mortise_state::catalog::{Bits, PricedOffering};
use mortise_state::snapshot::{NodeCpu, OnDemandUses, Snapshot};

/// What is on-demand by policy, and what the templates offer.
#[derive(Debug)]
pub(super) struct OnDemandShares {
    uses: OnDemandUses,
    offerings: BTreeMap<NarrowedTemplateId, Option<Arc<NarrowedOfferings>>>,
}

impl OnDemandShares {
    /// What the NodePools have without the nodes that the pass removes.
    pub(super) fn new(snapshot: &Snapshot, options: &SolveOptions) -> Self {
        let uses = options.on_demand.as_deref().cloned().unwrap_or_else(|| {
            let mut left = OnDemandUses::of(snapshot);
            for node in options
                .without
                .iter()
                .filter_map(|key| snapshot.nodes.get(key))
            {
                left.remove(node, snapshot);
            }
            left
        });
        Self {
            uses,
            offerings: BTreeMap::new(),
        }
    }

    /// Counts a new NodeClaim that is on-demand whatever the policy asks.
    pub(super) fn count_on_demand(
        &mut self,
        snapshot: &Snapshot,
        template: &PoolTemplate,
        instance_type: usize,
    ) {
        if let Some(of_pool) = self.uses.of_pool(&template.name, snapshot)
            && let Some(launched) = template.catalog.types().get(instance_type)
        {
            of_pool.add(NodeCpu {
                cpu: launched.capacity.cpu,
                is_on_demand: true,
            });
        }
    }

    /// The on-demand offerings that a new NodeClaim is limited to; `None` if it is not. Counts it in both cases.
    pub(super) fn limit(
        &mut self,
        snapshot: &Snapshot,
        of: TemplateOfferings<'_>,
        types: &Bits,
    ) -> Option<Arc<NarrowedOfferings>> {
        let template = of.template;
        let on_demand = self.uses.of_pool(&template.name, snapshot)?;
        let table = template.catalog.table();
        let cpu_of = |by_price: &[(usize, PricedOffering)]| {
            let cheapest = by_price.iter().find(|(at, _)| types.has(*at))?;
            Some(template.catalog.types().get(cheapest.0)?.capacity.cpu)
        };
        let cpu = cpu_of(of.by_price)?;
        let planned = NodeCpu::planned(cpu, of.requirements);
        if planned.is_on_demand {
            on_demand.add(planned);
            return None;
        }
        let limited = on_demand.must_be_on_demand(cpu).then(|| {
            let known = self.offerings.entry(of.id);
            known.or_insert_with(|| {
                let kinds = of.on_demand_kinds();
                NarrowedOfferings::of(kinds, of.types.clone(), table).map(Arc::new)
            })
        });
        let limited = limited.and_then(|offerings| offerings.clone());
        let own = limited.as_ref().and_then(|own| cpu_of(&own.by_price));
        on_demand.add(NodeCpu {
            cpu: own.unwrap_or(cpu),
            is_on_demand: own.is_some(),
        });
        own.and(limited)
    }
}
