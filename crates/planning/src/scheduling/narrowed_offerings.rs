//! Offerings of templates, and those of them that policies limit their NodeClaims to.

use super::narrowed_template::NarrowedTemplateId;
use super::pool_template::PoolTemplate;
use mortise_apis::requirements::Requirements;
use mortise_cloudprovider::CapacityType;
use mortise_state::catalog::{Bits, InstanceTypeTable, PricedOffering};

/// What a template offers, as pods have narrowed it, or the whole template of a static NodePool.
#[derive(Clone, Copy)]
pub(super) struct TemplateOfferings<'t> {
    /// What is offered to one NodeClaim is offered to all of the same id.
    pub(super) id: NarrowedTemplateId,
    /// The template.
    pub(super) template: &'t PoolTemplate,
    /// What its NodeClaims require.
    pub(super) requirements: &'t Requirements,
    /// Kinds of offerings.
    pub(super) kinds: &'t Bits,
    /// Instance types with such an offering.
    pub(super) types: &'t Bits,
    /// The types by price.
    pub(super) by_price: &'t [(usize, PricedOffering)],
}

impl TemplateOfferings<'_> {
    /// The kinds of on-demand offerings.
    pub(super) fn on_demand_kinds(&self) -> Bits {
        let table = self.template.catalog.table();
        let mut kinds = Bits::none(table.kinds().len());
        let all = self.kinds.iter();
        all.filter(|at| table.kinds()[*at].capacity_type == CapacityType::OnDemand)
            .for_each(|at| kinds.insert(at));
        kinds
    }
}

/// The offerings of a template that are left of some kinds: on-demand ones, or those of a zone.
#[derive(Debug)]
pub(super) struct NarrowedOfferings {
    /// Kinds of offerings.
    pub(super) kinds: Bits,
    /// Instance types with such an offering.
    pub(super) types: Bits,
    /// The types by price.
    pub(super) by_price: Vec<(usize, PricedOffering)>,
}

impl NarrowedOfferings {
    /// The offerings of these kinds and types; `None` without any.
    pub(super) fn of(kinds: Bits, mut types: Bits, table: &InstanceTypeTable) -> Option<Self> {
        types.and(&table.offered(&kinds));
        let by_price = table.by_price(&types, &kinds);
        (!by_price.is_empty()).then_some(Self {
            kinds,
            types,
            by_price,
        })
    }
}
