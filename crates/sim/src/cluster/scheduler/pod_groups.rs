//! Groups of pods that are bound together or not at all, as the scheduler plugin coscheduling binds them.
//!
//! coscheduling lets each pod of a group wait on its node until as many pods of the group have one as run together, and takes the
//! nodes from all of them when one has none. Here all pods of a group are tried at one time, which comes to the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mortise_apis::labels::COSCHEDULING_GROUP;
use mortise_apis::names::{NamespacedName, NodeName, PodKey, Uid};

use super::pod::PodView;
use super::queue::{ClusterEvent, Filter};
use super::selectors::Labels;
use super::{ExtenderCall, Scheduler};

/// PodGroups, and the pods that name them.
#[derive(Debug, Default)]
pub(super) struct PodGroups {
    /// `minMember` of each.
    sizes: BTreeMap<NamespacedName, usize>,
    members: BTreeMap<Arc<NamespacedName>, BTreeSet<PodKey>>,
    /// A PodGroup has existed: the API server serves the kind. Where it does not, the label of a group means nothing.
    is_served: bool,
}

/// What became of the pods of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupResult {
    /// They are bound to these nodes.
    pub(crate) bound: Vec<(PodKey, Uid, NodeName)>,
    /// They wait.
    pub(crate) rejected: Vec<PodKey>,
    /// An extender left a node for these, whether they are bound or not.
    pub(crate) advised: Vec<Uid>,
}

/// The group that the labels of a pod name.
pub(super) fn group_of(namespace: &str, labels: &Labels) -> Option<Arc<NamespacedName>> {
    let name = labels.get(COSCHEDULING_GROUP)?;
    (!name.is_empty()).then(|| Arc::new(NamespacedName::new(namespace, name.as_str())))
}

impl PodGroups {
    /// A PodGroup was created, changed or, with `None`, deleted.
    pub(super) fn set_size(&mut self, key: &NamespacedName, min: Option<i64>) {
        self.is_served = true;
        match min {
            Some(min) => {
                let min = usize::try_from(min).unwrap_or(0);
                self.sizes.insert(key.clone(), min);
            }
            None => drop(self.sizes.remove(key)),
        }
    }

    pub(super) fn join(&mut self, pod: &PodView) {
        if let Some(group) = &pod.group {
            let members = self.members.entry(Arc::clone(group)).or_default();
            members.insert(pod.key.clone());
        }
    }

    pub(super) fn leave(&mut self, pod: &PodView) {
        if let Some(group) = &pod.group
            && let Some(members) = self.members.get_mut(group)
        {
            members.remove(&pod.key);
            if members.is_empty() {
                self.members.remove(group);
            }
        }
    }

    /// The pods that name the group, in the order of their names.
    pub(super) fn members(&self, group: &NamespacedName) -> impl Iterator<Item = &PodKey> {
        self.members.get(group).into_iter().flatten()
    }
}

impl Scheduler {
    /// From now on, or no longer, pods of groups are bound one by one: a scheduler without coscheduling.
    pub(crate) const fn ignore_groups(&mut self, are_ignored: bool) {
        self.ignores_groups = are_ignored;
    }

    /// The group with which a pod is tried.
    pub(super) fn tried_with(&self, pod: &PodView) -> Option<Arc<NamespacedName>> {
        let group = pod.group.as_ref()?;
        let is_tried = self.cache.groups.is_served && !self.ignores_groups;
        is_tried.then(|| Arc::clone(group))
    }

    /// Tries all pods of a group that wait.
    pub(super) fn try_group(
        &mut self,
        group: &NamespacedName,
        call: &ExtenderCall<'_>,
    ) -> GroupResult {
        let members = self.cache.groups.members(group);
        let members = members.filter_map(|key| self.cache.pods.get(key));
        let members: Vec<Arc<PodView>> = members.filter(|pod| !pod.deleting).cloned().collect();
        let waiting = members.iter().filter(|pod| pod.is_waiting());
        let waiting: Vec<Arc<PodView>> = waiting.cloned().collect();
        let placed = members.iter().filter(|pod| pod.node.is_some()).count();
        let size = self.cache.groups.sizes.get(group).copied();
        let mut result = GroupResult::default();
        let Some(needed) = size.filter(|size| members.len() >= *size) else {
            // Another pod, or the group itself, is to come first.
            for pod in &waiting {
                self.queue.park(&pod.key, call.now);
                result.rejected.push(pod.key.clone());
            }
            return result;
        };
        let needed = needed.saturating_sub(placed);
        let mut found: Vec<(Arc<PodView>, NodeName)> = Vec::new();
        let mut rejected: Vec<(Arc<PodView>, BTreeSet<Filter>)> = Vec::new();
        let mut events: Vec<ClusterEvent> = Vec::new();
        for (nth, pod) in waiting.iter().enumerate() {
            match self.find_node(pod, call) {
                Ok(node) => {
                    if call.extender.is_some() {
                        result.advised.push(pod.uid.clone());
                    }
                    events.extend(self.cache.assume(&pod.key, &node));
                    found.push((Arc::clone(pod), node));
                }
                Err(filters) => rejected.push((Arc::clone(pod), filters)),
            }
            let left = waiting.len() - nth - 1;
            if found.len() + left < needed {
                break;
            }
        }
        if found.len() < needed {
            let filters: BTreeSet<Filter> = rejected
                .into_iter()
                .flat_map(|(_, filters)| filters)
                .collect();
            for (pod, _) in found {
                // As it was before: no event, as nothing has changed.
                self.cache.set_pod(&pod.key, Some((*pod).clone()));
            }
            for pod in &waiting {
                self.queue
                    .add_unschedulable(&pod.key, filters.clone(), call.now);
                result.rejected.push(pod.key.clone());
            }
            return result;
        }
        for (pod, node) in found {
            self.queue.remove(&pod.key);
            result.bound.push((pod.key.clone(), pod.uid.clone(), node));
        }
        for (pod, filters) in rejected {
            self.queue.add_unschedulable(&pod.key, filters, call.now);
            result.rejected.push(pod.key.clone());
        }
        self.requeue_helped(&events, call.now);
        result
    }
}
