//! Reconciles StatefulSets.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::names::PodKey;
use mortise_state::resource_kinds::ObjectKey;

use super::super::ordinals::{OrdinalPod, OrdinalStep, steps};
use super::super::pod_index::{OwnedPods, PodFacts};
use super::super::rolling_update::{is_of_revision, of_revision};
use super::super::zonal_volumes::with_claims;
use super::{ApiServer, NAMESPACE, WorkloadControllers, delete, owned_pod};

const KIND: &str = "StatefulSet";

impl WorkloadControllers {
    /// Current target sizes of the StatefulSets.
    pub(super) fn set_sizes(&self) -> impl Iterator<Item = usize> {
        self.workloads.stateful_sets.iter().map(|set| {
            let replicas = self.scaled.get(&set.name).copied();
            let size = u64::from(replicas.unwrap_or(set.replicas)) * u64::from(self.scale_percent);
            usize::try_from(size / 100).unwrap_or(usize::MAX)
        })
    }

    /// One round of every StatefulSet; `sizes` are those of [`Self::set_sizes`].
    pub(super) fn reconcile_sets(&self, sizes: &[usize], store: &mut ApiServer, now: Timestamp) {
        for (set, want) in self.workloads.stateful_sets.iter().zip(sizes) {
            let revision = self.revisions.get(&set.name).copied();
            let template = of_revision(&set.template, revision);
            let want = u32::try_from(*want).unwrap_or(u32::MAX);
            let key = |number: u32| PodKey::new(NAMESPACE, format!("{}-{number}", set.name));
            let pods = pods_of(&set.name, revision, store);
            for step in steps(want, set.is_parallel, &pods) {
                match step {
                    OrdinalStep::Create(number) => {
                        let template = with_claims(set, number, &template, store, now);
                        owned_pod(&key(number), &set.name, KIND, &template, store, now);
                    }
                    OrdinalStep::Delete(number) => delete(store, &ObjectKey::Pod(key(number)), now),
                }
            }
        }
    }
}

/// The pods of a set by their numbers.
fn pods_of(set: &str, revision: Option<u64>, store: &ApiServer) -> BTreeMap<u32, OrdinalPod> {
    let number = |key: &PodKey| {
        let pod = store.get(&ObjectKey::Pod(key.clone()))?;
        let owner = pod.pointer("/metadata/ownerReferences/0")?;
        let number = key.name.strip_prefix(set)?.strip_prefix('-')?;
        (owner["kind"] == KIND)
            .then(|| number.parse().ok())
            .flatten()
    };
    let state = |pod: &PodFacts| {
        let is_old = !is_of_revision(pod, revision);
        match (pod.is_deleting, pod.is_healthy) {
            (true, _) => OrdinalPod::Stops,
            (false, true) => OrdinalPod::Runs { is_old },
            (false, false) => OrdinalPod::Waits { is_old },
        }
    };
    let pods = store.pod_index().of_owner(set);
    pods.into_iter()
        .flat_map(OwnedPods::all)
        .filter_map(|(key, pod)| Some((number(key)?, state(pod))))
        .collect()
}
