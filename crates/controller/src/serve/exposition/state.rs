//! The cluster state as a whole: freshness, size, and the ledger.

use mortise_state::ledger::NominationOutcomes;
use mortise_state::snapshot::{OtherController, Snapshot};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::FloatGauge;
use crate::config::TelemetryDetail;
use crate::metrics::numbers::{as_i64, seconds};
use crate::metrics::{Metrics, labels};
use crate::service_state::ServiceState;

/// Registers the gauges.
pub(super) fn register(live: &mut Registry, shared: &ServiceState, snapshot: &Snapshot) {
    let synced = i64::from(snapshot.synced);
    live.register(
        "karpenter_cluster_state_node_count",
        "Nodes in the cluster state",
        ConstGauge::new(as_i64(snapshot.nodes.len())),
    );
    live.register(
        "karpenter_cluster_state_synced",
        "1 if all watches are synced",
        ConstGauge::new(synced),
    );
    let unsynced_ms = if snapshot.synced {
        0
    } else {
        shared.health.uptime_ms()
    };
    live.register(
        "karpenter_cluster_state_unsynced_time_seconds",
        "Time during which not all watches were synced",
        ConstGauge::new(seconds(i64::try_from(unsynced_ms).unwrap_or(i64::MAX))),
    );
    let unplaced = snapshot
        .pending
        .values()
        .filter(|pod| snapshot.ledger.nomination(&pod.uid).is_none())
        .count();
    let unschedulable = Family::<labels::Controller, Gauge>::default();
    unschedulable
        .get_or_create(&labels::Controller {
            controller: "provisioner",
        })
        .set(as_i64(unplaced));
    live.register(
        "karpenter_scheduler_unschedulable_pods_count",
        "Pending pods without a nomination",
        unschedulable,
    );
    live.register(
        "mortise_snapshot_age_seconds",
        "Age of the current snapshot",
        ConstGauge::new(seconds(shared.snapshot_age_ms())),
    );
    watches(live, shared);
    live.register(
        "mortise_snapshot_generation",
        "Generation of the current snapshot",
        ConstGauge::new(i64::try_from(snapshot.generation).unwrap_or(i64::MAX)),
    );
    live.register(
        "mortise_pods",
        "Pods in the cluster state",
        ConstGauge::new(as_i64(snapshot.pods.len())),
    );
    live.register(
        "mortise_pod_nominations",
        "Pods nominated to a node or NodeClaim",
        ConstGauge::new(as_i64(snapshot.ledger.nominations().count())),
    );
    live.register(
        "mortise_fences",
        "Nodes fenced against new pods",
        ConstGauge::new(as_i64(snapshot.ledger.fences().len())),
    );
    live.register(
        "mortise_other_controllers",
        "Running pods of other programs that launch nodes, evict pods or drain nodes",
        other_controllers(snapshot),
    );
    live.register(
        "mortise_provisioning_requests",
        "ProvisioningRequests that are served, by phase",
        provisioning_requests(snapshot),
    );
    live.register(
        "mortise_nominations",
        "Nominations that ended, by outcome",
        nominations(snapshot),
    );
    let (records, bytes) = shared.records.size();
    live.register(
        "mortise_decisions_retained",
        "Decisions in memory",
        ConstGauge::new(as_i64(records)),
    );
    live.register(
        "mortise_decisions_retained_bytes",
        "Size of the decisions in memory",
        ConstGauge::new(as_i64(bytes)),
    );
}

/// Age of each watch. At most one watch per kind, and each is old in one way.
fn watches(live: &mut Registry, shared: &ServiceState) {
    let (freshness, now) = (shared.freshness(), shared.now());
    let silences = Family::<labels::Kind, FloatGauge>::default();
    for (kind, ms) in freshness.silences(now) {
        let kind = kind.to_string();
        silences
            .get_or_create(&labels::Kind { kind })
            .set(seconds(ms));
    }
    live.register(
        "mortise_watch_silence_seconds",
        "Time since the last event or bookmark of a watch",
        silences,
    );
    let old = Family::<labels::OldWatch, Gauge>::default();
    for each in freshness.old(now) {
        let how = each.how.label();
        let kind = each.kind;
        old.get_or_create(&labels::OldWatch { kind, how }).set(1);
    }
    live.register(
        "mortise_old_watches",
        "Watches that are too stale to act on: broken, silent or behind",
        old,
    );
}

fn provisioning_requests(snapshot: &Snapshot) -> Family<labels::RequestPhase, Gauge> {
    let family = Family::<labels::RequestPhase, Gauge>::default();
    let served = snapshot.requested.keys();
    for request in served.filter_map(|key| snapshot.gangs.requests.get(key)) {
        let phase = request.phase().label();
        family.get_or_create(&labels::RequestPhase { phase }).inc();
    }
    family
}

fn other_controllers(snapshot: &Snapshot) -> Family<labels::Program, Gauge> {
    let family = Family::<labels::Program, Gauge>::default();
    for (program, pods) in OtherController::running(snapshot) {
        let name = program.as_str();
        let series = family.get_or_create(&labels::Program { name });
        series.set(i64::from(pods));
    }
    family
}

/// Pods that wait for a plan, and since when the plan is being computed.
pub(super) fn queue(live: &mut Registry, metrics: &Metrics, snapshot: &Snapshot) {
    let begun = metrics.engine.planning_since();
    let unfinished = begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
    let waiting = snapshot.pending.len();
    let waiting = f64::from(u32::try_from(waiting).unwrap_or(u32::MAX));
    let mut own = vec![("controller", "provisioner".to_owned())];
    if metrics.detail() == TelemetryDetail::Full {
        own.push(("scheduling_id", snapshot.generation.to_string()));
    }
    for (name, help, value) in [
        (
            "karpenter_scheduler_queue_depth",
            "Pods that are pending",
            waiting,
        ),
        (
            "karpenter_scheduler_unfinished_work_seconds",
            "Time since the start of the current scheduling pass",
            unfinished,
        ),
    ] {
        let family = Family::<Vec<(&'static str, String)>, FloatGauge>::default();
        family.get_or_create_owned(&own).set(value);
        live.register(name, help, family);
    }
}

fn nominations(snapshot: &Snapshot) -> Family<labels::Outcome, Counter> {
    let NominationOutcomes {
        bound,
        bound_elsewhere,
        expired,
        node_lost,
    } = snapshot.ledger.nomination_outcomes();
    let family = Family::<labels::Outcome, Counter>::default();
    for (outcome, count) in [
        ("bound", bound),
        ("bound_elsewhere", bound_elsewhere),
        ("expired", expired),
        ("node_lost", node_lost),
    ] {
        family
            .get_or_create(&labels::Outcome { outcome })
            .inc_by(count);
    }
    family
}
