//! The kwok catalog: 144 built-in instance types, or those of a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use mortise_apis::k8s::devices::ResourceSliceSpec;
use mortise_apis::labels;
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use serde::Deserialize;

/// vCPU sizes of the built-in types.
const CPUS: [i64; 12] = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256];
/// Family letter and GiB of memory per vCPU.
const FAMILIES: [(&str, i64); 3] = [("c", 2), ("s", 4), ("m", 8)];
const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];
const GIB: i64 = 1 << 30;

/// An invalid catalog file.
#[derive(Debug, thiserror::Error)]
pub enum TypesFileError {
    /// The file cannot be read.
    #[error("instance types file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The text is not the expected JSON; the source names line, column and field.
    #[error("instance types file {}: not a list of instance types: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// An entry is invalid.
    #[error("instance types file {}: entry {index} ({name:?}), field {field}: {problem}", path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// Position in the list, from 0.
        index: usize,
        /// Name of the type.
        name: String,
        /// Which field.
        field: &'static str,
        /// The problem and the allowed values.
        problem: String,
    },
}

/// The built-in types, sorted by name.
#[must_use]
pub fn instance_types() -> Vec<InstanceType> {
    let mut all = Vec::with_capacity(CPUS.len() * FAMILIES.len() * 4);
    for cpu in CPUS {
        for (family, factor) in FAMILIES {
            for os in [labels::OS_LINUX, labels::OS_WINDOWS] {
                for arch in [labels::ARCH_AMD64, labels::ARCH_ARM64] {
                    let name = format!("{family}-{cpu}x-{arch}-{os}");
                    let memory = cpu * factor * GIB;
                    let mut capacity = Resources::new(cpu * 1000, memory);
                    capacity.pods = (16 * cpu).clamp(0, 1024);
                    capacity.ephemeral_storage = 20 * GIB;
                    let offerings = ZONES
                        .iter()
                        .flat_map(|zone| {
                            [CapacityType::Spot, CapacityType::OnDemand].map(|capacity_type| {
                                Offering {
                                    zone: (*zone).into(),
                                    capacity_type,
                                    price: price(cpu, memory, capacity_type),
                                    available: true,
                                    reservation: None,
                                    labels: Vec::new(),
                                }
                            })
                        })
                        .collect();
                    all.push(instance_type(&name, &[arch], &[os], capacity, offerings));
                }
            }
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// 0.025 $ per vCPU and 0.001 $ per 10^9 bytes an hour; spot is 70 % of it.
fn price(cpu: i64, memory: i64, capacity_type: CapacityType) -> Option<MicroUsd> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "prices are rounded to millionths afterwards"
    )]
    let list = 0.025 * cpu as f64 + 0.001 * (memory as f64) / 1e9;
    MicroUsd::from_dollars(if capacity_type == CapacityType::Spot {
        list * 0.7
    } else {
        list
    })
}

fn instance_type(
    name: &str,
    arch: &[&str],
    os: &[&str],
    capacity: Resources,
    mut offerings: Vec<Offering>,
) -> InstanceType {
    offerings.sort_by(|a, b| (&a.zone, a.capacity_type).cmp(&(&b.zone, b.capacity_type)));
    let text = |name: &str| {
        capacity
            .to_quantities()
            .get(name)
            .map(ToString::to_string)
            .unwrap_or_default()
    };
    let cpu = text("cpu");
    let mut requirements = Requirements::new();
    let mut is_in = |key: &str, values: Vec<&str>| {
        requirements.add(Requirement::new(key, Operator::In, values))
    };
    is_in(labels::INSTANCE_TYPE, vec![name]);
    is_in(labels::ARCH, arch.to_vec());
    is_in(labels::OS, os.to_vec());
    is_in(
        labels::TOPOLOGY_ZONE,
        offerings.iter().map(|offering| &*offering.zone).collect(),
    );
    is_in(
        labels::CAPACITY_TYPE,
        offerings
            .iter()
            .map(|offering| offering.capacity_type.as_str())
            .collect(),
    );
    is_in(
        mortise_kwok_class::labels::INSTANCE_SIZE,
        vec![size(name).unwrap_or(&cpu)],
    );
    is_in(
        mortise_kwok_class::labels::INSTANCE_FAMILY,
        vec![name.split(['.', '-']).next().unwrap_or(name)],
    );
    is_in(mortise_kwok_class::labels::INSTANCE_CPU, vec![&cpu]);
    is_in(
        mortise_kwok_class::labels::INSTANCE_MEMORY,
        vec![&text("memory")],
    );
    InstanceType {
        name: name.into(),
        requirements,
        capacity,
        overhead: Resources::new(100, 10 << 20),
        offerings,
        devices: Arc::default(),
    }
}

/// The part after the dot of names such as `m5.large`.
fn size(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, size)| size)
}

