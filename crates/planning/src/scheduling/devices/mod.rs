//! Devices that pods claim (Dynamic Resource Allocation), as a part of a pass.
//!
//! # Problem
//! A pod with ResourceClaims fits on a node only if devices for all of them are available there: devices published in the
//! cluster and accessible from the node, or devices that its instance type comes with. A ResourceClaim that several pods
//! share is allocated once, and ties the pods to nodes with access to its devices.
//!
//! # Heuristic
//! [`fn@search`] decides for one node; the first result is used. Devices of the cluster are tried before those of a new
//! node. A new node may have several instance types: it is narrowed to those with enough devices, and the cluster devices
//! that any of them would use are reserved.
//!
//! # Invariants
//! A pass only adds allocations, so a rejection is final. A pass without ResourceClaims has no such state.
//!
//! # Non-goals
//! The best assignment of devices; preemption; rules that taint devices (DeviceTaintRule).
//!
//! # Source
//! `resource.k8s.io/v1` of Kubernetes 1.36; recorded results of the reference in `facts/scheduling`, tag `dra`.

mod cel;
mod claim_spec;
mod claims;
mod inventory;
mod placement;
mod reasons;
mod search;
mod usage;

pub(super) use placement::{find_on_node, narrow_to_devices};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::existing_node::ExistingNode;
use super::placements::PlacementTarget;
use super::pool_template::PoolTemplate;
use claim_spec::{CompiledClaimSpec, Programs};
use claims::{DeviceRequirements, PassResourceClaim, ResourceClaimAllocation};
use inventory::{DeviceAccess, DeviceInventory};
use mortise_apis::k8s::devices::ResourceSliceSpec;
use mortise_apis::names::Uid;
use mortise_apis::requirements::Requirements;
use mortise_state::catalog::Bits;
use mortise_state::snapshot::{Pod, Snapshot};
use search::{SearchInput, SearchNode, SearchResult, search};
use usage::{Share, Usage};

/// Index of device requirements.
pub(super) type DeviceRequirementsId = usize;

/// Index of the devices that an instance type comes with; 0 for none.
type DeviceTemplateId = usize;

/// The devices of a pass.
pub(super) struct Devices<'a> {
    snapshot: &'a Snapshot,
    /// Published devices.
    stock: DeviceInventory<'a>,
    /// Their usage, nominations included.
    used: Usage,
    /// Devices of instance types.
    kits: Vec<(Vec<&'a ResourceSliceSpec>, DeviceInventory<'a>)>,
    /// Devices of existing nodes, by NodePool and instance type: new nodes of the same kind get equal ones.
    seen: BTreeMap<(&'a str, &'a str), Vec<&'a ResourceSliceSpec>>,
    /// By template and type.
    kits_of: Vec<Vec<DeviceTemplateId>>,
    /// Compiled specifications, or why they are invalid.
    wanted: Vec<Result<CompiledClaimSpec, String>>,
    wanted_ids: BTreeMap<String, usize>,
    programs: Programs,
    claims: Vec<PassResourceClaim>,
    claim_ids: BTreeMap<(Arc<str>, Arc<str>), usize>,
    asks: Vec<DeviceRequirements>,
    ask_ids: BTreeMap<Vec<claims::PartKey>, DeviceRequirementsId>,
    /// Claims of each pod of the pass, part by part of its ask.
    claims_of: BTreeMap<Uid, Vec<usize>>,
    /// Pods that are relocated to another node.
    moving: BTreeSet<Uid>,
    /// How many pods of the pass use each claim by its name.
    users: BTreeMap<(Arc<str>, Arc<str>), usize>,
    /// Usage of the devices that new nodes come with.
    in_flight: BTreeMap<TargetKey, TemplateDeviceUsage>,
    /// The last allocation that was found, until it is committed.
    granted: Option<FoundAllocation>,
}

/// A node as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TargetKey {
    Host(usize),
    Claim(usize),
}

impl From<PlacementTarget> for TargetKey {
    fn from(of: PlacementTarget) -> Self {
        match of {
            PlacementTarget::Host(at) => Self::Host(at),
            PlacementTarget::Claim(at) => Self::Claim(at),
        }
    }
}

/// Usage of the devices that one new node comes with.
#[derive(Debug, Default)]
struct TemplateDeviceUsage {
    by_kit: BTreeMap<DeviceTemplateId, Usage>,
    drivers: BTreeSet<Arc<str>>,
}

/// Devices that a node has available: by device template, then open ResourceClaim.
#[derive(Debug, Default)]
struct FoundAllocation {
    by_kit: Vec<(DeviceTemplateId, Vec<Vec<Share>>)>,
    /// The ResourceClaims that these are for.
    open: Vec<usize>,
}

