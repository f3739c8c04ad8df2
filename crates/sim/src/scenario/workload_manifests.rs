//! Manifests of StatefulSets, Jobs, CronJobs and PodGroups. A field that is not simulated is an error: nothing is left out in silence.

use mortise_apis::values::{CronSchedule, GoDuration};
use serde_json::Value;

use super::cluster_objects::{template_at, text};
use crate::manifest_error::ManifestError;
use crate::workloads::{ConcurrencyPolicy, CronJob, Job, StatefulSet, VolumeClaimTemplate};

/// Annotation of a pod template: how long the pods of a job run.
pub const RUN_TIME: &str = "mortise.sh/simulated-run-time";

/// Fields of a StatefulSet; those without effect on pods and nodes are accepted.
const OF_STATEFUL_SETS: [&str; 8] = [
    "podManagementPolicy",
    "replicas",
    "revisionHistoryLimit",
    "selector",
    "serviceName",
    "template",
    "updateStrategy",
    "volumeClaimTemplates",
];
/// Fields of a claim for a volume; its size and access modes decide nothing here.
const OF_VOLUME_CLAIMS: [&str; 4] = ["accessModes", "resources", "storageClassName", "volumeMode"];
/// Fields of a Job; pods that completed are not kept, whatever `ttlSecondsAfterFinished` says.
const OF_JOBS: [&str; 5] = [
    "completions",
    "parallelism",
    "selector",
    "template",
    "ttlSecondsAfterFinished",
];
/// Fields of a PodGroup; all its pods are tried at one time, so that none waits for the others on a node until a time is over.
const OF_POD_GROUPS: [&str; 2] = ["minMember", "scheduleTimeoutSeconds"];
const OF_CRON_JOBS: [&str; 6] = [
    "concurrencyPolicy",
    "failedJobsHistoryLimit",
    "jobTemplate",
    "schedule",
    "successfulJobsHistoryLimit",
    "timeZone",
];

/// The StatefulSet of a manifest.
///
/// # Errors
/// A field is missing, wrong or not simulated.
pub(super) fn stateful_set(name: &str, manifest: &Value) -> Result<StatefulSet, ManifestError> {
    check_fields(manifest, "spec", &OF_STATEFUL_SETS)?;
    let policy = choice(
        manifest,
        "spec.podManagementPolicy",
        &["OrderedReady", "Parallel"],
    )?;
    check_fields(manifest, "spec.updateStrategy", &["type"])?;
    choice(manifest, "spec.updateStrategy.type", &["RollingUpdate"])?;
    Ok(StatefulSet {
        name: name.to_owned(),
        template: pods(manifest, "spec.template")?,
        replicas: count(manifest, "spec.replicas")?.unwrap_or(1),
        is_parallel: policy == "Parallel",
        claims: volume_claims(manifest)?,
        max_unavailable: None,
    })
}

/// The volumes of each pod of a StatefulSet.
fn volume_claims(manifest: &Value) -> Result<Vec<VolumeClaimTemplate>, ManifestError> {
    let field = "spec.volumeClaimTemplates";
    let Some(list) = manifest.pointer(&pointer(field)) else {
        return Ok(Vec::new());
    };
    let Some(list) = list.as_array() else {
        return Err(ManifestError::new(field, "must be a list"));
    };
    let mut claims: Vec<VolumeClaimTemplate> = Vec::new();
    for (at, claim) in list.iter().enumerate() {
        let spec = format!("{field}[{at}].spec");
        check_fields(manifest, &spec, &OF_VOLUME_CLAIMS)?;
        let name_field = format!("{field}[{at}].metadata.name");
        let name = text(claim, "/metadata/name").unwrap_or_default();
        if name.is_empty() {
            return Err(ManifestError::new(name_field, "missing"));
        }
        if claims.iter().any(|known| known.name == name) {
            let problem = format!("two templates are named {name:?}");
            return Err(ManifestError::new(name_field, problem));
        }
        let class = text(claim, "/spec/storageClassName");
        if class == Some("") {
            let problem =
                "volumes without a storage class are not simulated: name one or leave it out";
            return Err(ManifestError::new(
                format!("{spec}.storageClassName"),
                problem,
            ));
        }
        claims.push(VolumeClaimTemplate {
            name: name.to_owned(),
            storage_class: class.map(str::to_owned),
        });
    }
    Ok(claims)
}

/// The Job of a manifest.
///
/// # Errors
/// A field is missing, wrong or not simulated.
pub(super) fn job(name: &str, manifest: &Value) -> Result<Job, ManifestError> {
    job_at(name, manifest, "spec")
}

/// The CronJob of a manifest.
///
/// # Errors
/// A field is missing, wrong or not simulated.
pub(super) fn cron_job(name: &str, manifest: &Value) -> Result<CronJob, ManifestError> {
    check_fields(manifest, "spec", &OF_CRON_JOBS)?;
    check_fields(manifest, "spec.jobTemplate", &["metadata", "spec"])?;
    choice(manifest, "spec.timeZone", &["Etc/UTC", "UTC"])?;
    let policies = ["Allow", "Forbid", "Replace"];
    let concurrency = match choice(manifest, "spec.concurrencyPolicy", &policies)? {
        "Forbid" => ConcurrencyPolicy::Forbid,
        "Replace" => ConcurrencyPolicy::Replace,
        _ => ConcurrencyPolicy::Allow,
    };
    let field = "spec.schedule";
    let Some(schedule) = text(manifest, "/spec/schedule") else {
        return Err(ManifestError::new(field, "missing"));
    };
    let schedule = CronSchedule::parse(schedule)
        .map_err(|error| ManifestError::new(field, error.to_string()))?;
    if schedule.is_relative() {
        let problem = "@every is not simulated: write five fields, for example */30 * * * *";
        return Err(ManifestError::new(field, problem));
    }
    Ok(CronJob {
        job: job_at(name, manifest, "spec.jobTemplate.spec")?,
        schedule,
        concurrency,
    })
}

