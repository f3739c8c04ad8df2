//! Whether a pod fits on a node. The extender, `simulate` and the solver share this check.

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

/// Free capacity of a node, net of its pods, its nominations and the DaemonSet pods still to start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FreeCapacity {
    /// Free resources; negative when overcommitted.
    pub free: Resources,
    /// Host ports in use.
    pub ports: Vec<HostPort>,
    /// Why the node accepts no pods at all.
    pub closed: Option<UnschedulableNode>,
}

impl FreeCapacity {
    /// The free capacity of a node for a pod of this priority. Nominations for which `is_excluded` holds are not counted,
    /// nor those of lower priority.
    #[must_use]
    pub fn new(
        snapshot: &Snapshot,
        daemons: &DaemonSetPods,
        node: &StateNode,
        priority: i32,
        is_excluded: &dyn Fn(&Uid) -> bool,
    ) -> Self {
        let counts = |held: &Nomination| held.priority >= priority && !is_excluded(&held.uid);
        Self {
            free: Self::free(snapshot, daemons, node, &counts),
            ports: ports_taken(snapshot, node, &counts),
            closed: Self::closed(snapshot, node),
        }
    }

    /// Why the node accepts no pods at all.
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

    /// Its free resources; only nominations for which `counts` holds are subtracted.
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

/// Host ports in use on a node: those of its pods, and of the nominated pods for which `counts` holds.
pub(super) fn ports_taken(
    snapshot: &Snapshot,
    node: &StateNode,
    counts: &dyn Fn(&Nomination) -> bool,
) -> Vec<HostPort> {
    let (node_name, claim_name) = node.names();
    let nominated = snapshot.ledger.nominations_of_node(node_name, claim_name);
    let waiting = nominated.filter(|held| counts(held)).filter_map(|held| {
        let pod = snapshot.pods.get(&held.pod);
        pod.filter(|pod| pod.uid == held.uid)
    });
    node.pods
        .iter()
        .chain(waiting)
        .flat_map(|pod| pod.class.host_ports.iter().cloned())
        .collect()
}

/// Whether a pod fits on a node with this free capacity.
///
/// Checks fences, taints, host ports, resources, and labels with every alternative of the pod's node affinity. Topology
/// (spread, pod affinity) and volumes are checked by kube-scheduler's own filters and by the solver.
///
/// # Errors
/// The first check that fails, in that order.
pub fn fits(pod: &Pod, node: &StateNode, free_capacity: &FreeCapacity) -> Result<(), FitError> {
    fits_class(&pod.class, node, free_capacity)
}

/// As [`fits`], for any pod of a class.
///
/// # Errors
/// As [`fits`].
pub fn fits_class(
    class: &PodClass,
    node: &StateNode,
    free_capacity: &FreeCapacity,
) -> Result<(), FitError> {
    if let Some(closed) = free_capacity.closed {
        return Err(FitError::Closed(closed));
    }
    let hard = node
        .taints
        .iter()
        .filter(|taint| taint.effect != taints::PREFER_NO_SCHEDULE);
    if let Some(taint) = taints::untolerated(hard, &class.tolerations).next() {
        return Err(FitError::Taint(taints::text(taint)));
    }
    if let Some((asked, taken)) = HostPort::conflict(&class.host_ports, &free_capacity.ports) {
        return Err(FitError::HostPort {
            asked: asked.clone(),
            taken: taken.clone(),
        });
    }
    if let Some(resource) = class.requests.exceeds_first(&free_capacity.free) {
        return Err(FitError::Resource {
            resource: resource.to_owned(),
            asked: class.requests.get(resource),
            free: free_capacity.free.get(resource),
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

/// The value of a node's label, under the key's current name or an alias; the hostname defaults to the node's name.
pub(super) fn label_of<'n>(node: &'n StateNode, key: &str) -> Option<&'n str> {
    node.label(key)
        .or_else(|| labels::aliases_of(key).find_map(|alias| node.label(alias)))
        .or_else(|| (key == labels::HOSTNAME).then(|| node.name()))
}

/// Whether a node's labels satisfy requirements: as with [`labels_of`], without allocating.
pub(super) fn labels_meet(node: &StateNode, asked: &Requirements) -> bool {
    asked.iter().all(|asked| match label_of(node, asked.key()) {
        Some(value) => asked.has(value),
        None => asked.allows_absence(),
    })
}

/// The labels of a node as requirements, its hostname included.
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
