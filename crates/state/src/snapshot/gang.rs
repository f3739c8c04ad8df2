//! Gangs: groups of pods that run together or not at all.
//!
//! A pod names its group, and an object of the group says how many of its pods must run. Which kinds of groups hold is a matter of
//! what the API server serves: without the definition of its kind, the label of a group means nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Pod;
use mortise_apis::k8s::pod_group::PodGroupPhase;
use mortise_apis::k8s::{self, CoschedulingPodGroup, PodGroup, VolcanoPodGroup};
use mortise_apis::labels::{COSCHEDULING_GROUP, VOLCANO_GROUPS};
use mortise_apis::names::{NamespacedName, PodKey};
use mortise_apis::schema::conditions::ConditionStatus;

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
}

/// A group that pods name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct GangKey {
    /// Whose group it is.
    pub kind: GangKind,
    /// Its PodGroup.
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
    /// Each pod for itself: the group asks for nothing, or has been scheduled once.
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
    members: Arc<BTreeMap<Arc<GangKey>, Arc<BTreeSet<PodKey>>>>,
}

impl GangKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Kubernetes, Self::Coscheduling, Self::Volcano];
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
        own.or_else(label).or_else(annotation)
    }
}

impl fmt::Display for GangKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PodGroup {}", self.group)
    }
}

impl Gangs {
    /// What a group asks for now.
    ///
    /// # Source
    /// Kubernetes: `spec.schedulingPolicy.gang.minCount`, until the condition `PodGroupScheduled` (1.36) or `PodGroupInitiallyScheduled`
    /// (1.37) is true. Coscheduling and Volcano: `spec.minMember`, until the phase says that its pods run or have ended. Volcano's
    /// scheduler takes a group from its queue first: a phase of `Pending`, or none, is a group that waits there.
    #[must_use]
    pub fn get(&self, key: &GangKey) -> Gang {
        match key.kind {
            GangKind::Kubernetes => self.groups.get(&key.group).map_or(Gang::Unknown, |group| {
                let gang = group.spec.scheduling_policy.gang.as_ref();
                let was_scheduled = group.status.conditions.iter().any(|each| {
                    let types = ["PodGroupScheduled", "PodGroupInitiallyScheduled"];
                    types.contains(&each.type_.as_str())
                        && each.status == ConditionStatus::True.as_str()
                });
                together(gang.filter(|_| !was_scheduled).map(|gang| gang.min_count))
            }),
            GangKind::Coscheduling => {
                self.coscheduling
                    .get(&key.group)
                    .map_or(Gang::Unknown, |group| {
                        let phases = ["Scheduled", "Running", "Finished", "Failed"];
                        of_phase(&group.status, &phases, group.spec.min_member)
                    })
            }
            GangKind::Volcano => self.volcano.get(&key.group).map_or(Gang::Unknown, |group| {
                if matches!(group.status.phase.as_str(), "" | "Pending") {
                    return Gang::NotAdmitted;
                }
                let phases = ["Running", "Completed", "Unknown"];
                of_phase(&group.status, &phases, group.spec.min_member)
            }),
        }
    }

    /// Pods that name the group and have not ended, in the order of their keys.
    pub fn members(&self, key: &GangKey) -> impl Iterator<Item = &PodKey> {
        self.members.get(key).into_iter().flat_map(|all| all.iter())
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

fn of_phase(status: &PodGroupPhase, scheduled: &[&str], min: i64) -> Gang {
    let was_scheduled = scheduled.contains(&status.phase.as_str());
    together((!was_scheduled).then_some(min))
}

fn together(min: Option<i64>) -> Gang {
    let min = min.and_then(|min| usize::try_from(min).ok());
    min.filter(|min| *min > 0)
        .map_or(Gang::Single, Gang::Together)
}
