//! Nodes of the snapshot, launched or not, as the pass fills them.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::daemon_set_pods::DaemonSetPods;
use super::fits::{FreeCapacity, label_of, labels_meet, labels_of, ports_taken};
use super::plan::SolveOptions;
use super::pod_requirements::PodRequirements;
use super::pool_template::PoolTemplate;
use super::resource_vector::{ResourceDimensions, ResourceVector, fit, subtract};
use super::topology::TopologyKey;
use super::volumes::{Attachment, attached, can_attach};
use smallvec::SmallVec;

use mortise_apis::labels;
use mortise_apis::names::Uid;
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_state::catalog::{Bits, Catalog};
use mortise_state::ledger::{Nomination, NominationTarget};
use mortise_state::pods::HostPort;
use mortise_state::snapshot::{Snapshot, StateNode};

/// A node that pods may be placed on. Values that most rejections do not need are computed on first use.
#[derive(Debug)]
pub(super) struct ExistingNode<'a> {
    /// The node.
    pub(super) node: &'a StateNode,
    /// Its labels, hostname included; the requirements of its NodeClaim while it is not launched.
    labels: OnceCell<Box<Requirements>>,
    /// Catalog and the instance types it may become, while it is not launched.
    pub(super) unlaunched: Option<Box<(Arc<Catalog>, Bits)>>,
    /// Free resources; `None` if they are overcommitted.
    free: OnceCell<Option<ResourceVector>>,
    /// Host ports in use, and attached volumes.
    connections: OnceCell<Box<PortsAndVolumes>>,
    /// Index of its taint set.
    pub(super) taints: usize,
}

/// Resources of a node that are exclusive or limited in number.
#[derive(Debug, Default)]
struct PortsAndVolumes {
    ports: Vec<HostPort>,
    attached: BTreeSet<Attachment>,
}

/// Inputs that all nodes of a pass share.
pub(super) struct SolveContext<'a> {
    /// The cluster.
    pub(super) snapshot: &'a Snapshot,
    /// DaemonSets whose pods may still start.
    pub(super) daemons: &'a DaemonSetPods,
    /// Resources that count.
    pub(super) dimensions: &'a ResourceDimensions,
    /// Whether a pod belongs to the pass, so that its nomination is not counted.
    pub(super) is_in_pass: &'a dyn Fn(&Uid) -> bool,
}

/// Selects the nodes that accept pods, in the order of [`OrderedNodes`](mortise_state::snapshot::OrderedNodes), in which they are tried.
pub(super) struct ExistingNodeQuery<'a, 'c> {
    /// The cluster.
    pub(super) snapshot: &'a Snapshot,
    /// Inputs of the pass.
    pub(super) ground: &'c SolveContext<'c>,
    /// Which nodes are excluded.
    pub(super) options: &'c SolveOptions,
    /// NodePools of nodes that are not launched yet.
    pub(super) templates: &'c [PoolTemplate],
    /// The smallest CPU, memory and pod requests: nodes with less free than that are skipped.
    pub(super) least: [i64; 3],
}

impl<'a> ExistingNodeQuery<'a, '_> {
    /// The nodes.
    pub(super) fn hosts(&self) -> Vec<ExistingNode<'a>> {
        let options = self.options;
        let usable = self.snapshot.ordered_nodes.iter().filter(|node| {
            has_any_capacity(node, &self.least)
                && !options.without.contains(&node.key)
                && !options.closed.contains(&node.key)
        });
        usable
            .filter_map(|node| ExistingNode::new(self, node))
            .collect()
    }
}

/// Whether a node has this much free CPU, memory and pods, before nominations and DaemonSet pods are subtracted. Nodes
/// that are not launched pass; their capacity is checked later.
fn has_any_capacity(node: &StateNode, least: &[i64; 3]) -> bool {
    let (all, used) = (&node.allocatable, &node.used);
    let free = [
        all.cpu.saturating_sub(used.cpu),
        all.memory.saturating_sub(used.memory),
        all.pods.saturating_sub(used.pods),
    ];
    (node.node.is_none() && node.provider_id().is_none())
        || free.iter().zip(least).all(|(free, least)| free >= least)
}

