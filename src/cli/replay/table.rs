//! What came of a replay, as text.

use std::collections::BTreeSet;

use mortise_engine::journal::StepSummary;
use mortise_sim::replay::{Parting, ReplayReport, Totals};

use super::Played;

/// Requests and decisions that are listed of each history.
const LISTED: usize = 20;

/// The texts, a line each.
pub(super) fn lines(played: &Played) -> Vec<String> {
    let report = &played.replay;
    let mut lines = vec![heading(report, played.files.len())];
    lines.extend(verdict(report));
    if let Some(changed) = &played.changed {
        lines.push(String::new());
        lines.push("With these settings:".to_owned());
        match &changed.parting {
            None if changed.missing == 0 => {
                lines.push("every decision would have been the same".to_owned());
            }
            None => lines.push("every decision until the gap would have been the same".to_owned()),
            Some(parting) => {
                lines.extend(place(parting));
                lines.push(String::new());
                lines.extend(totals(&changed.recorded, &changed.replayed));
            }
        }
    }
    lines
}

fn heading(report: &ReplayReport, files: usize) -> String {
    let time = |time: Option<jiff::Timestamp>| {
        time.map_or_else(|| "nothing".to_owned(), |time| format!("{time:.0}"))
    };
    let end = if report.has_end {
        "ended in order"
    } else {
        "was killed, or still runs"
    };
    let files = if files == 1 {
        "1 file".to_owned()
    } else {
        format!("{files} files")
    };
    format!(
        "Recording of {:.0}, mortise {}: {files}, {} to {}; the process {end}",
        report.started_at,
        report.recorded_by,
        time(report.from),
        time(report.to),
    )
}

/// What can be claimed.
fn verdict(report: &ReplayReport) -> Vec<String> {
    let size = format!("{} inputs, {} steps", report.inputs, report.steps);
    if report.is_equal {
        return vec![format!("{size}, every decision equal")];
    }
    let equal: u64 = report.by_decider.values().map(|count| count.equal).sum();
    let mut lines = vec![format!("{size}, {equal} of them equal")];
    if report.is_cold {
        let since = report.equal_since.map_or_else(
            || "the last step differs".to_owned(),
            |since| format!("every step since {since} is equal"),
        );
        lines.push(format!(
            "the recording begins in the middle, without the memory of the deciders: {since}"
        ));
    }
    if let Some(at) = report.gap_at {
        lines.push(format!(
            "at {at} {} events are missing: nothing is claimed about what follows",
            report.missing
        ));
    }
    if let Some(parting) = &report.parting {
        lines.extend(place(parting));
    }
    lines
}

/// Where histories part.
fn place(parting: &Parting) -> Vec<String> {
    let who = parting
        .decider
        .map_or_else(|| "the state".to_owned(), |decider| decider.to_string());
    let mut lines = vec![format!(
        "histories part at {} ({}, line {}), after {} inputs and {} steps: {who}: {}",
        parting.at, parting.file, parting.line, parting.inputs, parting.steps, parting.what
    )];
    if let (Some(then), Some(now)) = (&parting.recorded, &parting.replayed) {
        let (then, now) = (texts(then), texts(now));
        lines.extend(only("then", &then, &now));
        lines.extend(only("now", &now, &then));
    }
    lines
}

/// Requests, commands and decisions of a step.
fn texts(step: &StepSummary) -> Vec<String> {
    let requests = step.requests.iter();
    let requests = requests.filter(|request| !request.0.starts_with("event "));
    let requests = requests.map(|request| format!("request  {}  #{}", request.0, request.1));
    let commands = step.commands.iter().map(|each| format!("command  {each}"));
    let decisions = step.decisions.iter();
    let decisions = decisions.map(|each| format!("decided  {each}"));
    let wake = step.wake.map(|wake| format!("waits    until {wake}"));
    requests
        .chain(commands)
        .chain(decisions)
        .chain(wake)
        .collect()
}

/// Those of one step that the other has not.
fn only(word: &str, own: &[String], other: &[String]) -> Vec<String> {
    let other: BTreeSet<&String> = other.iter().collect();
    let own: Vec<&String> = own.iter().filter(|each| !other.contains(each)).collect();
    let shown = own.iter().take(LISTED);
    let mut lines: Vec<String> = shown.map(|each| format!("  {word:<5} {each}")).collect();
    if own.len() > LISTED {
        lines.push(format!("  {word:<5} and {} more", own.len() - LISTED));
    }
    lines
}

/// Both histories, next to each other.
fn totals(then: &Totals, now: &Totals) -> Vec<String> {
    let mut rows = vec![row("DECIDED", "THEN", "NOW")];
    let number = |number: Option<&u64>| number.copied().unwrap_or_default();
    rows.push(row(
        "disruption commands",
        &then.commands.to_string(),
        &now.commands.to_string(),
    ));
    let words: BTreeSet<&String> = then.distinct.keys().chain(now.distinct.keys()).collect();
    for word in words.into_iter().filter(|word| *word != "event") {
        rows.push(row(
            &format!("{word}, objects"),
            &number(then.distinct.get(word)).to_string(),
            &number(now.distinct.get(word)).to_string(),
        ));
    }
    let is_request = |word: &&String| {
        then.distinct.contains_key(*word) || now.distinct.contains_key(*word) || *word == "event"
    };
    let words: BTreeSet<&String> = then.counts.keys().chain(now.counts.keys()).collect();
    for word in words.into_iter().filter(|word| !is_request(word)) {
        rows.push(row(
            word,
            &number(then.counts.get(word)).to_string(),
            &number(now.counts.get(word)).to_string(),
        ));
    }
    rows
}

fn row(word: &str, then: &str, now: &str) -> String {
    format!("{word:<28}{then:>10}{now:>10}")
}
