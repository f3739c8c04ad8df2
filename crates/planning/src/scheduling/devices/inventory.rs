//! Device inventories: devices published in the cluster, or those that a new node comes with.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::NodeSelector;

use mortise_apis::k8s::devices::{Device, DeviceAttribute, ResourceSliceSpec};
use mortise_apis::labels;
use mortise_apis::requirements::{Requirements, expression};
use mortise_apis::values::Quantity;
use mortise_state::snapshot::Snapshot;

/// Who can use a device.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DeviceAccess<'a> {
    /// The node of this name.
    Node(&'a str),
    /// Every node.
    All,
    /// Nodes with these labels.
    Labels(Requirements),
    /// The node that comes with it.
    Carrier,
    /// No node, because its specification cannot be read.
    NoNode,
}

/// A pool of devices.
#[derive(Debug)]
pub(super) struct DevicePool<'a> {
    /// Its driver.
    pub(super) driver: &'a str,
    /// Its name.
    pub(super) name: &'a str,
    /// All its slices are there.
    pub(super) is_complete: bool,
    /// Two of its devices have the same name.
    pub(super) is_invalid: bool,
    /// Counters that its devices share, by set and name.
    pub(super) counters: BTreeMap<(&'a str, &'a str), Nanos>,
}

/// A device.
#[derive(Debug)]
pub(super) struct InventoryDevice<'a> {
    /// Index of its pool.
    pub(super) pool: usize,
    /// Its specification.
    pub(super) device: &'a Device,
    /// Who can use it.
    pub(super) reach: DeviceAccess<'a>,
}

/// Devices, by pool. Index says which.
#[derive(Debug, Default)]
pub(super) struct DeviceInventory<'a> {
    /// The pools. Sorted by driver and name.
    pub(super) pools: Vec<DevicePool<'a>>,
    /// The devices, pool by pool.
    pub(super) pieces: Vec<InventoryDevice<'a>>,
    /// Devices of one node each.
    pub(super) local: BTreeMap<&'a str, Vec<usize>>,
    /// Devices that several nodes can use.
    pub(super) wide: Vec<usize>,
    by_name: BTreeMap<(&'a str, &'a str, &'a str), usize>,
}

/// An amount, in billionths.
pub(super) type Nanos = i128;

/// An amount; zero where it cannot be read, which the API server prevents.
pub(super) fn amount(of: &k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> Nanos {
    Quantity::parse(&of.0).map_or(0, |of| of.nanos())
}

/// Devices of existing nodes, by NodePool and instance type: of each the first node by name whose devices are all
/// published.
pub(super) fn of_nodes(snapshot: &Snapshot) -> BTreeMap<(&str, &str), Vec<&ResourceSliceSpec>> {
    let mut by_node: BTreeMap<&str, Vec<&ResourceSliceSpec>> = BTreeMap::new();
    for (_, slice) in snapshot.devices.slices.sorted() {
        if let Some(node) = slice.spec.node_name.as_deref() {
            by_node.entry(node).or_default().push(&slice.spec);
        }
    }
    let mut all = BTreeMap::new();
    for (name, slices) in by_node {
        let Some(node) = snapshot.node(name) else {
            continue;
        };
        let stock = DeviceInventory::from_slices(slices.iter().copied());
        let is_whole = stock
            .pools
            .iter()
            .all(|pool| pool.is_complete && !pool.is_invalid);
        if !node.initialized || node.deleting || !is_whole {
            continue;
        }
        let (pool, of) = (
            node.label(labels::NODEPOOL),
            node.label(labels::INSTANCE_TYPE),
        );
        if let (Some(pool), Some(of)) = (pool, of) {
            all.entry((pool, of)).or_insert(slices);
        }
    }
    all
}

/// Access to the devices of a node with this name, of nodes like these, or of all.
fn reach<'a>(
    node: Option<&'a str>,
    selector: Option<&'a NodeSelector>,
    all: Option<bool>,
) -> DeviceAccess<'a> {
    if let Some(node) = node.filter(|node| !node.is_empty()) {
        return DeviceAccess::Node(node);
    }
    if all == Some(true) {
        return DeviceAccess::All;
    }
    // The API asks for exactly one term.
    let Some([term]) = selector.map(|selector| selector.node_selector_terms.as_slice()) else {
        return DeviceAccess::NoNode;
    };
    if let Some(field) = term.match_fields.iter().flatten().next() {
        let names = field.values.as_deref().unwrap_or_default();
        return match names {
            [name] if field.key == "metadata.name" && field.operator == "In" => {
                DeviceAccess::Node(name)
            }
            _ => DeviceAccess::NoNode,
        };
    }
    let mut labels = Requirements::new();
    for asked in term.match_expressions.iter().flatten() {
        match expression(asked) {
            Ok(asked) => labels.require(asked),
            Err(_) => return DeviceAccess::NoNode,
        }
    }
    DeviceAccess::Labels(labels)
}

