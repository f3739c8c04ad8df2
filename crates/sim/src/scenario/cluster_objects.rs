//! The manifests of a scenario, as the simulated cluster needs them.

use std::collections::{BTreeMap, BTreeSet};

use mortise_apis::labels::COSCHEDULING_GROUP;
use mortise_apis::names::{NamespacedName, NodeClassKey};
use mortise_state::resource_kinds::ObjectKey;
use serde_json::{Value, json};

use super::timeline::Target;
use super::workload_manifests;
use crate::cluster::workload_controllers::NAMESPACE;
use crate::manifest_error::ManifestError;
use crate::options::Deployment;
use crate::workloads::{Job, JobArrival, Workloads};

/// Kinds that can be simulated, besides node classes.
const KINDS: [&str; 12] = [
    "NodePool",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "CronJob",
    "PodDisruptionBudget",
    "PodGroup",
    "CapacityBuffer",
    "PodTemplate",
    "NodePoolPolicy",
    "NodeOverlay",
];

/// Objects that a simulated cluster begins with.
#[derive(Clone, Debug, Default)]
pub struct ClusterObjects {
    pub(super) pools: Vec<Value>,
    pub(super) daemon_sets: Vec<Value>,
    pub(super) deployments: Vec<Deployment>,
    pub(super) workloads: Workloads,
    /// CapacityBuffers, PodTemplates, PodGroups, NodePoolPolicies and NodeOverlays.
    pub(super) others: Vec<(ObjectKey, Value)>,
    budgets: Vec<PodBudget>,
}

/// A disruption budget that waits for its workload.
#[derive(Clone, Debug)]
struct PodBudget {
    labels: Value,
    max_unavailable: u32,
}

impl ClusterObjects {
    /// Adds the object of a manifest. Node classes are accepted, and ready from the start, whatever they say: the cloud is simulated.
    ///
    /// # Errors
    /// The kind is not simulated, or the object lacks what the simulation needs.
    pub fn add(&mut self, manifest: &Value) -> Result<(), ManifestError> {
        let kind = text(manifest, "/kind").unwrap_or_default();
        let name = text(manifest, "/metadata/name").unwrap_or_default();
        if name.is_empty() {
            return Err(ManifestError::new("metadata.name", "missing"));
        }
        match kind {
            "NodePool" => {
                let mut pool = manifest.clone();
                pool["metadata"]["generation"] = json!(1);
                self.pools.push(pool);
            }
            "DaemonSet" => {
                template(manifest)?;
                self.daemon_sets.push(manifest.clone());
            }
            "Deployment" => {
                self.check_name(name)?;
                self.add_deployment(name, manifest)?;
            }
            "StatefulSet" => {
                self.check_name(name)?;
                let set = workload_manifests::stateful_set(name, manifest)?;
                self.workloads.stateful_sets.push(set);
            }
            "Job" => {
                self.check_name(name)?;
                let job = workload_manifests::job(name, manifest)?;
                self.workloads.jobs.push(job);
            }
            "CronJob" => {
                self.check_name(name)?;
                let job = workload_manifests::cron_job(name, manifest)?;
                self.workloads.cron_jobs.push(job);
            }
            "CapacityBuffer" => self.add_namespaced(ObjectKey::Buffer, name, manifest)?,
            "PodTemplate" => self.add_namespaced(ObjectKey::PodTemplate, name, manifest)?,
            "NodePoolPolicy" => {
                self.add_other(ObjectKey::Policy(name.into()), manifest.clone())?;
            }
            "NodeOverlay" => {
                self.add_other(ObjectKey::Overlay(name.into()), manifest.clone())?;
            }
            "PodGroup" => {
                workload_manifests::check_pod_group(manifest)?;
                self.add_namespaced(ObjectKey::CoschedulingPodGroup, name, manifest)?;
            }
            "PodDisruptionBudget" => self.budgets.push(PodBudget::of(manifest)?),
            _ if kind.ends_with("NodeClass") => {}
            _ => return Err(ManifestError::unknown("kind", kind, &KINDS)),
        }
        Ok(())
    }

