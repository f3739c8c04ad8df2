//! May this pod be on this machine? The one answer that the extender, `simulate` and the solver share.

use std::fmt;

use serde::Serialize;

use super::Daemons;
use crate::labels::{self, WellKnown};
use crate::ledger::FenceReason;
use crate::names::Uid;
use crate::pods::HostPort;
use crate::requirements::{Requirement, Requirements};
use crate::resources::Resources;
use crate::snapshot::{Pod, PodClass, Snapshot, StateNode};
use crate::taints;

/// What is left of a machine once its pods, its promises and the DaemonSet pods still to come have theirs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Room {
    /// Resources left; negative amounts mean that it is overcommitted and takes nothing.
    pub free: Resources,
    /// Host ports that are taken.
    pub ports: Vec<HostPort>,
    /// It takes no pods at all.
    pub closed: Option<Closed>,
}

/// Why a machine takes no pods at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Closed {
    /// Its Node or claim is being deleted, or the cloud ends it.
    Deleting,
    /// It will go.
    Fenced(FenceReason),
}

impl Room {
    /// The room that a machine has for a pod of this priority. Promises to pods for which `ours` holds are not counted, nor
    /// those to pods of lower priority.
    #[must_use]
    pub fn of(
        snapshot: &Snapshot,
        daemons: &Daemons,
        node: &StateNode,
        priority: i32,
        ours: &dyn Fn(&Uid) -> bool,
    ) -> Self {
        let (node_name, claim_name) = node.names();
        let fence = claim_name.and_then(|claim| snapshot.ledger.fence(claim));
        let closed = if node.deleting {
            Some(Closed::Deleting)
        } else {
            fence.map(|fence| Closed::Fenced(fence.reason))
        };
        let mut free = node.free();
        free.sub_assign(&daemons.missing_on(node));
        let mut ports: Vec<HostPort> = node
            .pods
            .iter()
            .flat_map(|pod| pod.class.host_ports.iter().cloned())
            .collect();
        for held in snapshot.ledger.held_on(node_name, claim_name) {
            if held.priority < priority || ours(&held.uid) {
                continue;
            }
            free.sub_assign(&held.requests);
            let waiting = snapshot
                .pods
                .get(&held.pod)
                .filter(|pod| pod.uid == held.uid);
            ports.extend(
                waiting
                    .into_iter()
                    .flat_map(|pod| pod.class.host_ports.iter().cloned()),
            );
        }
        Self {
            free,
            ports,
            closed,
        }
    }
}

/// Why a pod may not be on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Misfit {
    /// The machine takes no pods.
    Closed(Closed),
    /// The pod does not tolerate a taint, given as `key=value:effect`.
    Taint(String),
    /// A host port is taken, or will be.
    HostPort {
        /// The port asked for.
        asked: HostPort,
        /// The port in its way.
        taken: HostPort,
    },
    /// There is too little of a resource; amounts in the units of [`Resources`].
    Resource {
        /// Resource name.
        resource: String,
        /// What the pod takes.
        asked: i64,
        /// What is free once promises are kept; may be negative.
        free: i64,
    },
    /// The labels are not what the pod asks for: what clashes, in upstream's words.
    Labels(String),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(Closed::Deleting) => f.write_str("the node is going away"),
            Self::Closed(Closed::Fenced(reason)) => {
                write!(f, "the node will go: {}", reason.label())
            }
            Self::Taint(taint) => write!(f, "did not tolerate taint {taint}"),
            Self::HostPort { asked, taken } => {
                write!(f, "host port {asked} conflicts with {taken}")
            }
            Self::Resource {
                resource,
                asked,
                free,
            } => {
                write!(f, "too little {resource}: asks for {asked}, {free} free")
            }
            Self::Labels(clash) => write!(f, "incompatible requirements, {clash}"),
        }
    }
}

/// Whether a pod may be on a machine with this room.
///
/// Looks at fences, taints, host ports, resources, and labels with every alternative of the pod's node affinity. What depends
/// on where other pods are (spread, pod affinity) and on volumes is for the scheduler's own filters, and for the solver.
///
/// # Errors
/// The first thing in the way, in that order.
pub fn fits(pod: &Pod, node: &StateNode, room: &Room) -> Result<(), Misfit> {
    fits_class(&pod.class, node, room)
}

/// As [`fits`], for any pod of a class.
///
/// # Errors
/// As [`fits`].
pub fn fits_class(class: &PodClass, node: &StateNode, room: &Room) -> Result<(), Misfit> {
    if let Some(closed) = room.closed {
        return Err(Misfit::Closed(closed));
    }
    let hard = node
        .taints
        .iter()
        .filter(|taint| taint.effect != taints::PREFER_NO_SCHEDULE);
    if let Some(taint) = taints::untolerated(hard, &class.tolerations).next() {
        return Err(Misfit::Taint(taints::text(taint)));
    }
    if let Some((asked, taken)) = HostPort::conflict(&class.host_ports, &room.ports) {
        return Err(Misfit::HostPort {
            asked: asked.clone(),
            taken: taken.clone(),
        });
    }
    if let Some(resource) = class.requests.exceeds_first(&room.free) {
        return Err(Misfit::Resource {
            resource: resource.to_owned(),
            asked: class.requests.get(resource),
            free: room.free.get(resource),
        });
    }
    match class.strict.as_slice() {
        [any] if any.is_empty() => Ok(()),
        alternatives => {
            let labels = labels_of(node);
            let none = WellKnown::none();
            if alternatives
                .iter()
                .any(|asked| labels.is_compatible(asked, &none))
            {
                return Ok(());
            }
            let clash = alternatives
                .first()
                .and_then(|asked| labels.compatible(asked, &none).err());
            Err(Misfit::Labels(
                clash.map(|clash| clash.to_string()).unwrap_or_default(),
            ))
        }
    }
}

/// The labels of a machine as requirements, its host name among them.
pub(super) fn labels_of(node: &StateNode) -> Requirements {
    let own = node
        .labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    let mut all = Requirements::from_labels(own);
    if !all.has_key(labels::HOSTNAME) {
        all.add(Requirement::is(labels::HOSTNAME, node.name()));
    }
    all
}
