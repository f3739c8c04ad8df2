//! Objects of simulated clusters that benchmarks draw, and their history.

use std::path::Path;

use anyhow::{Context as _, Result};
use mortise_apis::values::SplitMix64;
use mortise_aws_catalog::embedded_catalog;
use mortise_cloudprovider::InstanceType;
use mortise_demo::scenario_file::{ScenarioFile, source_of};
use mortise_demo::service_of;
use mortise_manifests::migrate::SourceFile;
use mortise_planning::settings::Settings;
use mortise_sim::baseline::SimulatedPolicy;
use mortise_sim::scenario::{ScenarioReport, play};
use serde_json::{Value, json};

/// A random position below `count`.
pub(crate) fn index(random: &mut SplitMix64, count: u64) -> usize {
    usize::try_from(random.below(count)).unwrap_or_default()
}

/// A Deployment. `tenths`: CPUs of a pod.
pub(crate) fn deployment(name: &str, replicas: i64, tenths: i64, annotations: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name }, "annotations": annotations }, "spec": containers(tenths) },
        },
    })
}

/// The specification of a pod. `tenths`: its CPUs.
fn containers(tenths: i64) -> Value {
    let requests =
        json!({ "cpu": format!("{}m", tenths * 100), "memory": format!("{}Mi", tenths * 150) });
    json!({ "containers": [{ "name": "main", "image": "registry.test/main", "resources": { "requests": requests } }] })
}

/// Pods of a DaemonSet named `agent`. `tenths`: their CPUs.
pub(crate) fn agent(tenths: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "agent" },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": { "metadata": { "labels": { "app": "agent" } }, "spec": containers(tenths) },
        },
    })
}

/// The PodDisruptionBudget of a Deployment.
pub(crate) fn disruption_budget(name: &str, most: i64) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name },
        "spec": { "maxUnavailable": most, "selector": { "matchLabels": { "app": name } } },
    })
}

/// What happens, with its seconds since the start, as a timeline.
pub(crate) fn timeline(mut entries: Vec<(i64, Value)>) -> Vec<Value> {
    entries.sort_by_key(|(at, _)| *at);
    let timed = entries.into_iter().map(|(at, mut entry)| {
        entry["at"] = json!(format!("{at}s"));
        entry
    });
    timed.collect()
}

/// Writes a scenario and its cluster for `mortise simulate`.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_scenario(path: &Path, name: &str, documents: &[Value]) -> Result<()> {
    let SourceFile { text, .. } = source_of(name, documents);
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// The instance types of a scenario's region.
///
/// # Errors
/// A manifest that is not one of a scenario, or a region without a catalog.
pub(crate) fn instance_types(documents: &[Value]) -> Result<Vec<InstanceType>> {
    let region = ScenarioFile::of_documents("drawn", documents)?.spec.region;
    Ok(embedded_catalog()?.simulated_instance_types(&region)?)
}

/// Plays a scenario and its cluster, given as manifests, with these instance types.
///
/// # Errors
/// A manifest that is not one of a scenario.
pub(crate) fn history(
    documents: &[Value],
    policy: SimulatedPolicy,
    types: &[InstanceType],
) -> Result<ScenarioReport> {
    let ScenarioFile { spec, objects, .. } = ScenarioFile::of_documents("drawn", documents)?;
    let cloud = (types.to_vec(), mortise_aws_class::labels::well_known());
    let service = service_of(policy, Settings::default());
    Ok(play(&spec, objects, cloud, service)?)
}
