//! Gangs: groups of pods that run together or not at all, and requests for room for such groups.
//!
//! A pod names its group, and an object of the group says how many of its pods must run. Which kinds of groups hold is a matter of
//! what the API server serves: without the definition of its kind, the label of a group means nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{LaunchHold, Pod};
use mortise_apis::k8s::provisioning_request::PROVISIONED;
use mortise_apis::k8s::{
    self, CoschedulingPodGroup, PodGroup, ProvisioningRequest, RequestPhase, VolcanoPodGroup,
};
use mortise_apis::labels::{CONSUME_PROVISIONING_REQUEST, COSCHEDULING_GROUP, VOLCANO_GROUPS};
use mortise_apis::names::{NamespacedName, PodKey};

/// Whose groups they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GangKind {
    /// PodGroups of Kubernetes.
    Kubernetes,
    /// PodGroups of the scheduler plugin coscheduling.
    Coscheduling,
    /// PodGroups of Volcano.
    Volcano,
    /// ProvisioningRequests: the room that each asks for.
    Request,
}

/// A group that pods name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct GangKey {
    /// Whose group it is.
    pub kind: GangKind,
    /// Its PodGroup or ProvisioningRequest.
    pub group: NamespacedName,
}

/// What a group asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gang {
    /// No PodGroup of this name exists.
    Unknown,
    /// Its scheduler does not schedule it yet: its queue has not admitted it.
    NotAdmitted,
    /// This number of pods runs, or none.
    Together(usize),
    /// All its pods get a place, or none.
    Whole,
    /// Each pod for itself.
    Single,
}

/// PodGroups, and the pods that name them.
#[derive(Clone, Debug, Default)]
pub struct Gangs {
    /// PodGroups of Kubernetes.
    pub groups: Arc<BTreeMap<NamespacedName, Arc<PodGroup>>>,
    /// PodGroups of coscheduling.
    pub coscheduling: Arc<BTreeMap<NamespacedName, Arc<CoschedulingPodGroup>>>,
    /// PodGroups of Volcano.
    pub volcano: Arc<BTreeMap<NamespacedName, Arc<VolcanoPodGroup>>>,
    /// ProvisioningRequests.
    pub requests: Arc<BTreeMap<NamespacedName, Arc<ProvisioningRequest>>>,
    members: Arc<BTreeMap<Arc<GangKey>, Arc<BTreeSet<PodKey>>>>,
}

impl GangKind {
    /// The kinds with PodGroups.
    pub const POD_GROUPS: [Self; 3] = [Self::Kubernetes, Self::Coscheduling, Self::Volcano];
}

impl GangKey {
    /// The group that a pod names, whether it exists or not. A pod that names several belongs to that of Kubernetes, then to that of
    /// coscheduling.
    #[must_use]
    pub fn of_pod(pod: &k8s::Pod) -> Option<Self> {
        let metadata = &pod.metadata;
        let of = |kind, name: &str| {
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            let group = NamespacedName::new(namespace, name);
            (!name.is_empty()).then_some(Self { kind, group })
        };
        let own = pod.spec.scheduling_group.as_ref();
        let own = own.and_then(|group| of(GangKind::Kubernetes, &group.pod_group_name));
        let text =
            |all: &Option<BTreeMap<String, String>>, key: &str| all.as_ref()?.get(key).cloned();
        let label = || {
            let name = text(&metadata.labels, COSCHEDULING_GROUP)?;
            of(GangKind::Coscheduling, &name)
        };
        let annotation = || {
            let names = VOLCANO_GROUPS.iter();
            let name = names
                .filter_map(|key| text(&metadata.annotations, key))
                .next()?;
            of(GangKind::Volcano, &name)
        };
        let request = || {
            let names = CONSUME_PROVISIONING_REQUEST.iter();
            let mut names = names.filter_map(|key| text(&metadata.annotations, key));
            of(GangKind::Request, &names.next()?)
        };
        own.or_else(label).or_else(annotation).or_else(request)
    }
}

impl fmt::Display for GangKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            GangKind::Kubernetes | GangKind::Coscheduling | GangKind::Volcano => "PodGroup",
            GangKind::Request => "ProvisioningRequest",
        };
        write!(f, "{kind} {}", self.group)
    }
}

