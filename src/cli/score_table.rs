//! Scores side by side, as lines.

use mortise_sim::Scores;

/// Width of the words, and of each column.
const WORDS: usize = 34;
const COLUMN: usize = 14;

/// What the words of a row say of each column.
pub(super) type ScoreRow = (&'static str, Vec<String>);

/// Scores of as many histories.
pub(super) struct ScoreColumn<'a> {
    pub(super) name: String,
    pub(super) scores: &'a Scores,
    pub(super) histories: u64,
}

/// Each score in words, and its value for each column: per history, what adds up.
pub(super) fn score_rows(columns: &[ScoreColumn<'_>]) -> Vec<ScoreRow> {
    let of = |words: &'static str, value: fn(&Scores, u64) -> String| {
        let values = columns
            .iter()
            .map(|column| value(column.scores, column.histories.max(1)));
        (words, values.collect())
    };
    let mut rows = vec![
        of("spent", |each, histories| {
            let spent = each.spent_micro_usd / histories.cast_signed();
            format!("${}", dollars(spent))
        }),
        of("above what pods need at least", |each, _| {
            each.above_bound()
        }),
        of("pods waited: half", |each, _| clock(each.pending_s.p50)),
        of("pods waited: 99 in 100", |each, _| {
            clock(each.pending_s.p99)
        }),
        of("pods waited: longest", |each, _| clock(each.pending_s.most)),
        of("DaemonSet pods that waited 30 s", |each, histories| {
            mean(each.late_daemon_pods, histories)
        }),
        of("evictions", |each, histories| {
            mean(each.evictions, histories)
        }),
        of("of one workload at most", |each, _| {
            each.most_moves().to_string()
        }),
        of("pods moved back within a day", |each, histories| {
            mean(each.moved_back, histories)
        }),
        of("pods bound to another node", |each, histories| {
            mean(each.bound_elsewhere, histories)
        }),
        of("nodes launched", |each, histories| {
            mean(each.nodes_launched, histories)
        }),
        of("of these no pod ever used", |each, histories| {
            mean(each.unused_nodes, histories)
        }),
        of("nodes at a time at most", |each, _| {
            each.most_nodes.to_string()
        }),
        of("of a budget in use at most", |each, _| {
            format!("{} %", each.budget_use_percent)
        }),
        of("terminated nodes lived: half", |each, _| {
            clock(each.lifetime_min.p50 * 60)
        }),
        of("hours of nodes without pods", |each, histories| {
            tenths(each.empty_node_minutes / 6 / histories)
        }),
    ];
    if columns.iter().any(|column| column.scores.gangs > 0) {
        rows.extend([
            of("gangs that ran", |each, histories| {
                mean(each.gangs, histories)
            }),
            of("gangs waited: half", |each, _| clock(each.gang_wait_s.p50)),
            of("gangs waited: longest", |each, _| {
                clock(each.gang_wait_s.most)
            }),
        ]);
    }
    rows
}

/// A heading with the names of the columns, and a line per row.
pub(super) fn score_lines(columns: &[ScoreColumn<'_>], rows: &[ScoreRow]) -> Vec<String> {
    let line = |words: &str, values: &[String]| {
        let values = values.iter().map(|value| format!("{value:>COLUMN$}"));
        format!("{words:<WORDS$}{}", values.collect::<String>())
    };
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let rows = rows.iter().map(|(words, values)| line(words, values));
    std::iter::once(line("", &names)).chain(rows).collect()
}

/// Per history; a whole number of one.
pub(super) fn mean(sum: u64, histories: u64) -> String {
    if histories == 1 {
        sum.to_string()
    } else {
        tenths(sum * 10 / histories)
    }
}

fn tenths(value: u64) -> String {
    format!("{}.{}", value / 10, value % 10)
}

/// Hours, minutes and seconds.
pub(super) fn clock(seconds: i64) -> String {
    format!(
        "{}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// To the cent.
pub(super) fn dollars(micro_usd: i64) -> String {
    let cents = (micro_usd + 5_000) / 10_000;
    format!("{}.{:02}", cents / 100, cents % 100)
}