    /// A CapacityBuffer, a template for some, or a PodGroup. Workloads are in one namespace, whatever they say, and so are these.
    fn add_namespaced(
        &mut self,
        key: fn(NamespacedName) -> ObjectKey,
        name: &str,
        manifest: &Value,
    ) -> Result<(), ManifestError> {
        let mut object = manifest.clone();
        object["metadata"]["namespace"] = json!(NAMESPACE);
        self.add_other(key(NamespacedName::new(NAMESPACE, name)), object)
    }

    fn add_other(&mut self, key: ObjectKey, mut object: Value) -> Result<(), ManifestError> {
        if self.others.iter().any(|(known, _)| *known == key) {
            let kind = text(&object, "/kind").unwrap_or_default();
            let name = text(&object, "/metadata/name").unwrap_or_default();
            let problem = format!("two objects of kind {kind} are named {name:?}");
            return Err(ManifestError::new("metadata.name", problem));
        }
        object["metadata"]["generation"] = json!(1);
        self.others.push((key, object));
        Ok(())
    }

    /// Adds the jobs of a trace.
    ///
    /// # Errors
    /// A workload has the name of one of them.
    pub fn add_arrivals(&mut self, jobs: Vec<JobArrival>) -> Result<(), ManifestError> {
        for each in &jobs {
            self.check_name(&each.job.name)?;
        }
        self.workloads.arrivals = jobs;
        Ok(())
    }

    /// Whether the feature gate CapacityBuffer is needed.
    pub(super) fn has_buffers(&self) -> bool {
        let mut keys = self.others.iter().map(|(key, _)| key);
        keys.any(|key| matches!(key, ObjectKey::Buffer(_)))
    }

    /// Whether the feature gate NodeOverlay is needed.
    pub(super) fn has_overlays(&self) -> bool {
        let mut keys = self.others.iter().map(|(key, _)| key);
        keys.any(|key| matches!(key, ObjectKey::Overlay(_)))
    }

    /// Whether the API server serves PodGroups.
    pub(super) fn has_pod_groups(&self) -> bool {
        self.pod_group_names().next().is_some()
    }

    fn pod_group_names(&self) -> impl Iterator<Item = &str> {
        self.others.iter().filter_map(|(key, _)| match key {
            ObjectKey::CoschedulingPodGroup(key) => Some(&*key.name),
            _ => None,
        })
    }