impl<'a> Devices<'a> {
    /// The devices of a pass with these pods. `is_left`: whether the pods of the named node are relocated.
    pub(super) fn new(
        snapshot: &'a Snapshot,
        templates: &[PoolTemplate],
        pods: impl Iterator<Item = &'a Arc<Pod>>,
        is_left: &dyn Fn(&str) -> bool,
    ) -> Self {
        let mut users: BTreeMap<(Arc<str>, Arc<str>), usize> = BTreeMap::new();
        let mut moving = BTreeSet::new();
        for pod in pods {
            if pod.node.is_some() {
                moving.insert(pod.uid.clone());
            }
            for name in claims::names(pod) {
                let key = (Arc::clone(&pod.key.namespace), Arc::clone(name));
                *users.entry(key).or_default() += 1;
            }
        }
        let mut slices = snapshot.devices.slices.sorted();
        slices.retain(|(_, slice)| {
            let owners = slice.metadata.owner_references.iter().flatten();
            let mut nodes = owners.filter(|owner| owner.kind == "Node");
            !nodes.any(|owner| is_left(&owner.name))
        });
        let mut this = Self {
            snapshot,
            stock: DeviceInventory::from_slices(slices.into_iter().map(|(_, slice)| &slice.spec)),
            used: Usage::default(),
            kits: vec![(Vec::new(), DeviceInventory::default())],
            seen: BTreeMap::new(),
            kits_of: Vec::new(),
            wanted: Vec::new(),
            wanted_ids: BTreeMap::new(),
            programs: Programs::default(),
            claims: Vec::new(),
            claim_ids: BTreeMap::new(),
            asks: Vec::new(),
            ask_ids: BTreeMap::new(),
            claims_of: BTreeMap::new(),
            moving,
            users,
            in_flight: BTreeMap::new(),
            granted: None,
        };
        let seen = inventory::of_nodes(snapshot);
        for template in templates {
            // The catalog of the snapshot: the NodePool of a template is one of its NodePools.
            let catalog = snapshot.catalog_of(&template.pool);
            let types = catalog.map(|catalog| catalog.types()).unwrap_or_default();
            let kits = types.iter().map(|of| {
                let key = (&*template.name, &*of.name);
                let like = seen.get(&key).filter(|_| of.devices.is_empty());
                this.kit(like.cloned().unwrap_or_else(|| of.devices.iter().collect()))
            });
            let kits = kits.collect();
            this.kits_of.push(kits);
        }
        this.seen = seen;
        this.count_allocated();
        this
    }

    fn kit(&mut self, slices: Vec<&'a ResourceSliceSpec>) -> DeviceTemplateId {
        if slices.is_empty() {
            return 0;
        }
        let known = self.kits.iter().position(|(own, _)| *own == slices);
        known.unwrap_or_else(|| {
            let stock = DeviceInventory::from_node_slices(&slices);
            self.kits.push((slices, stock));
            self.kits.len() - 1
        })
    }

    /// Counts devices of allocated ResourceClaims, except those that only relocated pods use.
    fn count_allocated(&mut self) {
        for claim in self.snapshot.devices.claims.values() {
            let Some(allocation) = &claim.status.allocation else {
                continue;
            };
            if claims::is_moving(claim, &self.moving) {
                continue;
            }
            for result in &allocation.devices.results {
                let at = self
                    .stock
                    .position(&result.driver, &result.pool, &result.device);
                let Some(device) = at else {
                    continue;
                };
                let consumed = result.consumed_capacity.iter();
                let share = Share {
                    is_brought: false,
                    device,
                    consumed: consumed
                        .map(|(name, own)| (name.clone(), inventory::amount(own)))
                        .collect(),
                    admin: result.admin_access == Some(true),
                };
                self.used.add(&self.stock, &share);
            }
        }
    }

    /// The device templates of an existing node, launched or not.
    fn kits_of_host(&mut self, host: &ExistingNode<'_>) -> BTreeSet<DeviceTemplateId> {
        let none = || BTreeSet::from([0]);
        let node = host.node;
        if node.initialized || !node.is_managed() {
            return none();
        }
        let pool = node.pool().and_then(|pool| self.snapshot.pools.get(&pool));
        let Some(catalog) = pool.and_then(|pool| self.snapshot.catalog_of(pool)) else {
            return none();
        };
        let types: Vec<usize> = match &host.unlaunched {
            Some(unlaunched) => unlaunched.1.iter().collect(),
            None => {
                let own = node.instance_type();
                own.and_then(|name| catalog.position(name))
                    .into_iter()
                    .collect()
            }
        };
        let types = types.into_iter().filter_map(|at| catalog.types().get(at));
        let name = node.pool();
        let kits: BTreeSet<DeviceTemplateId> = types
            .map(|of| {
                let key = (name.as_deref().unwrap_or_default(), &*of.name);
                let like = self.seen.get(&key).filter(|_| of.devices.is_empty());
                self.kit(like.cloned().unwrap_or_else(|| of.devices.iter().collect()))
            })
            .collect();
        if kits.is_empty() { none() } else { kits }
    }

