//! On-demand prices by region, as AWS's price list had them on a day: what stands until live prices come, and for good where none
//! can be read.
//!
//! Invariant: a table holds amounts of one region, in one currency, of one day. Amounts leave a table only together with these, so
//! that prices of two regions or currencies are not compared by accident. Only the asked region is unpacked.
//!
//! # Source
//! `data/README.md` says where each table comes from.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use flate2::read::GzDecoder;
use jiff::civil::Date;
use mortise_apis::values::money::MicroUsd;
use serde::Deserialize;

use crate::error::Ec2CatalogError;
use crate::read::VERSION;

/// Kind of a file of prices, in its first line.
const KIND: &str = "prices";

/// Currency of a price list. Amounts are millionths of its unit per hour; no two currencies are ever compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Currency {
    /// US dollars: every partition but China's.
    #[serde(rename = "USD")]
    Usd,
    /// Chinese yuan.
    #[serde(rename = "CNY")]
    Cny,
}

impl Currency {
    /// The currency that a region is billed in.
    #[must_use]
    pub fn of_region(region: &str) -> Self {
        if region.starts_with("cn-") {
            Self::Cny
        } else {
            Self::Usd
        }
    }

    /// Its code, as price lists have it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Usd => "USD",
            Self::Cny => "CNY",
        }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// On-demand prices of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceTable {
    /// Region whose prices these are.
    pub region: Arc<str>,
    /// Currency of all amounts.
    pub currency: Currency,
    /// Day on which the price list said so.
    pub as_of: Date,
    /// Amount by type. Shared Linux prices; never zero.
    pub by_type: BTreeMap<Arc<str>, MicroUsd>,
}

/// A file of price tables: packed as it is stored, read again for each question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PriceFile {
    name: &'static str,
    packed: &'static [u8],
}

/// The first line.
#[derive(Deserialize)]
struct Header {
    #[serde(rename = "mortiseCatalog")]
    version: i64,
    kind: String,
}

/// A line, as far as it says whose prices follow.
#[derive(Deserialize)]
struct LineHead {
    region: Arc<str>,
}

/// A line: amounts by family (`m5`) and size (`large`).
#[derive(Deserialize)]
struct Line {
    region: Arc<str>,
    currency: Currency,
    #[serde(rename = "asOf")]
    as_of: Date,
    prices: BTreeMap<String, BTreeMap<String, u32>>,
}

impl PriceFile {
    /// A gzip-compressed file; `name` is for errors.
    pub(crate) const fn new(name: &'static str, packed: &'static [u8]) -> Self {
        Self { name, packed }
    }

    /// The table of a region; `None` when the file has none.
    /// # Errors
    /// The file is damaged; the text names the line.
    pub(crate) fn table(&self, region: &str) -> Result<Option<PriceTable>, Ec2CatalogError> {
        for line in self.lines() {
            let (number, text) = line?;
            let head: LineHead = self.parse(number, &text)?;
            if &*head.region == region {
                return self
                    .parse(number, &text)
                    .and_then(|line| self.read(number, line))
                    .map(Some);
            }
        }
        Ok(None)
    }

    /// Regions that have a table, in order.
    /// # Errors
    /// As [`Self::table`].
    pub(crate) fn regions(&self) -> Result<Vec<Arc<str>>, Ec2CatalogError> {
        let regions = self.lines().map(|line| {
            let (number, text) = line?;
            let head: LineHead = self.parse(number, &text)?;
            Ok(head.region)
        });
        regions.collect()
    }

    fn read(&self, number: usize, line: Line) -> Result<PriceTable, Ec2CatalogError> {
        let wrong = |field: &str, message: String| Ec2CatalogError::Field {
            file: self.name.to_owned(),
            line: number,
            instance_type: None,
            field: field.to_owned(),
            message,
        };
        let billed = Currency::of_region(&line.region);
        if line.currency != billed {
            return Err(wrong(
                "currency",
                format!(
                    "expected {billed}, in which {} is billed; got {}",
                    line.region, line.currency
                ),
            ));
        }
        let mut by_type = BTreeMap::new();
        for (family, sizes) in line.prices {
            for (size, amount) in sizes {
                let name = format!("{family}.{size}");
                if amount == 0 {
                    return Err(wrong(
                        &format!("prices.{name}"),
                        "expected a whole number of at least 1; got 0".to_owned(),
                    ));
                }
                by_type.insert(Arc::from(name), MicroUsd(i64::from(amount)));
            }
        }
        Ok(PriceTable {
            region: line.region,
            currency: line.currency,
            as_of: line.as_of,
            by_type,
        })
    }