/// The job whose specification is at `path`.
fn job_at(name: &str, manifest: &Value, path: &str) -> Result<Job, ManifestError> {
    check_fields(manifest, path, &OF_JOBS)?;
    let at = |field: &str| format!("{path}.{field}");
    let template = pods(manifest, &at("template"))?;
    let policy = at("template.spec.restartPolicy");
    if manifest.pointer(&pointer(&policy)).is_none() {
        let problem = "missing: pods of a job need OnFailure or Never";
        return Err(ManifestError::new(policy, problem));
    }
    choice(manifest, &policy, &["OnFailure", "Never"])?;
    let parallelism = count(manifest, &at("parallelism"))?.unwrap_or(1);
    Ok(Job {
        name: name.to_owned(),
        run_ms: run_ms(&template, &at("template"))?,
        template,
        // Without it, a job with parallelism is a queue of work, whose end pods decide.
        completions: match count(manifest, &at("completions"))? {
            Some(completions) => completions,
            None if parallelism == 1 => 1,
            None => {
                let problem =
                    "missing: needed with a parallelism, queues of work are not simulated";
                return Err(ManifestError::new(at("completions"), problem));
            }
        },
        parallelism,
    })
}

/// A PodGroup is one of coscheduling, whose scheduling is simulated.
///
/// # Errors
/// It is of another kind, or a field is missing, wrong or not simulated.
pub(super) fn check_pod_group(manifest: &Value) -> Result<(), ManifestError> {
    choice(manifest, "apiVersion", &["scheduling.x-k8s.io/v1alpha1"])?;
    check_fields(manifest, "spec", &OF_POD_GROUPS)?;
    let field = "spec.minMember";
    match count(manifest, field)? {
        None => Err(ManifestError::new(field, "missing")),
        Some(0) => Err(ManifestError::new(field, "must be 1 or more")),
        Some(_) => Ok(()),
    }
}

/// How long the pods of a template run.
fn run_ms(template: &Value, path: &str) -> Result<i64, ManifestError> {
    let field = format!("{path}.metadata.annotations.{RUN_TIME}");
    let annotations = template.pointer("/metadata/annotations");
    let Some(written) = annotations.and_then(|all| all.get(RUN_TIME)) else {
        let problem = "missing: how long each pod runs, for example 10m";
        return Err(ManifestError::new(field, problem));
    };
    let given = written.as_str().unwrap_or_default();
    let parsed = GoDuration::parse(given);
    let parsed = parsed.map_err(|error| ManifestError::new(field.clone(), error.to_string()))?;
    if parsed.as_secs() < 1 {
        return Err(ManifestError::new(field, "must be 1s or more"));
    }
    Ok(parsed.as_nanos() / 1_000_000)
}

/// A pod template without what is not simulated.
fn pods(manifest: &Value, path: &str) -> Result<Value, ManifestError> {
    let template = template_at(manifest, path)?;
    let volumes = template.pointer("/spec/volumes").and_then(Value::as_array);
    for (at, volume) in volumes.into_iter().flatten().enumerate() {
        for kind in ["persistentVolumeClaim", "ephemeral"] {
            if volume.get(kind).is_some() {
                let field = format!("{path}.spec.volumes[{at}].{kind}");
                let problem = "not simulated: use volumeClaimTemplates of a StatefulSet";
                return Err(ManifestError::new(field, problem));
            }
        }
    }
    Ok(template.clone())
}

/// The object at `path` has no other fields. One that is not there has none.
fn check_fields(manifest: &Value, path: &str, simulated: &[&str]) -> Result<(), ManifestError> {
    let fields = manifest.pointer(&pointer(path)).and_then(Value::as_object);
    let keys = fields.into_iter().flat_map(|fields| fields.keys());
    let mut others = keys.filter(|key| !simulated.contains(&key.as_str()));
    others.next().map_or(Ok(()), |key| {
        let mut error = ManifestError::unknown(format!("{path}.{key}"), key, simulated);
        error.problem = error.problem.replacen("unknown", "not simulated:", 1);
        Err(error)
    })
}

/// The text at `path`, which is one of `all`; missing: the first one.
fn choice<'a>(manifest: &Value, path: &str, all: &[&'a str]) -> Result<&'a str, ManifestError> {
    let Some(value) = manifest.pointer(&pointer(path)) else {
        return Ok(all.first().copied().unwrap_or_default());
    };
    let given = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    let found = all.iter().find(|each| **each == given);
    found
        .copied()
        .ok_or_else(|| ManifestError::unknown(path, &given, all))
}

/// The number at `path`.
fn count(manifest: &Value, path: &str) -> Result<Option<u32>, ManifestError> {
    let Some(value) = manifest.pointer(&pointer(path)) else {
        return Ok(None);
    };
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    let problem = || {
        let problem = format!("{value} must be a whole number, 0 or more");
        ManifestError::new(path, problem)
    };
    number.map(Some).ok_or_else(problem)
}

fn pointer(path: &str) -> String {
    format!("/{}", path.replace(['.', '['], "/").replace(']', ""))
}
