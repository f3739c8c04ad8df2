//! Pods: how long they wait for a place and for their start; in full, a series for each pod.
//!
//! Times run from a pod's creation to the moment at which this process saw the change. Pods that were bound or ready when
//! they were first seen are not counted: nobody knows here when that was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use mortise_core::labels;
use mortise_core::names::Uid;
use mortise_core::requirements::Operator;
use mortise_core::snapshot::{Pod, PodPhase, Snapshot, Stalled};
use mortise_core::values::since;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::detail::{SeriesLimit, TelemetryDetail};
use super::exposition::{FloatGauge, seconds};
use super::observe::{as_i64, count};
use super::summary::Summary;
use super::{Counters, Metrics, counters, duration_of};

/// The families, and the pods for which a place was planned here.
#[derive(Debug)]
pub(super) struct PodMetrics {
    /// From creation to ready.
    pub(super) startup: Summary,
    bound: Histogram,
    decided: Histogram,
    drained: Counters<super::labels::ReasonOnly>,
    initiated: Option<Counters<super::labels::Disrupted>>,
    provisioned: Option<Provisioned>,
    /// Pods with a planned place that are not ready yet.
    placed: Mutex<BTreeSet<Uid>>,
}

/// The same times, of pods for which a place was planned here.
#[derive(Debug)]
struct Provisioned {
    bound: Histogram,
    startup: Histogram,
}

fn histogram(registry: &mut Registry, ceiling: &SeriesLimit, name: &str, help: &str) -> Histogram {
    let made = duration_of(ceiling)();
    registry.register(name, help, made.clone());
    made
}

impl PodMetrics {
    pub(super) fn register(registry: &mut Registry, ceiling: &SeriesLimit) -> Self {
        let (r, c) = (registry, ceiling);
        let is_full = c.detail == TelemetryDetail::Full;
        Self {
            startup: Summary::new(
                "karpenter_pods_startup_duration_seconds",
                "Time from the creation of a pod until it is ready",
                None,
                1,
            ),
            bound: histogram(
                r,
                c,
                "karpenter_pods_bound_duration_seconds",
                "Time from the creation of a pod until it is bound",
            ),
            decided: histogram(
                r,
                c,
                "karpenter_pods_scheduling_decision_duration_seconds",
                "Time from the creation of a pod until it is nominated",
            ),
            drained: counters(
                r,
                "karpenter_pods_drained",
                "Pods evicted from terminating nodes, by reason",
                8,
                c,
            ),
            initiated: is_full.then(|| {
                counters(
                    r,
                    "karpenter_pods_disruption_initiated",
                    "Pods to reschedule on disrupted nodes",
                    0,
                    c,
                )
            }),
            provisioned: is_full.then(|| Provisioned {
                bound: histogram(
                    r,
                    c,
                    "karpenter_pods_provisioning_bound_duration_seconds",
                    "Time from the creation of a nominated pod until it is bound",
                ),
                startup: histogram(
                    r,
                    c,
                    "karpenter_pods_provisioning_startup_duration_seconds",
                    "Time from the creation of a nominated pod until it is ready",
                ),
            }),
            placed: Mutex::default(),
        }
    }

    fn placed(&self) -> MutexGuard<'_, BTreeSet<Uid>> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a pod was planned.
    pub(super) fn nominated(&self, pod: &Pod, now: Timestamp) {
        if pod.node.is_none() && self.placed().insert(pod.uid.clone()) {
            self.decided.observe(seconds(since(now, pod.created)));
        }
    }

    /// A pod was asked to leave.
    pub(super) fn drained(&self, reason: &'static str) {
        let labels = super::labels::ReasonOnly { reason };
        self.drained.with(&labels, count);
    }

    /// A node with so many pods was decided to go.
    pub(super) fn initiated(&self, labels: &super::labels::Disrupted, pods: usize) {
        if let Some(family) = &self.initiated {
            family.with(labels, |counter| {
                counter.inc_by(u64::try_from(pods).unwrap_or(u64::MAX));
            });
        }
    }
}

