//! The scheduler's view of a pod, parsed from the object once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodAffinityTerm, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use mortise_apis::k8s::pod::{Container, ContainerResources};
use mortise_apis::k8s::{self, ResourceList};
use mortise_apis::names::{NamespacedName, PodKey, Uid};
use mortise_apis::resources::{ResourceError, Resources};

use super::pod_groups::group_of;
use super::selectors::{Labels, selects};

/// A host port: address (empty for all), protocol, number.
pub(super) type Port = (String, String, i32);

/// Properties of a pod that affinity and spread terms of other pods select, and its own terms.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Profile {
    pub(super) namespace: String,
    pub(super) labels: Labels,
    /// Required affinity.
    pub(super) near: Vec<Term>,
    /// Required anti-affinity.
    pub(super) apart: Vec<Term>,
    /// Preferred terms with their weight, which is negative for anti-affinity.
    pub(super) preferred: Vec<(i64, Term)>,
    pub(super) spread: Vec<Spread>,
}

/// A term of pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) key: String,
    selector: Option<LabelSelector>,
    namespaces: BTreeSet<String>,
    namespace_selector: Option<LabelSelector>,
}

/// A topology spread constraint.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) key: String,
    pub(super) max_skew: i64,
    pub(super) min_domains: usize,
    /// `DoNotSchedule`; otherwise `ScheduleAnyway`.
    pub(super) must: bool,
    pub(super) honor_affinity: bool,
    pub(super) honor_taints: bool,
    selector: Option<LabelSelector>,
}

/// A pod.
#[derive(Clone, Debug)]
pub(super) struct PodView {
    pub(super) key: PodKey,
    pub(super) uid: Uid,
    pub(super) profile: Arc<Profile>,
    /// Equal for pods with equal profiles.
    pub(super) profile_key: Arc<str>,
    pub(super) requests: Resources,
    pub(super) ports: Vec<Port>,
    pub(super) spec: k8s::PodSpec,
    pub(super) created: Timestamp,
    /// The group that it names.
    pub(super) group: Option<Arc<NamespacedName>>,
    pub(super) node: Option<String>,
    pub(super) deleting: bool,
}

impl PodView {
    /// Parses the object; the profile is not shared yet.
    pub(super) fn read(key: &PodKey, pod: &k8s::Pod) -> Result<Self, ResourceError> {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let created = pod.metadata.creation_timestamp.as_ref();
        let profile = profile(&key.namespace, &labels, &pod.spec);
        Ok(Self {
            key: key.clone(),
            uid: Uid::from(pod.metadata.uid.clone().unwrap_or_default()),
            profile_key: format!("{profile:?}").into(),
            profile: Arc::new(profile),
            requests: requests(&pod.spec)?,
            ports: ports(&pod.spec),
            spec: pod.spec.clone(),
            created: created.map_or(Timestamp::UNIX_EPOCH, |at| at.0),
            group: group_of(&key.namespace, &labels),
            node: pod.spec.node_name.clone(),
            deleting: pod.metadata.deletion_timestamp.is_some(),
        })
    }

    /// It is unbound, has no scheduling gates and belongs to this scheduler.
    pub(super) fn is_waiting(&self) -> bool {
        let scheduler = self.spec.scheduler_name.as_deref();
        self.node.is_none()
            && !self.deleting
            && self.spec.scheduling_gates.is_empty()
            && scheduler.is_none_or(|name| name == "default-scheduler")
    }

    pub(super) fn priority(&self) -> i32 {
        self.spec.priority.unwrap_or(0)
    }
}

impl Term {
    fn read(term: &PodAffinityTerm, namespace: &str, labels: &Labels) -> Self {
        let mut selector = term.label_selector.clone();
        let same = term.match_label_keys.as_deref().unwrap_or_default();
        let other = term.mismatch_label_keys.as_deref().unwrap_or_default();
        for (keys, operator) in [(same, "In"), (other, "NotIn")] {
            add_keys(&mut selector, keys, operator, labels);
        }
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(namespace.to_owned());
        }
        Self {
            key: term.topology_key.clone(),
            selector,
            namespaces,
            namespace_selector: term.namespace_selector.clone(),
        }
    }

    /// Whether the term selects a pod. `namespaces` are the labels of each.
    pub(super) fn selects(&self, pod: &Profile, namespaces: &BTreeMap<String, Labels>) -> bool {
        let none = Labels::new();
        let of_namespace = || {
            let labels = namespaces.get(&pod.namespace).unwrap_or(&none);
            self.namespace_selector
                .as_ref()
                .is_some_and(|selector| selects(Some(selector), labels))
        };
        (self.namespaces.contains(&pod.namespace) || of_namespace())
            && selects(self.selector.as_ref(), &pod.labels)
    }
}

