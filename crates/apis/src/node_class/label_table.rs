//! The label keys of a node class.

use crate::labels::WellKnown;

/// Where an object has a restricted key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLocation {
    /// Labels of a NodePool's template: the rules look at every key of a map.
    PoolLabels,
    /// A requirement of a NodePool.
    PoolRequirement,
    /// A requirement of a NodeClaim.
    ClaimRequirement,
    /// A requirement of a NodeOverlay.
    OverlayRequirement,
}

/// Label keys of a provider with a meaning of their own, and its domain, in which users may set only certain keys.
#[derive(Clone, Copy, Debug)]
pub struct LabelTable {
    /// The domain, sub-domains included.
    pub domain: &'static str,
    /// Labels that NodePools may require without defining them.
    pub well_known: &'static [&'static str],
    /// The only values that some of them have.
    pub values: &'static [(&'static str, &'static [&'static str])],
    /// The label with the cloud's own ID of a zone.
    pub zone_id: Option<&'static str>,
    /// Names in the domain that users may set, by place. The definitions have no rule about the domain for a place that is
    /// not listed.
    pub open: &'static [(KeyLocation, &'static [&'static str])],
}

impl LabelTable {
    /// Names in the domain that users may set at this place; `None` where the definitions have no rule.
    #[must_use]
    pub fn open_at(&self, location: KeyLocation) -> Option<&'static [&'static str]> {
        let mut rows = self.open.iter();
        rows.find(|(at, _)| *at == location)
            .map(|(_, names)| *names)
    }

    /// Adds the keys, values and the domain to a table.
    #[must_use]
    pub fn added_to(&self, known: WellKnown) -> WellKnown {
        let known = known
            .with_keys(self.well_known.iter().copied())
            .with_domains([self.domain])
            .with_zone_ids(self.zone_id);
        self.values.iter().fold(known, |known, (key, values)| {
            known.with_values(*key, values.iter().copied())
        })
    }
}
