//! A scenario that violates an invariant, as small as it still does.

use std::path::Path;

use anyhow::Context as _;
use mortise_apis::values::{GoDuration, after, since};
use mortise_demo::scenario_file::{ScenarioFile, source_of};
use mortise_sim::baseline::SimulatedPolicy;
use mortise_sim::scenario::SCENARIO_KIND;
use mortise_sim::shrunk_document;
use serde_json::{Value, json};

use super::column::{Column, PlayedColumn};
use super::{invalid, warning};
use crate::args::ProviderName;

/// Most histories that are played.
const MOST_PLAYS: usize = 400;
/// Virtual time between two looks at the violations.
const LOOK_MS: i64 = 10_000;

/// Where a history first violates an invariant.
struct Violation {
    /// Virtual seconds since the start, rounded up to the next look.
    seconds: i64,
    text: String,
}

/// Writes the smallest scenario that was found in which the first column violates an invariant; nothing if it violates none.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write_smallest(
    path: &Path,
    column: &Column,
    played: &PlayedColumn,
    provider: ProviderName,
) -> anyhow::Result<()> {
    let mut reports = played.reports.iter();
    let Some(report) = reports.find(|report| !report.totals.violations.is_empty()) else {
        warning("mortise: no invariant was violated, there is nothing to shrink");
        return Ok(());
    };
    let mut small = Value::Array(column.file.documents.clone());
    if let Some(scenario) = scenario_of(&mut small) {
        scenario["spec"]["seed"] = json!(report.seed);
    }
    let mut found = violation(&small, column, provider)
        .with_context(|| format!("seed {} has no violation when played again", report.seed))?;
    let mut plays = 0;
    loop {
        end_at(found.seconds, &mut small);
        let before = small.clone();
        small = shrunk_document(&small, &mut |documents| {
            let played = (plays < MOST_PLAYS).then(|| violation(documents, column, provider));
            plays += usize::from(played.is_some());
            played.flatten().is_some()
        });
        if small == before {
            break;
        }
        found = violation(&small, column, provider).unwrap_or(found);
    }
    let text = text(path, column, &small, &found)?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    warning(&format!(
        "mortise: {} has the smallest scenario that was found, of {} in {plays} tries; it still says: {}",
        path.display(),
        sizes(&small),
        found.text
    ));
    Ok(())
}

/// The Scenario among documents.
fn scenario_of(documents: &mut Value) -> Option<&mut Value> {
    let mut documents = documents.as_array_mut()?.iter_mut();
    documents.find(|document| document["kind"] == SCENARIO_KIND)
}

/// Plays documents until an invariant is violated; `None` if none is, or if they are no valid scenario.
fn violation(documents: &Value, column: &Column, provider: ProviderName) -> Option<Violation> {
    let source = [source_of("small", documents.as_array()?)];
    let column = [Column {
        policy: column.policy,
        settings: column.settings.clone(),
        changes: Vec::new(),
        file: ScenarioFile::read(&[&source]).ok()?,
        recorded: None,
    }];
    if !invalid(&column, &[&source]).is_empty() {
        return None;
    }
    let mut run = column[0].begin(0, provider).ok()?;
    let start = run.simulation().now();
    loop {
        let now = run.simulation().now();
        if now >= run.end() {
            return None;
        }
        run.run_until(after(now, LOOK_MS), &mut |_| {}).ok()?;
        let violations = run.simulation().stats().violations;
        if let Some(text) = violations.into_iter().next() {
            let now = run.simulation().now();
            return Some(Violation {
                seconds: (since(now, start) + 999) / 1000,
                text,
            });
        }
    }
}

/// The scenario ends there, and what comes later is left out.
fn end_at(seconds: i64, documents: &mut Value) {
    let Some(scenario) = scenario_of(documents) else {
        return;
    };
    let end = GoDuration::from_secs(seconds);
    scenario["spec"]["duration"] = json!(end.to_string());
    if let Some(entries) = scenario["spec"]["timeline"].as_array_mut() {
        entries.retain(|entry| {
            let at = entry["at"].as_str().and_then(|text| text.parse().ok());
            at.is_none_or(|at: GoDuration| at <= end)
        });
    }
}

/// The file: what it shows, the command that plays it, and the documents.
fn text(
    path: &Path,
    column: &Column,
    documents: &Value,
    found: &Violation,
) -> anyhow::Result<String> {
    let mut command = format!("mortise simulate {}", path.display());
    if column.policy != SimulatedPolicy::Mortise {
        command += &format!(" --policy {}", column.policy.name());
    }
    for setting in &column.settings {
        command += &format!(" --set {setting}");
    }
    let mut text = format!("# {}\n# Play it with: {command}\n", found.text);
    for document in documents.as_array().into_iter().flatten() {
        let yaml = serde_saphyr::to_string(document).context("cannot be written as YAML")?;
        text += &format!("---\n{}\n", yaml.trim_end());
    }
    Ok(text)
}

/// How much is left.
fn sizes(documents: &Value) -> String {
    let mut documents = documents.clone();
    let entries = scenario_of(&mut documents).and_then(|scenario| {
        let timeline = scenario["spec"]["timeline"].as_array();
        timeline.map(Vec::len)
    });
    let objects = documents.as_array().map_or(0, Vec::len).saturating_sub(1);
    format!(
        "{objects} objects and {} timeline entries",
        entries.unwrap_or_default()
    )
}