    /// Takes the Jobs of these names out, by name.
    pub(super) fn take_jobs<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
    ) -> BTreeMap<String, Job> {
        let names: BTreeSet<&str> = names.collect();
        let is_taken = |job: &mut Job| names.contains(job.name.as_str());
        let taken = self.workloads.jobs.extract_if(.., is_taken);
        taken.map(|job| (job.name.clone(), job)).collect()
    }

    /// Workloads are identified by their names: all are in one namespace, and their pods are named after them.
    fn check_name(&self, name: &str) -> Result<(), ManifestError> {
        let Workloads {
            stateful_sets,
            jobs,
            cron_jobs,
            arrivals: _, // added last
        } = &self.workloads;
        let is_taken = self.deployments.iter().any(|each| each.name == name)
            || stateful_sets.iter().any(|each| each.name == name)
            || jobs.iter().any(|each| each.name == name)
            || cron_jobs.iter().any(|each| each.job.name == name);
        if is_taken {
            let problem = format!("two workloads are named {name:?}");
            return Err(ManifestError::new("metadata.name", problem));
        }
        Ok(())
    }

    fn add_deployment(&mut self, name: &str, manifest: &Value) -> Result<(), ManifestError> {
        let replicas = manifest.pointer("/spec/replicas");
        let size = match replicas {
            None => Some(1),
            Some(value) => value.as_u64().and_then(|size| u32::try_from(size).ok()),
        };
        let Some(size) = size else {
            let problem = "must be a whole number, 0 or more";
            return Err(ManifestError::new("spec.replicas", problem));
        };
        self.deployments.push(Deployment {
            name: name.to_owned(),
            template: template(manifest)?.clone(),
            low: size,
            high: size,
            period_s: 0,
            max_unavailable: None,
        });
        Ok(())
    }

    /// Each buffer refers to an object of the scenario.
    fn check_buffers(&self) -> Result<(), ManifestError> {
        let templates: Vec<&str> = self
            .others
            .iter()
            .filter_map(|(key, _)| match key {
                ObjectKey::PodTemplate(key) => Some(&*key.name),
                _ => None,
            })
            .collect();
        for (key, object) in &self.others {
            let ObjectKey::Buffer(NamespacedName { name: buffer, .. }) = key else {
                continue;
            };
            check_buffer(object, buffer, &self.deployment_names(), &templates)?;
        }
        Ok(())
    }

    /// Each pod template names a PodGroup of the scenario, if it names one and there are any.
    fn check_groups(&self) -> Result<(), ManifestError> {
        let known: Vec<&str> = self.pod_group_names().collect();
        if known.is_empty() {
            return Ok(());
        }
        let Workloads {
            stateful_sets,
            jobs,
            cron_jobs,
            arrivals: _, // their tables have no labels of groups
        } = &self.workloads;
        let deployments = self.deployments.iter();
        let templates = deployments
            .map(|each| ("Deployment", &each.name, &each.template))
            .chain(
                stateful_sets
                    .iter()
                    .map(|each| ("StatefulSet", &each.name, &each.template)),
            )
            .chain(jobs.iter().map(|each| ("Job", &each.name, &each.template)))
            .chain(
                cron_jobs
                    .iter()
                    .map(|each| ("CronJob", &each.job.name, &each.job.template)),
            );
        for (kind, name, template) in templates {
            let labels = template.pointer("/metadata/labels");
            let group = labels.and_then(|labels| labels.get(COSCHEDULING_GROUP)?.as_str());
            if let Some(group) = group.filter(|group| !known.contains(group)) {
                let field =
                    format!("{kind} {name}: label {COSCHEDULING_GROUP} of the pod template");
                return Err(ManifestError::unknown(field, group, &known));
            }
        }
        Ok(())
    }

    /// Gives each disruption budget to the Deployments and StatefulSets that it selects.
    ///
    /// # Errors
    /// There is no NodePool, or a buffer or a pod refers to something that is not there.
    pub fn complete(mut self) -> Result<Self, ManifestError> {
        if self.pools.is_empty() {
            return Err(ManifestError::new(
                "",
                "there is no NodePool: nothing would be launched",
            ));
        }
        self.check_buffers()?;
        self.check_groups()?;
        for budget in &self.budgets {
            let max = Some(budget.max_unavailable);
            for deployment in &mut self.deployments {
                if budget.selects(&deployment.template) {
                    deployment.max_unavailable = max;
                }
            }
            for set in &mut self.workloads.stateful_sets {
                if budget.selects(&set.template) {
                    set.max_unavailable = max;
                }
            }
        }
        Ok(self)
    }

    /// The node classes of the NodePools, in the order in which these name them.
    ///
    /// # Errors
    /// One refers to none, or they are of several kinds.
    pub(super) fn node_classes(&self) -> Result<Vec<NodeClassKey>, ManifestError> {
        let mut found: Vec<NodeClassKey> = Vec::new();
        for pool in &self.pools {
            let field = "spec.template.spec.nodeClassRef";
            let part = |name: &str| text(pool, &format!("/spec/template/spec/nodeClassRef/{name}"));
            let (Some(group), Some(kind), Some(name)) = (part("group"), part("kind"), part("name"))
            else {
                return Err(ManifestError::new(field, "needs group, kind and name"));
            };
            let class = NodeClassKey::new(group, kind, name);
            let is_like =
                |first: &NodeClassKey| first.group == class.group && first.kind == class.kind;
            if let Some(first) = found.first().filter(|first| !is_like(first)) {
                let problem = format!(
                    "{} {name:?} is of another kind than {} {:?}: a scenario has one cloud",
                    class.kind, first.kind, &*first.name
                );
                return Err(ManifestError::new(field, problem));
            }
            if !found.contains(&class) {
                found.push(class);
            }
        }
        Ok(found)
    }

    /// The workload of an entry is there. `field`: path of the entry.
    pub(super) fn check_target(
        &self,
        target: Target<'_>,
        field: &str,
    ) -> Result<(), ManifestError> {
        let (kind, name, known) = match target {
            Target::Deployment(name) => ("deployment", name, self.deployment_names()),
            Target::StatefulSet(name) => ("statefulSet", name, self.stateful_set_names()),
        };
        if known.contains(&name) {
            return Ok(());
        }
        let field = format!("{field}.{kind}");
        Err(ManifestError::unknown(field, name, &known))
    }

    pub(super) fn deployment_names(&self) -> Vec<&str> {
        self.deployments
            .iter()
            .map(|each| each.name.as_str())
            .collect()
    }

    pub(super) fn stateful_set_names(&self) -> Vec<&str> {
        let sets = self.workloads.stateful_sets.iter();
        sets.map(|each| each.name.as_str()).collect()
    }

    pub(super) fn job_names(&self) -> Vec<&str> {
        let jobs = self.workloads.jobs.iter();
        jobs.map(|job| job.name.as_str()).collect()
    }

    pub(super) fn pool_names(&self) -> Vec<&str> {
        let pools = self.pools.iter();
        pools
            .filter_map(|pool| text(pool, "/metadata/name"))
            .collect()
    }
}

