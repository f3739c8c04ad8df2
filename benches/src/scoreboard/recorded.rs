//! Recorded workloads as scenarios: the last five days of each trace, on instance types of EC2.
//!
//! The traces are not part of this source: `--traces` names the folder with `openb_pod_list_*.csv` of the public set
//! `cluster-trace-gpu-v2023`. Of a GPU of which a pod uses a part it gets a whole one; which GPU it prefers is left out.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use mortise_demo::scenario_file::{ScenarioFile, source_of};
use mortise_sim::JobArrival;
use mortise_sim::scenario::{TraceError, trace_jobs};
use serde_json::{Value, json};

use super::Scenario;

/// Length of what is played, in milliseconds.
const WINDOW_MS: i64 = 5 * 24 * 3_600_000;

/// The traces of a folder, by name.
pub(super) fn scenarios(folder: &Path, only: Option<&str>) -> Result<Vec<Scenario>> {
    let mut all = Vec::new();
    let read = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in read {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = stem.strip_prefix("openb_pod_list_");
        // Without the preferred GPUs, the traces that differ in these are the same one.
        let name = name.filter(|name| !name.starts_with("gpuspec"));
        let Some(name) = name.filter(|name| only.is_none_or(|only| name.contains(only))) else {
            continue;
        };
        let text = std::fs::read_to_string(&path)?;
        let jobs = match trace_jobs(&text, 1) {
            Ok(jobs) => last_days(jobs),
            // One of the set has no times.
            Err(TraceError::NoColumn { .. }) => continue,
            Err(error) => return Err(error).context(path.display().to_string()),
        };
        all.push(scenario(&format!("trace-{name}"), jobs)?);
    }
    ensure!(!all.is_empty(), "no trace in {}", folder.display());
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// The jobs that run in the last days, those that were there before with what they had left.
fn last_days(jobs: Vec<JobArrival>) -> Vec<JobArrival> {
    let end = |each: &JobArrival| each.after_ms.saturating_add(each.job.run_ms);
    let last = jobs.iter().map(|each| each.after_ms).max();
    let begin = last.unwrap_or_default() - WINDOW_MS;
    let running = jobs.into_iter().filter(|each| end(each) > begin);
    let moved = running.map(|mut each| {
        each.job.run_ms = end(&each) - each.after_ms.max(begin);
        each.after_ms = (each.after_ms - begin).max(0);
        each
    });
    moved.collect()
}

fn scenario(name: &str, jobs: Vec<JobArrival>) -> Result<Scenario> {
    let documents = [
        json!({ "apiVersion": "mortise.sh/v1alpha1", "kind": "Scenario", "spec": { "duration": "120h" } }),
        pool("general", 10, &["c", "m", "r"], json!([])),
        pool(
            "accelerated",
            0,
            &["g", "p"],
            json!([{ "key": "nvidia.com/gpu", "effect": "NoSchedule" }]),
        ),
    ];
    let pods = jobs.len();
    let ScenarioFile {
        spec, mut objects, ..
    } = ScenarioFile::read(&[&[source_of(name, &documents)]])?;
    objects.add_arrivals(jobs.into_iter().map(tolerant).collect())?;
    Ok(Scenario {
        name: name.to_owned(),
        about: format!("the last five days, {pods} pods that come and go"),
        spec,
        objects,
    })
}

/// Pods that request GPUs tolerate the taint of the nodes that have some, as an admission plug-in makes them.
fn tolerant(mut arrival: JobArrival) -> JobArrival {
    let spec = &mut arrival.job.template["spec"];
    if !spec["containers"][0]["resources"]["requests"]["nvidia.com/gpu"].is_null() {
        spec["tolerations"] = json!([{ "key": "nvidia.com/gpu", "operator": "Exists" }]);
    }
    arrival
}

fn pool(name: &str, weight: i64, categories: &[&str], taints: Value) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": name },
        "spec": {
            "weight": weight.max(1),
            "disruption": { "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m" },
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                "taints": taints,
                "requirements": [
                    { "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] },
                    { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"] },
                    { "key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": categories },
                ],
            } },
        },
    })
}
