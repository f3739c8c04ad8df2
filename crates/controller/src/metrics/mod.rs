//! Metrics: Karpenter's names where dashboards need them, our own under `mortise_`.
//!
//! Series come from three sources: things that happened (effects, decisions, calls) are counted when they happen; facts
//! about the cluster are computed from the snapshot at each scrape, so that what is gone vanishes; and families are
//! bounded, so that neither a large catalogue nor a large cluster can grow the page beyond some 2,000 series. Karpenter's
//! metrics with series for each pool, node, pod or offering, and its finer buckets, come with [`TelemetryDetail::Full`].
//! `upstream.tsv` says of each metric of Karpenter when it is served, or why it is not.

mod bounded;
mod conditions;
mod detail;
mod disruption;
mod exposition;
mod labels;
mod lifecycle;
mod nodes;
mod observe;
mod offerings;
mod pods;
mod reason;
mod summary;
mod writes;

use std::sync::Mutex;
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use bounded::BoundedFamily;
use conditions::ConditionMetrics;
use detail::SeriesLimit;
pub use detail::TelemetryDetail;
use disruption::DisruptionMetrics;
pub(crate) use exposition::CONTENT_TYPE;
use nodes::NodeMetrics;
use pods::PodMetrics;
pub(crate) use reason::replacement as replacement_reason;

type Counters<L> = BoundedFamily<L, Counter>;
type Gauges<L> = BoundedFamily<L, Gauge>;
type Histograms<L> = BoundedFamily<L, Histogram>;

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    ceiling: SeriesLimit,
    disruptions: DisruptionMetrics,
    machines: NodeMetrics,
    pods: PodMetrics,
    conditions: ConditionMetrics,
    launch_failures: Counters<labels::LaunchFailure>,
    termination_failures: Counters<labels::ZoneOnly>,
    /// When the plan for pods that is being made was begun.
    planning: Mutex<Option<Instant>>,
    created: Counters<labels::Created>,
    terminated: Counters<labels::Terminated>,
    disrupted: Counters<labels::Disrupted>,
    unhealthy: Counters<labels::Unhealthy>,
    nodes_created: Counters<labels::PoolZone>,
    nodes_terminated: Counters<labels::PoolZone>,
    nodes_drained: Counters<labels::Pool>,
    evictions: Counters<labels::Code>,
    scheduling_duration: Histograms<labels::Controller>,
    cloud_duration: Histograms<labels::Method>,
    cloud_errors: Counters<labels::MethodError>,
    messages: Counters<labels::Message>,
    messages_deleted: Counter,
    message_age: Histogram,
    leader: Gauges<labels::Lease>,
    effects: Counters<labels::EffectResult>,
    effect_duration: Histograms<labels::EffectName>,
    effect_queue_depth: Gauges<labels::Lane>,
    effects_running: Gauges<labels::Lane>,
    events_sent: Counter,
    events_dropped: Counters<labels::ReasonOnly>,
    event_queue_depth: Gauge,
    input_queue_depth: Gauge,
    decisions: Counters<labels::DeciderVerdict>,
    step_duration: Histograms<labels::Decider>,
    watch_restarts: Counters<labels::Kind>,
    unparsable: Counters<labels::Kind>,
    api_writes: Counters<labels::ApiWrite>,
    requests: Counters<labels::Request>,
    request_duration: Histograms<labels::Path>,
    panics: Counter,
    connections: Gauge,
    handshakes_failed: Counters<labels::Cause>,
    connections_ended: Counters<labels::PortCause>,
    token_reviews: Counters<labels::Outcome>,
    unasked_binds: Gauge,
    certificate_reloads: Counters<labels::Outcome>,
}

/// Counts requests to the API server that write.
#[derive(Clone, Debug)]
pub(crate) struct WriteCounter(Counters<labels::ApiWrite>);

impl WriteCounter {
    /// A request is sent.
    pub(crate) fn sent(&self, method: &http::Method, path: &str) {
        if let Some(write) = writes::of_request(method, path) {
            self.0.with(&write, |counter| {
                counter.inc();
            });
        }
    }
}

/// Twelve bounds from 5 ms to 10 min: enough for any quantile that a dashboard shows, at a third of the series.
fn duration() -> Histogram {
    Histogram::new([
        0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 150.0, 600.0,
    ])
}