/// A buffer refers to a Deployment or PodTemplate of the scenario. `name`: its own.
pub(crate) fn check_buffer(
    buffer: &Value,
    name: &str,
    deployments: &[&str],
    templates: &[&str],
) -> Result<(), ManifestError> {
    let field = |field: &str| format!("CapacityBuffer {name}: spec.{field}");
    let kind = text(buffer, "/spec/scalableRef/kind").unwrap_or("Deployment");
    if kind != "Deployment" {
        let field = field("scalableRef.kind");
        return Err(ManifestError::unknown(&field, kind, &["Deployment"]));
    }
    for (reference, known) in [("scalableRef", deployments), ("podTemplateRef", templates)] {
        let target = text(buffer, &format!("/spec/{reference}/name"));
        if let Some(target) = target.filter(|target| !known.contains(target)) {
            let field = field(&format!("{reference}.name"));
            return Err(ManifestError::unknown(&field, target, known));
        }
    }
    Ok(())
}

impl PodBudget {
    /// Whether pods of a template are in it.
    fn selects(&self, template: &Value) -> bool {
        let labels = template.pointer("/metadata/labels");
        self.labels.as_object().is_some_and(|wanted| {
            let mut wanted = wanted.iter();
            wanted.all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
        })
    }

    fn of(manifest: &Value) -> Result<Self, ManifestError> {
        let labels = manifest.pointer("/spec/selector/matchLabels");
        let Some(labels) = labels.filter(|labels| labels.is_object()) else {
            let problem = "needs matchLabels, the only form that is simulated";
            return Err(ManifestError::new("spec.selector", problem));
        };
        let max = manifest
            .pointer("/spec/maxUnavailable")
            .and_then(Value::as_u64);
        let Some(max_unavailable) = max.and_then(|max| u32::try_from(max).ok()) else {
            let problem = "needs a number of pods, the only form that is simulated";
            return Err(ManifestError::new("spec.maxUnavailable", problem));
        };
        Ok(Self {
            labels: labels.clone(),
            max_unavailable,
        })
    }
}

/// The pod template of a workload.
fn template(manifest: &Value) -> Result<&Value, ManifestError> {
    template_at(manifest, "spec.template")
}

/// The pod template at a path.
pub(super) fn template_at<'a>(manifest: &'a Value, path: &str) -> Result<&'a Value, ManifestError> {
    let template = manifest.pointer(&format!("/{}", path.replace('.', "/")));
    let containers = template.and_then(|template| template.pointer("/spec/containers"));
    if !containers.is_some_and(Value::is_array) {
        let field = format!("{path}.spec.containers");
        return Err(ManifestError::new(field, "missing"));
    }
    let missing = || ManifestError::new(path, "missing");
    template.ok_or_else(missing)
}

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
}
