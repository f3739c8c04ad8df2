//! Machines that are there or coming, as places for pods.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::amounts::{Amounts, Dimensions, subtract};
use super::ask::Ask;
use super::daemons::Daemons;
use super::fits::{Room, label_of, labels_meet, labels_of, ports_taken};
use super::plan::SolveOptions;
use super::template::Template;
use super::volumes::{Attachment, attached, can_attach};
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
    /// Host ports that are taken, worked out when first asked for.
    ports: OnceCell<Vec<HostPort>>,
    /// Volumes that are attached, worked out when first asked for.
    attached: OnceCell<BTreeSet<Attachment>>,
    /// Host ports and volumes of pods of this pass.
    added: Option<Box<Added>>,
    /// Index of its taints among the profiles of the pass.
    pub(super) taints: usize,
}

/// What pods of a pass bring to a machine, beside what they take of its free room.
#[derive(Debug, Default)]
struct Added {
    ports: Vec<HostPort>,
    attached: BTreeSet<Attachment>,
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
        let usable = self.snapshot.lineup.iter().filter(|node| {
            self.has_any_room(node)
                && !options.without.contains(&node.key)
                && !options.closed.contains(&node.key)
        });
        usable.filter_map(|node| Host::of(self, node)).collect()
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
        if Room::closed(snapshot, node).is_some() {
            return None;
        }
        // Every promise counts, whatever its priority: pods of this pass are placed in order of priority anyway.
        let free = |daemons: &Daemons| Room::free(snapshot, daemons, node, &|held| !ours(&held.uid));
        let (free, labels, unlaunched) = if node.node.is_some() || node.provider_id().is_some() {
            (free(daemons), OnceCell::new(), None)
        } else {
            let claim = node.claim.as_ref()?;
            let template = templates
                .iter()
                .find(|template| claim.pool().is_some_and(|pool| pool == template.name))?;
            let mut labels = claim.requirements();
            labels.add_all(&labels_of(node));
            let types = template.catalog.table().meeting(&labels);
            let mut free = free(&Daemons::default());
            free.add_assign(&smallest(template, &types)?);
            let labels = OnceCell::from(labels);
            (free, labels, Some((Arc::clone(&template.catalog), types)))
        };
        if dimensions.is_overcommitted_elsewhere(&free) {
            return None;
        }
        Some(Self {
            node,
            place,
            labels,
            unlaunched,
            free: dimensions.flat(&free),
            ports: OnceCell::new(),
            attached: OnceCell::new(),
            added: None,
            taints: 0,
        })
    }

    /// Gives a pod its room. `ours`: pods whose promises do not count.
    pub(super) fn take(&mut self, ask: &Ask) {
        subtract(&mut self.free, &ask.requests);
        if ask.ports.is_empty() && ask.attach.is_empty() {
            return;
        }
        let added = self.added.get_or_insert_default();
        added.ports.extend(ask.ports.iter().cloned());
        added.attached.extend(ask.attach.iter().cloned());
    }

    /// Whether host ports and volumes of a pod can come too. `ours`: pods whose promises do not count.
    pub(super) fn connects(
        &self,
        snapshot: &Snapshot,
        ask: &Ask,
        ours: &dyn Fn(&Uid) -> bool,
    ) -> bool {
        let none = Added::default();
        let added = self.added.as_deref().unwrap_or(&none);
        if !ask.ports.is_empty() {
            let taken = self.ports.get_or_init(|| {
                ports_taken(snapshot, self.node, &|held| !ours(&held.uid))
            });
            if HostPort::conflict(&ask.ports, taken).is_some()
                || HostPort::conflict(&ask.ports, &added.ports).is_some()
            {
                return false;
            }
        }
        if ask.attach.is_empty() {
            return true;
        }
        let there = self
            .attached
            .get_or_init(|| attached(snapshot, self.node));
        can_attach(snapshot, self.node, [there, &added.attached], &ask.attach)
    }

    /// Its labels, or what its claim requires.
    pub(super) fn labels(&self) -> &Requirements {
        self.labels.get_or_init(|| labels_of(self.node))
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
                (_, Some((catalog, types))) => catalog.table().all_satisfy(types, asked),
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
