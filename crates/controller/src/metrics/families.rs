//! Registration of families: each once, under its name, with its series limit.

use std::fmt::Debug;

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use super::bounded::{BoundedFamily, Counters, Gauges, Histograms, Labels};
use super::series::Served;
use super::series_limit::SeriesLimit;
use super::summary::Summary;
use crate::config::TelemetryDetail;

/// Registers families. `most` is always the number of label sets that a family has by default.
pub(super) struct Families<'r> {
    registry: &'r mut Registry,
    limit: &'r SeriesLimit,
}

impl<'r> Families<'r> {
    pub(super) const fn new(registry: &'r mut Registry, limit: &'r SeriesLimit) -> Self {
        Self { registry, limit }
    }

    /// Whether series per object are enabled.
    fn is_full(&self) -> bool {
        self.limit.detail == TelemetryDetail::Full
    }

    fn serves(&self, served: Served) -> bool {
        served == Served::always || self.is_full()
    }

    const fn constructor(&self, buckets: Buckets) -> fn() -> Histogram {
        match self.limit.detail {
            TelemetryDetail::Bounded => buckets.bounded,
            TelemetryDetail::Full => buckets.full,
        }
    }

    /// Registers a metric without labels.
    fn single<M: Clone + Metric>(
        &mut self,
        served: Served,
        name: &str,
        help: &str,
        metric: M,
    ) -> M {
        if self.serves(served) {
            self.registry.register(name, help, metric.clone());
        }
        metric
    }

    fn family<L: Labels, M, C>(
        &mut self,
        served: Served,
        (name, help): (&str, &str),
        most: usize,
        family: Family<L, M, C>,
    ) -> BoundedFamily<L, M, C>
    where
        M: Clone + EncodeMetric + TypedMetric + Debug + Send + Sync + 'static,
        C: MetricConstructor<M> + Clone + Debug + Send + Sync + 'static,
    {
        if self.serves(served) {
            BoundedFamily::register(self.registry, name, help, most, family, self.limit)
        } else {
            BoundedFamily::unserved(family, self.limit)
        }
    }

    pub(super) fn counter(&mut self, served: Served, name: &str, help: &str) -> Counter {
        self.single(served, name, help, Counter::default())
    }

    pub(super) fn gauge(&mut self, served: Served, name: &str, help: &str) -> Gauge {
        self.single(served, name, help, Gauge::default())
    }

    pub(super) fn histogram(
        &mut self,
        served: Served,
        name: &str,
        help: &str,
        buckets: Buckets,
    ) -> Histogram {
        let histogram = self.constructor(buckets)();
        self.single(served, name, help, histogram)
    }

    pub(super) fn counters<L: Labels>(
        &mut self,
        served: Served,
        name: &str,
        help: &str,
        most: usize,
    ) -> Counters<L> {
        self.family(served, (name, help), most, Family::default())
    }

    pub(super) fn gauges<L: Labels>(
        &mut self,
        served: Served,
        name: &str,
        help: &str,
        most: usize,
    ) -> Gauges<L> {
        self.family(served, (name, help), most, Family::default())
    }

    pub(super) fn histograms<L: Labels>(
        &mut self,
        served: Served,
        name: &str,
        help: &str,
        most: usize,
        buckets: Buckets,
    ) -> Histograms<L> {
        let family = Family::new_with_constructor(self.constructor(buckets));
        self.family(served, (name, help), most, family)
    }

    /// A summary writes its own lines, so it is not registered.
    pub(super) const fn summary(
        &self,
        name: &'static str,
        help: &'static str,
        label: Option<&'static str>,
        most: usize,
    ) -> Summary {
        Summary::new(name, help, label, self.limit.scaled(most))
    }
}

/// Buckets of a histogram, by telemetry detail.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buckets {
    bounded: fn() -> Histogram,
    full: fn() -> Histogram,
}

impl Buckets {
    /// Times up to some minutes.
    pub(super) const DURATIONS: Self = Self {
        bounded: duration,
        full: fine_duration,
    };
    /// Responses that should take about a millisecond.
    pub(super) const SHORT: Self = Self::always(short_duration);
    /// Times that conditions keep a status.
    pub(super) const LONG: Self = Self {
        bounded: long_duration,
        full: fine_long_duration,
    };
    /// Ages of nodes.
    pub(super) const LIFETIMES: Self = Self::always(lifetimes);
    /// Scores of consolidations.
    pub(super) const SCORES: Self = Self::always(scores);

    const fn always(make: fn() -> Histogram) -> Self {
        Self {
            bounded: make,
            full: make,
        }
    }
}

/// Twelve bounds from 5 ms to 10 min: enough for any quantile of a dashboard, at a third of the series.
fn duration() -> Histogram {
    Histogram::new([
        0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 150.0, 600.0,
    ])
}

/// Karpenter's buckets.
fn fine_duration() -> Histogram {
    Histogram::new([
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8,
        0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0,
        15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
    ])
}

/// Buckets for responses that should take about a millisecond.
fn short_duration() -> Histogram {
    Histogram::new([0.000_1, 0.000_5, 0.001, 0.002, 0.005, 0.02, 0.1, 1.0])
}

/// A subset of Karpenter's buckets for conditions.
fn long_duration() -> Histogram {
    Histogram::new([2.0, 32.0, 512.0, 4096.0])
}

/// Karpenter's buckets for conditions: from half a second, doubling.
fn fine_long_duration() -> Histogram {
    let bounds = std::iter::successors(Some(0.5), |bound| Some(bound * 2.0));
    Histogram::new(bounds.take(15))
}

/// From a quarter of an hour to 30 days.
fn lifetimes() -> Histogram {
    let hours = [
        0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 24.0, 48.0, 72.0, 120.0, 168.0, 240.0, 336.0, 480.0,
        720.0,
    ];
    Histogram::new(hours.map(|each: f64| each * 3_600.0))
}

/// Karpenter's buckets for scores.
fn scores() -> Histogram {
    Histogram::new([0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0])
}
