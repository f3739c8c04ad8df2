//! Machines that are there or coming, as places for pods.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::amounts::{Amounts, Dimensions};
use super::daemons::Daemons;
use super::fits::{Room, labels_of};
use super::plan::SolveOptions;
use super::template::Template;
use super::volumes::{Attachment, attached};
use crate::catalog::{Bits, Catalog};
use crate::labels;
use crate::ledger::Place;
use crate::names::Uid;
use crate::pods::HostPort;
use crate::requirements::{Operator, Requirement, Requirements};
use crate::resources::Resources;
use crate::snapshot::{Snapshot, StateNode};

/// A machine that pods may be placed on.
#[derive(Debug)]
pub(super) struct Host<'a> {
    /// The machine.
    pub(super) node: &'a StateNode,
    /// How the ledger names it.
    pub(super) place: Place,
    /// Its labels, host name included, worked out when first asked for. Of a machine that is not launched yet: what its
    /// claim requires.
    labels: OnceCell<Requirements>,
    /// What it may turn out to be, while it is not launched.
    pub(super) unlaunched: Option<(Arc<Catalog>, Bits)>,
    /// What is free.
    pub(super) free: Amounts,
    /// Host ports that are taken.
    pub(super) ports: Vec<HostPort>,
    /// Volumes that are attached.
    pub(super) attached: BTreeSet<Attachment>,
    /// Index of its taints among the profiles of the pass.
    pub(super) taints: usize,
}

/// Machines that take pods, in the order in which they are tried: initialized ones first, then by name.
pub(super) struct Choice<'a, 'c> {
    /// The cluster.
    pub(super) snapshot: &'a Snapshot,
    /// What is left out.
    pub(super) options: &'c SolveOptions,
    /// DaemonSets that may still come.
    pub(super) daemons: &'c Daemons,
    /// Resources that count.
    pub(super) dimensions: &'c Dimensions,
    /// Pools of machines that are not launched yet.
    pub(super) templates: &'c [Template],
    /// Pods whose promises do not count.
    pub(super) ours: &'c dyn Fn(&Uid) -> bool,
    /// The least CPU, memory and pods that any pod asks for: machines that have not even that are left out.
    pub(super) least: [i64; 3],
}

impl<'a> Choice<'a, '_> {
    /// The machines.
    pub(super) fn hosts(&self) -> Vec<Host<'a>> {
        let options = self.options;
        let usable = self.snapshot.nodes.values().filter(|node| {
            self.has_any_room(node)
                && !options.without.contains(&node.key)
                && !options.closed.contains(&node.key)
        });
        let mut hosts: Vec<Host<'a>> = usable.filter_map(|node| Host::of(self, node)).collect();
        hosts.sort_by(|a, b| {
            let key = |host: &Host<'a>| (!host.node.initialized, host.node.name(), &host.node.key);
            key(a).cmp(&key(b))
        });
        hosts
    }

    /// Whether a machine has room for some pod before promises and DaemonSet pods have theirs. What a machine will have that
    /// is not launched yet is found out later.
    fn has_any_room(&self, node: &StateNode) -> bool {
        let (all, used) = (&node.allocatable, &node.used);
        let free = [
            all.cpu.saturating_sub(used.cpu),
            all.memory.saturating_sub(used.memory),
            all.pods.saturating_sub(used.pods),
        ];
        (node.node.is_none() && node.provider_id().is_none())
            || free
                .iter()
                .zip(&self.least)
                .all(|(free, least)| free >= least)
    }
}

impl<'a> Host<'a> {
    fn of(choice: &Choice<'a, '_>, node: &'a StateNode) -> Option<Self> {
        let Choice {
            snapshot,
            daemons,
            dimensions,
            templates,
            ours,
            ..
        } = *choice;
        let place = match (node.node_name(), node.claim_name()) {
            (Some(name), _) if node.registered => Place::Node(name),
            (_, Some(claim)) => Place::Claim(claim),
            (Some(name), None) => Place::Node(name),
            (None, None) => return None,
        };
        // Every promise counts, whatever its priority: pods of this pass are placed in order of priority anyway.
        let room = |daemons: &Daemons| Room::of(snapshot, daemons, node, i32::MIN, ours);
        let (room, labels, unlaunched) = if node.node.is_some() || node.provider_id().is_some() {
            (room(daemons), OnceCell::new(), None)
        } else {
            let claim = node.claim.as_ref()?;
            let template = templates
                .iter()
                .find(|template| claim.pool().is_some_and(|pool| pool == template.name))?;
            let mut labels = claim.requirements();
            labels.add_all(&labels_of(node));
            let types = template.catalog.table().meeting(&labels);
            let mut room = room(&Daemons::default());
            room.free.add_assign(&smallest(template, &types)?);
            let labels = OnceCell::from(labels);
            (room, labels, Some((Arc::clone(&template.catalog), types)))
        };
        if room.closed.is_some() {
            return None;
        }
        if dimensions.is_overcommitted_elsewhere(&room.free) {
            return None;
        }
        Some(Self {
            node,
            place,
            labels,
            unlaunched,
            free: dimensions.flat(&room.free),
            ports: room.ports,
            attached: attached(snapshot, node),
            taints: 0,
        })
    }

    /// Its labels, or what its claim requires.
    pub(super) fn labels(&self) -> &Requirements {
        self.labels.get_or_init(|| labels_of(self.node))
    }

    /// Whether the labels are what is asked, whatever the machine turns out to be.
    pub(super) fn satisfies(&self, asked: &Requirements) -> bool {
        asked.iter().all(
            |asked| match (self.labels().get(asked.key()), &self.unlaunched) {
                (Some(own), None) => own.has_intersection(asked),
                (Some(own), Some(_)) if own.operator() == Operator::In => {
                    own.values().iter().all(|value| asked.has(value))
                }
                (None, None) => asked.allows_absence(),
                (_, Some((catalog, types))) => catalog.table().all_satisfy(types, asked),
            },
        )
    }

    /// The value of a label, when it is certain.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        let own = self
            .labels()
            .get(key)
            .filter(|own| own.operator() == Operator::In);
        match own.map_or(&[][..], Requirement::values) {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The name by which pods select it.
    pub(super) fn hostname(&self) -> &str {
        self.value(labels::HOSTNAME).unwrap_or_default()
    }
}

/// The least that a claim's machine can turn out to have: the smallest amount of each resource, net of the DaemonSet pods,
/// because which of them come is not known before the type is.
fn smallest(template: &Template, types: &Bits) -> Option<Resources> {
    let table = template.catalog.table();
    let net = types.iter().filter_map(|at| {
        let own = table.allocatable().get(at)?;
        let group = template.groups.iter().find(|group| group.types.has(at));
        Some(group.map_or_else(|| own.clone(), |group| own.sub(&group.overhead.requests)))
    });
    net.reduce(|least, each| least.min(&each))
}
