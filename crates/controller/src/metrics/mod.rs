//! Metrics: Karpenter's names where dashboards need them, mortise's own under `mortise_`.
//!
//! Occurrences (effects, decisions, calls) are counted here, by subject, when they happen. Facts about the cluster are computed
//! from the snapshot at each scrape, so that deleted objects disappear: see `serve/exposition`. Families are bounded, so that
//! neither a large catalog nor a large cluster can grow the page beyond about 2,000 series. Karpenter's metrics with series for
//! each NodePool, node, pod or offering, and its finer buckets, come with [`TelemetryDetail::Full`].
//! `serve/exposition/upstream.tsv` states when each metric of Karpenter is served, or why it is not.

mod bounded;
mod cloud;
pub(crate) mod conditions;
mod disruption;
mod effects;
mod engine;
mod families;
mod http;
pub(crate) mod labels;
mod nodes;
pub(crate) mod numbers;
mod observe;
mod pods;
mod reason;
mod series_limit;
mod summary;
mod writes;

use std::fmt;

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::config::TelemetryDetail;
use cloud::CloudMetrics;
use conditions::ConditionMetrics;
use disruption::DisruptionMetrics;
use effects::EffectMetrics;
pub(crate) use effects::WriteCounter;
use engine::EngineMetrics;
use families::Families;
use http::HttpMetrics;
use nodes::NodeMetrics;
pub(crate) use pods::PodMetrics;
pub(crate) use reason::replacement as replacement_reason;
pub(crate) use series_limit::SeriesLimit;

/// All metrics, by subject.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    limit: SeriesLimit,
    pub(crate) nodes: NodeMetrics,
    pub(crate) pods: PodMetrics,
    pub(crate) disruption: DisruptionMetrics,
    pub(crate) conditions: ConditionMetrics,
    pub(crate) cloud: CloudMetrics,
    pub(crate) effects: EffectMetrics,
    pub(crate) engine: EngineMetrics,
    pub(crate) http: HttpMetrics,
}

impl Metrics {
    /// Metrics without any observation.
    #[must_use]
    pub fn new(version: &str, detail: TelemetryDetail) -> Self {
        let mut registry = Registry::default();
        let limit = SeriesLimit::new(detail);
        register_build(&mut registry, version);
        let mut families = Families::new(&mut registry, &limit);
        Self {
            disruption: DisruptionMetrics::register(&mut families),
            nodes: NodeMetrics::register(&mut families),
            pods: PodMetrics::register(&mut families),
            conditions: ConditionMetrics::register(&mut families),
            cloud: CloudMetrics::register(&mut families),
            effects: EffectMetrics::register(&mut families),
            engine: EngineMetrics::register(&mut families),
            http: HttpMetrics::register(&mut families),
            registry,
            limit,
        }
    }

    /// Detail of metrics and events.
    #[must_use]
    pub const fn detail(&self) -> TelemetryDetail {
        self.limit.detail
    }

    /// Limits of series.
    pub(crate) const fn limit(&self) -> &SeriesLimit {
        &self.limit
    }

    /// Writes the lines of all metrics in the text format.
    pub(crate) fn encode(&self, text: &mut String) -> fmt::Result {
        encode_registry(text, &self.registry)?;
        self.nodes.termination.encode(text)?;
        self.pods.startup.encode(text)
    }
}

/// The gauge with build information.
fn register_build(registry: &mut Registry, version: &str) {
    let build = Family::<labels::Build, Gauge>::default();
    registry.register("karpenter_build_info", "Build information", build.clone());
    build
        .get_or_create(&labels::Build {
            version: version.to_owned(),
            goversion: String::new(),
            goarch: architecture(),
            commit: String::new(),
        })
        .set(1);
}

/// The architecture as Go names it, because dashboards expect that.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
