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
mod series;
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
pub(crate) use effects::{SpanCounter, WriteCounter};
use engine::EngineMetrics;
use families::Families;
use http::HttpMetrics;
use nodes::NodeMetrics;
pub(crate) use pods::PodMetrics;
pub use series::SeriesRow;
pub(crate) use series_limit::SeriesLimit;

macro_rules! subjects {
    ($($field:ident: $subject:ident,)*) => {
        /// All metrics, by subject.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            limit: SeriesLimit,
            $(pub(crate) $field: $subject,)*
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
                    $($field: $subject::register(&mut families),)*
                    registry,
                    limit,
                }
            }

            /// The rows of the tables of all subjects.
            #[must_use]
            pub fn series() -> Vec<SeriesRow> {
                [$($subject::rows()),*].concat()
            }
        }
    };
}

// The order of the page.
subjects! {
    disruption: DisruptionMetrics,
    nodes: NodeMetrics,
    pods: PodMetrics,
    conditions: ConditionMetrics,
    cloud: CloudMetrics,
    effects: EffectMetrics,
    engine: EngineMetrics,
    http: HttpMetrics,
}

impl Metrics {
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
        self.pods.startup().encode(text)
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