impl Metrics {
    /// A pod changed, or went.
    pub(crate) fn pod_changed(&self, before: &Pod, after: Option<&Pod>, now: Timestamp) {
        let after = after.filter(|after| after.uid == before.uid);
        let Some(after) = after.filter(|after| !after.is_terminal()) else {
            self.pods.placed().remove(&before.uid);
            return;
        };
        let took = seconds(since(now, after.created));
        if before.node.is_none() && after.node.is_some() {
            self.pods.bound.observe(took);
            if let Some(own) = &self.pods.provisioned
                && self.pods.placed().contains(&after.uid)
            {
                own.bound.observe(took);
            }
        }
        if !before.ready && after.ready {
            self.pods.startup.observe("", took);
            let placed = self.pods.placed().remove(&after.uid);
            if let Some(own) = self.pods.provisioned.as_ref().filter(|_| placed) {
                own.startup.observe(took);
            }
        }
    }
}

/// Pods that ask for nothing of ours, stalled pods, and pending pods by the zone that they are bound to.
pub(super) fn pending(live: &mut Registry, snapshot: &Snapshot, now: Timestamp, most_zones: usize) {
    let opted_out = |pod: &&std::sync::Arc<Pod>| pod.class.opts_out();
    live.register(
        "karpenter_scheduler_ignored_pods_count",
        "Pending pods that opted out of this autoscaler",
        ConstGauge::new(as_i64(snapshot.pending.values().filter(opted_out).count())),
    );
    let mut by_zone: BTreeMap<String, i64> = BTreeMap::new();
    let stalled = Family::<super::labels::StalledState, Gauge>::default();
    let of = |state: Stalled| {
        let state = state.label();
        stalled.get_or_create_owned(&super::labels::StalledState { state })
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
    for pod in snapshot.pending.values().filter(|pod| !pod.virtual_pod) {
        *by_zone.entry(zone_of(pod)).or_default() += 1;
    }
    let family = Family::<super::labels::ControllerZone, Gauge>::default();
    for (zone, count) in by_zone.into_iter().take(most_zones) {
        let labels = super::labels::ControllerZone {
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

/// The zone that a pod asks for by its own requirements, or Karpenter's word for several or none.
fn zone_of(pod: &Pod) -> String {
    let mut asked: BTreeSet<&str> = BTreeSet::new();
    for term in &pod.class.strict {
        let Some(zone) = term.get(labels::TOPOLOGY_ZONE) else {
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

impl PodMetrics {
    /// A series for each pod. Only in full.
    pub(super) fn each(&self, live: &mut Registry, snapshot: &Snapshot, now: Timestamp) {
        let family = Family::<PodSeries, FloatGauge>::default;
        let (states, unbound, unstarted) = (family(), family(), family());
        let (undecided, waiting, starting) = (family(), family(), family());
        let placed = self.placed();
        for (key, pod) in snapshot.pods.iter() {
            states
                .get_or_create_owned(&state_of(snapshot, pod))
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
}

fn state_of(snapshot: &Snapshot, pod: &Pod) -> PodSeries {
    let machine = pod.node.as_ref().and_then(|node| snapshot.node(node));
    let label = |key: &str| {
        let value = machine.and_then(|machine| machine.label(key));
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
    let managed = machine.is_some_and(|machine| machine.is_managed());
    vec![
        ("name", pod.key.name.to_string()),
        ("namespace", pod.key.namespace.to_string()),
        ("owner", owner.unwrap_or_default()),
        ("node", node.unwrap_or_default()),
        ("scheduled", pod.node.is_some().to_string()),
        ("nodepool", label(labels::NODEPOOL)),
        ("zone", label(labels::TOPOLOGY_ZONE)),
        ("arch", label(labels::ARCH)),
        ("capacity_type", label(labels::CAPACITY_TYPE)),
        ("instance_type", label(labels::INSTANCE_TYPE)),
        ("phase", phase.to_owned()),
        ("ready", pod.ready.to_string()),
        ("managed", managed.to_string()),
    ]
}
