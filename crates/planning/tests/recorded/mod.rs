//! Recorded scheduling passes: reading them, and building the same cluster through the index.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use jiff::Timestamp;
use mortise_apis::k8s;
use mortise_apis::k8s::devices::ResourceSliceSpec;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::names::NamespacedName;
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::{NodeClaim, NodePool};
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_planning::scheduling::{ReservedCapacityMode, SolveOptions, SpreadDefaults};
use mortise_planning::settings::Settings;
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::ledger::{LedgerOp, Nomination, NominationTarget};
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use mortise_state::snapshot::Snapshot;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Where recorded answers are: the folder in the environment, or the repository's own.
fn folder(topic: &str) -> PathBuf {
    let facts = std::env::var_os("MORTISE_FACTS_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/facts"),
        PathBuf::from,
    );
    facts.join(topic)
}

/// The files of a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The records of all files about disruption whose name begins (or does not begin) with `catalogs`.
#[allow(
    dead_code,
    reason = "each test binary uses its own part of this module"
)]
pub(crate) fn disruptions(catalogs: bool) -> Vec<Value> {
    let mut all = Vec::new();
    let folder = folder("disruption");
    for path in files(&folder) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("catalogs") != catalogs || !name.contains(".jsonl") {
            continue;
        }
        let file = File::open(&path).unwrap();
        let reader: Box<dyn Read> = if name.ends_with(".gz") {
            Box::new(GzDecoder::new(file))
        } else {
            Box::new(file)
        };
        for line in BufReader::new(reader).lines() {
            all.push(serde_json::from_str(&line.unwrap()).unwrap());
        }
    }
    assert!(!all.is_empty(), "no records in {}", folder.display());
    all
}

/// The records of a file; empty when there is no such file.
pub(crate) fn lines(name: &str) -> Vec<Value> {
    let (plain, packed) = (
        folder("scheduling").join(format!("{name}.jsonl")),
        folder("scheduling").join(format!("{name}.jsonl.gz")),
    );
    let reader: Box<dyn Read> = match (File::open(&plain), File::open(&packed)) {
        (Ok(file), _) => Box::new(file),
        (_, Ok(file)) => Box::new(GzDecoder::new(file)),
        (Err(_), Err(_)) => return Vec::new(),
    };
    let all = BufReader::new(reader).lines().map(|line| line.unwrap());
    all.filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect()
}

/// Every tag that has a file.
#[allow(
    dead_code,
    reason = "each test binary uses its own part of this module"
)]
pub(crate) fn tags() -> Vec<String> {
    let mut names: Vec<String> = files(&folder("scheduling"))
        .iter()
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            Some(name.split_once(".jsonl")?.0.to_owned())
        })
        .filter(|name| name != "catalogs" && name != "instance-types")
        .collect();
    names.sort();
    names
}

/// Catalogues by hash, parsed when they are first asked for.
pub(crate) struct Catalogs {
    types: Vec<Value>,
    lists: BTreeMap<String, Value>,
    parsed: BTreeMap<String, Arc<Catalog>>,
}

impl Catalogs {
    pub(crate) fn read() -> Self {
        let lists = lines("catalogs")
            .into_iter()
            .map(|each| (each["hash"].as_str().unwrap().to_owned(), each));
        Self {
            types: lines("instance-types"),
            lists: lists.collect(),
            parsed: BTreeMap::new(),
        }
    }

    /// Further lists, from records that need more than the passes do.
    #[allow(dead_code, reason = "not every test has such records")]
    pub(crate) fn and(mut self, more: impl IntoIterator<Item = Value>) -> Self {
        for each in more {
            let hash = each["hash"].as_str().unwrap().to_owned();
            self.lists.entry(hash).or_insert(each);
        }
        self
    }

    /// The catalogue of a hash.
    pub(crate) fn get(&mut self, hash: &str) -> Result<Arc<Catalog>, String> {
        if let Some(known) = self.parsed.get(hash) {
            return Ok(Arc::clone(known));
        }
        let list = self
            .lists
            .get(hash)
            .ok_or_else(|| format!("no catalogue {hash}"))?;
        let types: Vec<&Value> = match list["instanceTypes"].as_array() {
            Some(types) => types.iter().collect(),
            None => list["types"]
                .as_array()
                .ok_or("types")?
                .iter()
                .map(|at| &self.types[at.as_u64().unwrap() as usize])
                .collect(),
        };
        let types: Result<Vec<InstanceType>, String> =
            types.into_iter().map(instance_type).collect();
        let catalog = Arc::new(Catalog::build(types?));
        self.parsed.insert(hash.to_owned(), Arc::clone(&catalog));
        Ok(catalog)
    }
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_json::from_value(value.clone()).map_err(|error| format!("{error}: {value}"))
}