impl Gangs {
    /// What a group asks for now.
    ///
    /// # Source
    /// Kubernetes and coscheduling count at each scheduling, also after the first. Volcano's scheduler takes a group from its queue first:
    /// a phase of `Pending`, or none, is a group that waits there. Once its pods run, it counts those that have ended as well, which
    /// are not known here.
    #[must_use]
    pub fn get(&self, key: &GangKey) -> Gang {
        let known = match key.kind {
            GangKind::Kubernetes => self.groups.get(&key.group).map(|group| {
                let gang = group.spec.scheduling_policy.gang.as_ref();
                gang.map_or(Gang::Single, |gang| together(gang.min_count))
            }),
            GangKind::Coscheduling => {
                let group = self.coscheduling.get(&key.group);
                group.map(|group| together(group.spec.min_member))
            }
            GangKind::Volcano => {
                self.volcano
                    .get(&key.group)
                    .map(|group| match group.status.phase.as_str() {
                        "" | "Pending" => Gang::NotAdmitted,
                        "Running" | "Completed" | "Unknown" => Gang::Single,
                        _ => together(group.spec.min_member),
                    })
            }
            GangKind::Request => {
                let request = self.requests.get(&key.group);
                let phase = request.map(|request| request.phase());
                return match phase {
                    Some(RequestPhase::Searching) => Gang::Whole,
                    Some(RequestPhase::Booked(_) | RequestPhase::Over) | None => Gang::Single,
                };
            }
        };
        known.unwrap_or(Gang::Unknown)
    }

    /// The label of which all nodes of a group have the same value, if its group demands that. Only groups of Kubernetes do; of several
    /// labels the first counts.
    #[must_use]
    pub fn topology_key(&self, key: &GangKey) -> Option<&str> {
        if key.kind != GangKind::Kubernetes {
            return None;
        }
        let group = self.groups.get(&key.group)?;
        let first = group.spec.scheduling_constraints.topology.first();
        first.map(|constraint| &*constraint.key)
    }

    /// Pods that name the group and have not ended, in the order of their keys.
    pub fn members(&self, key: &GangKey) -> impl Iterator<Item = &PodKey> {
        self.members.get(key).into_iter().flat_map(|all| all.iter())
    }

    /// What keeps nodes from being launched for a pod now. A request holds its pods until there is room for all of them.
    #[must_use]
    pub fn held<'p>(&self, pod: &'p Pod, now: Timestamp) -> Option<&'p LaunchHold> {
        let hold = pod.held(now)?;
        let is_provisioned = matches!(hold, LaunchHold::ForRequest(_))
            && pod.gang.as_ref().is_some_and(|gang| {
                let request = self.requests.get(&gang.group);
                gang.kind == GangKind::Request
                    && request.is_some_and(|request| request.is(PROVISIONED))
            });
        (!is_provisioned).then_some(hold)
    }

    /// Whether there is room that is kept for the pod by a request: it stands for that, or uses it.
    #[must_use]
    pub fn has_booked(&self, pod: &Pod) -> bool {
        let gang = pod.gang.as_ref();
        let request = gang.filter(|gang| gang.kind == GangKind::Request);
        let request = request.and_then(|gang| self.requests.get(&gang.group));
        request.is_some_and(|request| matches!(request.phase(), RequestPhase::Booked(_)))
    }

    /// Follows a pod that was created, changed, ended or was deleted.
    pub(crate) fn update(&mut self, before: Option<&Pod>, after: Option<&Pod>) {
        let gang =
            |pod: Option<&Pod>| pod.and_then(|pod| Some((pod.gang.clone()?, pod.key.clone())));
        let (before, after) = (gang(before), gang(after));
        if before == after {
            return;
        }
        let all = Arc::make_mut(&mut self.members);
        if let Some((gang, pod)) = before
            && let Some(members) = all.get_mut(&gang)
        {
            Arc::make_mut(members).remove(&pod);
            if members.is_empty() {
                all.remove(&gang);
            }
        }
        if let Some((gang, pod)) = after {
            Arc::make_mut(all.entry(gang).or_default()).insert(pod);
        }
    }
}

fn together(min: i64) -> Gang {
    match usize::try_from(min) {
        Ok(min) if min > 0 => Gang::Together(min),
        _ => Gang::Single,
    }
}
