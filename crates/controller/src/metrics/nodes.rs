//! Nodes and NodeClaims: creations and deletions with their reasons, lifetimes, and durations of termination.

use jiff::Timestamp;
use mortise_apis::NodeClaim;
use mortise_apis::k8s::Node;
use mortise_apis::labels::{CAPACITY_TYPE, NODEPOOL, TOPOLOGY_ZONE};
use mortise_apis::schema::conditions::find;
use mortise_apis::values::since;

use super::families::Buckets;
use super::labels;
use super::numbers::seconds;
use super::series::series;

series! {
    /// The families.
    NodeMetrics {
        termination: always summary["nodepool"; 5] "karpenter_nodes_termination_duration_seconds" "Time from the deletion timestamp of a node until it was removed";
        unpriced: always counter[labels::Pool; 10] "karpenter_nodepools_cost_tracker_errors" "Registered nodes without a known price";
        claims: full histogram[labels::Pool; 0; Buckets::DURATIONS] "karpenter_nodeclaims_termination_duration_seconds" "Time from the deletion timestamp of a NodeClaim until it was removed";
        instances: full histogram[labels::Pool; 0; Buckets::DURATIONS] "karpenter_nodeclaims_instance_termination_duration_seconds" "Time from the first request to terminate an instance until its NodeClaim was removed";
        lifetimes: full histogram[labels::Pool; 0; Buckets::LIFETIMES] "karpenter_nodes_lifetime_duration_seconds" "Time from the creation of a node until it was removed";
        created: always counter[labels::Created; 60] "karpenter_nodeclaims_created" "NodeClaims created";
        terminated: always counter[labels::Terminated; 60] "karpenter_nodeclaims_terminated" "NodeClaims terminated";
        disrupted: always counter[labels::Disrupted; 60] "karpenter_nodeclaims_disrupted" "NodeClaims disrupted, by reason";
        unhealthy: always counter[labels::Unhealthy; 30] "karpenter_nodeclaims_unhealthy_disrupted" "NodeClaims disrupted because of an unhealthy node condition";
        nodes_created: always counter[labels::PoolZone; 60] "karpenter_nodes_created" "Nodes registered";
        nodes_terminated: always counter[labels::PoolZone; 60] "karpenter_nodes_terminated" "Nodes terminated";
        nodes_drained: always counter[labels::Pool; 40] "karpenter_nodes_drained" "Nodes drained";
    }
}

impl NodeMetrics {
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
        let labels = labels::Pool {
            nodepool: label(NODEPOOL),
        };
        if let Some(deleted) = &claim.metadata.deletion_timestamp {
            self.claims.observe(&labels, seconds(since(now, deleted.0)));
        }
        let asked = find(&claim.status.conditions, "InstanceTerminating")
            .filter(|condition| condition.status.as_str() == "True")
            .and_then(|condition| condition.last_transition_time.as_ref());
        if let Some(asked) = asked {
            self.instances
                .observe(&labels, seconds(since(now, asked.0)));
        }
    }

    /// Counts the deletion of this Node of a NodePool. `false` if the series limit dropped its duration.
    pub(super) fn node_gone(&self, node: &Node, pool: &str, now: Timestamp) -> bool {
        let zone = node.label(TOPOLOGY_ZONE);
        self.nodes_terminated.count(&labels::PoolZone {
            nodepool: pool.to_owned(),
            zone: zone.unwrap_or_default().to_owned(),
        });
        if let Some(created) = &node.metadata.creation_timestamp {
            let labels = labels::Pool {
                nodepool: pool.to_owned(),
            };
            self.lifetimes
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
