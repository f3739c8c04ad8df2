//! Objects of simulated clusters that benchmarks draw, and their history.

use anyhow::Result;
use mortise_apis::values::SplitMix64;
use mortise_cloudprovider::InstanceType;
use mortise_demo::scenario_file::ScenarioFile;
use mortise_demo::service_of;
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
pub(crate) fn containers(tenths: i64) -> Value {
    let requests =
        json!({ "cpu": format!("{}m", tenths * 100), "memory": format!("{}Mi", tenths * 150) });
    json!({ "containers": [{ "name": "main", "image": "registry.test/main", "resources": { "requests": requests } }] })
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
