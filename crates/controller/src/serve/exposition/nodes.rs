//! How much of the nodes is asked for; in full, what each node has and what is asked of it.

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

/// How much of what nodes have is asked for, in all.
pub(super) fn utilization(live: &mut Registry, snapshot: &Snapshot) {
    let (mut asked, mut there) = (Resources::zero(), Resources::zero());
    for machine in snapshot.nodes.values().filter(|each| each.node.is_some()) {
        asked.add_assign(&machine.used);
        there.add_assign(&machine.allocatable);
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

/// What each node has and what is asked of it. Only in full: a series for each node and resource.
pub(super) fn each_node(live: &mut Registry, snapshot: &Snapshot, now: Timestamp) {
    let family = Family::<NodeSeries, FloatGauge>::default;
    let allocatable = family();
    let asked = family();
    let by_daemons = family();
    let kept = family();
    let lifetimes = family();
    for machine in snapshot.nodes.values().filter(|each| each.node.is_some()) {
        let own = labels_of(snapshot, machine);
        let show = |family: &Family<NodeSeries, FloatGauge>, amounts: &Resources| {
            for (resource, _) in machine.allocatable.iter() {
                let mut series = own.clone();
                series.push(("resource_type".to_owned(), resource.replace('-', "_")));
                let gauge = family.get_or_create_owned(&series);
                gauge.set(unit(resource, amounts.get(resource)));
            }
        };
        show(&allocatable, &machine.allocatable);
        show(&asked, &machine.used.sub(&machine.daemon_used));
        show(&by_daemons, &machine.daemon_used);
        show(&kept, &machine.capacity.sub(&machine.allocatable));
        let created = machine
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

/// Karpenter's labels of a node: every well-known label by the last part of its key, name, phase, and whose it is.
fn labels_of(snapshot: &Snapshot, machine: &StateNode) -> NodeSeries {
    let mut all = BTreeMap::new();
    for key in snapshot.well_known.keys() {
        let last = key.rsplit('/').next().unwrap_or(key);
        let value = machine.label(key).unwrap_or_default().to_owned();
        all.insert(snake(last), value);
    }
    let node = machine.node.as_ref();
    let name = machine.node_name();
    let phase = node.map(|node| node.status.phase.clone());
    all.insert(
        "node_name".to_owned(),
        name.map(|name| name.to_string()).unwrap_or_default(),
    );
    all.insert("phase".to_owned(), phase.unwrap_or_default());
    all.insert("managed".to_owned(), machine.is_managed().to_string());
    all.into_iter().collect()
}

/// A word as a part of a label's name: lower case, and `_` for whatever is no letter or digit.
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
