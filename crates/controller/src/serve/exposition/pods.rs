//! Pending and stalled pods; in full detail, a series for each pod.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use mortise_apis::labels::{ARCH, CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, TOPOLOGY_ZONE};
use mortise_apis::requirements::Operator;
use mortise_apis::values::since;
use mortise_state::snapshot::{Pod, PodPhase, Snapshot, Stalled};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::FloatGauge;
use crate::metrics::numbers::{as_i64, seconds};
use crate::metrics::{PodMetrics, labels};

/// Ignored pods, stalled pods, and pending pods by the zone that they require.
pub(super) fn pending(live: &mut Registry, snapshot: &Snapshot, now: Timestamp, most_zones: usize) {
    let opted_out = |pod: &&std::sync::Arc<Pod>| pod.class.opts_out();
    live.register(
        "karpenter_scheduler_ignored_pods_count",
        "Pending pods that opted out of this autoscaler",
        ConstGauge::new(as_i64(snapshot.pending.values().filter(opted_out).count())),
    );
    let mut by_zone: BTreeMap<String, i64> = BTreeMap::new();
    let stalled = Family::<labels::StalledState, Gauge>::default();
    let of = |state: Stalled| {
        let state = state.label();
        stalled.get_or_create_owned(&labels::StalledState { state })
    };
    for state in Stalled::ALL {
        of(state).set(0);
    }
    for pod in snapshot.pending.values().filter(|pod| !opted_out(pod)) {
        if let Some(state) = snapshot.stalled(pod, now) {
            of(state).inc();
        }
    }
    live.register(
        "mortise_pods_stalled",
        "Pods unschedulable for more than one minute while no node is being created for them, by state",
        stalled,
    );
    for pod in snapshot.pending.values() {
        *by_zone.entry(requested_zone(pod)).or_default() += 1;
    }
    let family = Family::<labels::ControllerZone, Gauge>::default();
    for (zone, count) in by_zone.into_iter().take(most_zones) {
        let labels = labels::ControllerZone {
            controller: "provisioner",
            zone,
        };
        family.get_or_create(&labels).set(count);
    }
    live.register(
        "karpenter_scheduler_pending_pods_by_effective_zone_count",
        "Pending pods by required zone: flexible if several are possible, none if none is",
        family,
    );
}

/// The zone that a pod requires itself, or Karpenter's label for several or none.
fn requested_zone(pod: &Pod) -> String {
    let mut asked: BTreeSet<&str> = BTreeSet::new();
    for term in &pod.class.strict {
        let Some(zone) = term.get(TOPOLOGY_ZONE) else {
            return "flexible".to_owned();
        };
        match zone.operator() {
            Operator::In => asked.extend(zone.values().iter().map(|value| &**value)),
            Operator::DoesNotExist => {}
            _ => return "flexible".to_owned(),
        }
    }
    match (asked.pop_first(), asked.is_empty()) {
        _ if pod.class.strict.is_empty() => "flexible".to_owned(),
        (Some(zone), true) => zone.to_owned(),
        (Some(_), false) => "flexible".to_owned(),
        (None, _) => "none".to_owned(),
    }
}

type PodSeries = Vec<(&'static str, String)>;

/// A series for each pod. Only in full detail.
pub(super) fn each(live: &mut Registry, metrics: &PodMetrics, snapshot: &Snapshot, now: Timestamp) {
    let family = Family::<PodSeries, FloatGauge>::default;
    let (states, unbound, unstarted) = (family(), family(), family());
    let (undecided, waiting, starting) = (family(), family(), family());
    let placed = metrics.placed();
    let exist = |pod: &Pod| pod.requested.is_none();
    for (key, pod) in snapshot.pods.iter().filter(|(_, pod)| exist(pod)) {
        states
            .get_or_create_owned(&pod_state(snapshot, pod))
            .set(1.0);
        if pod.is_terminal() || pod.deleted.is_some() {
            continue;
        }
        let own: PodSeries = vec![
            ("name", key.name.to_string()),
            ("namespace", key.namespace.to_string()),
        ];
        let age = seconds(since(now, pod.created));
        let show = |family: &Family<PodSeries, FloatGauge>| {
            family.get_or_create_owned(&own).set(age);
        };
        let is_placed = placed.contains(&pod.uid);
        if pod.node.is_none() {
            show(&unbound);
            if is_placed {
                show(&waiting);
            } else if snapshot.pending.contains(key) {
                show(&undecided);
            }
        }
        if !pod.ready {
            show(&unstarted);
            if is_placed {
                show(&starting);
            }
        }
    }
    drop(placed);
    for (name, help, family) in [
        ("karpenter_pods_state", "1 for each pod", states),
        (
            "karpenter_pods_unbound_time_seconds",
            "Age of a pod that is not bound",
            unbound,
        ),
        (
            "karpenter_pods_unstarted_time_seconds",
            "Age of a pod that is not ready",
            unstarted,
        ),
        (
            "karpenter_pods_provisioning_scheduling_undecided_time_seconds",
            "Age of a pending pod without a nomination",
            undecided,
        ),
        (
            "karpenter_pods_provisioning_unbound_time_seconds",
            "Age of an unbound pod with a nomination",
            waiting,
        ),
        (
            "karpenter_pods_provisioning_unstarted_time_seconds",
            "Age of a pod that is not ready and was nominated",
            starting,
        ),
    ] {
        live.register(name, help, family);
    }
}

fn pod_state(snapshot: &Snapshot, pod: &Pod) -> PodSeries {
    let state_node = pod.node.as_ref().and_then(|node| snapshot.node(node));
    let label = |key: &str| {
        let value = state_node.and_then(|state_node| state_node.label(key));
        value.unwrap_or_default().to_owned()
    };
    let owner = pod
        .owner
        .as_ref()
        .map(|owner| format!("{}/{}", owner.kind.to_lowercase(), owner.name));
    let node = pod.node.as_ref().map(|node| node.to_string());
    let phase = match pod.phase {
        PodPhase::Pending => "Pending",
        PodPhase::Running => "Running",
        PodPhase::Succeeded => "Succeeded",
        PodPhase::Failed => "Failed",
        PodPhase::Unknown => "Unknown",
    };
    let managed = state_node.is_some_and(|state_node| state_node.is_managed());
    vec![
        ("name", pod.key.name.to_string()),
        ("namespace", pod.key.namespace.to_string()),
        ("owner", owner.unwrap_or_default()),
        ("node", node.unwrap_or_default()),
        ("scheduled", pod.node.is_some().to_string()),
        ("nodepool", label(NODEPOOL)),
        ("zone", label(TOPOLOGY_ZONE)),
        ("arch", label(ARCH)),
        ("capacity_type", label(CAPACITY_TYPE)),
        ("instance_type", label(INSTANCE_TYPE)),
        ("phase", phase.to_owned()),
        ("ready", pod.ready.to_string()),
        ("managed", managed.to_string()),
    ]
}
