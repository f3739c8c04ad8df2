//! May this pod be on this machine? The one answer that the extender, `simulate` and the solver share.

use super::DaemonSetPods;
use crate::reason::{FitError, UnschedulableNode};
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::names::Uid;
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::taints;
use mortise_state::ledger::Nomination;
use mortise_state::pods::HostPort;
use mortise_state::snapshot::{Pod, PodClass, Snapshot, StateNode};

/// What is left of a machine once its pods, its promises and the DaemonSet pods still to come have theirs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FreeCapacity {
    /// Resources left; negative amounts mean that it is overcommitted and takes nothing.
    pub free: Resources,
    /// Host ports that are taken.
    pub ports: Vec<HostPort>,
    /// It takes no pods at all.
    pub closed: Option<UnschedulableNode>,
}

impl FreeCapacity {
    /// The room that a machine has for a pod of this priority. Promises to pods for which `ours` holds are not counted, nor
    /// those to pods of lower priority.
    #[must_use]
    pub fn of(
        snapshot: &Snapshot,
        daemons: &DaemonSetPods,
        node: &StateNode,
        priority: i32,
        ours: &dyn Fn(&Uid) -> bool,
    ) -> Self {
        let counts = |held: &Nomination| held.priority >= priority && !ours(&held.uid);
        Self {
            free: Self::free(snapshot, daemons, node, &counts),
            ports: ports_taken(snapshot, node, &counts),
            closed: Self::closed(snapshot, node),
        }
    }

    /// Why the machine takes no pods at all.
    pub fn closed(snapshot: &Snapshot, node: &StateNode) -> Option<UnschedulableNode> {
        if node.deleting {
            return Some(UnschedulableNode::Deleting);
        }
        if snapshot.ledger.fences().is_empty() {
            return None; // almost always: the names need not be looked up
        }
        let (_, claim_name) = node.names();
        let fence = claim_name.and_then(|claim| snapshot.ledger.fence(claim));
        fence.map(|fence| UnschedulableNode::Fenced(fence.reason))
    }

    /// What is left of its resources, where the promises count that `counts` says.
    pub(super) fn free(
        snapshot: &Snapshot,
        daemons: &DaemonSetPods,
        node: &StateNode,
        counts: &dyn Fn(&Nomination) -> bool,
    ) -> Resources {
        let (node_name, claim_name) = node.names();
        let mut free = node.free();
        free.sub_assign(&daemons.missing_on(node));
        let held = snapshot.ledger.nominations_of_node(node_name, claim_name);
        held.filter(|held| counts(held))
            .for_each(|held| free.sub_assign(&held.requests));
        free
    }
}

/// Host ports that are taken on a machine: those of its pods, and of the promises that `counts` says.
pub(super) fn ports_taken(
    snapshot: &Snapshot,
    node: &StateNode,
    counts: &dyn Fn(&Nomination) -> bool,
) -> Vec<HostPort> {
    let (node_name, claim_name) = node.names();
    let promised = snapshot.ledger.nominations_of_node(node_name, claim_name);
    let waiting = promised.filter(|held| counts(held)).filter_map(|held| {
        let pod = snapshot.pods.get(&held.pod);
        pod.filter(|pod| pod.uid == held.uid)
    });
    node.pods
        .iter()
        .chain(waiting)
        .flat_map(|pod| pod.class.host_ports.iter().cloned())
        .collect()
}

/// Whether a pod may be on a machine with this room.
///
/// Looks at fences, taints, host ports, resources, and labels with every alternative of the pod's node affinity. What depends
/// on where other pods are (spread, pod affinity) and on volumes is for the scheduler's own filters, and for the solver.
///
/// # Errors
/// The first thing in the way, in that order.
pub fn fits(pod: &Pod, node: &StateNode, room: &FreeCapacity) -> Result<(), FitError> {
    fits_class(&pod.class, node, room)
}

/// As [`fits`], for any pod of a class.
///
/// # Errors
/// As [`fits`].
pub fn fits_class(class: &PodClass, node: &StateNode, room: &FreeCapacity) -> Result<(), FitError> {
    if let Some(closed) = room.closed {
        return Err(FitError::Closed(closed));
    }
    let hard = node
        .taints
        .iter()
        .filter(|taint| taint.effect != taints::PREFER_NO_SCHEDULE);
    if let Some(taint) = taints::untolerated(hard, &class.tolerations).next() {
        return Err(FitError::Taint(taints::text(taint)));
    }
    if let Some((asked, taken)) = HostPort::conflict(&class.host_ports, &room.ports) {
        return Err(FitError::HostPort {
            asked: asked.clone(),
            taken: taken.clone(),
        });
    }
    if let Some(resource) = class.requests.exceeds_first(&room.free) {
        return Err(FitError::Resource {
            resource: resource.to_owned(),
            asked: class.requests.get(resource),
            free: room.free.get(resource),
        });
    }
    match class.strict.as_slice() {
        [any] if any.is_empty() => Ok(()),
        alternatives => {
            if alternatives.iter().any(|asked| labels_meet(node, asked)) {
                return Ok(());
            }
            let (labels, none) = (labels_of(node), WellKnown::none());
            let clash = alternatives
                .first()
                .and_then(|asked| labels.compatible(asked, &none).err());
            Err(FitError::Labels(
                clash.map(|clash| clash.to_string()).unwrap_or_default(),
            ))
        }
    }
}

/// The value of a machine's label by the key's present spelling; its host name is its name where no label says otherwise.
pub(super) fn label_of<'n>(node: &'n StateNode, key: &str) -> Option<&'n str> {
    node.label(key)
        .or_else(|| labels::aliases_of(key).find_map(|alias| node.label(alias)))
        .or_else(|| (key == labels::HOSTNAME).then(|| node.name()))
}

/// Whether a machine's labels are what is asked: as [`labels_of`] would say, without making them.
pub(super) fn labels_meet(node: &StateNode, asked: &Requirements) -> bool {
    asked.iter().all(|asked| match label_of(node, asked.key()) {
        Some(value) => asked.has(value),
        None => asked.allows_absence(),
    })
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