/// Karpenter's bounds.
fn fine_duration() -> Histogram {
    Histogram::new([
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8,
        0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0,
        15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
    ])
}

/// Makes histograms of times up to some minutes.
fn duration_of(ceiling: &SeriesLimit) -> fn() -> Histogram {
    match ceiling.detail {
        TelemetryDetail::Bounded => duration,
        TelemetryDetail::Full => fine_duration,
    }
}

/// Bounds for answers that should take about a millisecond.
fn short_duration() -> Histogram {
    Histogram::new([0.000_1, 0.000_5, 0.001, 0.002, 0.005, 0.02, 0.1, 1.0])
}

impl Metrics {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(version: &str, detail: TelemetryDetail) -> Self {
        let mut registry = Registry::default();
        let ceiling = SeriesLimit::new(detail);
        let r = &mut registry;
        let d = &ceiling;
        let duration = duration_of(d);
        let build = Family::<labels::Build, Gauge>::default();
        r.register("karpenter_build_info", "Build information", build.clone());
        build
            .get_or_create(&labels::Build {
                version: version.to_owned(),
                goversion: String::new(),
                goarch: architecture(),
                commit: String::new(),
            })
            .set(1);
        let plain = |registry: &mut Registry, name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let level = |registry: &mut Registry, name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        Self {
            disruptions: DisruptionMetrics::register(r, d),
            machines: NodeMetrics::register(r, d),
            pods: PodMetrics::register(r, d),
            conditions: ConditionMetrics::register(r, d),
            launch_failures: counters(
                r,
                "karpenter_cloudprovider_instance_launch_failures",
                "Launches that failed for lack of capacity, by offering",
                10,
                d,
            ),
            termination_failures: counters(
                r,
                "karpenter_cloudprovider_instance_termination_failures",
                "Failed requests to terminate an instance",
                5,
                d,
            ),
            planning: Mutex::new(None),
            created: counters(
                r,
                "karpenter_nodeclaims_created",
                "NodeClaims created",
                60,
                d,
            ),
            terminated: counters(
                r,
                "karpenter_nodeclaims_terminated",
                "NodeClaims terminated",
                60,
                d,
            ),
            disrupted: counters(
                r,
                "karpenter_nodeclaims_disrupted",
                "NodeClaims disrupted, by reason",
                60,
                d,
            ),
            unhealthy: counters(
                r,
                "karpenter_nodeclaims_unhealthy_disrupted",
                "NodeClaims disrupted because of an unhealthy node condition",
                30,
                d,
            ),
            nodes_created: counters(r, "karpenter_nodes_created", "Nodes registered", 60, d),
            nodes_terminated: counters(r, "karpenter_nodes_terminated", "Nodes terminated", 60, d),
            nodes_drained: counters(r, "karpenter_nodes_drained", "Nodes drained", 40, d),
            evictions: counters(
                r,
                "karpenter_pods_eviction_requests",
                "Eviction requests by HTTP status",
                16,
                d,
            ),
            scheduling_duration: histograms(
                r,
                "karpenter_scheduler_scheduling_duration_seconds",
                "Duration of scheduling",
                2,
                duration,
                d,
            ),
            cloud_duration: histograms(
                r,
                "karpenter_cloudprovider_duration_seconds",
                "Duration of cloud provider calls",
                10,
                duration,
                d,
            ),
            cloud_errors: counters(
                r,
                "karpenter_cloudprovider_errors",
                "Failed cloud provider calls",
                30,
                d,
            ),
            messages: counters(
                r,
                "karpenter_interruption_received_messages",
                "Interruption messages received",
                10,
                d,
            ),
            messages_deleted: plain(
                r,
                "karpenter_interruption_deleted_messages",
                "Interruption messages deleted from the queue",
            ),
            message_age: {
                let histogram = duration();
                r.register(
                    "karpenter_interruption_message_queue_duration_seconds",
                    "Time from the creation of an interruption message until it was received",
                    histogram.clone(),
                );
                histogram
            },
            leader: gauges(
                r,
                "leader_election_master_status",
                "1 while this process is the leader",
                2,
                d,
            ),
            effects: counters(r, "mortise_effects", "Effects by result", 60, d),
            effect_duration: histograms(
                r,
                "mortise_effect_duration_seconds",
                "Time from the request of an effect to its result, including retries",
                12,
                duration,
                d,
            ),
            effect_queue_depth: gauges(
                r,
                "mortise_effect_queue_depth",
                "Effects that are queued",
                8,
                d,
            ),
            effects_running: gauges(
                r,
                "mortise_effects_running",
                "Effects that are running",
                8,
                d,
            ),
            events_sent: plain(r, "mortise_events_sent", "Events sent"),
            events_dropped: counters(
                r,
                "mortise_events_dropped",
                "Events dropped, by reason",
                6,
                d,
            ),
            event_queue_depth: level(r, "mortise_event_queue_depth", "Events that are queued"),
            input_queue_depth: level(
                r,
                "mortise_input_queue_depth",
                "Events and outcomes waiting for the engine",
            ),
            decisions: counters(
                r,
                "mortise_decisions",
                "Decisions by decider and verdict",
                80,
                d,
            ),
            step_duration: histograms(
                r,
                "mortise_step_duration_seconds",
                "Duration of one step of a decider",
                12,
                short_duration,
                d,
            ),
            watch_restarts: counters(r, "mortise_watch_restarts", "Watch restarts", 24, d),
            unparsable: counters(
                r,
                "mortise_unparsable_objects",
                "Objects that could not be parsed; their previous state stays in use",
                24,
                d,
            ),
            api_writes: counters(
                r,
                "mortise_api_writes",
                "Write requests to the API server, including retries",
                60,
                d,
            ),
            requests: counters(
                r,
                "mortise_http_requests",
                "HTTP requests by path and status class",
                40,
                d,
            ),
            request_duration: histograms(
                r,
                "mortise_http_request_duration_seconds",
                "Duration of HTTP requests",
                12,
                short_duration,
                d,
            ),
            panics: plain(
                r,
                "mortise_http_panics",
                "HTTP requests whose handler panicked",
            ),
            connections: level(r, "mortise_https_connections", "Open HTTPS connections"),
            handshakes_failed: counters(
                r,
                "mortise_tls_handshakes_failed",
                "TLS handshakes that failed or timed out, by cause",
                8,
                d,
            ),
            connections_ended: counters(
                r,
                "mortise_connections_ended",
                "Connections rejected or closed by the server, by cause",
                12,
                d,
            ),
            token_reviews: counters(
                r,
                "mortise_token_reviews",
                "Token reviews of callers of debug paths, by outcome",
                5,
                d,
            ),
            unasked_binds: level(
                r,
                "mortise_extender_unasked_binds",
                "Pods bound without an extender call in the previous minute, since the last call",
            ),
            certificate_reloads: counters(
                r,
                "mortise_certificate_reloads",
                "Certificate reloads by outcome",
                4,
                d,
            ),
            registry,
            ceiling,
        }
    }