impl<'a> ExistingNode<'a> {
    fn new(choice: &ExistingNodeQuery<'a, '_>, node: &'a StateNode) -> Option<Self> {
        let nameless = node.node.is_none() && node.claim.is_none();
        if nameless || FreeCapacity::closed(choice.snapshot, node).is_some() {
            return None;
        }
        let mut host = Self {
            node,
            labels: OnceCell::new(),
            unlaunched: None,
            free: OnceCell::new(),
            connections: OnceCell::new(),
            taints: 0,
        };
        if node.node.is_some() || node.provider_id().is_some() {
            return Some(host);
        }
        let claim = node.claim.as_ref()?;
        let mut templates = choice.templates.iter();
        let template =
            templates.find(|template| claim.pool().is_some_and(|pool| pool == template.name))?;
        let mut labels = claim.requirements();
        labels.add_all(&labels_of(node));
        let types = template.catalog.table().meeting(&labels);
        let ground = choice.ground;
        let mut free =
            FreeCapacity::free(ground.snapshot, &DaemonSetPods::default(), node, &|held| {
                !(ground.is_in_pass)(&held.uid)
            });
        free.add_assign(&smallest(template, &types)?);
        if ground.dimensions.is_overcommitted_elsewhere(&free) {
            return None;
        }
        host.free = OnceCell::from(Some(ground.dimensions.flat(&free)));
        host.labels = OnceCell::from(Box::new(labels));
        host.unlaunched = Some(Box::new((Arc::clone(&template.catalog), types)));
        Some(host)
    }

    /// Its name in the ledger.
    pub(super) fn place(&self) -> Option<NominationTarget> {
        match (self.node.node_name(), self.node.claim_name()) {
            (Some(name), _) if self.node.registered => Some(NominationTarget::Node(name)),
            (_, Some(claim)) => Some(NominationTarget::Claim(claim)),
            (Some(name), None) => Some(NominationTarget::Node(name)),
            (None, None) => None,
        }
    }

    fn free(&self, ground: &SolveContext<'_>) -> Option<&ResourceVector> {
        let free = self.free.get_or_init(|| {
            // Every nomination counts regardless of priority: a pass places its pods in order of priority anyway.
            let counts = |held: &Nomination| !(ground.is_in_pass)(&held.uid);
            let free = FreeCapacity::free(ground.snapshot, ground.daemons, self.node, &counts);
            let over = ground.dimensions.is_overcommitted_elsewhere(&free);
            (!over).then(|| ground.dimensions.flat(&free))
        });
        free.as_ref()
    }

    fn connections(&self, ground: &SolveContext<'_>) -> &PortsAndVolumes {
        self.connections.get_or_init(|| {
            let counts = |held: &Nomination| !(ground.is_in_pass)(&held.uid);
            Box::new(PortsAndVolumes {
                ports: ports_taken(ground.snapshot, self.node, &counts),
                attached: attached(ground.snapshot, self.node),
            })
        })
    }

    /// Whether it accepts a pod, other pods' topology ignored. `at`: its index.
    pub(super) fn admits(
        &self,
        ground: &SolveContext<'_>,
        ask: &mut PodRequirements,
        at: usize,
    ) -> bool {
        let own = &ask.resources;
        if !has_any_capacity(self.node, &[own.cpu, own.memory, own.pods]) {
            return false;
        }
        if !ask.suitable_hosts.has(at) {
            let suits = ask.tolerates[self.taints]
                && self.satisfies(&ask.requirements)
                && (ask.volumes.is_empty()
                    || ask.volumes.iter().any(|asked| self.satisfies(asked)));
            if !suits {
                return false;
            }
            ask.suitable_hosts.insert_growing(at);
        }
        if !self
            .free(ground)
            .is_some_and(|free| fit(&ask.requests, free))
        {
            return false;
        }
        if ask.ports.is_empty() && ask.attach.is_empty() {
            return true;
        }
        let PortsAndVolumes { ports, attached } = self.connections(ground);
        HostPort::conflict(&ask.ports, ports).is_none()
            && can_attach(ground.snapshot, self.node, attached, &ask.attach)
    }

