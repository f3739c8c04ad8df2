//! Scores of the same scenario side by side.

use mortise_sim::Scores;

use super::column::PlayedColumn;
use super::{clock, dollars};

/// Width of the words, and of each column.
const WORDS: usize = 34;
const COLUMN: usize = 14;

/// One line per score, and what else is to be known of the columns.
pub(super) fn side_by_side(played: &[PlayedColumn]) -> Vec<String> {
    let line = |words: &str, values: Vec<String>| {
        let values = values.iter().map(|value| format!("{value:>COLUMN$}"));
        format!("{words:<WORDS$}{}", values.collect::<String>())
    };
    let names = played.iter().map(|column| column.name().to_owned());
    let rows = rows(played).into_iter();
    let rows = rows.map(|(words, values)| line(words, values));
    let mut lines: Vec<String> = std::iter::once(line("", names.collect()))
        .chain(rows)
        .collect();
    lines.extend(notes(played));
    lines
}

/// Which seeds the scores are of, and what was changed; begins with an empty line if there is something to say.
pub(super) fn notes(played: &[PlayedColumn]) -> Vec<String> {
    let mut notes = vec![String::new()];
    let reports = played.first().map_or(&[][..], |column| &column.reports);
    if let [first, .., last] = reports {
        notes.push(format!(
            "means of the seeds {} to {}; of times, nodes at a time and one workload, the worst seed",
            first.seed, last.seed
        ));
    }
    let changed = played.iter().filter(|column| !column.changes.is_empty());
    notes.extend(changed.map(|column| format!("changed: {}", column.changes.join(", "))));
    if notes.len() == 1 {
        notes.clear();
    }
    notes
}

/// Each score in words, and its value for each column: per seed, what adds up.
pub(super) fn rows(played: &[PlayedColumn]) -> Vec<(&'static str, Vec<String>)> {
    let of = |words: &'static str, value: fn(&Scores, u64) -> String| {
        let values = played.iter().map(|column| {
            let seeds = column.reports.len().max(1) as u64;
            value(&column.scores, seeds)
        });
        (words, values.collect())
    };
    vec![
        of("spent", |each, seeds| {
            format!("${}", dollars(each.spent_micro_usd / seeds.cast_signed()))
        }),
        of("above what pods need at least", |each, _| {
            each.above_bound()
        }),
        of("pods waited: half", |each, _| clock(each.pending_s.p50)),
        of("pods waited: 99 in 100", |each, _| {
            clock(each.pending_s.p99)
        }),
        of("pods waited: longest", |each, _| clock(each.pending_s.most)),
        of("evictions", |each, seeds| mean(each.evictions, seeds)),
        of("of one workload at most", |each, _| {
            each.most_moves().to_string()
        }),
        of("nodes launched", |each, seeds| {
            mean(each.nodes_launched, seeds)
        }),
        of("nodes at a time at most", |each, _| {
            each.most_nodes.to_string()
        }),
        of("terminated nodes lived: half", |each, _| {
            clock(each.lifetime_min.p50 * 60)
        }),
        of("hours of nodes without pods", |each, seeds| {
            tenths(each.empty_node_minutes / 6 / seeds)
        }),
        of("violated invariants", |each, _| each.violations.to_string()),
    ]
}

/// Per seed; a whole number of one seed.
fn mean(sum: u64, seeds: u64) -> String {
    if seeds == 1 {
        sum.to_string()
    } else {
        tenths(sum * 10 / seeds)
    }
}

fn tenths(value: u64) -> String {
    format!("{}.{}", value / 10, value % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use mortise_sim::baseline::SimulatedPolicy;
    use mortise_sim::scenario::ScenarioReport;
    use mortise_sim::{Percentiles, Stats};

    fn report(seed: u64, spent_micro_usd: i64) -> ScenarioReport {
        ScenarioReport {
            seed,
            start: Timestamp::UNIX_EPOCH,
            samples: Vec::new(),
            nodes: Vec::new(),
            node_claims: Vec::new(),
            totals: Stats::default(),
            scores: Scores {
                spent_micro_usd,
                bound_micro_usd: 8_000_000,
                pending_s: Percentiles {
                    p50: 31,
                    p99: 75,
                    most: 3_700,
                },
                evictions: seed,
                empty_node_minutes: 95,
                ..Scores::default()
            },
            minutes: Vec::new(),
            history: String::new(),
        }
    }

    fn column(
        policy: SimulatedPolicy,
        changes: &[&str],
        reports: &[ScenarioReport],
    ) -> PlayedColumn {
        let mut scores = Scores::default();
        reports
            .iter()
            .for_each(|report| scores.add_seed(&report.scores));
        PlayedColumn {
            policy,
            changes: changes.iter().map(|change| (*change).to_owned()).collect(),
            scores,
            reports: reports.to_vec(),
        }
    }

    #[test]
    fn each_policy_has_a_column() {
        let lines = side_by_side(&[
            column(SimulatedPolicy::Mortise, &[], &[report(1, 10_000_000)]),
            column(SimulatedPolicy::Karpenter, &[], &[report(1, 12_345_678)]),
        ]);
        let has = |text: &str| lines.iter().any(|line| line == text);
        assert!(has(
            "spent                                     $10.00        $12.35"
        ));
        assert!(has(
            "above what pods need at least             25.0 %        54.3 %"
        ));
        assert!(has(
            "pods waited: longest                     1:01:40       1:01:40"
        ));
        assert!(has(
            "hours of nodes without pods                  1.5           1.5"
        ));
        assert_eq!(lines.len(), 13, "{lines:?}");
    }

    #[test]
    fn of_several_seeds_there_are_means() {
        let seeds = [report(1, 10_000_000), report(2, 11_000_000)];
        let lines = side_by_side(&[column(SimulatedPolicy::Mortise, &["a.yaml"], &seeds)]);
        let has = |text: &str| lines.iter().any(|line| line.starts_with(text));
        assert!(has("                                         changed"));
        assert!(has("spent                                     $10.50"));
        assert!(has("evictions                                    1.5"));
        assert!(has("means of the seeds 1 to 2;"), "{lines:?}");
        assert!(has("changed: a.yaml"), "{lines:?}");
    }
}
