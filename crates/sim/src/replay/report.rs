//! What came of a replay.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::journal::StepSummary;
use serde::Serialize;

use crate::scores::Scores;

/// What came of a replay.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayReport {
    /// Version of mortise that recorded it.
    pub recorded_by: String,
    /// When the recorded process began.
    pub started_at: Timestamp,
    /// Time of the first entry.
    pub from: Option<Timestamp>,
    /// Time of the last entry.
    pub to: Option<Timestamp>,
    /// Files that were read.
    pub files: u64,
    /// Inputs of the engine: changes of objects, outcomes, notices, and so on.
    pub inputs: u64,
    /// Recorded steps of deciders.
    pub steps: u64,
    /// Steps of each decider, and how many of them are equal.
    pub by_decider: BTreeMap<&'static str, StepCount>,
    /// Every recorded step was played with all inputs and the whole memory, and every one is equal.
    pub is_equal: bool,
    /// The first step that differs.
    pub parting: Option<Parting>,
    /// The recording began in the middle: deciders began without memory.
    pub is_cold: bool,
    /// With `is_cold`: since when every step is equal.
    pub equal_since: Option<Timestamp>,
    /// Events that were not recorded.
    pub missing: u64,
    /// Where the first of them is missing.
    pub gap_at: Option<Timestamp>,
    /// The process was killed: its last file ends in the middle.
    pub is_torn: bool,
    /// The process ended in order.
    pub has_end: bool,
    /// How well the recorded cluster was run, until the histories part. Evictions and launches are those of this process.
    pub scores: Scores,
    /// Seconds that the scores are of.
    pub scored_s: i64,
    /// What was decided then.
    pub recorded: Totals,
    /// What is decided now.
    pub replayed: Totals,
}

/// Steps of a decider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepCount {
    /// Recorded.
    pub recorded: u64,
    /// Equal.
    pub equal: u64,
}

/// Where histories part.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Parting {
    /// When.
    pub at: Timestamp,
    /// Name of the file.
    pub file: String,
    /// Number of the line in its file, from 1.
    pub line: u64,
    /// Number of inputs before it.
    pub inputs: u64,
    /// Number of steps before it.
    pub steps: u64,
    /// Whose step it is; `None`: the state differs before any step does.
    pub decider: Option<DeciderId>,
    /// What differs, in words.
    pub what: String,
    /// What was decided then.
    pub recorded: Option<StepSummary>,
    /// What is decided now.
    pub replayed: Option<StepSummary>,
}

/// What was decided in a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Requests by kind of effect, and decisions by verdict.
    pub counts: BTreeMap<String, u64>,
    /// Disruption commands that began.
    pub commands: u64,
    /// Objects by kind of request, each counted once however often it was asked for.
    pub distinct: BTreeMap<String, u64>,
    #[serde(skip)]
    seen: BTreeSet<String>,
}

impl Totals {
    /// Adds a step.
    pub(super) fn add(&mut self, step: &StepSummary) {
        for (word, count) in &step.counts {
            *self.counts.entry(word.clone()).or_default() += count;
        }
        self.commands += step.commands.len() as u64;
        for request in &step.requests {
            if self.seen.insert(request.0.clone()) {
                let label = request.0.split(' ').next().unwrap_or_default();
                *self.distinct.entry(label.to_owned()).or_default() += 1;
            }
        }
    }
}
