//! The on-demand prices that the region's types have at a time, and where they are from.
//!
//! Invariant: all prices of a table are of one currency, and of one region: those assumed from another region go as soon as the
//! region's own are known. Otherwise a table only grows; a type without a price has none, and its offerings come last.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use mortise_apis::values::money::MicroUsd;
use mortise_aws_catalog::{Currency, Ec2CatalogError, PriceTable, price_regions, price_table};
use tokio::time::Instant;

use crate::offerings::price_list::AmountByType;

/// Where prices are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PriceSource {
    /// AWS said so at this time.
    Live(Instant),
    /// They came with the program; the price list had them on this day.
    Embedded(Date),
    /// Those of another region, by the setting `assumed_price_region`, as of this day.
    Assumed(Arc<str>, Date),
    /// On-demand prices stand for spot prices that were never read.
    OnDemand,
    /// No prices are known.
    Unknown,
}

impl PriceSource {
    /// The value of the label `source`.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::Live(_) => "live",
            Self::Embedded(_) => "embedded",
            Self::Assumed(..) => "assumed",
            Self::OnDemand => "on-demand",
            Self::Unknown => "unknown",
        }
    }

    /// How old the prices are; `None` when their age is not known, or is that of others.
    pub(crate) fn age(&self, now: Timestamp) -> Option<Duration> {
        match self {
            Self::Live(read) => Some(read.elapsed()),
            Self::Embedded(day) | Self::Assumed(_, day) => {
                let day = day.to_zoned(TimeZone::UTC).ok()?.timestamp();
                // A clock that is behind the day makes them new, not ancient.
                Some(Duration::try_from(now.duration_since(day)).unwrap_or_default())
            }
            Self::OnDemand | Self::Unknown => None,
        }
    }
}

impl fmt::Display for PriceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live(read) => write!(f, "were read {} h ago", read.elapsed().as_secs() / 3600),
            Self::Embedded(day) => write!(f, "are those of {day} that come with the program"),
            Self::Assumed(region, day) => {
                write!(f, "are assumed to be those of {region} on {day}")
            }
            Self::OnDemand => f.write_str("are not known: on-demand prices stand for them"),
            Self::Unknown => f.write_str("are not known"),
        }
    }
}

/// On-demand prices of a region at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OnDemandPrices {
    currency: Currency,
    source: PriceSource,
    by_type: Arc<AmountByType>,
}

/// Why no prices can be assumed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AssumedPriceError {
    /// The embedded data are damaged.
    #[error(transparent)]
    Data(#[from] Ec2CatalogError),
    /// The region has no table in the right currency.
    #[error(
        "assumed price region: {asked:?}: must be a region whose prices in {currency}, the currency of {region}, come with the program; allowed: {allowed}"
    )]
    NoTable {
        /// The value of the setting.
        asked: String,
        /// Region of the provider.
        region: String,
        /// Currency of that region.
        currency: Currency,
        /// Regions that would do, joined by commas.
        allowed: String,
    },
}

impl OnDemandPrices {
    /// What is known of a region at the start: the embedded table of the region named by `assumed`, without one its own, else
    /// nothing. Never some of both.
    /// # Errors
    /// The region named by `assumed` has no table, or is billed in another currency.
    pub(crate) fn at_start(region: &str, assumed: Option<&str>) -> Result<Self, AssumedPriceError> {
        if let Some(other) = assumed.filter(|other| !other.is_empty() && *other != region) {
            let table = assumed_table(region, other)?;
            return Ok(Self {
                source: PriceSource::Assumed(Arc::clone(&table.region), table.as_of),
                ..Self::embedded(table)
            });
        }
        Ok(match price_table(region)? {
            Some(own) => Self::embedded(own),
            None => Self {
                currency: Currency::of_region(region),
                source: PriceSource::Unknown,
                by_type: Arc::default(),
            },
        })
    }

    /// The prices of a table of the region itself.
    pub(crate) fn embedded(table: PriceTable) -> Self {
        Self {
            currency: table.currency,
            source: PriceSource::Embedded(table.as_of),
            by_type: Arc::new(table.by_type),
        }
    }

    /// The price of a type; `None` when it is not known.
    pub(crate) fn get(&self, name: &str) -> Option<MicroUsd> {
        self.by_type.get(name).copied()
    }

    /// Where they are from.
    pub(crate) const fn source(&self) -> &PriceSource {
        &self.source
    }

    /// Currency of all of them.
    pub(crate) const fn currency(&self) -> Currency {
        self.currency
    }

    /// All of them, by type.
    #[cfg(test)]
    pub(crate) fn all(&self) -> &AmountByType {
        &self.by_type
    }

