//! Reads catalog files: one JSON object per line, gzip-compressed or not. Errors name file, line and field.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use flate2::read::GzDecoder;
use mortise_apis::nearest::nearest;
use serde_json::{Map, Value};

use super::error::Ec2CatalogError;
use crate::instance_type_info::{Accelerator, Gpu, InstanceTypeInfo, Neuron};

/// Version of the file format that this build reads and writes.
pub(crate) const VERSION: i64 = 1;

/// Most bytes that a catalog may have when unpacked: a hundred times the embedded one, so that a wrong file ends in an error and not in swap.
const MAX_BYTES: u64 = 100 << 20;

/// Fields of the tables that EC2 itself does not describe.
const TABLE_FIELDS: [&str; 5] = [
    "type",
    "branchInterfaces",
    "windowsAddresses",
    "networkMbps",
    "zones",
];

/// Fields of EC2's own description.
const HARDWARE_FIELDS: [&str; 23] = [
    "arch",
    "vcpus",
    "memoryMiB",
    "cpuManufacturer",
    "clockMHz",
    "nestedVirtualization",
    "usage",
    "virtualization",
    "hypervisor",
    "enclaves",
    "placement",
    "ebsMbps",
    "diskGB",
    "nvme",
    "ena",
    "encryptionInTransit",
    "ipv4PerInterface",
    "interfaces",
    "defaultCard",
    "efa",
    "gpus",
    "inference",
    "neuron",
];

/// What is known about an instance type apart from its hardware.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeTables {
    /// Branch interfaces; 0 when it has none.
    pub branch_interfaces: i64,
    /// Addresses for Windows pods; 0 where the controller that hands them out does not know the type.
    pub windows_addresses: i64,
    /// Baseline network bandwidth in Mbps, where a number is published.
    pub network_mbps: Option<i64>,
    /// Zones that offer it, by region. Sorted.
    pub zones: BTreeMap<String, Vec<Arc<str>>>,
}

/// One line of a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogRow {
    /// The hardware.
    pub info: InstanceTypeInfo,
    /// Zones, and what EC2 does not describe.
    pub tables: TypeTables,
}

/// Unpacks (when gzip-compressed) and decodes a catalog file.
/// # Errors
/// `Unreadable` when it is larger than allowed, not valid gzip, or not UTF-8.
pub(crate) fn unpack(file: &str, bytes: &[u8]) -> Result<String, Ec2CatalogError> {
    let unreadable = |message: String| Ec2CatalogError::Unreadable {
        file: file.to_owned(),
        message,
    };
    let mut raw = Vec::new();
    let packed = bytes.starts_with(&[0x1f, 0x8b]);
    let read = if packed {
        GzDecoder::new(bytes)
            .take(MAX_BYTES + 1)
            .read_to_end(&mut raw)
    } else {
        bytes.take(MAX_BYTES + 1).read_to_end(&mut raw)
    };
    let length = read.map_err(|error| unreadable(format!("cannot be unpacked (gzip): {error}")))?;
    if length as u64 > MAX_BYTES {
        return Err(unreadable(format!(
            "is larger than {MAX_BYTES} bytes when unpacked; is it a catalog?"
        )));
    }
    String::from_utf8(raw).map_err(|error| {
        unreadable(format!(
            "is not UTF-8 text at byte {}",
            error.utf8_error().valid_up_to()
        ))
    })
}

/// Reads full rows. # Shape: in the order of the file.
pub(crate) fn rows(file: &str, text: &str) -> Result<Vec<CatalogRow>, Ec2CatalogError> {
    let mut rows = Vec::new();
    for (line, object) in objects(file, text, "types")? {
        let fields = Fields::new(file, line, &object);
        fields.only(HARDWARE_FIELDS.iter().chain(&TABLE_FIELDS))?;
        let name = fields.name()?;
        let tables = tables(&fields)?;
        rows.push(CatalogRow {
            info: hardware(&fields, name, &tables)?,
            tables,
        });
    }
    Ok(rows)
}

