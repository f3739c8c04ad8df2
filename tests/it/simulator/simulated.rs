//! A script on the simulated cluster.

use anyhow::{Result, anyhow, ensure};
use jiff::Timestamp;
use mortise_planning::settings::Settings;
use mortise_sim::scenario::{
    ClusterObjects, ScenarioReport, ScenarioSpec, SimulatedService, play as simulate,
};
use serde_json::{Value, json};

use super::outcome::{Act, Outcome, Placement};
use super::scripts::Script;

/// Settings of the real service: see `Setting::flags` and `agree`.
fn settings() -> Settings {
    let mut settings = Settings {
        batch_idle_ms: 500,
        disruption_validation_delay_ms: 1_000,
        bind_grace_period_ms: 500,
        disruption_cooldown_ms: 15_000,
        ..Settings::default()
    };
    settings.gates.static_capacity = true;
    settings
}

/// Plays it. The end of each act is that of a scenario which ends there: one seed gives one history.
pub(super) fn play(script: &Script) -> Result<Outcome> {
    let entries = script.entries()?;
    let duration = script.document["spec"]["duration"].clone();
    let mut ends: Vec<Value> = entries
        .iter()
        .map(|(_, entry)| entry["at"].clone())
        .collect();
    ends.push(duration);
    let mut acts = Vec::new();
    let mut from = Timestamp::MIN;
    for (number, end) in ends.iter().enumerate() {
        let mut document = script.document.clone();
        document["spec"]["duration"] = end.clone();
        let before: Vec<&Value> = entries
            .iter()
            .take(number)
            .map(|(_, entry)| entry)
            .collect();
        document["spec"]["timeline"] = json!(before);
        let report = report(script, &document)?;
        let until = report
            .samples
            .last()
            .map_or(Timestamp::MIN, |sample| sample.at);
        let steps = report.node_claims.iter().filter(|step| step.at > from);
        let begins = number.checked_sub(1).and_then(|entry| entries.get(entry));
        acts.push(Act {
            begins: begins.map_or_else(|| "the start".to_owned(), |(_, entry)| entry.to_string()),
            steps: steps.cloned().collect(),
            end: placement(script, &report),
        });
        from = until;
    }
    Ok(acts)
}

fn report(script: &Script, document: &Value) -> Result<ScenarioReport> {
    let failed = |error| anyhow!("{}: {error}", script.name);
    let spec = ScenarioSpec::from_document(document).map_err(failed)?;
    let mut objects = ClusterObjects::default();
    for manifest in &script.manifests {
        objects.add(manifest).map_err(failed)?;
    }
    let cloud = (
        mortise_kwok::instance_types(),
        mortise_kwok_class::labels::well_known(),
    );
    let objects = objects.complete().map_err(failed)?;
    let service = SimulatedService {
        settings: settings(),
        deciders: Box::new(mortise_deciders::all),
        extender: None,
    };
    let report = simulate(&spec, objects, cloud, service).map_err(failed)?;
    ensure!(
        report.totals.violations.is_empty(),
        "{}: {:?}",
        script.name,
        report.totals.violations
    );
    Ok(report)
}

fn placement(script: &Script, report: &ScenarioReport) -> Placement {
    let nodes = report.nodes.iter().map(|node| {
        let kind = [&node.node_pool, &node.instance_type, &node.capacity_type].map(String::clone);
        (kind, node.zone.clone(), node.pods)
    });
    let waiting = report
        .samples
        .last()
        .map_or(0, |sample| sample.pods_pending);
    Placement::new(nodes, waiting, script.has_zones)
}