    /// With what AWS said at `read` laid over. Types that it did not name keep their price, unless that was another region's.
    pub(crate) fn with_live(&self, live: AmountByType, read: Instant) -> Self {
        let by_type = if matches!(self.source, PriceSource::Assumed(..)) {
            live
        } else {
            let mut all = AmountByType::clone(&self.by_type);
            all.extend(live);
            all
        };
        Self {
            currency: self.currency,
            source: PriceSource::Live(read),
            by_type: Arc::new(by_type),
        }
    }
}

fn assumed_table(region: &str, other: &str) -> Result<PriceTable, AssumedPriceError> {
    let currency = Currency::of_region(region);
    let table = price_table(other)?.filter(|table| table.currency == currency);
    if let Some(table) = table {
        return Ok(table);
    }
    let regions = price_regions()?;
    let regions = regions
        .iter()
        .filter(|each| Currency::of_region(each) == currency);
    let allowed: Vec<&str> = regions.map(|each| &**each).collect();
    Err(AssumedPriceError::NoTable {
        asked: other.to_owned(),
        region: region.to_owned(),
        currency,
        allowed: allowed.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(list: &[(&str, i64)]) -> AmountByType {
        let list = list.iter();
        list.map(|(name, amount)| (Arc::from(*name), MicroUsd(*amount)))
            .collect()
    }

    #[test]
    fn a_region_starts_with_its_own_prices_or_with_none() {
        let own = OnDemandPrices::at_start("eu-west-1", None).unwrap();
        assert_eq!(own.get("m5.large"), Some(MicroUsd(107_000)));
        assert_eq!(own.source().label(), "embedded");
        let none = OnDemandPrices::at_start("eu-west-9", None).unwrap();
        assert_eq!(
            (none.get("m5.large"), none.source()),
            (None, &PriceSource::Unknown)
        );
        let own = OnDemandPrices::at_start("eu-west-1", Some("eu-west-1")).unwrap();
        assert_eq!(own.source().label(), "embedded", "its own are not assumed");
    }

    #[test]
    fn prices_are_assumed_only_when_asked_for_and_in_one_currency() {
        let assumed = OnDemandPrices::at_start("eu-west-9", Some("us-east-1")).unwrap();
        assert_eq!(assumed.get("m5.large"), Some(MicroUsd(96_000)));
        let instead = OnDemandPrices::at_start("eu-west-1", Some("us-east-1")).unwrap();
        assert_eq!(
            instead, assumed,
            "of all types, instead of the region's own"
        );
        assert_eq!(
            assumed.source().to_string(),
            "are assumed to be those of us-east-1 on 2026-07-20"
        );
        let refused = |region, other| {
            let error = OnDemandPrices::at_start(region, Some(other)).unwrap_err();
            error.to_string()
        };
        assert_eq!(
            refused("cn-northwest-1", "us-east-1"),
            "assumed price region: \"us-east-1\": must be a region whose prices in CNY, the currency of cn-northwest-1, come with the program; allowed: cn-north-1"
        );
        assert!(refused("eu-west-1", "cn-north-1").contains("allowed: af-south-1, "));
        assert!(OnDemandPrices::at_start("cn-northwest-1", Some("cn-north-1")).is_ok());
        assert!(
            OnDemandPrices::at_start("eu-west-9", Some("")).is_ok(),
            "empty is not set"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn live_prices_are_laid_over_the_regions_own_and_replace_another_regions() {
        let live = amounts(&[("m5.large", 5), ("zz.new", 7)]);
        let read = Instant::now();
        let own = OnDemandPrices::at_start("eu-west-1", None).unwrap();
        let now = own.with_live(live.clone(), read);
        assert_eq!(now.get("m5.large"), Some(MicroUsd(5)));
        assert_eq!(now.get("zz.new"), Some(MicroUsd(7)));
        assert_eq!(
            now.get("m5.xlarge"),
            own.get("m5.xlarge"),
            "it does not shrink"
        );
        let assumed = OnDemandPrices::at_start("eu-west-9", Some("us-east-1")).unwrap();
        let now = assumed.with_live(live, read);
        assert_eq!(now.get("m5.xlarge"), None, "two regions are never compared");
        tokio::time::advance(Duration::from_secs(7200)).await;
        assert_eq!(
            now.source().age(Timestamp::UNIX_EPOCH),
            Some(Duration::from_secs(7200))
        );
        assert_eq!(now.source().to_string(), "were read 2 h ago");
    }

    #[test]
    fn the_age_of_a_table_is_that_of_its_day() {
        let source = PriceSource::Embedded("2025-05-28".parse().unwrap());
        let at = |text: &str| source.age(text.parse().unwrap()).map(|age| age.as_secs());
        assert_eq!(at("2025-05-29T01:00:00Z"), Some(25 * 3600));
        assert_eq!(at("2020-01-01T00:00:00Z"), Some(0));
        assert_eq!(PriceSource::Unknown.age(Timestamp::UNIX_EPOCH), None);
    }
}
