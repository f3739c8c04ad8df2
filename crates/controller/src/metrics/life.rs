//! What keeps machines from coming up or from going, computed from the snapshot.

use mortise_core::apis::conditions::find;
use mortise_core::objects::LAUNCH_HELD_BACK;
use mortise_core::snapshot::Snapshot;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels;
use super::page::MOST_POOLS;

/// Pools whose machines do not register, and the claims that wait for that. A pool without either has no series.
pub(super) fn held_back(live: &mut Registry, snapshot: &Snapshot) {
    let pools = Family::<labels::Pool, Gauge>::default();
    let claims = Family::<labels::Pool, Gauge>::default();
    let of = |name: &str| labels::Pool {
        nodepool: name.to_owned(),
    };
    let shown = || snapshot.pools.iter().take(MOST_POOLS);
    for (name, _) in shown().filter(|(_, pool)| pool.held_back().is_some()) {
        pools.get_or_create(&of(name)).set(1);
    }
    for claim in snapshot.claims.values() {
        let waits = find(&claim.status.conditions, "Launched")
            .is_some_and(|each| each.reason == LAUNCH_HELD_BACK);
        if let Some(name) = claim.pool().filter(|_| waits)
            && shown().any(|(each, _)| *each == name)
        {
            claims.get_or_create(&of(&name)).inc();
        }
    }
    live.register(
        "mortise_launches_held_back",
        "1 while launches of a pool are held back because its machines do not register",
        pools,
    );
    live.register(
        "mortise_nodeclaims_held_back",
        "NodeClaims that wait until a machine of their pool has registered",
        claims,
    );
}
