//! The table of a subject's metrics: a row declares the field that is observed, and what is registered and documented.

/// One metric as its row declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesRow {
    /// `counter`, `gauge`, `histogram` or `summary`.
    pub kind: &'static str,
    /// Name without the `_total` of counters.
    pub name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// Names of the labels.
    pub labels: Vec<&'static str>,
    /// Label sets by default; one for a metric without labels.
    pub most: usize,
    /// Served with full telemetry detail only, without a limit.
    pub full_only: bool,
}

/// Names of the labels of a label set.
pub(super) trait LabelNames {
    const NAMES: &'static [&'static str];

    fn names() -> Vec<&'static str> {
        let names = Self::NAMES.iter();
        names.map(|name| name.trim_start_matches("r#")).collect()
    }
}

/// When a metric is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// Always.
    #[expect(non_camel_case_types, reason = "a word of the tables")]
    always,
    /// With full telemetry detail.
    #[expect(non_camel_case_types, reason = "a word of the tables")]
    full,
}

/// A struct with a field for each metric. A row is: field, `always` or `full` (telemetry detail), type, in brackets the labels
/// with the number of label sets by default and the buckets of a histogram, name, help.
macro_rules! series {
    ($(#[$doc:meta])* $subject:ident { $($field:ident: $served:ident $kind:ident $spec:tt $name:literal $help:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $subject {
            $(pub(super) $field: $crate::metrics::series::series_type!($kind $spec),)*
        }

        impl $subject {
            pub(super) fn register(families: &mut $crate::metrics::families::Families<'_>) -> Self {
                Self {
                    $($field: $crate::metrics::series::new_series!(
                        families, $crate::metrics::series::Served::$served, $name, $help, $kind $spec
                    ),)*
                }
            }

            /// The rows of the table.
            pub(super) fn rows() -> Vec<$crate::metrics::series::SeriesRow> {
                vec![$({
                    let (labels, most) = $crate::metrics::series::labels_and_limit!($kind $spec);
                    $crate::metrics::series::SeriesRow {
                        kind: stringify!($kind),
                        name: $name,
                        help: $help,
                        labels,
                        most,
                        full_only: $crate::metrics::series::Served::$served
                            == $crate::metrics::series::Served::full,
                    }
                },)*]
            }
        }
    };
}

/// The type of a row's field.
macro_rules! series_type {
    (counter []) => { ::prometheus_client::metrics::counter::Counter };
    (gauge []) => { ::prometheus_client::metrics::gauge::Gauge };
    (histogram [$buckets:expr]) => { ::prometheus_client::metrics::histogram::Histogram };
    (counter [$labels:ty; $most:literal]) => { $crate::metrics::bounded::Counters<$labels> };
    (gauge [$labels:ty; $most:literal]) => { $crate::metrics::bounded::Gauges<$labels> };
    (histogram [$labels:ty; $most:literal; $buckets:expr]) => { $crate::metrics::bounded::Histograms<$labels> };
    (summary $spec:tt) => { $crate::metrics::summary::Summary };
}

/// Registers a row.
macro_rules! new_series {
    ($families:ident, $served:expr, $name:literal, $help:literal, counter []) => {
        $families.counter($served, $name, $help)
    };
    ($families:ident, $served:expr, $name:literal, $help:literal, gauge []) => {
        $families.gauge($served, $name, $help)
    };
    ($families:ident, $served:expr, $name:literal, $help:literal, histogram [$buckets:expr]) => {
        $families.histogram($served, $name, $help, $buckets)
    };
    ($families:ident, $served:expr, $name:literal, $help:literal, counter [$labels:ty; $most:literal]) => {
        $families.counters($served, $name, $help, $most)
    };
    ($families:ident, $served:expr, $name:literal, $help:literal, gauge [$labels:ty; $most:literal]) => {
        $families.gauges($served, $name, $help, $most)
    };
    ($families:ident, $served:expr, $name:literal, $help:literal, histogram [$labels:ty; $most:literal; $buckets:expr]) => {
        $families.histograms($served, $name, $help, $most, $buckets)
    };
    ($families:ident, $served:expr, $name:literal, $help:literal, summary []) => {
        $families.summary($name, $help, None, 1)
    };
    ($families:ident, $served:expr, $name:literal, $help:literal, summary [$label:literal; $most:literal]) => {
        $families.summary($name, $help, Some($label), $most)
    };
}

/// The labels of a row, and its number of label sets by default.
macro_rules! labels_and_limit {
    (summary [$label:literal; $most:literal]) => {
        (vec![$label], $most)
    };
    ($kind:ident [$labels:ty; $most:literal $(; $buckets:expr)?]) => {
        (
            <$labels as $crate::metrics::series::LabelNames>::names(),
            $most,
        )
    };
    ($kind:ident [$($buckets:expr)?]) => {
        (Vec::new(), 1)
    };
}

pub(super) use {labels_and_limit, new_series, series, series_type};
