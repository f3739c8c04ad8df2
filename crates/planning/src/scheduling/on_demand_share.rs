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

use super::narrowed_template::{NarrowedTemplate, NarrowedTemplateId};
use super::plan::SolveOptions;
use super::pool_template::PoolTemplate;
use mortise_apis::labels;
use mortise_cloudprovider::CapacityType;
use mortise_state::catalog::{Bits, PricedOffering};
use mortise_state::snapshot::{NodeCpu, OnDemandUse, Snapshot};

/// The on-demand offerings of a narrowed template.
#[derive(Debug)]
pub(super) struct OnDemandOfferings {
    /// Kinds of offerings.
    pub(super) kinds: Bits,
    /// Instance types with such an offering.
    pub(super) types: Bits,
    /// The types by price.
    pub(super) by_price: Vec<(usize, PricedOffering)>,
}

/// What is on-demand by policy, and what the templates offer.
#[derive(Debug, Default)]
pub(super) struct OnDemandShares {
    uses: BTreeMap<Arc<str>, OnDemandUse>,
    offerings: BTreeMap<NarrowedTemplateId, Option<Arc<OnDemandOfferings>>>,
}

impl OnDemandShares {
    /// What the NodePools have without the nodes that the pass removes.
    pub(super) fn new(
        templates: &[PoolTemplate],
        snapshot: &Snapshot,
        options: &SolveOptions,
    ) -> Self {
        let mut this = Self::default();
        if let Some(known) = &options.on_demand {
            this.uses = BTreeMap::clone(known);
            return this;
        }
        for template in templates {
            if let Some(policy) = snapshot.policy_of(&template.name)
                && let Some(on_demand) = policy.on_demand
            {
                this.uses.insert(Arc::clone(&policy.name), on_demand);
            }
        }
        if this.uses.is_empty() {
            return this;
        }
        for key in &options.without {
            let node = snapshot.nodes.get(key);
            let pool = node.and_then(|node| node.pool());
            let policy = pool.and_then(|pool| snapshot.policy_of(&pool));
            if let Some(policy) = policy
                && let Some(on_demand) = this.uses.get_mut(&policy.name)
                && let Some(cpu) = node.and_then(|node| NodeCpu::of_node(node))
            {
                on_demand.remove(cpu);
            }
        }
        this
    }

    /// The on-demand offerings that a new NodeClaim is limited to; `None` if it is not. Counts it in both cases.
    pub(super) fn limit(
        &mut self,
        policy: Option<&str>,
        template: &PoolTemplate,
        (id, shape): (NarrowedTemplateId, &NarrowedTemplate),
        types: &Bits,
    ) -> Option<Arc<OnDemandOfferings>> {
        let on_demand = self.uses.get_mut(policy?)?;
        let table = template.catalog.table();
        let cpu_of = |by_price: &[(usize, PricedOffering)]| {
            let cheapest = by_price.iter().find(|(at, _)| types.has(*at))?;
            Some(template.catalog.types().get(cheapest.0)?.capacity.cpu)
        };
        let cpu = cpu_of(shape.by_price(template))?;
        let spot = CapacityType::Spot.as_str();
        let asked = shape.requirements.get(labels::CAPACITY_TYPE);
        if asked.is_some_and(|own| !own.has(spot)) {
            on_demand.add(NodeCpu {
                cpu,
                is_on_demand: true,
            });
            return None;
        }
        let limited = on_demand.must_be_on_demand(cpu).then(|| {
            let known = self.offerings.entry(id);
            known.or_insert_with(|| {
                let all = shape.kinds.iter();
                let mut kinds = Bits::none(table.kinds().len());
                all.filter(|at| table.kinds()[*at].capacity_type == CapacityType::OnDemand)
                    .for_each(|at| kinds.insert(at));
                let mut types = shape.types.clone();
                types.and(&table.offered(&kinds));
                let by_price = table.by_price(&types, &kinds);
                let offerings = OnDemandOfferings {
                    kinds,
                    types,
                    by_price,
                };
                (!offerings.by_price.is_empty()).then(|| Arc::new(offerings))
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
