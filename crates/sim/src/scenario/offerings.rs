//! The offerings that an entry of a timeline means.

use std::collections::BTreeSet;
use std::fmt;

use mortise_cloudprovider::{CapacityType, InstanceType, UnavailableOffering};

use crate::manifest_error::ManifestError;

/// By instance type, zone and capacity type; what is missing means all. A type that ends in `*` means all that begin so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offerings<'a> {
    pub(super) instance_types: &'a [String],
    pub(super) zones: &'a [String],
    pub(super) capacity_type: Option<&'a str>,
}

impl Offerings<'_> {
    /// They name what the cloud has. `field`: path of the entry.
    ///
    /// # Errors
    /// There is no such type, zone or capacity type, or no offering of all three.
    pub(super) fn check(self, field: &str, catalog: &[InstanceType]) -> Result<(), ManifestError> {
        let zones: BTreeSet<&str> = catalog
            .iter()
            .flat_map(|each| &each.offerings)
            .map(|each| &*each.zone)
            .collect();
        let zones: Vec<&str> = zones.into_iter().collect();
        for zone in self.zones {
            if !zones.contains(&zone.as_str()) {
                let field = format!("{field}.zones");
                return Err(ManifestError::unknown(field, zone, &zones));
            }
        }
        for wanted in self.instance_types {
            if !catalog.iter().any(|each| is_meant(wanted, &each.name)) {
                let field = format!("{field}.instanceTypes");
                let names = catalog.iter().map(|each| &*each.name);
                return Err(ManifestError::absent(
                    &field,
                    "instance type",
                    wanted,
                    names,
                ));
            }
        }
        let kinds = [CapacityType::Spot.as_str(), CapacityType::OnDemand.as_str()];
        if let Some(given) = self.capacity_type
            && !kinds.contains(&given)
        {
            let field = format!("{field}.capacityType");
            return Err(ManifestError::unknown(field, given, &kinds));
        }
        Ok(())
    }

    /// Whether they include this one.
    pub(super) fn include(self, offering: &UnavailableOffering) -> bool {
        let has_type = self.instance_types.is_empty()
            || self
                .instance_types
                .iter()
                .any(|wanted| is_meant(wanted, &offering.instance_type));
        let has_zone =
            self.zones.is_empty() || self.zones.iter().any(|zone| **zone == *offering.zone);
        let kind = offering.capacity_type.as_str();
        has_type && has_zone && self.capacity_type.is_none_or(|wanted| wanted == kind)
    }
}

fn is_meant(wanted: &str, name: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => wanted == name,
    }
}

/// `of t2, t4 in any zone`.
impl fmt::Display for Offerings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_all = |names: &[String], all: &str| match names {
            [] => all.to_owned(),
            _ => names.join(", "),
        };
        let types = or_all(self.instance_types, "any type");
        write!(f, "of {types} in {}", or_all(self.zones, "any zone"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_means_all() {
        let offering = UnavailableOffering {
            instance_type: "m5.large".into(),
            zone: "a".into(),
            capacity_type: CapacityType::Spot,
        };
        for (types, zones, capacity_type, want) in [
            (&[][..], &[][..], None, true),
            (&["m5.large"], &[], None, true),
            (&["c5.large", "m5.*"], &[], None, true),
            (&["*"], &["b", "a"], Some("spot"), true),
            (&["m5"], &[], None, false),
            (&["m5.large"], &["b"], None, false),
            (&["m6*"], &[], None, false),
            (&[], &[], Some("on-demand"), false),
        ] {
            let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let (types, zones): (Vec<String>, Vec<String>) = (own(types), own(zones));
            let offerings = Offerings {
                instance_types: &types,
                zones: &zones,
                capacity_type,
            };
            assert_eq!(offerings.include(&offering), want, "{offerings:?}");
        }
    }
}
