//! The page that Prometheus scrapes: counters, and gauges computed from the snapshot at each scrape.

mod conditions;
mod costs;
mod lifecycle;
mod nodes;
mod offerings;
mod pods;
mod pools;
mod provider_gauges;
mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use crate::config::TelemetryDetail;
use crate::metrics::labels;
use crate::metrics::numbers::as_i64;
use crate::service_state::ServiceState;

/// Media type of the page.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Maximum NodePools with series of their own. Clusters have up to about 60; further ones, by name, are omitted and counted.
const MOST_POOLS: usize = 25;
/// Resources per NodePool that are shown: the standard ones, GPUs and the count of nodes.
const RESOURCES: [&str; 6] = [
    "cpu",
    "memory",
    "pods",
    "ephemeral-storage",
    "nvidia.com/gpu",
    "nodes",
];

type FloatGauge = Gauge<f64, AtomicU64>;

/// Maximum namespaces, and values of the cost label, that are shown.
const MOST_COST_ACCOUNTS: usize = 30;
/// Maximum zones of pending pods that are shown.
const MOST_ZONES: usize = 6;

/// The page. `calls` are counters kept elsewhere, by label.
///
/// # Errors
/// Writing text failed, which strings do not do.
pub(crate) fn render(
    shared: &ServiceState,
    calls: &BTreeMap<&'static str, u64>,
) -> Result<String, fmt::Error> {
    let mut text = String::with_capacity(32 << 10);
    let metrics = &shared.metrics;
    metrics.encode(&mut text)?;
    let mut live = Registry::default();
    let (snapshot, now, limit) = (shared.snapshot(), shared.now(), metrics.limit());
    process(&mut live);
    state::register(&mut live, shared, &snapshot);
    state::queue(&mut live, metrics, &snapshot);
    pods::pending(&mut live, &snapshot, now, limit.scaled(MOST_ZONES));
    nodes::utilization(&mut live, &snapshot);
    let omitted = pools::register(&mut live, &snapshot, limit.scaled(MOST_POOLS));
    lifecycle::paused_launches(&mut live, &snapshot);
    lifecycle::pauses(&mut live, &snapshot, now);
    lifecycle::brake(&mut live, &snapshot);
    lifecycle::upgrade_drift(&mut live, &snapshot, shared.settings(), now);
    lifecycle::drains(&mut live, &shared.records, &snapshot, now);
    pools::budgets(&mut live, &snapshot, now, limit);
    let gauges: Vec<_> = shared
        .providers()
        .iter()
        .flat_map(|each| each.gauges())
        .collect();
    provider_gauges::register(&mut live, &gauges);
    offerings::unused_reservations(&mut live, &shared.unused_reservations);
    let most = [MOST_POOLS, MOST_COST_ACCOUNTS].map(|most| limit.scaled(most));
    costs::register(&mut live, shared.costs_now(), most.into());
    costs::policies(&mut live, &snapshot);
    costs::commitments(&mut live, &snapshot);
    let conditions_omitted = conditions::gauges(&mut live, &snapshot, now, limit);
    if metrics.detail() == TelemetryDetail::Full {
        nodes::each_node(&mut live, &snapshot, now);
        pods::each(&mut live, &metrics.pods, &snapshot, now);
        offerings::each(&mut live, &snapshot);
    }
    live.register(
        "mortise_metrics_conditions_omitted",
        "Condition series omitted because of the series limit",
        ConstGauge::new(as_i64(conditions_omitted)),
    );
    live.register(
        "mortise_webhook_calls",
        "Webhook and extender requests by call and result",
        webhook_calls(calls),
    );
    live.register(
        "mortise_metrics_dropped",
        "Observations dropped because of the series limit",
        ConstCounter::new(limit.dropped()),
    );
    live.register(
        "mortise_metrics_nodepools_omitted",
        "NodePools omitted because of the series limit",
        ConstGauge::new(as_i64(omitted)),
    );
    encode_registry(&mut text, &live)?;
    encode_eof(&mut text)?;
    Ok(text)
}

fn webhook_calls(calls: &BTreeMap<&'static str, u64>) -> Family<labels::Call, Counter> {
    let family = Family::<labels::Call, Counter>::default();
    for (call, count) in calls {
        family.get_or_create(&labels::Call { call }).inc_by(*count);
    }
    family
}

fn process(live: &mut Registry) {
    if let Some(bytes) = resident_bytes() {
        live.register(
            "process_resident_memory_bytes",
            "Resident memory size in bytes",
            ConstGauge::new(bytes),
        );
        live.register(
            "mortise_resident_memory_bytes",
            "Resident memory size in bytes",
            ConstGauge::new(bytes),
        );
    }
}

/// Resident memory of this process, as the kernel counts it; `None` where there is no `/proc`.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<i64>()
        .ok()
        .map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests;
