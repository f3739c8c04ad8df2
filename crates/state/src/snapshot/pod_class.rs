//! Everything that scheduling reads of a pod, shared by all identical pods.
//!
//! 100,000 pods are a few hundred classes, and work is done per class. Labels are not part of a class (a rollout changes one
//! label of each pod), except where `matchLabelKeys` copies their values into a selector.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hash, Hasher};
use std::sync::Arc;

use foldhash::fast::FixedState;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, Toleration};

use super::HoldAnnotations;
use crate::pods::{HostPort, PodTerms, RequestSource, SpreadConstraint, requests};
use mortise_apis::k8s;
use mortise_apis::k8s::pod::{PodSpec, Volume};
use mortise_apis::requirements::{Requirements, expression};
use mortise_apis::resources::Resources;

/// Labels of a pod. Sorted by key.
pub type PodLabels = Arc<Vec<(Arc<str>, Arc<str>)>>;

/// A volume that ties a pod to storage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodVolume {
    /// An existing PersistentVolumeClaim of the pod's namespace, by name.
    Claim(Arc<str>),
    /// A claim that is created for the pod and named `<pod>-<volume>`.
    Ephemeral {
        /// Name of the volume within the pod.
        volume: Arc<str>,
        /// Storage class of the claim; `None` is the default class.
        storage_class: Option<Arc<str>>,
    },
}

/// Everything that scheduling reads of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodClass {
    /// Number of the class in its [`PodClasses`], unrelated to any order.
    pub id: u32,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Effective requests, with `pods: 1`.
    pub requests: Resources,
    /// Alternatives of which one must be satisfied: the node selector and one term of the required node affinity each. Never
    /// empty.
    pub strict: Vec<Requirements>,
    /// Preferred node affinity terms with their weights, as written.
    pub preferred_node: Vec<(i32, Requirements)>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Topology spread constraints.
    pub spread: Vec<SpreadConstraint>,
    /// Pod affinity.
    pub affinity: PodTerms,
    /// Pod anti-affinity.
    pub anti_affinity: PodTerms,
    /// Host ports of its containers and sidecars. Sorted.
    pub host_ports: Vec<HostPort>,
    /// Volumes that tie it to storage, as written.
    pub volumes: Vec<PodVolume>,
    /// Whether it claims devices.
    pub claims_devices: bool,
    /// Priority; 0 when absent.
    pub priority: i32,
    /// Whether its priority class is a system class: it is drained last.
    pub critical: bool,
    /// Whether it may preempt pods of lower priority.
    pub preempts: bool,
    /// Name of its scheduler.
    pub scheduler_name: Arc<str>,
    /// Why it is invalid; such a pod is not placed.
    pub malformed: Option<Arc<str>>,
}

impl PodClass {
    /// Converts a pod. Everything invalid is recorded in [`Self::malformed`].
    #[must_use]
    pub fn from_pod(pod: &k8s::Pod, labels: &[(Arc<str>, Arc<str>)]) -> Self {
        let mut faults = Vec::new();
        let spec = &pod.spec;
        let requests = requests(pod, RequestSource::SpecAndStatus).unwrap_or_else(|fault| {
            faults.push(fault.to_string());
            Resources::zero().with("pods", 1)
        });
        let affinity = spec.affinity.as_ref();
        let near = affinity
            .and_then(|affinity| affinity.pod_affinity.as_ref())
            .map(|terms| {
                PodTerms::new(
                    terms
                        .required_during_scheduling_ignored_during_execution
                        .as_deref(),
                    terms
                        .preferred_during_scheduling_ignored_during_execution
                        .as_deref(),
                )
            });
        let apart = affinity
            .and_then(|affinity| affinity.pod_anti_affinity.as_ref())
            .map(|terms| {
                PodTerms::new(
                    terms
                        .required_during_scheduling_ignored_during_execution
                        .as_deref(),
                    terms
                        .preferred_during_scheduling_ignored_during_execution
                        .as_deref(),
                )
            });
        let priority_class = spec.priority_class_name.as_deref().unwrap_or_default();
        Self {
            id: 0,
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default().into(),
            requests,
            strict: strict(spec, &mut faults),
            preferred_node: preferred_node(spec, &mut faults),
            tolerations: spec.tolerations.clone(),
            spread: spec
                .topology_spread_constraints
                .iter()
                .map(|each| SpreadConstraint::new(each, labels))
                .collect(),
            affinity: near.unwrap_or_default(),
            anti_affinity: apart.unwrap_or_default(),
            host_ports: HostPort::from_spec(spec),
            volumes: spec.volumes.iter().filter_map(volume).collect(),
            claims_devices: !spec.resource_claims.is_empty(),
            priority: spec.priority.unwrap_or(0),
            critical: matches!(
                priority_class,
                "system-cluster-critical" | "system-node-critical"
            ),
            preempts: spec.preemption_policy.as_deref() != Some("Never"),
            scheduler_name: spec
                .scheduler_name
                .as_deref()
                .unwrap_or("default-scheduler")
                .into(),
            malformed: (!faults.is_empty()).then(|| faults.join("; ").into()),
        }
    }

