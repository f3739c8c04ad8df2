//! Prices that change by a factor: `TYPE[/ZONE[/CAPACITY-TYPE]]=FACTOR`, where `*` is every type or zone.

use std::collections::BTreeSet;
use std::str::FromStr;

use mortise_cloudprovider::{CapacityType, InstanceType, Offering};

use crate::manifest_error::ManifestError;
use crate::price_factor::PriceFactor;
use crate::recorded_cluster::RecordedCluster;

/// Every type or zone.
const ANY: &str = "*";

/// A change of prices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceChange {
    instance_type: String,
    zone: String,
    capacity_type: Option<CapacityType>,
    factor: PriceFactor,
}

impl FromStr for PriceChange {
    type Err = ManifestError;

    fn from_str(text: &str) -> Result<Self, ManifestError> {
        let shape = || {
            let problem = format!(
                "{text:?} must be TYPE[/ZONE[/CAPACITY-TYPE]]=FACTOR, for example m5.large=1.2 or */us-east-1a/spot=2"
            );
            ManifestError::new("", problem)
        };
        let (offerings, factor) = text.rsplit_once('=').ok_or_else(shape)?;
        let mut parts = offerings.split('/');
        let instance_type = parts.next().filter(|part| !part.is_empty());
        let instance_type = instance_type.ok_or_else(shape)?;
        let zone = parts.next().unwrap_or(ANY);
        let capacity_type = parts.next();
        if zone.is_empty() || parts.next().is_some() {
            return Err(shape());
        }
        let capacity_type = match capacity_type {
            None | Some(ANY) => None,
            Some(text) => Some(CapacityType::parse(text).ok_or_else(|| {
                let known = ["on-demand", "reserved", "spot"];
                ManifestError::absent("", "capacity type", text, known)
            })?),
        };
        let factor = factor_of(factor).ok_or_else(|| {
            let problem = format!(
                "factor {factor:?} must be a decimal number from 0.000001 to 1000, for example 1.2"
            );
            ManifestError::new("", problem)
        })?;
        Ok(Self {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            capacity_type,
            factor,
        })
    }
}

/// A decimal number.
fn factor_of(text: &str) -> Option<PriceFactor> {
    const PLACES: usize = PriceFactor::PLACES;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > PLACES {
        return None;
    }
    let part: u64 = format!("{part:0<PLACES$}").parse().ok()?;
    let all = whole
        .parse::<u64>()
        .ok()?
        .checked_mul(PriceFactor::ONE)?
        .checked_add(part)?;
    PriceFactor::of_millionths(all)
}

impl PriceChange {
    /// Changes the prices of the offerings that match.
    ///
    /// # Errors
    /// There is no such type, no such zone, or no such offering.
    pub fn apply(&self, cluster: &mut RecordedCluster) -> Result<(), ManifestError> {
        let types = || cluster.catalogs.values().flatten();
        let names: BTreeSet<&str> = types().map(|each| &*each.name).collect();
        let zones: BTreeSet<&str> = types()
            .flat_map(|each| &each.offerings)
            .map(|offering| &*offering.zone)
            .collect();
        if self.instance_type != ANY && !names.contains(self.instance_type.as_str()) {
            let name = &self.instance_type;
            return Err(ManifestError::absent("", "instance type", name, names));
        }
        if self.zone != ANY && !zones.contains(self.zone.as_str()) {
            return Err(ManifestError::absent("", "zone", &self.zone, zones));
        }
        let mut changed = 0;
        for each in cluster.catalogs.values_mut().flatten() {
            changed += self.apply_to(each);
        }
        if changed > 0 {
            return Ok(());
        }
        let kind = self.capacity_type.map_or(ANY, CapacityType::as_str);
        let problem = format!(
            "no offering with a known price is {}/{}/{kind}",
            self.instance_type, self.zone
        );
        Err(ManifestError::new("", problem))
    }

    /// Number of prices that changed.
    fn apply_to(&self, each: &mut InstanceType) -> usize {
        if self.instance_type != ANY && *each.name != *self.instance_type {
            return 0;
        }
        let of = |offering: &&mut Offering| {
            (self.zone == ANY || *offering.zone == *self.zone)
                && self
                    .capacity_type
                    .is_none_or(|kind| kind == offering.capacity_type)
        };
        let mut changed = 0;
        for offering in each.offerings.iter_mut().filter(of) {
            if let Some(price) = &mut offering.price {
                *price = self.factor.times(*price);
                changed += 1;
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn factors_are_exact() {
        for (text, want) in [
            ("1", Some(1_000_000)),
            ("1.2", Some(1_200_000)),
            ("0.000001", Some(1)),
            ("1000", Some(1_000_000_000)),
            ("1000.1", None),
            ("0", None),
            ("-1", None),
            ("", None),
            (".5", None),
            ("1e3", None),
            ("0.0000001", None),
            ("NaN", None),
        ] {
            let want = want.and_then(PriceFactor::of_millionths);
            assert_eq!(factor_of(text), want, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_explained() {
        for (text, part) in [
            ("m5.large", "must be TYPE"),
            ("=2", "must be TYPE"),
            ("a/b/spot/d=2", "must be TYPE"),
            (
                "m5.large=cheap",
                "factor \"cheap\" must be a decimal number",
            ),
            ("m5.large/a/spto=2", "did you mean \"spot\"?"),
        ] {
            let problem = text.parse::<PriceChange>().unwrap_err().to_string();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }
}