pub(crate) fn resources(value: &Value) -> Result<Resources, String> {
    let list: Option<k8s::ResourceList> = read(value)?;
    Resources::from_api(&list.unwrap_or_default()).map_err(|error| error.to_string())
}

/// A list of requirement entries; entries with the same key hold together.
pub(crate) fn requirements(value: &Value) -> Result<Requirements, String> {
    let mut all = Requirements::new();
    for each in value.as_array().into_iter().flatten() {
        let operator: Operator = each["operator"]
            .as_str()
            .ok_or("operator")?
            .parse()
            .map_err(|error| format!("{error}"))?;
        let values: Option<Vec<String>> = read(&each["values"])?;
        let min = each["minValues"]
            .as_u64()
            .and_then(|min| u32::try_from(min).ok());
        let key = each["key"].as_str().ok_or("key")?;
        all.add(Requirement::new(key, operator, values.unwrap_or_default()).with_min_values(min));
    }
    Ok(all)
}

fn instance_type(value: &Value) -> Result<InstanceType, String> {
    let capacity = resources(&value["capacity"])?;
    let parts = ["kubeReserved", "systemReserved", "evictionThreshold"];
    let mut overhead = Resources::zero();
    for part in parts {
        overhead = overhead.add(&resources(&value["overhead"][part])?);
    }
    let offerings: Result<Vec<Offering>, String> = value["offerings"]
        .as_array()
        .into_iter()
        .flatten()
        .map(offering)
        .collect();
    Ok(InstanceType {
        name: value["name"].as_str().ok_or("name")?.into(),
        requirements: requirements(&value["requirements"])?,
        capacity,
        overhead,
        offerings: offerings?,
        devices: devices(&value["dynamicResources"])?,
    })
}

/// Drivers of recorded devices, in their order.
const DRIVERS: [&str; 2] = ["gpu.example.com", "nic.example.com"];

/// The devices that a type brings. Recorded are their amounts, without drivers, pools and names: all records call the driver
/// of the first list of devices by the first name, and of the second by the second; counters are the first driver's.
fn devices(value: &Value) -> Result<Arc<[ResourceSliceSpec]>, String> {
    let mut all = Vec::new();
    let mut drivers = DRIVERS.iter();
    for (at, each) in value["ResourceSliceTemplates"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let mut devices = Vec::new();
        for (number, device) in each["Devices"].as_array().into_iter().flatten().enumerate() {
            let lower = |name: &str| {
                let (first, rest) = name.split_at(1);
                format!("{}{rest}", first.to_ascii_lowercase())
            };
            let device = device.as_object().into_iter().flatten();
            let mut device: serde_json::Map<String, Value> = device
                .map(|(name, value)| (lower(name), value.clone()))
                .collect();
            device
                .entry("name")
                .or_insert_with(|| json!(format!("device-{at}-{number}")));
            devices.push(Value::Object(device));
        }
        let driver = match (devices.is_empty(), each["Driver"].as_str()) {
            (_, Some(driver)) => driver,
            (true, None) => DRIVERS[0],
            (false, None) => drivers
                .next()
                .ok_or("more devices than drivers are known")?,
        };
        all.push(read(&json!({
            "driver": driver,
            "pool": { "name": driver, "generation": 1, "resourceSliceCount": 1 },
            "devices": devices,
            "sharedCounters": each["SharedCounters"].as_array().cloned().unwrap_or_default(),
        }))?);
    }
    Ok(all.into())
}

fn offering(value: &Value) -> Result<Offering, String> {
    let all = requirements(&value["requirements"])?;
    let one = |key: &str| all.get(key).and_then(|each| each.values().first().cloned());
    let capacity_type = one(labels::CAPACITY_TYPE).ok_or("capacity type")?;
    let others = all
        .iter()
        .filter(|each| each.key() != labels::CAPACITY_TYPE && each.key() != labels::TOPOLOGY_ZONE);
    let reserved = value["reservationID"].as_str().map(|id| {
        (
            id.into(),
            value["reservationCapacity"].as_u64().unwrap_or(0) as u32,
        )
    });
    Ok(Offering {
        zone: one(labels::TOPOLOGY_ZONE).unwrap_or_default(),
        capacity_type: CapacityType::parse(&capacity_type).ok_or("capacity type")?,
        price: MicroUsd::from_dollars(value["price"].as_f64().ok_or("price")?),
        available: value["available"] == true,
        reservation: reserved,
        labels: others
            .filter_map(|each| {
                Some((
                    Arc::clone(each.shared_key()),
                    Arc::clone(each.values().first()?),
                ))
            })
            .collect(),
    })
}

