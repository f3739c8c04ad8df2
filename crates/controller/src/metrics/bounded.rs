//! A family of series that cannot grow without end.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::registry::Registry;

use super::detail::SeriesLimit;

/// A family with a ceiling: once it has `most` label sets, observations of further ones are counted as dropped.
#[derive(Clone, Debug)]
pub(crate) struct BoundedFamily<L, M, C = fn() -> M> {
    family: Family<L, M, C>,
    most: usize,
    made: Arc<AtomicUsize>,
    ceiling: SeriesLimit,
}

impl<L, M, C> BoundedFamily<L, M, C>
where
    L: Clone + Hash + Eq + EncodeLabelSet + Debug + Send + Sync + 'static,
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
        ceiling: &SeriesLimit,
    ) -> Self {
        registry.register(name, help, family.clone());
        Self {
            family,
            most: ceiling.most(most),
            made: Arc::default(),
            ceiling: ceiling.clone(),
        }
    }

    /// Observes on the series of these labels, if it is there or may be made.
    pub(crate) fn with(&self, labels: &L, observe: impl FnOnce(&M)) {
        if self.family.get(labels).is_none() {
            // Two threads that make the same series at the same time count it twice: the ceiling is then one lower.
            if self.made.fetch_add(1, Ordering::Relaxed) >= self.most {
                self.made.fetch_sub(1, Ordering::Relaxed);
                self.ceiling.drop_one();
                return;
            }
        }
        observe(&self.family.get_or_create_owned(labels));
    }

    /// The series of these labels, if it is there.
    #[cfg(test)]
    pub(crate) fn get(&self, labels: &L) -> Option<M> {
        self.family.get(labels).map(|series| series.clone())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn further_label_sets_are_dropped_and_counted() {
        let mut registry = Registry::default();
        let ceiling = SeriesLimit::default();
        let family: BoundedFamily<Vec<(String, String)>, Counter, _> = BoundedFamily::register(
            &mut registry,
            "things",
            "Things",
            2,
            Family::<_, Counter>::default(),
            &ceiling,
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
        assert_eq!(ceiling.dropped(), 1);
        assert_eq!(
            family
                .get(&vec![("pool".to_owned(), "a".to_owned())])
                .unwrap()
                .get(),
            2
        );
    }
}
