//! What is counted pod by pod: where pods that are alike run, and the newest pod of each DaemonSet.

use std::sync::Arc;

use super::Index;
use crate::snapshot::{Pod, PodLabelIndex};
use mortise_apis::names::NamespacedName;

/// The DaemonSet that an active pod belongs to.
fn daemon_set(pod: &Pod) -> Option<NamespacedName> {
    let owner = pod
        .owner
        .as_ref()
        .filter(|_| pod.is_daemon() && pod.is_active())?;
    Some(NamespacedName {
        namespace: Arc::clone(&pod.key.namespace),
        name: Arc::clone(&owner.name),
    })
}

impl Index {
    /// A pod came, changed or went.
    pub(super) fn recount(&mut self, before: Option<&Pod>, after: Option<&Pod>) {
        let same = matches!((before, after), (Some(before), Some(after)) if PodLabelIndex::is_same(before, after));
        if !same {
            if let Some(before) = before {
                self.state.pod_labels.leave(before);
            }
            if let Some(after) = after {
                self.state.pod_labels.join(after);
            }
        }
        let was = before.and_then(|pod| Some((daemon_set(pod)?, pod)));
        let is = after.and_then(|pod| Some((daemon_set(pod)?, pod)));
        if let Some((set, pod)) = &was {
            let all = self.daemon_pods_of.entry(set.clone()).or_default();
            all.remove(&(pod.created, pod.key.clone()));
        }
        if let Some((set, pod)) = &is {
            let all = self.daemon_pods_of.entry(set.clone()).or_default();
            all.insert((pod.created, pod.key.clone()));
        }
        for (set, _) in was.into_iter().chain(is) {
            self.find_newest(set);
        }
    }

    fn find_newest(&mut self, set: NamespacedName) {
        let newest = self
            .daemon_pods_of
            .get(&set)
            .and_then(|all| all.last())
            .and_then(|(_, key)| self.state.pods.get(key))
            .cloned();
        let known = self.state.daemon_pods.get(&set);
        match newest {
            Some(newest) => {
                if !known.is_some_and(|known| Arc::ptr_eq(known, &newest)) {
                    Arc::make_mut(&mut self.state.daemon_pods).insert(set, newest);
                }
            }
            None => {
                self.daemon_pods_of.remove(&set);
                if known.is_some() {
                    Arc::make_mut(&mut self.state.daemon_pods).remove(&set);
                }
            }
        }
    }
}
