//! Nodes and claims: how long they live and take to go; in full, what each node has and what is asked of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_core::apis::NodeClaim;
use mortise_core::apis::conditions::find;
use mortise_core::apis::k8s::Node;
use mortise_core::labels::NODEPOOL;
use mortise_core::resources::Resources;
use mortise_core::snapshot::{Snapshot, StateNode};
use mortise_core::values::since;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::detail::{SeriesLimit, TelemetryDetail};
use super::exposition::{FloatGauge, seconds, unit};
use super::summary::Summary;
use super::{Counters, Histograms, counters, duration_of, histograms, labels};

/// The families.
#[derive(Debug)]
pub(super) struct NodeMetrics {
    /// How long nodes take to go.
    pub(super) termination: Summary,
    /// Nodes without a price.
    pub(super) unpriced: Counters<labels::Pool>,
    of_pools: Option<PoolNodeSeries>,
}

/// Histograms with a set of series for each pool.
#[derive(Debug)]
struct PoolNodeSeries {
    claims: Histograms<labels::Pool>,
    instances: Histograms<labels::Pool>,
    lifetimes: Histograms<labels::Pool>,
}

/// From a quarter of an hour to 30 days.
fn lifetimes() -> Histogram {
    let hours = [
        0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 24.0, 48.0, 72.0, 120.0, 168.0, 240.0, 336.0, 480.0,
        720.0,
    ];
    Histogram::new(hours.map(|each: f64| each * 3_600.0))
}

impl NodeMetrics {
    pub(super) fn register(registry: &mut Registry, ceiling: &SeriesLimit) -> Self {
        let (r, c) = (registry, ceiling);
        Self {
            termination: Summary::new(
                "karpenter_nodes_termination_duration_seconds",
                "Time from the deletion timestamp of a node until it was removed",
                Some("nodepool"),
                c.most(5),
            ),
            unpriced: counters(
                r,
                "karpenter_nodepools_cost_tracker_errors",
                "Registered nodes without a known price",
                10,
                c,
            ),
            of_pools: (c.detail == TelemetryDetail::Full).then(|| PoolNodeSeries {
                claims: histograms(
                    r,
                    "karpenter_nodeclaims_termination_duration_seconds",
                    "Time from the deletion timestamp of a NodeClaim until it was removed",
                    0,
                    duration_of(c),
                    c,
                ),
                instances: histograms(
                    r,
                    "karpenter_nodeclaims_instance_termination_duration_seconds",
                    "Time from the first request to terminate an instance until its NodeClaim was removed",
                    0,
                    duration_of(c),
                    c,
                ),
                lifetimes: histograms(
                    r,
                    "karpenter_nodes_lifetime_duration_seconds",
                    "Time from the creation of a node until it was removed",
                    0,
                    lifetimes,
                    c,
                ),
            }),
        }
    }

    /// The object of a claim is gone: this was it.
    pub(super) fn claim_gone(&self, claim: &NodeClaim, now: Timestamp) {
        let Some(own) = &self.of_pools else { return };
        let labels = labels::Pool {
            nodepool: claim.label(NODEPOOL).unwrap_or_default().to_owned(),
        };
        if let Some(deleted) = &claim.metadata.deletion_timestamp {
            let took = seconds(since(now, deleted.0));
            own.claims
                .with(&labels, |histogram| histogram.observe(took));
        }
        let asked = find(&claim.status.conditions, "InstanceTerminating")
            .filter(|condition| condition.status.as_str() == "True")
            .and_then(|condition| condition.last_transition_time.as_ref());
        if let Some(asked) = asked {
            let took = seconds(since(now, asked.0));
            own.instances
                .with(&labels, |histogram| histogram.observe(took));
        }
    }

    /// The object of a node of a pool is gone: this was it. `false` when there was no room to keep how long it took.
    pub(super) fn node_gone(&self, node: &Node, pool: &str, now: Timestamp) -> bool {
        if let (Some(own), Some(created)) = (&self.of_pools, &node.metadata.creation_timestamp) {
            let labels = labels::Pool {
                nodepool: pool.to_owned(),
            };
            let lived = seconds(since(now, created.0));
            own.lifetimes
                .with(&labels, |histogram| histogram.observe(lived));
        }
        node.metadata
            .deletion_timestamp
            .as_ref()
            .is_none_or(|deleted| {
                let took = seconds(since(now, deleted.0));
                self.termination.observe(pool, took)
            })
    }
}

/// How much of what nodes have is asked for, in all.
pub(super) fn utilization(live: &mut Registry, snapshot: &Snapshot) {
    let (mut asked, mut there) = (Resources::zero(), Resources::zero());
    for machine in snapshot.nodes.values().filter(|each| each.node.is_some()) {
        asked.add_assign(&machine.used);
        there.add_assign(&machine.allocatable);
    }
    let family = Family::<labels::ResourceOnly, FloatGauge>::default();
    for resource in super::exposition::RESOURCES {
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
