//! Quantiles of recent observations, as Karpenter has them for two of its metrics. The encoder of the other families does not
//! support summaries, so these write their own lines.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Quantiles shown.
const QUANTILES: [(&str, usize); 5] = [
    ("0.0", 0),
    ("0.5", 50),
    ("0.9", 90),
    ("0.99", 99),
    ("1.0", 100),
];
/// Quantiles cover observations within this time, the default of Prometheus' own libraries.
const AGE: Duration = Duration::from_mins(10);
/// Maximum observations kept for quantiles, the newest. 20,000 pods that start at once need no more for two digits.
const KEPT: usize = 2_000;

#[derive(Debug, Default)]
struct SummarySeries {
    recent: VecDeque<(Instant, f64)>,
    sum: f64,
    count: u64,
}

/// A summary with a series for each value of at most one label.
#[derive(Debug)]
pub(super) struct Summary {
    name: &'static str,
    help: &'static str,
    /// Name of the label; `None` = one series without labels.
    label: Option<&'static str>,
    most: usize,
    series: Mutex<BTreeMap<String, SummarySeries>>,
}

impl Summary {
    /// No observations. Limits the values of the label with series of their own.
    pub(super) const fn new(
        name: &'static str,
        help: &'static str,
        label: Option<&'static str>,
        most: usize,
    ) -> Self {
        Self {
            name,
            help,
            label,
            most,
            series: Mutex::new(BTreeMap::new()),
        }
    }

    /// Records an observation. `false` if the limit allows no series for the value of the label.
    pub(super) fn observe(&self, value: &str, seconds: f64) -> bool {
        let mut all = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= self.most && !all.contains_key(value) {
            return false;
        }
        let series = all.entry(value.to_owned()).or_default();
        let now = Instant::now();
        series.sum += seconds;
        series.count += 1;
        series.recent.push_back((now, seconds));
        if series.recent.len() > KEPT {
            series.recent.pop_front();
        }
        true
    }

    /// Writes the lines in the text format.
    pub(super) fn encode(&self, text: &mut String) -> fmt::Result {
        let Self { name, help, .. } = self;
        writeln!(text, "# HELP {name} {help}.")?;
        writeln!(text, "# TYPE {name} summary")?;
        let mut all = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        for (value, series) in all.iter_mut() {
            let now = Instant::now();
            let is_old = |at: &Instant| now.duration_since(*at) > AGE;
            while series.recent.front().is_some_and(|(at, _)| is_old(at)) {
                series.recent.pop_front();
            }
            let mut sorted: Vec<f64> = series.recent.iter().map(|(_, value)| *value).collect();
            sorted.sort_by(f64::total_cmp);
            let own = self
                .label
                .map(|label| format!("{label}=\"{}\"", escaped(value)));
            for (quantile, percent) in QUANTILES {
                let Some(last) = sorted.len().checked_sub(1) else {
                    break;
                };
                let own = own.as_ref().map(|own| format!("{own},"));
                let own = own.unwrap_or_default();
                let at = sorted.get((last * percent).div_ceil(100));
                let at = at.copied().unwrap_or_default();
                writeln!(text, "{name}{{{own}quantile=\"{quantile}\"}} {at:?}")?;
            }
            let own = own.map(|own| format!("{{{own}}}")).unwrap_or_default();
            writeln!(text, "{name}_sum{own} {:?}", series.sum)?;
            writeln!(text, "{name}_count{own} {}", series.count)?;
        }
        Ok(())
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_cover_the_observations() {
        let summary = Summary::new("s", "Times", Some("pool"), 2);
        for value in 1..=100 {
            assert!(summary.observe("a", f64::from(value)));
        }
        assert!(summary.observe("b\"", 2.5));
        assert!(!summary.observe("c", 1.0), "no third series");
        let mut text = String::new();
        summary.encode(&mut text).unwrap();
        for line in [
            "# TYPE s summary",
            "s{pool=\"a\",quantile=\"0.0\"} 1.0",
            "s{pool=\"a\",quantile=\"0.5\"} 51.0",
            "s{pool=\"a\",quantile=\"0.9\"} 91.0",
            "s{pool=\"a\",quantile=\"0.99\"} 100.0",
            "s{pool=\"a\",quantile=\"1.0\"} 100.0",
            "s_sum{pool=\"a\"} 5050.0",
            "s_count{pool=\"a\"} 100",
            "s_count{pool=\"b\\\"\"} 1",
        ] {
            assert!(text.lines().any(|each| each == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn a_summary_without_label_has_no_braces() {
        let summary = Summary::new("s", "Times", None, 1);
        summary.observe("", 1.5);
        let mut text = String::new();
        summary.encode(&mut text).unwrap();
        assert!(text.contains("\ns{quantile=\"0.5\"} 1.5\n"), "{text}");
        assert!(text.ends_with("s_sum 1.5\ns_count 1\n"), "{text}");
    }
}
