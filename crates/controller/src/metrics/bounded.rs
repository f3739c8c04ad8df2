//! A family with a bounded number of series.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::series_limit::SeriesLimit;

pub(super) type Counters<L> = BoundedFamily<L, Counter>;
pub(super) type Gauges<L> = BoundedFamily<L, Gauge>;
pub(super) type Histograms<L> = BoundedFamily<L, Histogram>;

/// A set of labels.
pub(crate) trait Labels:
    Clone + Hash + Eq + EncodeLabelSet + Debug + Send + Sync + 'static
{
}

impl<L> Labels for L where L: Clone + Hash + Eq + EncodeLabelSet + Debug + Send + Sync + 'static {}

/// A family with a limit: beyond `most` label sets, observations of further ones are counted as dropped.
#[derive(Clone, Debug)]
pub(crate) struct BoundedFamily<L, M, C = fn() -> M> {
    family: Family<L, M, C>,
    /// `None`: not served, so observations are ignored.
    most: Option<usize>,
    made: Arc<AtomicUsize>,
    limit: SeriesLimit,
}

impl<L, M, C> BoundedFamily<L, M, C>
where
    L: Labels,
    M: Clone + EncodeMetric + TypedMetric + Debug + Send + Sync + 'static,
    C: MetricConstructor<M> + Clone + Debug + Send + Sync + 'static,
{
    /// Registers the family.
    pub(crate) fn register(
        registry: &mut Registry,
        name: &str,
        help: &str,
        most: usize,
        family: Family<L, M, C>,
        limit: &SeriesLimit,
    ) -> Self {
        registry.register(name, help, family.clone());
        Self {
            family,
            most: Some(limit.scaled(most)),
            made: Arc::default(),
            limit: limit.clone(),
        }
    }

    /// A family that is not served.
    pub(crate) fn unserved(family: Family<L, M, C>, limit: &SeriesLimit) -> Self {
        Self {
            family,
            most: None,
            made: Arc::default(),
            limit: limit.clone(),
        }
    }

    /// Observes on the series of these labels, if it exists or may be created.
    pub(crate) fn with(&self, labels: &L, observe: impl FnOnce(&M)) {
        let Some(most) = self.most else { return };
        if self.family.get(labels).is_none() {
            // Two threads that create the same series at the same time count it twice: the limit is then one lower.
            if self.made.fetch_add(1, Ordering::Relaxed) >= most {
                self.made.fetch_sub(1, Ordering::Relaxed);
                self.limit.drop_one();
                return;
            }
        }
        observe(&self.family.get_or_create_owned(labels));
    }

    /// The series of these labels, if it exists.
    #[cfg(test)]
    pub(crate) fn get(&self, labels: &L) -> Option<M> {
        self.family.get(labels).map(|series| series.clone())
    }
}

impl<L: Labels> Counters<L> {
    /// Increments the counter of these labels.
    pub(super) fn count(&self, labels: &L) {
        self.count_by(labels, 1);
    }

    pub(super) fn count_by(&self, labels: &L, number: u64) {
        self.with(labels, |counter| {
            counter.inc_by(number);
        });
    }
}

impl<L: Labels> Gauges<L> {
    pub(super) fn set(&self, labels: &L, value: i64) {
        self.with(labels, |gauge| {
            gauge.set(value);
        });
    }
}

impl<L: Labels> Histograms<L> {
    pub(super) fn observe(&self, labels: &L, value: f64) {
        self.with(labels, |histogram| histogram.observe(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_label_sets_are_dropped_and_counted() {
        let mut registry = Registry::default();
        let limit = SeriesLimit::default();
        let family: BoundedFamily<Vec<(String, String)>, Counter, _> = BoundedFamily::register(
            &mut registry,
            "things",
            "Things",
            2,
            Family::<_, Counter>::default(),
            &limit,
        );
        for pool in ["a", "b", "c", "a"] {
            family.with(&vec![("pool".to_owned(), pool.to_owned())], |counter| {
                counter.inc();
            });
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(
            text.contains("things_total{pool=\"a\"} 2")
                && text.contains("things_total{pool=\"b\"} 1"),
            "{text}"
        );
        assert!(!text.contains("\"c\""), "{text}");
        assert_eq!(limit.dropped(), 1);
        assert_eq!(
            family
                .get(&vec![("pool".to_owned(), "a".to_owned())])
                .unwrap()
                .get(),
            2
        );
    }
}