    /// Searches one node with one device template.
    fn search(
        &self,
        open: &[usize],
        ask: &DeviceRequirements,
        kit: DeviceTemplateId,
        target: Option<TargetKey>,
        node: Option<&str>,
        (searched, counting): (SearchNode<'_>, bool),
    ) -> Result<SearchResult, String> {
        let none = Usage::default();
        let carried = target.and_then(|target| self.in_flight.get(&target));
        let brought_used = carried
            .and_then(|carried| carried.by_kit.get(&kit))
            .unwrap_or(&none);
        let local = node.and_then(|node| self.stock.local.get(node));
        let local = local.map_or(&[][..], Vec::as_slice);
        let empty = DeviceInventory::default();
        let brought = self.kits.get(kit).map_or(&empty, |(_, stock)| stock);
        let pool_of = |at: usize| self.stock.pools.get(self.stock.pieces.get(at)?.pool);
        let complete = local.iter().filter_map(|at| pool_of(*at));
        let published: BTreeSet<&'a str> = complete
            .filter(|pool| pool.is_complete)
            .map(|pool| pool.driver)
            .collect();
        // While a driver has not published all devices, those of the instance type count instead.
        let is_known = |at: &usize| {
            pool_of(*at).is_some_and(|pool| {
                let mut pools = brought.pools.iter();
                published.contains(pool.driver) || !pools.any(|own| own.driver == pool.driver)
            })
        };
        let local = local.iter().copied().filter(is_known);
        let visible: Vec<usize> = local.chain(self.stock.wide.iter().copied()).collect();
        let mut wanted = Vec::new();
        for part in open {
            let Some(part) = ask.parts.get(*part) else {
                continue;
            };
            match self.wanted.get(part.wanted) {
                Some(Ok(of)) => wanted.push((&*part.name, of)),
                Some(Err(why)) => return Err(why.clone()),
                None => {}
            }
        }
        search(
            &SearchInput {
                stock: &self.stock,
                used: &self.used,
                visible: &visible,
                brought,
                brought_used,
                published: &published,
                wanted: &wanted,
                counting,
            },
            searched,
        )
    }

    /// Whether an existing node has the requested devices. The result is kept until [`Self::commit`].
    ///
    /// # Errors
    /// It does not; the text states what is missing.
    pub(super) fn find_on_node(
        &mut self,
        ask: DeviceRequirementsId,
        host: &ExistingNode<'_>,
        at: usize,
    ) -> Result<(), String> {
        let kits = self.kits_of_host(host);
        let target = TargetKey::Host(at);
        let suits = |asked: &Requirements| host.satisfies(asked);
        let asked = self.asks.get(ask).ok_or("no such ask")?;
        if let Some(fault) = &asked.fault {
            return Err(fault.clone());
        }
        let open = self.open(
            asked,
            Some(target),
            host.node.node_name().as_deref(),
            &suits,
        )?;
        let name = host.node.node_name();
        let has_own = name
            .as_deref()
            .is_some_and(|name| self.stock.local.contains_key(name));
        let brings = kits.iter().any(|kit| *kit > 0);
        if !open.is_empty() && !has_own && !brings && self.stock.wide.is_empty() {
            return Err("the node has no devices".to_owned());
        }
        let mut by_kit = Vec::new();
        for kit in kits {
            let searched = SearchNode::Settled(&suits);
            let found = self.search(
                &open,
                asked,
                kit,
                Some(target),
                name.as_deref(),
                (searched, false),
            )?;
            by_kit.push((kit, found.shares));
        }
        self.granted = Some(FoundAllocation { by_kit, open });
        Ok(())
    }

    /// Which of these instance types, as new nodes of this template, have the requested devices, and what is then required
    /// of the node. The result is kept until [`Self::commit`].
    ///
    /// # Errors
    /// None has; the text states what is missing.
    pub(super) fn find_on_template(
        &mut self,
        ask: DeviceRequirementsId,
        target: Option<usize>,
        template: usize,
        requirements: &Requirements,
        types: &Bits,
    ) -> Result<(Bits, Requirements), String> {
        let asked = self.asks.get(ask).ok_or("no such ask")?;
        if let Some(fault) = &asked.fault {
            return Err(fault.clone());
        }
        let target = target.map(TargetKey::Claim);
        let known = &self.snapshot.well_known;
        let mut all = requirements.clone();
        let placed = self.required(asked);
        if !all.is_compatible(&placed, known) {
            return Err(format!(
                "a ResourceClaim is allocated to nodes with {placed}, which excludes nodes of the NodePool"
            ));
        }
        all.require_all(&placed);
        let open = self.open(asked, target, None, &|_| true)?;
        let none = Vec::new();
        let kits_of = self.kits_of.get(template).unwrap_or(&none);
        let mut left = Bits::none(kits_of.len());
        let mut by_kit: Vec<(DeviceTemplateId, Vec<Vec<Share>>)> = Vec::new();
        let mut refused: BTreeMap<DeviceTemplateId, String> = BTreeMap::new();
        for at in types.iter() {
            let kit = kits_of.get(at).copied().unwrap_or(0);
            if refused.contains_key(&kit) {
                continue;
            }
            if !by_kit.iter().any(|(known, _)| *known == kit) {
                let searched = SearchNode::Open {
                    requirements: all.clone(),
                    known,
                };
                match self.search(&open, asked, kit, target, None, (searched, false)) {
                    Ok(found) => {
                        if let Some(narrowed) = found.requirements {
                            all = narrowed;
                        }
                        by_kit.push((kit, found.shares));
                    }
                    Err(why) => {
                        refused.insert(kit, why);
                        continue;
                    }
                }
            }
            left.insert(at);
        }
        if by_kit.is_empty() {
            // Instance types with devices give better reasons than those without.
            let last = refused.into_iter().next_back();
            return Err(last.map_or_else(|| "no types are left".to_owned(), |(_, why)| why));
        }
        self.granted = Some(FoundAllocation { by_kit, open });
        Ok((left, all))
    }

    /// Commits the allocation that the last search found.
    pub(super) fn commit(&mut self, pod: &Uid, target: PlacementTarget) {
        let target = TargetKey::from(target);
        let Some(grant) = self.granted.take() else {
            return;
        };
        let carried = self.in_flight.entry(target).or_default();
        // Cluster devices that any of the device templates would use are reserved.
        let mut held: Vec<&Share> = Vec::new();
        for (kit, parts) in &grant.by_kit {
            let Some((_, stock)) = self.kits.get(*kit) else {
                continue;
            };
            let used = carried.by_kit.entry(*kit).or_default();
            let mut own: Vec<&Share> = Vec::new();
            for share in parts.iter().flatten() {
                if share.is_brought {
                    used.add(stock, share);
                    carried.drivers.insert(stock.driver(share.device).into());
                } else {
                    own.push(share);
                }
            }
            // Equal shares within one device template are two shares; equal shares of two templates are one.
            for share in own {
                let count = |of: &[&Share]| of.iter().filter(|each| **each == share).count();
                let mine = parts.iter().flatten().filter(|each| *each == share).count();
                if count(&held) < mine {
                    held.push(share);
                }
            }
        }
        for share in held {
            self.used.add(&self.stock, share);
        }
        let claims = self.claims_of.get(pod).cloned().unwrap_or_default();
        for (nth, part) in grant.open.iter().enumerate() {
            let Some(claim) = claims.get(*part).and_then(|at| self.claims.get_mut(*at)) else {
                continue;
            };
            let shares = grant
                .by_kit
                .iter()
                .filter_map(|(_, parts)| parts.get(nth))
                .flatten();
            let mut everywhere = true;
            let mut requirements = Requirements::new();
            for share in shares {
                let reach = self
                    .stock
                    .pieces
                    .get(share.device)
                    .map(|piece| &piece.reach);
                match reach.filter(|_| !share.is_brought) {
                    Some(DeviceAccess::All) => {}
                    Some(DeviceAccess::Labels(asked)) => requirements.require_all(asked),
                    _ => everywhere = false,
                }
            }
            claim.standing = ResourceClaimAllocation::Given {
                at: (!everywhere).then_some(target),
                requirements,
            };
        }
    }

    /// Drivers whose devices pods get because the new node comes with them. Sorted.
    pub(super) fn drivers_of(&self, claim: usize) -> Vec<Arc<str>> {
        let carried = self.in_flight.get(&TargetKey::Claim(claim));
        carried.map_or_else(Vec::new, |carried| {
            carried.drivers.iter().cloned().collect()
        })
    }

    /// Whether pods with ResourceClaims are on an in-flight NodeClaim.
    pub(super) fn concerns(&self, claim: usize) -> bool {
        self.in_flight.contains_key(&TargetKey::Claim(claim))
    }
}
