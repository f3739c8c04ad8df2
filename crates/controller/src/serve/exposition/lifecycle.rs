//! Blockers of launches and drains, computed from the snapshot.

use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::LAUNCH_PAUSED;
use mortise_apis::schema::conditions::find;
use mortise_apis::values::since;
use mortise_planning::brake::Brake;
use mortise_planning::disruption::upgrade_drift;
use mortise_planning::drain::{going_since, stuck_drains, undrainable_nodes};
use mortise_planning::drain_blocker::DrainBlockerKind;
use mortise_planning::pause;
use mortise_planning::settings::Settings;
use mortise_state::snapshot::Snapshot;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::MOST_POOLS;
use crate::metrics::labels;
use crate::metrics::numbers::{as_i64, seconds};
use crate::service_state::decision_log::DecisionLog;
use crate::service_state::recent_drain_blockers::recent_drain_blockers;

/// NodePools with paused launches, and the NodeClaims that wait for them. A NodePool without either has no series.
pub(super) fn paused_launches(live: &mut Registry, snapshot: &Snapshot) {
    let pools = Family::<labels::Pool, Gauge>::default();
    let claims = Family::<labels::Pool, Gauge>::default();
    let of = |name: &str| labels::Pool {
        nodepool: name.to_owned(),
    };
    let shown = || snapshot.pools.iter().take(MOST_POOLS);
    for (name, _) in shown().filter(|(_, pool)| pool.launch_pause().is_some()) {
        pools.get_or_create(&of(name)).set(1);
    }
    for claim in snapshot.claims.values() {
        let waits = find(&claim.status.conditions, "Launched")
            .is_some_and(|each| each.reason == LAUNCH_PAUSED);
        if let Some(name) = claim.pool().filter(|_| waits)
            && shown().any(|(each, _)| *each == name)
        {
            claims.get_or_create(&of(&name)).inc();
        }
    }
    live.register(
        "mortise_nodepool_launches_paused",
        "1 while launches of a NodePool are paused because its nodes do not register",
        pools,
    );
    live.register(
        "mortise_nodeclaim_launches_paused",
        "NodeClaims whose launch is paused",
        claims,
    );
}

/// Pauses of voluntary disruption, by what they cover. A scope without one has no series.
pub(super) fn pauses(live: &mut Registry, snapshot: &Snapshot, now: Timestamp) {
    let pauses = Family::<labels::PauseScopeOnly, Gauge>::default();
    for (_, pause) in pause::all(snapshot, now) {
        let scope = pause.scope.label();
        pauses
            .get_or_create(&labels::PauseScopeOnly { scope })
            .inc();
    }
    live.register(
        "mortise_disruption_pauses",
        "Pauses of voluntary disruption that hold, by what they cover: cluster, nodepoolpolicy, nodepool or node",
        pauses,
    );
}

/// Whether too many nodes are not ready for nodes that are to be disrupted.
pub(super) fn brake(live: &mut Registry, snapshot: &Snapshot) {
    let brake = Gauge::<i64>::default();
    brake.set(i64::from(Brake::of(snapshot).is_some()));
    live.register(
        "mortise_disruption_braked",
        "1 while ready nodes are not disrupted because more than a third are not ready",
        brake,
    );
}

/// Nodes that drifted with an upgrade of the service and wait for a person.
pub(super) fn upgrade_drift(
    live: &mut Registry,
    snapshot: &Snapshot,
    settings: &Settings,
    now: Timestamp,
) {
    let held = Family::<labels::Pool, Gauge>::default();
    let waiting = upgrade_drift::all(snapshot, settings, now).into_iter();
    for (name, drift) in waiting
        .filter(|(_, drift)| drift.until.is_none())
        .take(MOST_POOLS)
    {
        let nodepool = name.to_string();
        let count = held.get_or_create(&labels::Pool { nodepool });
        count.set(as_i64(drift.drifted));
    }
    live.register(
        "mortise_upgrade_drift_held_nodes",
        "Nodes that drifted right after an upgrade of mortise and wait until the annotation mortise.sh/upgraded-at is removed from their NodePool",
        held,
    );
}

/// Draining nodes: the age of the oldest drain, and the blockers of those that take long.
pub(super) fn drains(
    live: &mut Registry,
    records: &DecisionLog,
    snapshot: &Snapshot,
    now: Timestamp,
) {
    let going = snapshot.nodes.values();
    let oldest = going.filter_map(|node| going_since(snapshot, node)).min();
    let blocked = Family::<labels::ReasonOnly, Gauge>::default();
    let mut recent = None;
    for drain in stuck_drains(snapshot, now) {
        let first = drain.obstacles.first().map(|first| first.kind);
        let reason = first.or_else(|| {
            let recent = recent.get_or_insert_with(|| recent_drain_blockers(records, now));
            let of_node = recent.for_node(drain.node.clone(), drain.claim.clone());
            of_node.first().map(|first| first.kind)
        });
        let reason = reason.map_or("unknown", DrainBlockerKind::label);
        blocked.get_or_create(&labels::ReasonOnly { reason }).inc();
    }
    let undrainable = Family::<labels::ReasonOnly, Gauge>::default();
    for node in undrainable_nodes(snapshot, now) {
        if let Some(first) = node.blockers.first() {
            let reason = first.kind.label();
            undrainable
                .get_or_create(&labels::ReasonOnly { reason })
                .inc();
        }
    }
    live.register(
        "mortise_undrainable_nodes",
        "Nodes whose drain would never end by itself, by their first drain blocker",
        undrainable,
    );
    live.register(
        "mortise_oldest_drain_age_seconds",
        "Time since the deletion timestamp of the oldest terminating node",
        ConstGauge::new(seconds(oldest.map_or(0, |oldest| since(now, oldest)))),
    );
    live.register(
        "mortise_drains_blocked",
        "Nodes terminating for more than 45 s, by their first drain blocker",
        blocked,
    );
}