impl<'a> DeviceInventory<'a> {
    /// The devices of these slices. Of each pool only the newest generation counts.
    pub(super) fn from_slices(slices: impl Iterator<Item = &'a ResourceSliceSpec>) -> Self {
        let mut pools: BTreeMap<(&str, &str), Vec<&ResourceSliceSpec>> = BTreeMap::new();
        for slice in slices {
            let key = (slice.driver.as_str(), slice.pool.name.as_str());
            pools.entry(key).or_default().push(slice);
        }
        let mut stock = Self::default();
        for ((driver, name), mut slices) in pools {
            let newest = slices.iter().map(|slice| slice.pool.generation).max();
            slices.retain(|slice| Some(slice.pool.generation) == newest);
            let wanted = slices
                .first()
                .map_or(0, |slice| slice.pool.resource_slice_count);
            let is_complete = i64::try_from(slices.len()).is_ok_and(|count| count == wanted);
            stock.add(driver, name, is_complete, &slices, |slice, device| {
                if slice.per_device_node_selection == Some(true) {
                    reach(
                        device.node_name.as_deref(),
                        device.node_selector.as_ref(),
                        device.all_nodes,
                    )
                } else {
                    reach(
                        slice.node_name.as_deref(),
                        slice.node_selector.as_ref(),
                        slice.all_nodes,
                    )
                }
            });
        }
        stock
    }

    /// The devices that a node comes with.
    pub(super) fn from_node_slices(slices: &[&'a ResourceSliceSpec]) -> Self {
        let mut pools: BTreeMap<(&str, &str), Vec<&ResourceSliceSpec>> = BTreeMap::new();
        for slice in slices {
            let key = (slice.driver.as_str(), slice.pool.name.as_str());
            pools.entry(key).or_default().push(slice);
        }
        let mut stock = Self::default();
        for ((driver, name), slices) in pools {
            stock.add(driver, name, true, &slices, |_, _| DeviceAccess::Carrier);
        }
        stock
    }

    fn add(
        &mut self,
        driver: &'a str,
        name: &'a str,
        is_complete: bool,
        slices: &[&'a ResourceSliceSpec],
        reach: impl Fn(&'a ResourceSliceSpec, &'a Device) -> DeviceAccess<'a>,
    ) {
        let pool = self.pools.len();
        let mut counters = BTreeMap::new();
        let mut names = BTreeSet::new();
        let mut is_invalid = false;
        for slice in slices {
            for set in &slice.shared_counters {
                for (counter, own) in &set.counters {
                    counters.insert((set.name.as_str(), counter.as_str()), amount(&own.value));
                }
            }
            for device in &slice.devices {
                is_invalid |= !names.insert(device.name.as_str());
                let at = self.pieces.len();
                let reach = reach(slice, device);
                match &reach {
                    DeviceAccess::Node(node) => self.local.entry(node).or_default().push(at),
                    DeviceAccess::All | DeviceAccess::Labels(_) => self.wide.push(at),
                    DeviceAccess::Carrier | DeviceAccess::NoNode => {}
                }
                self.by_name
                    .insert((driver, name, device.name.as_str()), at);
                self.pieces.push(InventoryDevice {
                    pool,
                    device,
                    reach,
                });
            }
        }
        self.pools.push(DevicePool {
            driver,
            name,
            is_complete,
            is_invalid,
            counters,
        });
    }

    /// The index of a device.
    pub(super) fn position(&self, driver: &str, pool: &str, device: &str) -> Option<usize> {
        self.by_name.get(&(driver, pool, device)).copied()
    }

    /// The driver of a device.
    pub(super) fn driver(&self, at: usize) -> &'a str {
        let piece = self.pieces.get(at);
        piece
            .and_then(|piece| self.pools.get(piece.pool))
            .map_or("", |pool| pool.driver)
    }

    /// The value of an attribute of a device: by its full name, or without the domain where that is the driver's.
    pub(super) fn attribute(&self, at: usize, name: &str) -> Option<&'a DeviceAttribute> {
        let all = &self.pieces.get(at)?.device.attributes;
        all.get(name).or_else(|| {
            let (domain, plain) = name.split_once('/')?;
            all.get(plain).filter(|_| domain == self.driver(at))
        })
    }
}
