//! The pods of a recorded cluster by the workload that owns them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use mortise_apis::k8s::Pod;
use mortise_apis::labels;
use mortise_apis::names::{NamespacedName, NodeName, PodKey};
use mortise_state::resource_kinds::{Object, ObjectKey};

use super::joined;
use crate::recorded_cluster::RecordedCluster;

/// Label of the pods of a ReplicaSet: what its name has behind that of its Deployment.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// A kind of workload that a scenario has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorkloadKind {
    /// Also stands for owners of other kinds, which keep a number of pods too.
    Deployment,
    StatefulSet,
    /// Also stands for pods without an owner.
    Job,
}

impl WorkloadKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::Job => "Job",
        }
    }

    pub(super) const fn api_version(self) -> &'static str {
        match self {
            Self::Deployment | Self::StatefulSet => "apps/v1",
            Self::Job => "batch/v1",
        }
    }
}

/// A workload and its pods, of which there is at least one.
pub(super) struct Owned<'a> {
    pub(super) kind: WorkloadKind,
    pub(super) namespace: Arc<str>,
    /// Its name in the scenario.
    pub(super) simulated_name: String,
    pub(super) pods: Vec<&'a Pod>,
}

impl<'a> Owned<'a> {
    /// The youngest pod, which has the template of the last rollout.
    pub(super) fn newest(&self) -> Option<&'a Pod> {
        let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let pods = self.pods.iter().copied();
        // Of equal ones the first by name.
        pods.rev().max_by_key(|pod| created(pod))
    }
}

/// What a recorded cluster has and its scenario does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LeftOut {
    /// A NodePool whose instance types were not recorded.
    Pool,
    /// A pod on a node that no NodePool made.
    OtherNode,
    /// A pod that something holds back from the scheduler.
    Gated,
    /// A pod that requests devices of Dynamic Resource Allocation.
    Devices,
    /// A buffer of something that is not simulated.
    Buffer,
    /// A group of pods of Kubernetes or Volcano.
    Group,
}

impl LeftOut {
    /// Half a sentence, with their number.
    pub(super) fn said(self, count: usize) -> String {
        let s = if count == 1 { "" } else { "s" };
        format!("{count} {}{s} {self}", self.thing())
    }

    const fn thing(self) -> &'static str {
        match self {
            Self::Pool => "NodePool",
            Self::OtherNode | Self::Gated | Self::Devices => "pod",
            Self::Buffer => "CapacityBuffer",
            Self::Group => "PodGroup",
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pool => "with a node class whose instance types were not recorded",
            Self::OtherNode => "on nodes that no NodePool made",
            Self::Gated => "with scheduling gates",
            Self::Devices => "with claims for devices",
            Self::Buffer => "for something that is not simulated",
            Self::Group => "of Kubernetes or Volcano, whose pods are placed one by one",
        })
    }
}

/// The workloads, by kind and name.
pub(super) fn owned<'a>(
    cluster: &'a RecordedCluster,
    left_out: &mut BTreeMap<LeftOut, usize>,
) -> Vec<Owned<'a>> {
    let ours = nodes_of_pools(cluster);
    let mut all: BTreeMap<(WorkloadKind, NamespacedName), Vec<&Pod>> = BTreeMap::new();
    for (key, object) in &cluster.objects {
        let (ObjectKey::Pod(key), Object::Pod(pod)) = (key, object) else {
            continue;
        };
        let Some(owner) = owner(key, pod) else {
            continue;
        };
        match reason_to_leave_out(pod, &ours) {
            Some(reason) => *left_out.entry(reason).or_default() += 1,
            None => all.entry(owner).or_default().push(&**pod),
        }
    }
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let owned = all.into_iter().map(|((kind, name), pods)| {
        let mut simulated_name = joined(&name);
        if !taken.insert(simulated_name.clone()) {
            // In a scenario no two workloads have one name, whatever their kinds.
            simulated_name += &format!("-{}", kind.name().to_lowercase());
            taken.insert(simulated_name.clone());
        }
        Owned {
            kind,
            namespace: name.namespace,
            simulated_name,
            pods,
        }
    });
    owned.collect()
}

/// The nodes that NodePools made.
fn nodes_of_pools(cluster: &RecordedCluster) -> BTreeSet<&NodeName> {
    let nodes = cluster
        .objects
        .iter()
        .filter_map(|(key, object)| match (key, object) {
            (ObjectKey::Node(name), Object::Node(node)) => Some((name, node)),
            _ => None,
        });
    nodes
        .filter(|(_, node)| {
            let labels = node.metadata.labels.as_ref();
            labels.is_some_and(|labels| labels.contains_key(labels::NODEPOOL))
        })
        .map(|(name, _)| name)
        .collect()
}

fn reason_to_leave_out(pod: &Pod, ours: &BTreeSet<&NodeName>) -> Option<LeftOut> {
    let node = pod.spec.node_name.as_deref();
    if node.is_some_and(|node| !ours.contains(&NodeName::from(node))) {
        return Some(LeftOut::OtherNode);
    }
    if !pod.spec.scheduling_gates.is_empty() {
        return Some(LeftOut::Gated);
    }
    (!pod.spec.resource_claims.is_empty()).then_some(LeftOut::Devices)
}

/// The workload that would create the pod again; `None` for pods that come with their node, and those that end.
fn owner(key: &PodKey, pod: &Pod) -> Option<(WorkloadKind, NamespacedName)> {
    let ended = ["Succeeded", "Failed"].contains(&pod.status.phase.as_str());
    if ended || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let name = |name: &str| NamespacedName::new(&*key.namespace, name);
    let owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners
        .into_iter()
        .find(|owner| owner.controller == Some(true));
    let Some(OwnerReference {
        kind, name: owner, ..
    }) = controller
    else {
        return Some((WorkloadKind::Job, name(&key.name)));
    };
    Some(match kind.as_str() {
        "DaemonSet" | "Node" => return None,
        "StatefulSet" => (WorkloadKind::StatefulSet, name(owner)),
        "Job" => (WorkloadKind::Job, name(owner)),
        "ReplicaSet" => (WorkloadKind::Deployment, name(deployment_of(pod, owner))),
        _ => (WorkloadKind::Deployment, name(owner)),
    })
}

/// The Deployment of a ReplicaSet: its name is that of the Deployment and the hash of the template.
fn deployment_of<'a>(pod: &Pod, replica_set: &'a str) -> &'a str {
    let labels = pod.metadata.labels.as_ref();
    let hash = labels.and_then(|labels| labels.get(TEMPLATE_HASH));
    hash.and_then(|hash| replica_set.strip_suffix(hash.as_str())?.strip_suffix('-'))
        .filter(|name| !name.is_empty())
        .unwrap_or(replica_set)
}