/// A recorded pass as our own input.
pub(crate) struct World {
    pub(crate) snapshot: Snapshot,
    pub(crate) options: SolveOptions,
    pub(crate) now: Timestamp,
    /// Name of the node class as recorded, where it had to be changed because pools of one class see different types.
    #[allow(
        dead_code,
        reason = "each test binary uses its own part of this module"
    )]
    pub(crate) class_names: BTreeMap<String, String>,
}

#[expect(clippy::too_many_lines, reason = "one statement per part")]
pub(crate) fn world(record: &Value, catalogs: &mut Catalogs) -> Result<World, String> {
    let settings = &record["settings"];
    let known: Vec<String> = read(&settings["wellKnownLabels"])?;
    let known = WellKnown::none()
        .with_keys(known)
        .with_domains([labels::GROUP]);
    let now: Timestamp = record["clock"]
        .as_str()
        .ok_or("clock")?
        .parse()
        .map_err(|error| format!("{error}"))?;
    let mut index = Index::new(known, false, now);
    let mut apply = |object: Object| {
        index.apply(ObjectEvent::Applied(object, EventSource::Watch));
    };
    let objects = &record["objects"];
    let all = |kind: &str| objects[kind].as_array().cloned().unwrap_or_default();
    for each in all("namespaces") {
        let namespace = json!({"metadata": {"name": each["name"], "labels": each["labels"]}});
        apply(Object::Namespace(Box::new(read(&namespace)?)));
    }
    for each in all("persistentVolumeClaims") {
        apply(Object::VolumeClaim(Box::new(read(&each)?)));
    }
    for each in all("persistentVolumes") {
        apply(Object::Volume(Box::new(read(&each)?)));
    }
    for each in all("storageClasses") {
        apply(Object::StorageClass(Box::new(read(&each)?)));
    }
    for each in all("csiNodes") {
        apply(Object::CsiNode(Box::new(read(&each)?)));
    }
    for each in all("podDisruptionBudgets") {
        apply(Object::Pdb(Box::new(read(&each)?)));
    }
    for each in all("services") {
        apply(Object::Service(Box::new(read(&each)?)));
    }
    for each in all("replicationControllers") {
        apply(Object::ReplicationController(Box::new(read(&each)?)));
    }
    for each in all("replicaSets") {
        apply(Object::ReplicaSet(Box::new(read(&each)?)));
    }
    for each in all("statefulSets") {
        apply(Object::StatefulSet(Box::new(read(&each)?)));
    }
    for each in all("daemonSets") {
        apply(Object::DaemonSet(Box::new(read(&each)?)));
    }
    for each in all("resourceClaims") {
        apply(Object::ResourceClaim(Box::new(read(&each)?)));
    }
    for each in all("deviceClasses") {
        apply(Object::DeviceClass(Box::new(read(&each)?)));
    }
    for each in all("resourceSlices") {
        apply(Object::ResourceSlice(Box::new(read(&each)?)));
    }
    for each in record["cluster"]["nodes"].as_array().into_iter().flatten() {
        let going = each["markedForDeletion"] == true || each["deleted"] == true;
        let mark = |object: &Value| {
            let mut object = object.clone();
            if going {
                object["metadata"]["deletionTimestamp"] = record["clock"].clone();
            }
            object
        };
        if each["nodeClaim"].is_object() {
            let claim: NodeClaim = read(&mark(&each["nodeClaim"]))?;
            apply(Object::Claim(Box::new(claim)));
        }
        if each["node"].is_object() {
            apply(Object::Node(Box::new(read(&mark(&each["node"]))?)));
        }
    }
    for each in all("pods") {
        apply(Object::Pod(Box::new(read(&each)?)));
    }
    let mut class_names = BTreeMap::new();
    let mut class_of: BTreeMap<String, String> = BTreeMap::new();
    for each in all("nodePools") {
        let mut pool: NodePool = read(&each)?;
        let name = pool.metadata.name.clone().unwrap_or_default();
        let types = &record["instanceTypes"][&name];
        if let Some(hash) = types["catalog"].as_str() {
            let class = &mut pool.spec.template.spec.node_class_ref.name;
            let taken = class_of
                .entry(class.clone())
                .or_insert_with(|| hash.to_owned());
            if taken != hash {
                let own = format!("{class}-of-{name}");
                class_names.insert(own.clone(), class.clone());
                *class = own;
            }
            index.set_catalog(&pool.node_class_key(), catalogs.get(hash)?);
        } else {
            let class = &mut pool.spec.template.spec.node_class_ref.name;
            *class = format!("{class}-without-types");
        }
        index.apply(ObjectEvent::Applied(
            Object::Pool(Box::new(pool)),
            EventSource::Watch,
        ));
    }
    index.set_synced();
    // What the reference's state knew of a node may lag behind the API objects; a pod that no selector matches stands for the rest.
    let snapshot = index.freeze(now);
    for each in record["cluster"]["nodes"].as_array().into_iter().flatten() {
        let name = each["node"]["metadata"]["name"]
            .as_str()
            .unwrap_or_default();
        let Some(node) = snapshot.node(name) else {
            continue;
        };
        let unseen = node
            .free()
            .sub(&resources(&each["derived"]["available"])?)
            .max(&Resources::zero());
        if unseen.is_zero() {
            continue;
        }
        let requests: BTreeMap<String, String> = unseen
            .to_quantities()
            .into_iter()
            .filter(|(name, _)| name != "pods")
            .map(|(name, amount)| (name, amount.to_string()))
            .collect();
        for count in 0..unseen.pods.max(1) {
            let requests = if count == 0 {
                requests.clone()
            } else {
                BTreeMap::new()
            };
            let pod = json!({
                "metadata": {"namespace": "of-the-state", "name": format!("{name}-{count}"), "uid": format!("{name}-{count}")},
                "spec": {"nodeName": name, "containers": [{"name": "c", "resources": {"requests": requests}}]},
                "status": {"phase": "Running"},
            });
            index.apply(ObjectEvent::Applied(
                Object::Pod(Box::new(read(&pod)?)),
                EventSource::Watch,
            ));
        }
    }
    let spread_defaults = if settings["schedulerConfig"].is_null() {
        SpreadDefaults::default()
    } else {
        SpreadDefaults::from_config(&read(&settings["schedulerConfig"])?)
            .map_err(|error| error.to_string())?
    };
    let options = SolveOptions {
        pending: true,
        spread_defaults,
        reserved: if settings["featureGates"]["ReservedCapacity"] == true {
            ReservedCapacityMode::Strict
        } else {
            ReservedCapacityMode::Uncounted
        },
        ignore_devices: settings["ignoreDRARequests"] != false,
        respect_preferences: settings["preferencePolicy"] != "Ignore",
        min_values_best_effort: settings["minValuesPolicy"] == "BestEffort",
        max_instance_types: settings["maxInstanceTypes"]
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(600),
        ..SolveOptions::default()
    };
    Ok(World {
        snapshot: index.freeze(now),
        options,
        now,
        class_names,
    })
}

