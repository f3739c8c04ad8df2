//! Recorded benchmark inputs: pods, instance types and one pool.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use flate2::read::GzDecoder;
use jiff::Timestamp;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::{NodePool, k8s};
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use mortise_state::snapshot::Snapshot;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

/// Folder of the inputs that come with the source.
pub(crate) fn own_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("inputs")
}

/// A pod as recorded.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RawPod {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) requests: Amounts,
    #[serde(default)]
    pub(crate) node_selector: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) affinity: Value,
    #[serde(default)]
    pub(crate) topology_spread_constraints: Vec<Value>,
    #[serde(default)]
    pub(crate) tolerations: Value,
}

/// CPU in milli, memory in bytes, pods.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Amounts {
    #[serde(default)]
    pub(crate) cpu_m: i64,
    #[serde(default)]
    pub(crate) memory_bytes: i64,
    #[serde(default)]
    pub(crate) pods: i64,
}

#[derive(Debug, Deserialize)]
struct RawPods {
    pods: Vec<RawPod>,
}

/// An instance type as recorded.
#[derive(Debug, Deserialize)]
pub(crate) struct RawType {
    pub(crate) name: String,
    requirements: Vec<RawRequirement>,
    capacity: Amounts,
    pub(crate) allocatable: Amounts,
    pub(crate) offerings: Vec<RawOffering>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RawOffering {
    pub(crate) zone: String,
    capacity_type: String,
    pub(crate) price: f64,
    pub(crate) available: bool,
}

#[derive(Debug, Deserialize)]
struct RawRequirement {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCatalog {
    instance_types: Vec<RawType>,
    #[serde(default)]
    well_known_labels: Vec<String>,
}

/// A file of a folder, plain or packed, without the end of its name.
pub(crate) fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T> {
    let (plain, packed) = (
        folder.join(format!("{name}.json")),
        folder.join(format!("{name}.json.gz")),
    );
    let reader: Box<dyn Read> = match (File::open(&plain), File::open(&packed)) {
        (Ok(file), _) => Box::new(std::io::BufReader::new(file)),
        (_, Ok(file)) => Box::new(std::io::BufReader::new(GzDecoder::new(file))),
        (Err(error), Err(_)) => {
            return Err(error).with_context(|| {
                format!(
                    "neither {} nor {} can be read",
                    plain.display(),
                    packed.display()
                )
            });
        }
    };
    serde_json::from_reader(reader).with_context(|| format!("{name} in {}", folder.display()))
}

/// The pods of an input, in the order in which they were generated.
pub(crate) fn pods(folder: &Path, input: &str) -> Result<Vec<RawPod>> {
    let file = input
        .trim_end_matches("-respect")
        .trim_end_matches("-ignore");
    Ok(read::<RawPods>(folder, &format!("pods-{file}"))?.pods)
}

/// The instance types.
pub(crate) fn types(folder: &Path) -> Result<Vec<RawType>> {
    Ok(read::<RawCatalog>(folder, "catalog")?.instance_types)
}

/// The instance types of a file, as a provider describes them.
pub(crate) fn catalog(folder: &Path, name: &str) -> Result<Vec<InstanceType>> {
    let catalog: RawCatalog = read(folder, name)?;
    catalog.instance_types.iter().map(instance_type).collect()
}

fn instance_type(raw: &RawType) -> Result<InstanceType> {
    let amounts = |of: Amounts| Resources::new(of.cpu_m, of.memory_bytes).with("pods", of.pods);
    let (capacity, allocatable) = (amounts(raw.capacity), amounts(raw.allocatable));
    let requirement = |each: &RawRequirement| -> Result<Requirement> {
        let operator: Operator = each.operator.parse()?;
        Ok(Requirement::new(
            each.key.as_str(),
            operator,
            each.values.iter().map(String::as_str),
        ))
    };
    let requirements: Requirements = raw
        .requirements
        .iter()
        .map(requirement)
        .collect::<Result<_>>()?;
    let offering = |each: &RawOffering| -> Result<Offering> {
        let capacity_type = CapacityType::parse(&each.capacity_type);
        Ok(Offering {
            zone: each.zone.as_str().into(),
            capacity_type: capacity_type
                .ok_or_else(|| anyhow!("capacity type {:?} of {}", each.capacity_type, raw.name))?,
            price: MicroUsd::from_dollars(each.price),
            available: each.available,
            reservation: None,
            labels: Vec::new(),
        })
    };
    Ok(InstanceType {
        name: raw.name.as_str().into(),
        requirements,
        overhead: capacity.sub(&allocatable),
        capacity,
        offerings: raw.offerings.iter().map(offering).collect::<Result<_>>()?,
        devices: Arc::default(),
    })
}

fn pod_object(raw: &RawPod) -> Result<k8s::Pod> {
    let object = json!({
        "metadata": {
            "name": raw.name, "namespace": raw.namespace, "uid": raw.uid, "labels": raw.labels,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {
                "cpu": format!("{}m", raw.requests.cpu_m), "memory": raw.requests.memory_bytes.to_string(),
            }}}],
            "nodeSelector": raw.node_selector,
            "affinity": raw.affinity,
            "topologySpreadConstraints": raw.topology_spread_constraints,
            "tolerations": if raw.tolerations.is_null() { json!([]) } else { raw.tolerations.clone() },
        },
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        ]},
    });
    serde_json::from_value(object).with_context(|| format!("pod {}", raw.name))
}

/// One pool and what it can launch, without pods and nodes.
pub(crate) fn empty(folder: &Path) -> Result<(Index, NodePool)> {
    let catalog: RawCatalog = read(folder, "catalog")?;
    let known = WellKnown::none()
        .with_keys(catalog.well_known_labels.iter().map(String::as_str))
        .with_domains([labels::GROUP]);
    let now = Timestamp::UNIX_EPOCH;
    let mut index = Index::new(known, false, now);
    let pool: Value = read(folder, "nodepool")?;
    let pool: NodePool = serde_json::from_value(pool["nodePool"].clone()).context("nodePool")?;
    let types = catalog
        .instance_types
        .iter()
        .map(instance_type)
        .collect::<Result<Vec<_>>>()?;
    index.set_catalog(&pool.node_class_key(), Arc::new(Catalog::build(types)));
    index.apply(ObjectEvent::Applied(
        Object::Pool(Box::new(pool.clone())),
        EventSource::Watch,
    ));
    Ok((index, pool))
}

/// The cluster of an input: its pods pending, one pool, no nodes.
pub(crate) fn snapshot(folder: &Path, input: &str) -> Result<Snapshot> {
    let (mut index, _) = empty(folder)?;
    for raw in pods(folder, input)? {
        index.apply(ObjectEvent::Applied(
            Object::Pod(Box::new(pod_object(&raw)?)),
            EventSource::Watch,
        ));
    }
    index.set_synced();
    Ok(index.freeze(Timestamp::UNIX_EPOCH))
}
