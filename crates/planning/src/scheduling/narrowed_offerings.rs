//! Offerings of a narrowed template that policies limit its NodeClaims to.

use super::narrowed_template::NarrowedTemplate;
use mortise_cloudprovider::CapacityType;
use mortise_state::catalog::{Bits, InstanceTypeTable, PricedOffering};

/// The offerings of a narrowed template that are left of some kinds: on-demand ones, or those of a zone.
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
    /// The kinds of on-demand offerings of a narrowed template.
    pub(super) fn on_demand_kinds(shape: &NarrowedTemplate, table: &InstanceTypeTable) -> Bits {
        let all = shape.kinds.iter();
        let mut kinds = Bits::none(table.kinds().len());
        all.filter(|at| table.kinds()[*at].capacity_type == CapacityType::OnDemand)
            .for_each(|at| kinds.insert(at));
        kinds
    }

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
