//! Registration of families: each once, under its name, with its series limit.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::bounded::{BoundedFamily, Counters, Gauges, Histograms, Labels};
use super::series_limit::SeriesLimit;
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
    pub(super) fn is_full(&self) -> bool {
        self.limit.detail == TelemetryDetail::Full
    }

    /// As many of something as are shown where `most` are shown by default.
    pub(super) const fn scaled(&self, most: usize) -> usize {
        self.limit.scaled(most)
    }

    /// Creates histograms of times up to some minutes.
    pub(super) fn durations(&self) -> fn() -> Histogram {
        if self.is_full() {
            fine_duration
        } else {
            duration
        }
    }

    pub(super) fn counter(&mut self, name: &str, help: &str) -> Counter {
        let counter = Counter::default();
        self.registry.register(name, help, counter.clone());
        counter
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str) -> Gauge {
        let gauge = Gauge::default();
        self.registry.register(name, help, gauge.clone());
        gauge
    }

    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        make: fn() -> Histogram,
    ) -> Histogram {
        let histogram = make();
        self.registry.register(name, help, histogram.clone());
        histogram
    }

    pub(super) fn counters<L: Labels>(
        &mut self,
        name: &str,
        help: &str,
        most: usize,
    ) -> Counters<L> {
        let family = Family::<L, Counter>::default();
        BoundedFamily::register(self.registry, name, help, most, family, self.limit)
    }

    pub(super) fn gauges<L: Labels>(&mut self, name: &str, help: &str, most: usize) -> Gauges<L> {
        let family = Family::<L, Gauge>::default();
        BoundedFamily::register(self.registry, name, help, most, family, self.limit)
    }

    pub(super) fn histograms<L: Labels>(
        &mut self,
        name: &str,
        help: &str,
        most: usize,
        make: fn() -> Histogram,
    ) -> Histograms<L> {
        let family = Family::new_with_constructor(make);
        BoundedFamily::register(self.registry, name, help, most, family, self.limit)
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
pub(super) fn short_duration() -> Histogram {
    Histogram::new([0.000_1, 0.000_5, 0.001, 0.002, 0.005, 0.02, 0.1, 1.0])
}
