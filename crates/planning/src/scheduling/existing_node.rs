//! Machines that are there or coming, as places for pods.

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

/// A machine that pods may be placed on. What is not needed to refuse most pods is worked out when first asked for.
#[derive(Debug)]
pub(super) struct ExistingNode<'a> {
    /// The machine.
    pub(super) node: &'a StateNode,
    /// Its labels, host name included. Of a machine that is not launched yet: what its claim requires.
    labels: OnceCell<Box<Requirements>>,
    /// What it may turn out to be, while it is not launched.
    pub(super) unlaunched: Option<Box<(Arc<Catalog>, Bits)>>,
    /// What is free; `None` of a machine that takes nothing.
    free: OnceCell<Option<ResourceVector>>,
    /// Host ports that are taken, and volumes that are attached.
    connections: OnceCell<Box<PortsAndVolumes>>,
    /// Index of its taints among the profiles of the pass.
    pub(super) taints: usize,
}

/// What a machine gives only to one pod, or to some.
#[derive(Debug, Default)]
struct PortsAndVolumes {
    ports: Vec<HostPort>,
    attached: BTreeSet<Attachment>,
}

/// What is asked about machines.
pub(super) struct SolveContext<'a> {
    /// The cluster.
    pub(super) snapshot: &'a Snapshot,
    /// DaemonSets that may still come.
    pub(super) daemons: &'a DaemonSetPods,
    /// Resources that count.
    pub(super) dimensions: &'a ResourceDimensions,
    /// Pods whose promises do not count.
    pub(super) ours: &'a dyn Fn(&Uid) -> bool,
}

/// Machines that take pods, in the order in which they are tried: initialized ones first, then by name.
pub(super) struct ExistingNodeQuery<'a, 'c> {
    /// The cluster.
    pub(super) snapshot: &'a Snapshot,
    /// What is asked about it.
    pub(super) ground: &'c SolveContext<'c>,
    /// What is left out.
    pub(super) options: &'c SolveOptions,
    /// Pools of machines that are not launched yet.
    pub(super) templates: &'c [PoolTemplate],
    /// The least CPU, memory and pods that any pod asks for: machines that have not even that are left out.
    pub(super) least: [i64; 3],
}

impl<'a> ExistingNodeQuery<'a, '_> {
    /// The machines.
    pub(super) fn hosts(&self) -> Vec<ExistingNode<'a>> {
        let options = self.options;
        let usable = self.snapshot.ordered_nodes.iter().filter(|node| {
            has_any_room(node, &self.least)
                && !options.without.contains(&node.key)
                && !options.closed.contains(&node.key)
        });
        usable
            .filter_map(|node| ExistingNode::of(self, node))
            .collect()
    }
}

/// Whether a machine has so much CPU, memory and pods before promises and DaemonSet pods have theirs. What a machine will
/// have that is not launched yet is found out later.
fn has_any_room(node: &StateNode, least: &[i64; 3]) -> bool {
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
    fn of(choice: &ExistingNodeQuery<'a, '_>, node: &'a StateNode) -> Option<Self> {
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
                !(ground.ours)(&held.uid)
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

    /// How the ledger names it.
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
            // Every promise counts, whatever its priority: pods of a pass are placed in order of priority anyway.
            let counts = |held: &Nomination| !(ground.ours)(&held.uid);
            let free = FreeCapacity::free(ground.snapshot, ground.daemons, self.node, &counts);
            let over = ground.dimensions.is_overcommitted_elsewhere(&free);
            (!over).then(|| ground.dimensions.flat(&free))
        });
        free.as_ref()
    }

    fn connections(&self, ground: &SolveContext<'_>) -> &PortsAndVolumes {
        self.connections.get_or_init(|| {
            let counts = |held: &Nomination| !(ground.ours)(&held.uid);
            Box::new(PortsAndVolumes {
                ports: ports_taken(ground.snapshot, self.node, &counts),
                attached: attached(ground.snapshot, self.node),
            })
        })
    }

    /// Whether it takes a pod, but for where other pods are. `at`: its index.
    pub(super) fn admits(
        &self,
        ground: &SolveContext<'_>,
        ask: &mut PodRequirements,
        at: usize,
    ) -> bool {
        let own = &ask.resources;
        if !has_any_room(self.node, &[own.cpu, own.memory, own.pods]) {
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

    /// Gives a pod its room.
    pub(super) fn take(&mut self, ground: &SolveContext<'_>, ask: &PodRequirements) {
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

    /// Its labels, or what its claim requires.
    pub(super) fn labels(&self) -> &Requirements {
        self.labels.get_or_init(|| Box::new(labels_of(self.node)))
    }

    /// Whether the labels are what is asked, whatever the machine turns out to be.
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

    /// The domains in which it is, or may turn out to be: none where it has no such label.
    pub(super) fn domains(&self, key: &TopologyKey) -> SmallVec<[usize; 4]> {
        match self.value(&key.name) {
            Some(value) => key.domain(value).into_iter().collect(),
            None if self.unlaunched.is_some() => key.possible(self.labels().get(&key.name)),
            None => SmallVec::new(),
        }
    }

    /// The name by which pods select it.
    pub(super) fn hostname(&self) -> &str {
        self.value(labels::HOSTNAME).unwrap_or_default()
    }
}

/// The least that a claim's machine can turn out to have: the smallest amount of each resource, net of the DaemonSet pods,
/// because which of them come is not known before the type is.
fn smallest(template: &PoolTemplate, types: &Bits) -> Option<Resources> {
    let table = template.catalog.table();
    let net = types.iter().filter_map(|at| {
        let own = table.allocatable().get(at)?;
        let group = template.groups.iter().find(|group| group.types.has(at));
        Some(group.map_or_else(|| own.clone(), |group| own.sub(&group.overhead.requests)))
    });
    net.reduce(|least, each| least.min(&each))
}