    /// The class of the pods of a template.
    #[must_use]
    pub fn from_template(namespace: &str, template: &k8s::workload::PodTemplate) -> Self {
        let mut pod = k8s::Pod {
            metadata: template.metadata.clone(),
            spec: template.spec.clone(),
            ..k8s::Pod::default()
        };
        pod.metadata.namespace = Some(namespace.to_owned());
        // The API server fills absent requests from limits when it creates the pod.
        for container in pod
            .spec
            .containers
            .iter_mut()
            .chain(&mut pod.spec.init_containers)
        {
            let resources = &mut container.resources;
            for (name, limit) in &resources.limits {
                resources
                    .requests
                    .entry(name.clone())
                    .or_insert_with(|| limit.clone());
            }
        }
        Self::from_pod(&pod, &sorted_labels(&pod))
    }

    /// Whether it requires not to run on nodes of any NodePool.
    #[must_use]
    pub fn opts_out(&self) -> bool {
        let nodepool = mortise_apis::labels::NODEPOOL;
        self.strict.iter().all(|terms| {
            terms
                .get(nodepool)
                .is_some_and(|own| own.is_empty() && own.allows_absence())
        })
    }

    /// Whether both are equal except for their number.
    fn same(&self, other: &Self) -> bool {
        let Self {
            id: _,
            namespace,
            requests,
            strict,
            preferred_node,
            tolerations,
            spread,
            affinity,
            anti_affinity,
            host_ports,
            volumes,
            claims_devices,
            priority,
            critical,
            preempts,
            scheduler_name,
            malformed,
        } = self;
        *requests == other.requests
            && *namespace == other.namespace
            && *strict == other.strict
            && *preferred_node == other.preferred_node
            && *tolerations == other.tolerations
            && *spread == other.spread
            && *affinity == other.affinity
            && *anti_affinity == other.anti_affinity
            && *host_ports == other.host_ports
            && *volumes == other.volumes
            && *claims_devices == other.claims_devices
            && *priority == other.priority
            && *critical == other.critical
            && *preempts == other.preempts
            && *scheduler_name == other.scheduler_name
            && *malformed == other.malformed
    }

