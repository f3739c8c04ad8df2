//! How well the clusters of recordings were run, side by side.

use std::path::Path;

use mortise_sim::Scores;

use super::Played;
use crate::cli::score_table::{ScoreColumn, clock, dollars, score_lines, score_rows};

/// The recordings of a path, together.
struct RecordedColumn {
    name: String,
    /// Seconds that the scores are of.
    seconds: i64,
    scores: Scores,
}

/// The texts, a line each.
pub(super) fn lines(columns: [(&Path, &[Played]); 2]) -> Vec<String> {
    let mut recorded = columns.map(|(path, played)| RecordedColumn::of(path, played));
    if recorded[0].name == recorded[1].name {
        // As the arguments are called.
        recorded[0].name = "PATH".to_owned();
        recorded[1].name = "--compare".to_owned();
    }
    let columns: Vec<ScoreColumn<'_>> = recorded.iter().map(ScoreColumn::from).collect();
    let each = |value: fn(&RecordedColumn) -> String| recorded.iter().map(value).collect();
    let mut rows = vec![
        ("recorded time", each(|of| clock(of.seconds))),
        ("spent an hour", each(RecordedColumn::spent_an_hour)),
    ];
    rows.extend(score_rows(&columns));
    score_lines(&columns, &rows)
}

impl RecordedColumn {
    fn of(path: &Path, played: &[Played]) -> Self {
        let mut scores = Scores::default();
        for each in played {
            scores.add_seed(&each.replay.scores);
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self {
            name: name.to_string_lossy().into_owned(),
            seconds: played.iter().map(|each| each.replay.scored_s).sum(),
            scores,
        }
    }

    fn spent_an_hour(&self) -> String {
        match self.seconds {
            0 => "unknown".to_owned(),
            seconds => format!("${}", dollars(self.scores.spent_micro_usd * 3600 / seconds)),
        }
    }
}

impl<'a> From<&'a RecordedColumn> for ScoreColumn<'a> {
    fn from(recorded: &'a RecordedColumn) -> Self {
        Self {
            name: recorded.name.clone(),
            scores: &recorded.scores,
            histories: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_of_other_lengths_compare_by_the_hour() {
        let day = RecordedColumn {
            name: "day".to_owned(),
            seconds: 24 * 3600,
            scores: Scores {
                spent_micro_usd: 48_000_000,
                ..Scores::default()
            },
        };
        assert_eq!(day.spent_an_hour(), "$2.00");
        let column = ScoreColumn::from(&day);
        assert_eq!((column.name.as_str(), column.histories), ("day", 1));
        let nothing = RecordedColumn::of(Path::new("recordings/week"), &[]);
        assert_eq!(nothing.name, "week");
        assert_eq!(nothing.spent_an_hour(), "unknown");
    }
}