/// Nominations that the reference keeps in memory.
#[allow(
    dead_code,
    reason = "each test binary uses its own part of this module"
)]
pub(crate) fn nominate(record: &Value, world: &mut World) {
    let nodes = record["cluster"]["nodes"].as_array().into_iter().flatten();
    for (at, node) in nodes.filter(|node| node["nominated"] == true).enumerate() {
        let Some(name) = node["node"]["metadata"]["name"].as_str() else {
            continue;
        };
        Arc::make_mut(&mut world.snapshot.ledger).apply(LedgerOp::Nominate(Nomination {
            pod: NamespacedName::new("nowhere", format!("nominated-{at}")),
            uid: format!("nominated-{at}").into(),
            place: NominationTarget::Node(name.into()),
            requests: Resources::default(),
            priority: 0,
            from: world.now,
            until: Timestamp::MAX,
        }));
    }
}

/// The settings of a recorded disruption.
#[allow(
    dead_code,
    reason = "each test binary uses its own part of this module"
)]
pub(crate) fn settings(record: &Value, world: &World) -> Settings {
    let mut settings = Settings::default();
    let gates = &record["settings"]["featureGates"];
    settings.gates.spot_to_spot_consolidation = gates["SpotToSpotConsolidation"] == true;
    settings.gates.reserved_capacity = gates["ReservedCapacity"] == true;
    settings.max_instance_types = world.options.max_instance_types;
    settings.respect_preferences = world.options.respect_preferences;
    settings.min_values_best_effort = world.options.min_values_best_effort;
    settings
}