    /// A number that is equal for equal classes. Leaves out fields that rarely distinguish classes.
    fn fingerprint(&self) -> u64 {
        let mut hasher = FixedState::with_seed(13).build_hasher();
        (&self.namespace, &self.requests, &self.strict, &self.spread).hash(&mut hasher);
        (
            &self.affinity,
            &self.anti_affinity,
            &self.host_ports,
            &self.volumes,
        )
            .hash(&mut hasher);
        (self.priority, self.tolerations.len(), &self.scheduler_name).hash(&mut hasher);
        for toleration in &self.tolerations {
            (&toleration.key, &toleration.value, &toleration.effect).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Labels of a pod, sorted by key.
pub(crate) fn sorted_labels(pod: &k8s::Pod) -> Vec<(Arc<str>, Arc<str>)> {
    let all = pod.metadata.labels.iter().flatten();
    all.map(|(key, value)| (key.as_str().into(), value.as_str().into()))
        .collect()
}

fn volume(of: &Volume) -> Option<PodVolume> {
    if let Some(claim) = &of.persistent_volume_claim {
        return Some(PodVolume::Claim(claim.claim_name.as_str().into()));
    }
    let ephemeral = of.ephemeral.as_ref()?;
    let template = ephemeral.volume_claim_template.as_ref();
    let class = template.and_then(|template| template.spec.storage_class_name.as_deref());
    Some(PodVolume::Ephemeral {
        volume: of.name.as_str().into(),
        storage_class: class.map(Into::into),
    })
}

fn strict(spec: &PodSpec, faults: &mut Vec<String>) -> Vec<Requirements> {
    let selector = Requirements::from_labels(
        spec.node_selector
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str())),
    );
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|node| {
        node.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let terms = required.map_or(&[][..], |required| &required.node_selector_terms);
    if terms.is_empty() {
        return vec![selector];
    }
    let with = |term: &NodeSelectorTerm| {
        let mut all = selector.clone();
        all.require_all(&read_term(term, faults));
        all
    };
    terms.iter().map(with).collect()
}

fn preferred_node(spec: &PodSpec, faults: &mut Vec<String>) -> Vec<(i32, Requirements)> {
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let terms = affinity
        .and_then(|node| {
            node.preferred_during_scheduling_ignored_during_execution
                .as_deref()
        })
        .unwrap_or_default();
    terms
        .iter()
        .map(|term| (term.weight, read_term(&term.preference, faults)))
        .collect()
}

fn read_term(term: &NodeSelectorTerm, faults: &mut Vec<String>) -> Requirements {
    if term
        .match_fields
        .as_ref()
        .is_some_and(|fields| !fields.is_empty())
    {
        faults.push("node selector term with matchFields is not supported".to_owned());
    }
    let mut all = Requirements::new();
    for from in term.match_expressions.iter().flatten() {
        match expression(from) {
            Ok(requirement) => all.require(requirement),
            Err(fault) => faults.push(fault.to_string()),
        }
    }
    all
}

/// Below this number, unused classes are kept: a few hundred bytes each.
const SWEEP_AT_LEAST: usize = 1024;

/// Shares one value among equal classes and equal label sets, and drops values that are no longer used.
#[derive(Debug, Default)]
pub struct PodClasses {
    classes: Interner<PodClass>,
    labels: Interner<Vec<(Arc<str>, Arc<str>)>>,
    next_id: u32,
    /// Which annotations of Cluster Autoscaler count.
    pub(crate) holds: HoldAnnotations,
}

#[derive(Debug)]
struct Interner<T> {
    by_fingerprint: BTreeMap<u64, Vec<Arc<T>>>,
    len: usize,
    sweep_at: usize,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            by_fingerprint: BTreeMap::new(),
            len: 0,
            sweep_at: SWEEP_AT_LEAST,
        }
    }
}

impl<T> Interner<T> {
    fn get(
        &mut self,
        fingerprint: u64,
        same: impl Fn(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let known = self.by_fingerprint.get(&fingerprint);
        if let Some(found) = known.and_then(|all| all.iter().find(|each| same(each))) {
            return Arc::clone(found);
        }
        if self.len >= self.sweep_at {
            self.sweep();
        }
        let new = Arc::new(make());
        self.by_fingerprint
            .entry(fingerprint)
            .or_default()
            .push(Arc::clone(&new));
        self.len += 1;
        new
    }

    fn sweep(&mut self) {
        self.by_fingerprint.retain(|_, all| {
            all.retain(|each| Arc::strong_count(each) > 1);
            !all.is_empty()
        });
        self.len = self.by_fingerprint.values().map(Vec::len).sum();
        // Doubling keeps the cost of sweeps proportional to what was added.
        self.sweep_at = (self.len * 2).max(SWEEP_AT_LEAST);
    }
}

impl PodClasses {
    /// The shared class of a pod.
    pub fn intern(&mut self, pod: &k8s::Pod) -> Arc<PodClass> {
        let class = PodClass::from_pod(pod, &sorted_labels(pod));
        self.share(class)
    }

    pub(crate) fn share(&mut self, class: PodClass) -> Arc<PodClass> {
        let next_id = &mut self.next_id;
        let known = class.clone();
        self.classes.get(
            class.fingerprint(),
            |each| each.same(&known),
            || {
                *next_id = next_id.wrapping_add(1);
                PodClass {
                    id: *next_id,
                    ..class
                }
            },
        )
    }

    /// The shared label set.
    pub(crate) fn share_labels(&mut self, labels: Vec<(Arc<str>, Arc<str>)>) -> PodLabels {
        let fingerprint = FixedState::with_seed(17).hash_one(&labels);
        let known = labels.clone();
        self.labels
            .get(fingerprint, |each| *each == known, || labels)
    }

    /// Number of known classes, including those that are no longer used.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.classes.len
    }

    /// Whether none is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.classes.len == 0
    }
}