    /// What is free of its CPU and memory with this pod on it, in thousandths of both together: kube-scheduler's `LeastAllocated`.
    pub(super) fn free_per_mille(&self, ground: &SolveContext<'_>, ask: &PodRequirements) -> i64 {
        let Some(free) = self.free(ground) else {
            return 0;
        };
        let all = [self.node.allocatable.cpu, self.node.allocatable.memory];
        let left = free.iter().zip(ask.requests.iter()).zip(all);
        left.map(|((free, asked), all)| (free - asked).max(0).saturating_mul(1_000) / all.max(1))
            .sum()
    }

    /// Subtracts a pod that is placed on it.
    pub(super) fn add_pod(&mut self, ground: &SolveContext<'_>, ask: &PodRequirements) {
        self.free(ground);
        if let Some(Some(free)) = self.free.get_mut() {
            subtract(free, &ask.requests);
        }
        if ask.ports.is_empty() && ask.attach.is_empty() {
            return;
        }
        self.connections(ground);
        if let Some(own) = self.connections.get_mut() {
            own.ports.extend(ask.ports.iter().cloned());
            own.attached.extend(ask.attach.iter().cloned());
        }
    }

    /// Its labels, or the requirements of its NodeClaim.
    pub(super) fn labels(&self) -> &Requirements {
        self.labels.get_or_init(|| Box::new(labels_of(self.node)))
    }

    /// Whether the labels satisfy requirements, for every instance type that it may become.
    pub(super) fn satisfies(&self, asked: &Requirements) -> bool {
        if self.unlaunched.is_none() {
            return labels_meet(self.node, asked);
        }
        asked.iter().all(
            |asked| match (self.labels().get(asked.key()), &self.unlaunched) {
                (Some(own), None) => own.has_intersection(asked),
                (Some(own), Some(_)) if own.operator() == Operator::In => {
                    own.values().iter().all(|value| asked.has(value))
                }
                (None, None) => asked.allows_absence(),
                (_, Some(unlaunched)) => {
                    let (catalog, types) = &**unlaunched;
                    catalog.table().all_satisfy(types, asked)
                }
            },
        )
    }

    /// The value of a label, when it is certain.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        if self.unlaunched.is_none() {
            return label_of(self.node, key);
        }
        let own = self
            .labels()
            .get(key)
            .filter(|own| own.operator() == Operator::In);
        match own.map_or(&[][..], Requirement::values) {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The domains in which it is or may become; none without such a label.
    pub(super) fn domains(&self, key: &TopologyKey) -> SmallVec<[usize; 4]> {
        match self.value(&key.name) {
            Some(value) => key.domain(value).into_iter().collect(),
            None if self.unlaunched.is_some() => key.possible(self.labels().get(&key.name)),
            None => SmallVec::new(),
        }
    }

    /// The value of its hostname label.
    pub(super) fn hostname(&self) -> &str {
        self.value(labels::HOSTNAME).unwrap_or_default()
    }
}

/// The smallest capacity that a NodeClaim can get: the minimum of each resource over its instance types, net of the
/// DaemonSet pods, because which of them run depends on the instance type.
fn smallest(template: &PoolTemplate, types: &Bits) -> Option<Resources> {
    let table = template.catalog.table();
    let net = types.iter().filter_map(|at| {
        let own = table.allocatable().get(at)?;
        let group = template.groups.iter().find(|group| group.types.has(at));
        Some(group.map_or_else(|| own.clone(), |group| own.sub(&group.overhead.requests)))
    });
    net.reduce(|least, each| least.min(&each))
}