/// Reads rows of a file that has only what EC2 does not describe. # Shape: by type name.
pub(crate) fn tables_only(
    file: &str,
    text: &str,
) -> Result<BTreeMap<Arc<str>, TypeTables>, Ec2CatalogError> {
    let mut all = BTreeMap::new();
    for (line, object) in objects(file, text, "tables")? {
        let fields = Fields::new(file, line, &object);
        fields.only(TABLE_FIELDS.iter())?;
        all.insert(fields.name()?, tables(&fields)?);
    }
    Ok(all)
}

/// Line number and object.
type NumberedObject = (usize, Map<String, Value>);

/// The objects of a file behind its header line, with their line numbers.
fn objects(file: &str, text: &str, kind: &str) -> Result<Vec<NumberedObject>, Ec2CatalogError> {
    let syntax = |line: usize, column: usize, message: String| Ec2CatalogError::Syntax {
        file: file.to_owned(),
        line,
        column,
        message,
    };
    let mut objects = Vec::new();
    for (index, text) in text
        .lines()
        .enumerate()
        .filter(|(_, text)| !text.trim().is_empty())
    {
        let value: Value = serde_json::from_str(text).map_err(|error| {
            let said = error.to_string();
            let said = said
                .split_once(" at line ")
                .map_or(&*said, |(said, _)| said);
            syntax(index + 1, error.column(), format!("not valid JSON: {said}"))
        })?;
        let Value::Object(object) = value else {
            return Err(syntax(
                index + 1,
                1,
                format!("expected one JSON object per line, got {}", shown(&value)),
            ));
        };
        objects.push((index + 1, object));
    }
    let mut objects = objects.into_iter();
    let Some((line, header)) = objects.next() else {
        return Err(syntax(
            1,
            1,
            format!(
                "the file is empty; expected a first line {{\"mortiseCatalog\":{VERSION},\"kind\":\"{kind}\"}}"
            ),
        ));
    };
    let header = Fields::new(file, line, &header);
    if header.integer("mortiseCatalog", 0)? != VERSION {
        return Err(header.wrong(
            "mortiseCatalog",
            &format!("the number {VERSION}: the file's first line names its format"),
        ));
    }
    if &*header.text("kind")? != kind {
        return Err(header.wrong("kind", &format!("{kind:?}")));
    }
    Ok(objects.collect())
}

fn tables(fields: &Fields<'_>) -> Result<TypeTables, Ec2CatalogError> {
    let mut tables = TypeTables {
        branch_interfaces: fields.integer_or("branchInterfaces", 0, 0)?,
        windows_addresses: fields.integer_or("windowsAddresses", 0, 0)?,
        network_mbps: fields.optional_integer("networkMbps", 0)?,
        ..TypeTables::default()
    };
    if let Some(by_region) = fields.object("zones")? {
        for region in by_region.keys() {
            let mut zones = fields.nested("zones", by_region).texts(region)?;
            zones.sort();
            zones.dedup();
            tables.zones.insert(region.clone(), zones);
        }
    }
    Ok(tables)
}