#[derive(Deserialize)]
struct FileType {
    name: String,
    architecture: String,
    #[serde(rename = "operatingSystems")]
    operating_systems: Vec<String>,
    resources: std::collections::BTreeMap<String, Quantity>,
    offerings: Vec<FileOffering>,
    /// Devices of its instances: specs of ResourceSlices without their node.
    #[serde(default)]
    devices: Vec<ResourceSliceSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct FileOffering {
    available: bool,
    price: f64,
    requirements: Vec<FileRequirement>,
}

#[derive(Deserialize)]
struct FileRequirement {
    key: String,
    #[serde(default)]
    values: Vec<String>,
}

/// The types of a file in Karpenter's format: a list of `{name, architecture, operatingSystems, resources, offerings}`.
///
/// # Errors
/// One line with the file, the entry and the field.
pub fn from_file(path: &Path) -> Result<Vec<InstanceType>, TypesFileError> {
    let text = std::fs::read(path).map_err(|source| TypesFileError::Read {
        path: path.to_owned(),
        source,
    })?;
    let entries: Vec<FileType> =
        serde_json::from_slice(&text).map_err(|source| TypesFileError::Parse {
            path: path.to_owned(),
            source,
        })?;
    let mut all = Vec::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let name = entry.name.clone();
        let bad = |field, problem: String| TypesFileError::Entry {
            path: path.to_owned(),
            index,
            name: name.clone(),
            field,
            problem,
        };
        if entry.name.is_empty() {
            return Err(bad("name", "is empty".to_owned()));
        }
        let capacity = Resources::from_api(&entry.resources)
            .map_err(|error| bad("resources", error.to_string()))?;
        let offerings = entry
            .offerings
            .iter()
            .map(|each| offering(each).map_err(|problem| bad("offerings", problem)))
            .collect::<Result<_, _>>()?;
        let systems: Vec<&str> = entry.operating_systems.iter().map(String::as_str).collect();
        if let Some(nameless) = entry.devices.iter().find(|slice| slice.driver.is_empty()) {
            let pool = &nameless.pool.name;
            return Err(bad(
                "devices",
                format!("the driver of pool {pool:?} is missing"),
            ));
        }
        all.push(InstanceType {
            devices: entry.devices.into(),
            ..instance_type(
                &entry.name,
                &[&entry.architecture],
                &systems,
                capacity,
                offerings,
            )
        });
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

fn offering(entry: &FileOffering) -> Result<Offering, String> {
    let value = |key: &str| {
        entry
            .requirements
            .iter()
            .find(|each| each.key == key)
            .and_then(|each| each.values.first())
    };
    let zone = value(labels::TOPOLOGY_ZONE)
        .ok_or_else(|| format!("an offering names no {}", labels::TOPOLOGY_ZONE))?;
    let word = value(labels::CAPACITY_TYPE)
        .ok_or_else(|| format!("an offering names no {}", labels::CAPACITY_TYPE))?;
    let capacity_type = CapacityType::parse(word).ok_or_else(|| {
        format!(
            "{} is {word:?}; must be spot, on-demand or reserved",
            labels::CAPACITY_TYPE
        )
    })?;
    let price = MicroUsd::from_dollars(entry.price)
        .ok_or_else(|| format!("price {} is not a price", entry.price))?;
    Ok(Offering {
        zone: Arc::from(zone.as_str()),
        capacity_type,
        price: Some(price),
        available: entry.available,
        reservation: None,
        labels: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_types_match_the_documented_ones() {
        let types = instance_types();
        assert_eq!(types.len(), 144);
        let by_name = |name: &str| {
            types
                .iter()
                .find(|each| &*each.name == name)
                .unwrap_or_else(|| panic!("{name} is missing"))
        };
        let small = by_name("c-1x-amd64-linux");
        assert_eq!(small.offerings.len(), 8);
        assert_eq!(small.offerings[0].price, Some(MicroUsd(19_003)));
        assert_eq!(small.offerings[1].price, Some(MicroUsd(27_147)));
        assert_eq!(small.allocatable().cpu, 900);
        assert_eq!(small.allocatable().memory, 2038 << 20);
        assert_eq!(by_name("m-8x-arm64-linux").capacity.memory, 64 * GIB);
        assert_eq!(by_name("c-256x-amd64-windows").capacity.pods, 1024);
        assert!(
            small
                .requirements
                .get(mortise_kwok_class::labels::INSTANCE_SIZE)
                .is_some_and(|size| size.has("1"))
        );
        assert!(
            small
                .requirements
                .get(mortise_kwok_class::labels::INSTANCE_MEMORY)
                .is_some_and(|size| size.has("2Gi"))
        );
    }

    #[test]
    fn the_error_of_an_invalid_file_names_entry_and_field() {
        let dir = std::env::temp_dir().join(format!("mortise-kwok-catalog-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("types.json");
        let cases = [
            ("{", "not a list of instance types"),
            (
                r#"[{"name":"a","architecture":"amd64","operatingSystems":["linux"],"resources":{"cpu":"one"},"offerings":[]}]"#,
                "resources",
            ),
            (
                r#"[{"name":"a","architecture":"amd64","operatingSystems":["linux"],"resources":{"cpu":"1"},"offerings":[{"Available":true,"Price":1,"Requirements":[{"key":"topology.kubernetes.io/zone","values":["z"]},{"key":"karpenter.sh/capacity-type","values":["spto"]}]}]}]"#,
                "spto",
            ),
        ];
        for (text, part) in cases {
            std::fs::write(&path, text).unwrap();
            let error = from_file(&path).unwrap_err().to_string();
            assert!(
                error.contains(part) && error.contains("types.json"),
                "{error}"
            );
        }
        assert!(
            from_file(&dir.join("absent.json"))
                .unwrap_err()
                .to_string()
                .contains("absent.json")
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