    /// Lines with their numbers from 2; the first is checked and left out.
    fn lines(&self) -> impl Iterator<Item = Result<(usize, String), Ec2CatalogError>> + '_ {
        let unpacked: Box<dyn Read + '_> = Box::new(GzDecoder::new(self.packed));
        let lines = BufReader::new(unpacked).lines().enumerate();
        lines.filter_map(|(index, text)| {
            let text = match text {
                Ok(text) => text,
                Err(error) => return Some(Err(self.unreadable(&error))),
            };
            if index > 0 {
                return Some(Ok((index + 1, text)));
            }
            self.check_header(&text).err().map(Err)
        })
    }

    fn check_header(&self, text: &str) -> Result<(), Ec2CatalogError> {
        let header: Header = self.parse(1, text)?;
        if header.version == VERSION && header.kind == KIND {
            return Ok(());
        }
        Err(self.syntax(
            1,
            1,
            format!("expected {{\"mortiseCatalog\":{VERSION},\"kind\":\"{KIND}\"}}, got {text}"),
        ))
    }

    fn parse<'de, T: Deserialize<'de>>(
        &self,
        number: usize,
        text: &'de str,
    ) -> Result<T, Ec2CatalogError> {
        serde_json::from_str(text).map_err(|error| {
            let said = error.to_string();
            let said = said
                .split_once(" at line ")
                .map_or(&*said, |(said, _)| said);
            self.syntax(
                number,
                error.column(),
                format!("not a table of prices: {said}"),
            )
        })
    }

    fn syntax(&self, line: usize, column: usize, message: String) -> Ec2CatalogError {
        Ec2CatalogError::Syntax {
            file: self.name.to_owned(),
            line,
            column,
            message,
        }
    }

    fn unreadable(&self, error: &std::io::Error) -> Ec2CatalogError {
        Ec2CatalogError::Unreadable {
            file: self.name.to_owned(),
            message: format!("cannot be unpacked (gzip): {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const HEADER: &str = "{\"mortiseCatalog\":1,\"kind\":\"prices\"}\n";

    fn file(text: &str) -> PriceFile {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        PriceFile::new("p.gz", packed.finish().unwrap().leak())
    }

    fn line(region: &str, currency: &str, amount: &str) -> String {
        format!(
            "{{\"region\":\"{region}\",\"currency\":\"{currency}\",\"asOf\":\"2025-05-28\",\"prices\":{{\"m5\":{{\"large\":{amount}}}}}}}\n"
        )
    }

    #[test]
    fn the_table_of_the_region_alone_is_read() {
        let file = file(&format!(
            "{HEADER}{}{}",
            line("eu-west-1", "USD", "107000"),
            // Damaged, but whose it is can be read: it fails only who asks for it.
            line("us-east-1", "USD", "-1")
        ));
        let table = file.table("eu-west-1").unwrap().unwrap();
        assert_eq!(table.by_type.get("m5.large"), Some(&MicroUsd(107_000)));
        assert_eq!(table.as_of.to_string(), "2025-05-28");
        assert_eq!(file.table("eu-west-9").unwrap(), None);
        assert!(file.table("us-east-1").is_err());
        let regions = file.regions().unwrap();
        assert_eq!(
            regions,
            ["eu-west-1".into(), "us-east-1".into()] as [Arc<str>; 2]
        );
    }

    #[test]
    fn damaged_tables_are_refused_with_the_place() {
        let refused = |text: &str| file(text).table("cn-north-1").unwrap_err().to_string();
        assert_eq!(
            refused(&format!("{HEADER}{}", line("cn-north-1", "USD", "1"))),
            "instance type catalog p.gz, line 2, field `currency`: expected CNY, in which cn-north-1 is billed; got USD"
        );
        assert_eq!(
            refused(&format!("{HEADER}{}", line("cn-north-1", "CNY", "0"))),
            "instance type catalog p.gz, line 2, field `prices.m5.large`: expected a whole number of at least 1; got 0"
        );
        assert_eq!(
            refused(&format!("{HEADER}{}", line("cn-north-1", "CNY", "0.5"))),
            "instance type catalog p.gz, line 2, column 87: not a table of prices: invalid type: floating point `0.5`, expected u32"
        );
        let header = refused("{\"mortiseCatalog\":1,\"kind\":\"types\"}\n");
        assert!(header.contains("line 1, column 1: expected "), "{header}");
        let cut = PriceFile::new("p.gz", &file("x").packed[..9]);
        let cut = cut.table("cn-north-1").unwrap_err().to_string();
        assert!(cut.contains("cannot be unpacked"), "{cut}");
    }
}
