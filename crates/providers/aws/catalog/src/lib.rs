//! The catalogue that comes with the program: real instance types, on-demand prices and zones, for the demo, for `lint`, and as
//! the source of what EC2 itself does not describe (branch interfaces, baseline bandwidth) or not at once (a first price).
//!
//! Invariant: read once, lazily; sorted by type name; the same input gives the same catalogue, byte for byte.
//!
//! # Source
//! `data/README.md` says where each number comes from and how old it is.

pub mod ami_family;
mod capacity_options;
pub mod expression_values;
pub mod instance_type;
pub mod instance_type_info;
pub mod kubelet_expression;
mod label_names;
pub mod launch_zones;
pub mod node_settings;
mod type_requirements;

mod error;
mod prices;
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use mortise_apis::nearest::nearest;
use mortise_apis::values::fnv1a;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::InstanceType;

pub use self::capacity_options::CapacityOptions;
pub use self::error::Ec2CatalogError;
use self::prices::PriceFile;
pub use self::prices::{Currency, PriceTable};
pub use self::read::{CatalogRow, TypeTables};
use crate::launch_zones::{LaunchZones, ZonePrices};
use crate::node_settings::NodeSettings;

/// Instance types with hardware, prices and zones.
const TYPES: (&str, &[u8]) = (
    "instance-types.jsonl.gz (embedded)",
    include_bytes!("../data/instance-types.jsonl.gz"),
);
/// Types of which only the tables are known: sold in some region, but not described in the data above.
const TABLES: (&str, &[u8]) = (
    "more-types.jsonl.gz (embedded)",
    include_bytes!("../data/more-types.jsonl.gz"),
);

/// On-demand prices by region.
const PRICES: PriceFile = PriceFile::new(
    "on-demand-prices.jsonl.gz (embedded)",
    include_bytes!("../data/on-demand-prices.jsonl.gz"),
);

static EMBEDDED: LazyLock<Result<Arc<Ec2Catalog>, Ec2CatalogError>> = LazyLock::new(|| {
    let mut catalog = Ec2Catalog::parse(TYPES.0, TYPES.1)?;
    catalog.more = read::tables_only(TABLES.0, &read::unpack(TABLES.0, TABLES.1)?)?;
    Ok(Arc::new(catalog))
});

/// Instance types with their prices and zones. # Shape: sorted by name, unique.
#[derive(Clone, Debug)]
pub struct Ec2Catalog {
    file: String,
    rows: Vec<CatalogRow>,
    more: BTreeMap<Arc<str>, TypeTables>,
}

/// The catalogue in the program.
/// # Errors
/// Only when the program was built from a damaged data file; the text names file, line and field.
pub fn embedded_catalog() -> Result<Arc<Ec2Catalog>, Ec2CatalogError> {
    EMBEDDED.clone()
}

/// On-demand prices of a region, with their day; `None` for a region whose prices the program does not bring along: unknown is not
/// zero, and not another region's price.
/// # Cost
/// Unpacks a few hundred kilobytes: to be called once for a region.
/// # Errors
/// Only when the program was built from a damaged data file; the text names file and line.
pub fn price_table(region: &str) -> Result<Option<PriceTable>, Ec2CatalogError> {
    PRICES.table(region)
}

/// Regions that [`price_table`] has prices of. Sorted.
/// # Errors
/// As [`price_table`].
pub fn price_regions() -> Result<Vec<Arc<str>>, Ec2CatalogError> {
    PRICES.regions()
}

/// Instance types of a region and some of its zones (all of them when the list is empty), as a node class with default settings
/// and the AL2023 image gives them.
/// # Errors
/// `UnknownRegion` and `UnknownZone`, with what is known.
/// # Shape
/// Sorted by name. Types that no asked zone offers, and types that cannot be nodes, are left out.
pub fn embedded(region: &str, zones: &[&str]) -> Result<Vec<InstanceType>, Ec2CatalogError> {
    embedded_catalog()?.instance_types(region, zones)
}

/// Reads a catalogue of the same format from a file; it takes the place of the embedded one.
/// # Errors
/// One error for the first thing wrong: the file, the line, the field, what was found and what is allowed.
pub fn from_file(path: &Path) -> Result<Ec2Catalog, Ec2CatalogError> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Ec2CatalogError::Unreadable {
        file: file.clone(),
        message: format!("cannot be read: {error}"),
    })?;
    Ec2Catalog::parse(&file, &bytes)
}

impl Ec2Catalog {
    /// Reads a catalogue from memory; `file` is its name in errors.
    /// # Errors
    /// As [`from_file`].
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, Ec2CatalogError> {
        let mut rows = read::rows(file, &read::unpack(file, bytes)?)?;
        rows.sort_by(|a, b| a.info.name.cmp(&b.info.name));
        if let Some([twice, _]) = rows
            .windows(2)
            .find(|pair| matches!(pair, [a, b] if a.info.name == b.info.name))
        {
            let message = format!("type {:?} has more than one line", twice.info.name);
            return Err(Ec2CatalogError::Unreadable {
                file: file.to_owned(),
                message,
            });
        }
        Ok(Self {
            file: file.to_owned(),
            rows,
            more: BTreeMap::new(),
        })
    }

    /// All rows, sorted by type name.
    #[must_use]
    pub fn rows(&self) -> &[CatalogRow] {
        &self.rows
    }