impl Spread {
    fn read(of: &TopologySpreadConstraint, labels: &Labels) -> Self {
        let mut selector = of.label_selector.clone();
        let keys = of.match_label_keys.as_deref().unwrap_or_default();
        add_keys(&mut selector, keys, "In", labels);
        Self {
            key: of.topology_key.clone(),
            max_skew: i64::from(of.max_skew),
            min_domains: of
                .min_domains
                .and_then(|count| usize::try_from(count).ok())
                .unwrap_or(1),
            must: of.when_unsatisfiable == "DoNotSchedule",
            honor_affinity: of.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: of.node_taints_policy.as_deref() == Some("Honor"),
            selector,
        }
    }

    /// Whether the constraint counts pods with this profile, for a pod of `namespace`.
    pub(super) fn counts(&self, namespace: &str, pod: &Profile) -> bool {
        pod.namespace == namespace && selects(self.selector.as_ref(), &pod.labels)
    }
}

/// Narrows a selector by labels of the pod itself; missing keys are ignored.
fn add_keys(
    selector: &mut Option<LabelSelector>,
    keys: &[String],
    operator: &str,
    labels: &Labels,
) {
    let Some(selector) = selector else { return };
    for key in keys {
        if let Some(value) = labels.get(key) {
            let more = LabelSelectorRequirement {
                key: key.clone(),
                operator: operator.to_owned(),
                values: Some(vec![value.clone()]),
            };
            selector
                .match_expressions
                .get_or_insert_default()
                .push(more);
        }
    }
}

fn profile(namespace: &str, labels: &Labels, spec: &k8s::PodSpec) -> Profile {
    let affinity = spec.affinity.as_ref();
    let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let read = |term: &PodAffinityTerm| Term::read(term, namespace, labels);
    let required = |terms: Option<&Vec<PodAffinityTerm>>| -> Vec<Term> {
        terms.into_iter().flatten().map(read).collect()
    };
    let mut preferred = Vec::new();
    let of = near.and_then(|near| {
        near.preferred_during_scheduling_ignored_during_execution
            .as_ref()
    });
    for each in of.into_iter().flatten() {
        preferred.push((i64::from(each.weight), read(&each.pod_affinity_term)));
    }
    let of = apart.and_then(|apart| {
        apart
            .preferred_during_scheduling_ignored_during_execution
            .as_ref()
    });
    for each in of.into_iter().flatten() {
        preferred.push((-i64::from(each.weight), read(&each.pod_affinity_term)));
    }
    let spread = spec.topology_spread_constraints.iter();
    Profile {
        namespace: namespace.to_owned(),
        labels: labels.clone(),
        near: required(near.and_then(|near| {
            near.required_during_scheduling_ignored_during_execution
                .as_ref()
        })),
        apart: required(apart.and_then(|apart| {
            apart
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        })),
        preferred,
        spread: spread.map(|of| Spread::read(of, labels)).collect(),
    }
}

/// Init containers that keep running together with the main containers.
fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Requests of a container; a limit without a request counts as a request.
fn effective_requests(of: &ContainerResources) -> Result<Resources, ResourceError> {
    let mut all: ResourceList = of.limits.clone();
    all.extend(of.requests.clone());
    Resources::from_api(&all)
}

/// Resource requests of a pod: the maximum of its containers and sidecars together, and of each init container plus the
/// sidecars that start before it. Pod-level requests override that.
fn requests(spec: &k8s::PodSpec) -> Result<Resources, ResourceError> {
    let mut sidecars = Resources::zero();
    let mut most = Resources::zero();
    for container in &spec.init_containers {
        let own = effective_requests(&container.resources)?;
        if is_sidecar(container) {
            sidecars.add_assign(&own);
            most = most.max(&sidecars);
        } else {
            most = most.max(&sidecars.add(&own));
        }
    }
    let mut running = sidecars;
    for container in &spec.containers {
        running.add_assign(&effective_requests(&container.resources)?);
    }
    let mut all = most.max(&running);
    if let Some(whole) = &spec.resources {
        for (name, amount) in effective_requests(whole)?.iter() {
            if amount > 0 {
                all.set(name, amount);
            }
        }
    }
    all.add_assign(&Resources::from_api(&spec.overhead)?);
    all.pods = 1;
    Ok(all)
}

fn ports(spec: &k8s::PodSpec) -> Vec<Port> {
    let sidecars = spec.init_containers.iter().filter(|each| is_sidecar(each));
    let containers = spec.containers.iter().chain(sidecars);
    let ports = containers.flat_map(|container| &container.ports);
    let taken = ports.filter_map(|port| {
        let number = if port.host_port == 0 && spec.host_network {
            port.container_port
        } else {
            port.host_port
        };
        let protocol = if port.protocol.is_empty() {
            "TCP".to_owned()
        } else {
            port.protocol.clone()
        };
        let address = if port.host_ip == "0.0.0.0" {
            String::new()
        } else {
            port.host_ip.clone()
        };
        (number > 0).then_some((address, protocol, number))
    });
    taken.collect()
}

/// Whether two host ports cannot be on one node.
pub(super) fn conflict(a: &Port, b: &Port) -> bool {
    let address = a.0.is_empty() || b.0.is_empty() || a.0 == b.0;
    address && a.1 == b.1 && a.2 == b.2
}
