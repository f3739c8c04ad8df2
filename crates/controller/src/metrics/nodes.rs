//! Nodes and NodeClaims: creations and deletions with their reasons, lifetimes, and durations of termination.

use jiff::Timestamp;
use mortise_apis::NodeClaim;
use mortise_apis::k8s::Node;
use mortise_apis::labels::{CAPACITY_TYPE, NODEPOOL, TOPOLOGY_ZONE};
use mortise_apis::schema::conditions::find;
use mortise_apis::values::since;
use prometheus_client::metrics::histogram::Histogram;

use super::bounded::{Counters, Histograms};
use super::families::Families;
use super::labels;
use super::numbers::seconds;
use super::summary::Summary;

/// The families.
#[derive(Debug)]
pub(crate) struct NodeMetrics {
    pub(super) created: Counters<labels::Created>,
    pub(super) terminated: Counters<labels::Terminated>,
    pub(super) disrupted: Counters<labels::Disrupted>,
    pub(super) unhealthy: Counters<labels::Unhealthy>,
    pub(super) nodes_created: Counters<labels::PoolZone>,
    pub(super) nodes_terminated: Counters<labels::PoolZone>,
    pub(super) nodes_drained: Counters<labels::Pool>,
    /// Duration of the termination of nodes.
    pub(super) termination: Summary,
    /// Nodes without a price.
    pub(super) unpriced: Counters<labels::Pool>,
    of_pools: Option<PoolNodeSeries>,
}

/// Histograms with a set of series for each NodePool.
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
    pub(super) fn register(families: &mut Families<'_>) -> Self {
        Self {
            termination: Summary::new(
                "karpenter_nodes_termination_duration_seconds",
                "Time from the deletion timestamp of a node until it was removed",
                Some("nodepool"),
                families.scaled(5),
            ),
            unpriced: families.counters(
                "karpenter_nodepools_cost_tracker_errors",
                "Registered nodes without a known price",
                10,
            ),
            of_pools: PoolNodeSeries::register(families),
            created: families.counters("karpenter_nodeclaims_created", "NodeClaims created", 60),
            terminated: families.counters(
                "karpenter_nodeclaims_terminated",
                "NodeClaims terminated",
                60,
            ),
            disrupted: families.counters(
                "karpenter_nodeclaims_disrupted",
                "NodeClaims disrupted, by reason",
                60,
            ),
            unhealthy: families.counters(
                "karpenter_nodeclaims_unhealthy_disrupted",
                "NodeClaims disrupted because of an unhealthy node condition",
                30,
            ),
            nodes_created: families.counters("karpenter_nodes_created", "Nodes registered", 60),
            nodes_terminated: families.counters(
                "karpenter_nodes_terminated",
                "Nodes terminated",
                60,
            ),
            nodes_drained: families.counters("karpenter_nodes_drained", "Nodes drained", 40),
        }
    }

    /// Counts a created NodeClaim.
    pub(crate) fn claim_created(&self, claim: &NodeClaim, reason: &'static str) {
        let relaxed = claim
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(mortise_apis::labels::MIN_VALUES_RELAXED));
        self.created.count(&labels::Created {
            reason,
            nodepool: claim
                .pool()
                .map(|pool| pool.to_string())
                .unwrap_or_default(),
            min_values_relaxed: if relaxed.is_some_and(|value| value == "true") {
                "true"
            } else {
                "false"
            },
        });
    }

    /// Counts the deletion of this NodeClaim.
    pub(super) fn claim_gone(&self, claim: &NodeClaim, now: Timestamp) {
        let label = |key: &str| claim.label(key).unwrap_or_default().to_owned();
        self.terminated.count(&labels::Terminated {
            nodepool: label(NODEPOOL),
            capacity_type: label(CAPACITY_TYPE),
            zone: label(TOPOLOGY_ZONE),
        });
        let Some(own) = &self.of_pools else { return };
        let labels = labels::Pool {
            nodepool: label(NODEPOOL),
        };
        if let Some(deleted) = &claim.metadata.deletion_timestamp {
            own.claims.observe(&labels, seconds(since(now, deleted.0)));
        }
        let asked = find(&claim.status.conditions, "InstanceTerminating")
            .filter(|condition| condition.status.as_str() == "True")
            .and_then(|condition| condition.last_transition_time.as_ref());
        if let Some(asked) = asked {
            own.instances.observe(&labels, seconds(since(now, asked.0)));
        }
    }

    /// Counts the deletion of this Node of a NodePool. `false` if the series limit dropped its duration.
    pub(super) fn node_gone(&self, node: &Node, pool: &str, now: Timestamp) -> bool {
        let zone = node.label(TOPOLOGY_ZONE);
        self.nodes_terminated.count(&labels::PoolZone {
            nodepool: pool.to_owned(),
            zone: zone.unwrap_or_default().to_owned(),
        });
        if let (Some(own), Some(created)) = (&self.of_pools, &node.metadata.creation_timestamp) {
            let labels = labels::Pool {
                nodepool: pool.to_owned(),
            };
            own.lifetimes
                .observe(&labels, seconds(since(now, created.0)));
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

impl PoolNodeSeries {
    fn register(families: &mut Families<'_>) -> Option<Self> {
        let durations = families.durations();
        families.is_full().then(|| Self {
            claims: families.histograms(
                "karpenter_nodeclaims_termination_duration_seconds",
                "Time from the deletion timestamp of a NodeClaim until it was removed",
                0,
                durations,
            ),
            instances: families.histograms(
                "karpenter_nodeclaims_instance_termination_duration_seconds",
                "Time from the first request to terminate an instance until its NodeClaim was removed",
                0,
                durations,
            ),
            lifetimes: families.histograms(
                "karpenter_nodes_lifetime_duration_seconds",
                "Time from the creation of a node until it was removed",
                0,
                lifetimes,
            ),
        })
    }
}