    /// The row of a type.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&CatalogRow> {
        self.rows
            .binary_search_by(|row| (*row.info.name).cmp(name))
            .ok()
            .and_then(|at| self.rows.get(at))
    }

    /// What is known of a type apart from its hardware; also for types whose hardware is not known.
    #[must_use]
    pub fn tables(&self, name: &str) -> Option<&TypeTables> {
        self.find(name)
            .map(|row| &row.tables)
            .or_else(|| self.more.get(name))
    }

    /// Regions whose zones are known. Sorted.
    #[must_use]
    pub fn regions(&self) -> BTreeSet<&str> {
        self.rows
            .iter()
            .flat_map(|row| row.tables.zones.keys())
            .map(String::as_str)
            .collect()
    }

    /// Zones of a region. Sorted; empty for a region that is not known.
    #[must_use]
    pub fn zones(&self, region: &str) -> BTreeSet<&str> {
        self.rows
            .iter()
            .filter_map(|row| row.tables.zones.get(region))
            .flatten()
            .map(|zone| &**zone)
            .collect()
    }

    /// The instance types that simulations have: those of the first three zones of a region.
    ///
    /// # Errors
    /// `UnknownRegion`, with what is known.
    pub fn simulated_instance_types(
        &self,
        region: &str,
    ) -> Result<Vec<InstanceType>, Ec2CatalogError> {
        let zones: Vec<&str> = self.zones(region).into_iter().take(3).collect();
        self.instance_types(region, &zones)
    }

    /// As [`embedded`], for this catalogue.
    /// # Errors
    /// `UnknownRegion` and `UnknownZone`, with what is known.
    pub fn instance_types(
        &self,
        region: &str,
        zones: &[&str],
    ) -> Result<Vec<InstanceType>, Ec2CatalogError> {
        let known = self.zones(region);
        if known.is_empty() {
            let known = self.regions().into_iter().collect::<Vec<_>>().join(", ");
            return Err(Ec2CatalogError::UnknownRegion {
                file: self.file.clone(),
                region: region.to_owned(),
                known,
            });
        }
        if let Some(zone) = zones.iter().find(|zone| !known.contains(**zone)) {
            return Err(Ec2CatalogError::UnknownZone {
                file: self.file.clone(),
                region: region.to_owned(),
                zone: (*zone).to_owned(),
                nearest: nearest(zone, known.iter()),
                known: known.into_iter().collect::<Vec<_>>().join(", "),
            });
        }
        let asked: BTreeSet<&str> = if zones.is_empty() {
            known
        } else {
            zones.iter().copied().collect()
        };
        let shape = NodeSettings::default();
        let prices = price_table(region)?.map(|table| table.by_type);
        let types = self
            .rows
            .iter()
            .filter(|row| row.info.usable())
            .filter_map(|row| {
                let offered: Vec<&Arc<str>> = row
                    .tables
                    .zones
                    .get(region)?
                    .iter()
                    .filter(|zone| asked.contains(&***zone))
                    .collect();
                if offered.is_empty() {
                    return None;
                }
                let on_demand = prices.as_ref()?.get(&row.info.name).copied();
                let places = offered.into_iter().map(|zone| ZonePrices {
                    zone: Arc::clone(zone),
                    zone_id: zone_id(zone).map(Arc::from),
                    on_demand,
                    spot: on_demand.map(|price| assumed_spot_price(&row.info.name, zone, price)),
                });
                let placement = LaunchZones {
                    region: Arc::from(region),
                    places: places.collect(),
                    ..LaunchZones::default()
                };
                Some(row.info.instance_type(&shape, &placement))
            });
        Ok(types.collect())
    }
}

/// Spot price where no market price is known: between 300 and 700 thousandths of the on-demand price, always the same for a type
/// and zone. It is an assumption for demonstrations and for the minutes before live prices arrive, never a guarantee.
/// # Units
/// Rounded down to a whole millionth of a dollar per hour.
#[must_use]
pub fn assumed_spot_price(instance_type: &str, zone: &str, on_demand: MicroUsd) -> MicroUsd {
    let hash = fnv1a(instance_type.bytes().chain([b'/']).chain(zone.bytes()));
    let thousandths = 300 + i64::try_from(hash % 401).unwrap_or_default();
    let (whole, rest) = (on_demand.0 / 1000, on_demand.0 % 1000);
    MicroUsd(
        whole
            .saturating_mul(thousandths)
            .saturating_add(rest * thousandths / 1000),
    )
}

/// Zone ids of the regions in the embedded data.
/// # Source
/// Zone ids differ from account to account; this is the assignment that AWS's own emulators use.
const ZONE_IDS: [(&str, &str); 13] = [
    ("eu-west-1a", "euw1-az3"),
    ("eu-west-1b", "euw1-az1"),
    ("eu-west-1c", "euw1-az2"),
    ("us-east-1a", "use1-az6"),
    ("us-east-1b", "use1-az1"),
    ("us-east-1c", "use1-az2"),
    ("us-east-1d", "use1-az4"),
    ("us-east-1e", "use1-az3"),
    ("us-east-1f", "use1-az5"),
    ("us-west-2a", "usw2-az2"),
    ("us-west-2b", "usw2-az1"),
    ("us-west-2c", "usw2-az3"),
    ("us-west-2d", "usw2-az4"),
];

fn zone_id(zone: &str) -> Option<&'static str> {
    ZONE_IDS
        .iter()
        .find(|(name, _)| *name == zone)
        .map(|(_, id)| *id)
}

#[cfg(test)]
mod tests;