fn hardware(
    fields: &Fields<'_>,
    name: Arc<str>,
    tables: &TypeTables,
) -> Result<InstanceTypeInfo, Ec2CatalogError> {
    let interfaces = fields.integers("interfaces", 0)?;
    let default_card =
        usize::try_from(fields.integer_or("defaultCard", 0, 0)?).unwrap_or(usize::MAX);
    if default_card >= interfaces.len() {
        return Err(fields.wrong(
            "defaultCard",
            &format!(
                "the index of one of the {} network cards of `interfaces`",
                interfaces.len()
            ),
        ));
    }
    let info = InstanceTypeInfo {
        name,
        architectures: fields.texts("arch")?,
        vcpus: fields.integer("vcpus", 1)?,
        memory_mib: fields.integer("memoryMiB", 1)?,
        cpu_manufacturer: fields.optional_text("cpuManufacturer")?,
        clock_mhz: fields.optional_integer("clockMHz", 1)?,
        nested_virtualization: fields.flag("nestedVirtualization")?,
        usage: fields.texts("usage")?,
        virtualization: fields.texts("virtualization")?,
        hypervisor: fields.optional_text("hypervisor")?,
        enclaves: fields.flag("enclaves")?,
        placement: if fields.has("placement") {
            fields.texts("placement")?
        } else {
            Vec::new()
        },
        ebs_mbps: fields.optional_integer("ebsMbps", 1)?,
        network_mbps: tables.network_mbps,
        disk_gb: fields.integer_or("diskGB", 0, 0)?,
        nvme: fields.flag("nvme")?,
        ena: fields.flag("ena")?,
        encryption_in_transit: fields.flag("encryptionInTransit")?,
        ipv4_per_interface: fields.integer("ipv4PerInterface", 1)?,
        interfaces,
        default_card,
        efa: fields.integer_or("efa", 0, 0)?,
        gpus: fields.items(
            "gpus",
            &["name", "manufacturer", "count", "memoryMiB"],
            |gpu| {
                Ok(Gpu {
                    name: gpu.text("name")?,
                    manufacturer: gpu.text("manufacturer")?,
                    count: gpu.integer("count", 0)?,
                    memory_mib: gpu.integer("memoryMiB", 0)?,
                })
            },
        )?,
        inference: fields.items("inference", &["name", "manufacturer", "count"], |item| {
            Ok(Accelerator {
                name: item.text("name")?,
                manufacturer: item.text("manufacturer")?,
                count: item.integer("count", 0)?,
            })
        })?,
        neuron: fields.items("neuron", &["name", "count", "cores"], |item| {
            Ok(Neuron {
                name: item.text("name")?,
                count: item.integer("count", 0)?,
                cores: item.integer("cores", 0)?,
            })
        })?,
        branch_interfaces: tables.branch_interfaces,
        windows_addresses: tables.windows_addresses,
    };
    Ok(info)
}

/// A JSON value as an error shows it: cut, so that one bad line does not fill the screen.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    let mut cut: String = text.chars().take(60).collect();
    if cut.len() < text.len() {
        cut.push_str("...");
    }
    cut
}

