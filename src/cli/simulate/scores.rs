//! Scores of the same scenario side by side.

use super::column::PlayedColumn;
use crate::cli::score_table::{ScoreColumn, ScoreRow, score_lines, score_rows};

/// One line per score, and what else is to be known of the columns.
pub(super) fn side_by_side(played: &[PlayedColumn]) -> Vec<String> {
    let mut lines = score_lines(&columns(played), &rows(played));
    lines.extend(notes(played));
    lines
}

fn columns(played: &[PlayedColumn]) -> Vec<ScoreColumn<'_>> {
    played.iter().map(ScoreColumn::from).collect()
}

impl<'a> From<&'a PlayedColumn> for ScoreColumn<'a> {
    fn from(column: &'a PlayedColumn) -> Self {
        Self {
            name: column.name().to_owned(),
            scores: &column.scores,
            histories: column.reports.len() as u64,
        }
    }
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

/// Each score in words, and its value for each column.
pub(super) fn rows(played: &[PlayedColumn]) -> Vec<ScoreRow> {
    let mut rows = score_rows(&columns(played));
    let violations = played.iter().map(|column| column.scores.violations);
    let violations = violations.map(|count| count.to_string());
    rows.push(("violated invariants", violations.collect()));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use mortise_sim::baseline::SimulatedPolicy;
    use mortise_sim::scenario::ScenarioReport;
    use mortise_sim::{Percentiles, Scores, Stats};

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
        assert_eq!(lines.len(), 18, "{lines:?}");
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
