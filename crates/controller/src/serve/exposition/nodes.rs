//! Requested capacity of the nodes; in full detail, capacity and requests of each node.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::resources::Resources;
use mortise_apis::values::since;
use mortise_state::snapshot::{Snapshot, StateNode};
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{FloatGauge, RESOURCES};
use crate::metrics::labels;
use crate::metrics::numbers::{seconds, unit};

/// Requested fraction of the total capacity.
pub(super) fn utilization(live: &mut Registry, snapshot: &Snapshot) {
    let (mut asked, mut there) = (Resources::zero(), Resources::zero());
    for state_node in snapshot.nodes.values().filter(|each| each.node.is_some()) {
        asked.add_assign(&state_node.used);
        there.add_assign(&state_node.allocatable);
    }
    let family = Family::<labels::ResourceOnly, FloatGauge>::default();
    for resource in RESOURCES {
        let has = unit(resource, there.get(resource));
        if has > 0.0 {
            let labels = labels::ResourceOnly {
                resource_type: resource,
            };
            let percent = 100.0 * unit(resource, asked.get(resource)) / has;
            family.get_or_create(&labels).set(percent);
        }
    }
    live.register(
        "karpenter_cluster_utilization_percent",
        "Requested fraction of allocatable resources",
        family,
    );
}

type NodeSeries = Vec<(String, String)>;

/// Capacity and requests of each node. Only in full detail: a series for each node and resource.
pub(super) fn each_node(live: &mut Registry, snapshot: &Snapshot, now: Timestamp) {
    let family = Family::<NodeSeries, FloatGauge>::default;
    let allocatable = family();
    let asked = family();
    let by_daemons = family();
    let kept = family();
    let lifetimes = family();
    for state_node in snapshot.nodes.values().filter(|each| each.node.is_some()) {
        let own = karpenter_labels(snapshot, state_node);
        let show = |family: &Family<NodeSeries, FloatGauge>, amounts: &Resources| {
            for (resource, _) in state_node.allocatable.iter() {
                let mut series = own.clone();
                series.push(("resource_type".to_owned(), resource.replace('-', "_")));
                let gauge = family.get_or_create_owned(&series);
                gauge.set(unit(resource, amounts.get(resource)));
            }
        };
        show(&allocatable, &state_node.allocatable);
        show(&asked, &state_node.used.sub(&state_node.daemon_used));
        show(&by_daemons, &state_node.daemon_used);
        show(&kept, &state_node.capacity.sub(&state_node.allocatable));
        let created = state_node
            .node
            .as_ref()
            .and_then(|node| node.metadata.creation_timestamp.as_ref());
        if let Some(created) = created {
            let gauge = lifetimes.get_or_create_owned(&own);
            gauge.set(seconds(since(now, created.0)));
        }
    }
    for (name, help, family) in [
        (
            "karpenter_nodes_allocatable",
            "Allocatable resources of a node",
            allocatable,
        ),
        (
            "karpenter_nodes_total_pod_requests",
            "Requests of pods on a node, DaemonSet pods excluded",
            asked,
        ),
        (
            "karpenter_nodes_total_daemon_requests",
            "Requests of DaemonSet pods on a node",
            by_daemons,
        ),
        (
            "karpenter_nodes_system_overhead",
            "Resources of a node reserved for the system",
            kept,
        ),
        (
            "karpenter_nodes_current_lifetime_seconds",
            "Age of a node",
            lifetimes,
        ),
    ] {
        live.register(name, help, family);
    }
}

/// Karpenter's labels of a node: every well-known label by the last part of its key, plus name, phase and NodePool.
fn karpenter_labels(snapshot: &Snapshot, state_node: &StateNode) -> NodeSeries {
    let mut all = BTreeMap::new();
    for key in snapshot.well_known.keys() {
        let last = key.rsplit('/').next().unwrap_or(key);
        let value = state_node.label(key).unwrap_or_default().to_owned();
        all.insert(snake(last), value);
    }
    let node = state_node.node.as_ref();
    let name = state_node.node_name();
    let phase = node.map(|node| node.status.phase.clone());
    all.insert(
        "node_name".to_owned(),
        name.map(|name| name.to_string()).unwrap_or_default(),
    );
    all.insert("phase".to_owned(), phase.unwrap_or_default());
    all.insert("managed".to_owned(), state_node.is_managed().to_string());
    all.into_iter().collect()
}

/// A word as part of a label name: lower case, and `_` for anything except letters and digits.
fn snake(word: &str) -> String {
    let one = |each: char| {
        if each.is_ascii_alphanumeric() {
            each.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    word.chars().map(one).collect()
}