/// An object of a catalog line, with what an error must say about it.
struct Fields<'a> {
    file: &'a str,
    line: usize,
    instance_type: Option<&'a str>,
    path: String,
    object: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn new(file: &'a str, line: usize, object: &'a Map<String, Value>) -> Self {
        Self {
            file,
            line,
            instance_type: object.get("type").and_then(Value::as_str),
            path: String::new(),
            object,
        }
    }

    fn nested<'b>(&'b self, path: &str, object: &'b Map<String, Value>) -> Fields<'b> {
        Fields {
            file: self.file,
            line: self.line,
            instance_type: self.instance_type,
            path: format!("{}{path}.", self.path),
            object,
        }
    }

    fn error(&self, field: &str, message: String) -> Ec2CatalogError {
        Ec2CatalogError::Field {
            file: self.file.to_owned(),
            line: self.line,
            instance_type: self.instance_type.map(str::to_owned),
            field: format!("{}{field}", self.path),
            message,
        }
    }

    fn wrong(&self, field: &str, allowed: &str) -> Ec2CatalogError {
        let found = self.object.get(field).map_or_else(
            || "it is missing".to_owned(),
            |value| format!("got {}", shown(value)),
        );
        self.error(field, format!("expected {allowed}; {found}"))
    }

    /// Refuses fields that this build does not know: a misspelt optional field would otherwise read as "has none".
    fn only<'f>(
        &self,
        known: impl Iterator<Item = &'f &'f str> + Clone,
    ) -> Result<(), Ec2CatalogError> {
        for field in self.object.keys() {
            if !known.clone().any(|each| *each == field) {
                let hint = nearest(field, known.clone().copied())
                    .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                return Err(self.error(field, format!("this field is not known{hint}")));
            }
        }
        Ok(())
    }

    fn has(&self, field: &str) -> bool {
        self.object.contains_key(field)
    }

    fn name(&self) -> Result<Arc<str>, Ec2CatalogError> {
        let name = self.text("type")?;
        if name.is_empty()
            || name
                .chars()
                .any(|c| !(c.is_ascii_alphanumeric() || c == '.' || c == '-'))
        {
            return Err(self.wrong(
                "type",
                "letters, digits, dots and dashes, such as \"m5.large\"",
            ));
        }
        Ok(name)
    }

    fn text(&self, field: &str) -> Result<Arc<str>, Ec2CatalogError> {
        self.object
            .get(field)
            .and_then(Value::as_str)
            .map(Arc::from)
            .ok_or_else(|| self.wrong(field, "a text"))
    }

    fn optional_text(&self, field: &str) -> Result<Option<Arc<str>>, Ec2CatalogError> {
        if self.has(field) {
            self.text(field).map(Some)
        } else {
            Ok(None)
        }
    }

    fn texts(&self, field: &str) -> Result<Vec<Arc<str>>, Ec2CatalogError> {
        let texts = self
            .object
            .get(field)
            .and_then(Value::as_array)
            .filter(|list| !list.is_empty());
        let texts = texts.map(|list| {
            list.iter()
                .map(|each| each.as_str().map(Arc::from))
                .collect::<Option<Vec<_>>>()
        });
        texts
            .flatten()
            .ok_or_else(|| self.wrong(field, "a list of one or more texts"))
    }

    fn integer(&self, field: &str, least: i64) -> Result<i64, Ec2CatalogError> {
        let number = self
            .object
            .get(field)
            .and_then(Value::as_i64)
            .filter(|number| *number >= least);
        number.ok_or_else(|| self.wrong(field, &format!("a whole number of at least {least}")))
    }

    fn optional_integer(&self, field: &str, least: i64) -> Result<Option<i64>, Ec2CatalogError> {
        if self.has(field) {
            self.integer(field, least).map(Some)
        } else {
            Ok(None)
        }
    }

    fn integer_or(&self, field: &str, least: i64, absent: i64) -> Result<i64, Ec2CatalogError> {
        self.optional_integer(field, least)
            .map(|number| number.unwrap_or(absent))
    }

    fn integers(&self, field: &str, least: i64) -> Result<Vec<i64>, Ec2CatalogError> {
        let numbers = self
            .object
            .get(field)
            .and_then(Value::as_array)
            .filter(|list| !list.is_empty());
        let numbers = numbers.map(|list| {
            list.iter()
                .map(|each| each.as_i64().filter(|number| *number >= least))
                .collect::<Option<Vec<_>>>()
        });
        numbers.flatten().ok_or_else(|| {
            self.wrong(
                field,
                &format!("a list of one or more whole numbers of at least {least}"),
            )
        })
    }

    fn flag(&self, field: &str) -> Result<bool, Ec2CatalogError> {
        self.object.get(field).map_or(Ok(false), |value| {
            value
                .as_bool()
                .ok_or_else(|| self.wrong(field, "true or false"))
        })
    }

    fn object(&self, field: &str) -> Result<Option<&'a Map<String, Value>>, Ec2CatalogError> {
        self.object
            .get(field)
            .map(|value| {
                value
                    .as_object()
                    .ok_or_else(|| self.wrong(field, "an object by region"))
            })
            .transpose()
    }

    fn items<T>(
        &self,
        field: &str,
        known: &[&str],
        read: impl Fn(&Fields<'_>) -> Result<T, Ec2CatalogError>,
    ) -> Result<Vec<T>, Ec2CatalogError> {
        let Some(value) = self.object.get(field) else {
            return Ok(Vec::new());
        };
        let list = value
            .as_array()
            .ok_or_else(|| self.wrong(field, "a list of objects"))?;
        let items = list.iter().enumerate().map(|(index, item)| {
            let object = item.as_object().ok_or_else(|| {
                self.error(
                    &format!("{field}[{index}]"),
                    format!("expected an object; got {}", shown(item)),
                )
            })?;
            let fields = self.nested(&format!("{field}[{index}]"), object);
            fields.only(known.iter())?;
            read(&fields)
        });
        items.collect()
    }
}