    /// Counts requests to the API server that write.
    pub(crate) fn count_writes(&self) -> WriteCounter {
        WriteCounter(self.api_writes.clone())
    }

    /// How much metrics and events tell.
    #[must_use]
    pub const fn detail(&self) -> TelemetryDetail {
        self.ceiling.detail
    }
}

fn counters<L>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    most: usize,
    ceiling: &SeriesLimit,
) -> Counters<L>
where
    L: Clone + std::hash::Hash + Eq + EncodeLabelSet + std::fmt::Debug + Send + Sync + 'static,
{
    BoundedFamily::register(
        registry,
        name,
        help,
        most,
        Family::<L, Counter>::default(),
        ceiling,
    )
}

fn gauges<L>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    most: usize,
    ceiling: &SeriesLimit,
) -> Gauges<L>
where
    L: Clone + std::hash::Hash + Eq + EncodeLabelSet + std::fmt::Debug + Send + Sync + 'static,
{
    BoundedFamily::register(
        registry,
        name,
        help,
        most,
        Family::<L, Gauge>::default(),
        ceiling,
    )
}

fn histograms<L>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    most: usize,
    make: fn() -> Histogram,
    ceiling: &SeriesLimit,
) -> Histograms<L>
where
    L: Clone + std::hash::Hash + Eq + EncodeLabelSet + std::fmt::Debug + Send + Sync + 'static,
{
    BoundedFamily::register(
        registry,
        name,
        help,
        most,
        Family::new_with_constructor(make),
        ceiling,
    )
}

/// The architecture as Go names it, because dashboards expect that.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests;
