//! Gangs: since when each has had the pods that run together, and when all of these had a node.
//!
//! Read from the changes of objects alone, next to the scheduler and the service: both are checked with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels::COSCHEDULING_GROUP;
use mortise_apis::names::{NamespacedName, PodKey};
use mortise_apis::values::since;
use mortise_state::resource_kinds::ObjectKey;
use serde_json::Value;

use crate::clock::StoreEvent;
use crate::scores::{Percentiles, percentiles};

/// The gangs of a simulation, by the PodGroup of coscheduling that their pods name.
#[derive(Debug, Default)]
pub(crate) struct GangHistory {
    sizes: BTreeMap<NamespacedName, usize>,
    pods: BTreeMap<PodKey, GangPod>,
    gangs: BTreeMap<Arc<NamespacedName>, GangState>,
    /// Gangs that have run.
    waited_s: BTreeMap<i64, u64>,
}

#[derive(Debug)]
struct GangPod {
    group: Arc<NamespacedName>,
    is_bound: bool,
    is_deleting: bool,
}

/// A gang with pods. Without any it begins again.
#[derive(Debug, Default)]
struct GangState {
    pods: BTreeSet<PodKey>,
    /// Since when it has had the pods that run together; `None`: it lacks some.
    complete: Option<Timestamp>,
    has_run: bool,
}

/// A gang that has not run.
#[derive(Debug)]
pub(crate) struct WaitingGang<'a> {
    pub(crate) group: &'a Arc<NamespacedName>,
    /// Pods that run together.
    pub(crate) size: usize,
    /// Pods that have a node.
    pub(crate) bound: usize,
    /// Since when it has had the pods that run together; `None`: it lacks some.
    pub(crate) complete: Option<Timestamp>,
    pub(crate) pods: &'a BTreeSet<PodKey>,
}

impl GangHistory {
    /// Observes a change of an object.
    ///
    /// # Cost
    /// A look at the labels of a pod; for a pod of a gang, one at each pod of the gang.
    pub(crate) fn observe(&mut self, now: Timestamp, event: &StoreEvent) {
        match &event.key {
            ObjectKey::Pod(key) => {
                let group = event.object.as_ref().and_then(|pod| group_of(key, pod));
                let before = self.pods.remove(key);
                if let Some(before) = &before {
                    self.leave(&before.group, key);
                }
                if let (Some(group), Some(pod)) = (group, &event.object) {
                    self.join(key, group, pod);
                }
                let after = self.pods.get(key).map(|pod| Arc::clone(&pod.group));
                for group in before.map(|pod| pod.group).into_iter().chain(after) {
                    self.update(&group, now);
                }
            }
            ObjectKey::CoschedulingPodGroup(key) => {
                let size = event.object.as_ref();
                let size = size.and_then(|group| group.pointer("/spec/minMember")?.as_u64());
                match size.and_then(|size| usize::try_from(size).ok()) {
                    Some(size) => drop(self.sizes.insert(key.clone(), size)),
                    None => drop(self.sizes.remove(key)),
                }
                self.update(&Arc::new(key.clone()), now);
            }
            _ => {}
        }
    }

    fn join(&mut self, key: &PodKey, group: Arc<NamespacedName>, pod: &Value) {
        let gang = self.gangs.entry(Arc::clone(&group)).or_default();
        gang.pods.insert(key.clone());
        let pod = GangPod {
            group,
            is_bound: pod.pointer("/spec/nodeName").is_some(),
            is_deleting: pod.pointer("/metadata/deletionTimestamp").is_some(),
        };
        self.pods.insert(key.clone(), pod);
    }

    fn leave(&mut self, group: &Arc<NamespacedName>, key: &PodKey) {
        if let Some(gang) = self.gangs.get_mut(group) {
            gang.pods.remove(key);
        }
    }

    fn update(&mut self, group: &Arc<NamespacedName>, now: Timestamp) {
        let Some(gang) = self.gangs.get_mut(group) else {
            return;
        };
        if gang.pods.is_empty() {
            self.gangs.remove(group);
            return;
        }
        if gang.has_run {
            return;
        }
        let Some(size) = self.sizes.get(group) else {
            gang.complete = None;
            return;
        };
        let pods = gang.pods.iter().filter_map(|key| self.pods.get(key));
        let (all, bound) = counts(pods);
        gang.complete = gang.complete.or(Some(now)).filter(|_| all >= *size);
        if let Some(complete) = gang.complete
            && bound >= *size
        {
            gang.has_run = true;
            let waited = since(now, complete) / 1000;
            *self.waited_s.entry(waited).or_default() += 1;
        }
    }

    /// The gangs that have not run.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = WaitingGang<'_>> {
        let waiting = self.gangs.iter().filter(|(_, gang)| !gang.has_run);
        waiting.filter_map(|(group, gang)| {
            let pods = gang.pods.iter().filter_map(|key| self.pods.get(key));
            Some(WaitingGang {
                group,
                size: *self.sizes.get(group)?,
                bound: counts(pods).1,
                complete: gang.complete,
                pods: &gang.pods,
            })
        })
    }

    /// How many gangs have run.
    pub(crate) fn ran(&self) -> u64 {
        self.waited_s.values().sum()
    }

    /// How long those waited that have run.
    pub(crate) fn waited_s(&self) -> Percentiles {
        percentiles(&self.waited_s)
    }
}

/// Pods that are not being deleted, and of them those that have a node.
fn counts<'a>(pods: impl Iterator<Item = &'a GangPod>) -> (usize, usize) {
    let live = pods.filter(|pod| !pod.is_deleting);
    live.fold((0, 0), |(all, bound), pod| {
        (all + 1, bound + usize::from(pod.is_bound))
    })
}

/// The group that a pod names in its label.
fn group_of(key: &PodKey, pod: &Value) -> Option<Arc<NamespacedName>> {
    // Called for every change of a pod: avoids parsing a pointer.
    let labels = pod.get("metadata")?.get("labels")?;
    let name = labels.get(COSCHEDULING_GROUP)?.as_str()?;
    let group = || Arc::new(NamespacedName::new(&*key.namespace, name));
    (!name.is_empty()).then(group)
}
