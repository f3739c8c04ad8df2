//! Room that a passed pod may be about to take.
//!
//! Between kube-scheduler's choice and our watch's news of the bind, the same free room next to a nomination could
//! be given away twice. So every pass on a node with nominations assumes the pod on that node, until the watch shows
//! where the pod went or a short time is over. Over-charging is the safe side, and only nodes with nominations are
//! charged. Asking again replaces the pod's assumed nodes; about the same nodes, it only makes them last.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::FixedState;
use jiff::Timestamp;
use mortise_apis::names::Uid;
use mortise_apis::resources::Resources;
use mortise_apis::values::after;
use mortise_state::snapshot::{Pod, Snapshot};

/// How long a pass assumes a pod on a node at most: longer than a bind takes to come back through the watch (5 to 100
/// ms).
const ASSUMED_MS: i64 = 2_000;
/// Entries that are over or bound are searched this often: a pod is assumed on all nodes that it may use, so that at
/// some hundred pods a second a node is soon full of pods that went elsewhere.
const PRUNE_INTERVAL_MS: i64 = 25;

/// Charges by node and pod. The lock is held for a few map operations; it is shared by extender calls only.
#[derive(Debug, Default)]
pub struct AssumedPods {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    pods: HashMap<Uid, AssumedPod, FixedState>,
    nodes: HashMap<Arc<str>, AssumedUsage, FixedState>,
    prune_at: Option<Timestamp>,
}

/// A pod and the nodes that it may be about to go to.
#[derive(Debug)]
struct AssumedPod {
    pod: Arc<Pod>,
    until: Timestamp,
    nodes: HashSet<Arc<str>, FixedState>,
}

impl AssumedPod {
    fn matches(&self, nodes: &[&str], pod: &Pod) -> bool {
        self.nodes.len() == nodes.len()
            && nodes.iter().all(|node| self.nodes.contains(*node))
            && self.pod.class.requests == pod.class.requests
    }
}

/// A node: the sum of what pods may be about to take, and how many they are. Who they are the pods know: a pod is taken off
/// in the same time, however many there are.
#[derive(Debug)]
struct AssumedUsage {
    name: Arc<str>,
    sum: Resources,
    pods: usize,
}

impl AssumedPods {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes off what is over, and pods that were bound. Cost: the number of usage pods, now and then.
    pub fn prune(&self, snapshot: &Snapshot, now: Timestamp) {
        let mut inner = self.lock();
        if inner.prune_at.is_some_and(|at| at > now) {
            return;
        }
        inner.prune_at = Some(after(now, PRUNE_INTERVAL_MS));
        let is_settled = |assumed: &AssumedPod| {
            let known = snapshot.pods.get(&assumed.pod.key);
            // One that the watch has not told of yet may still be about to go somewhere.
            assumed.until <= now
                || known.is_some_and(|pod| pod.uid != assumed.pod.uid || pod.node.is_some())
        };
        let settled = inner.pods.iter().filter(|(_, assumed)| is_settled(assumed));
        let settled: Vec<Uid> = settled.map(|(uid, _)| uid.clone()).collect();
        for uid in settled {
            inner.release(&uid);
        }
    }

    /// What other pods than `uid` may be about to take on a node.
    #[must_use]
    pub fn usage_by_others(&self, node: &str, uid: &str) -> Resources {
        let inner = self.lock();
        let Some(usage) = inner.nodes.get(node) else {
            return Resources::zero();
        };
        let mut sum = usage.sum.clone();
        let own = inner.pods.get(uid);
        if let Some(own) = own.filter(|own| own.nodes.contains(node)) {
            sum.sub_assign(&own.pod.class.requests);
        }
        sum
    }

    /// Charges nodes for a pod.
    pub fn assume(&self, nodes: &[&str], pod: &Arc<Pod>, now: Timestamp) {
        if nodes.is_empty() {
            return;
        }
        let until = after(now, ASSUMED_MS);
        let mut inner = self.lock();
        if let Some(assumed) = inner.pods.get_mut(&pod.uid)
            && assumed.matches(nodes, pod)
        {
            assumed.until = until;
            return;
        }
        inner.release(&pod.uid);
        let mut assumed = AssumedPod {
            pod: Arc::clone(pod),
            until,
            nodes: HashSet::with_capacity_and_hasher(nodes.len(), FixedState::default()),
        };
        for node in nodes {
            // One that is named twice is usage once.
            if !assumed.nodes.contains(*node) {
                assumed.nodes.insert(inner.add_usage(node, pod));
            }
        }
        inner.pods.insert(pod.uid.clone(), assumed);
    }

    /// How many assumed are kept, those included that are over and not taken off yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().pods.values().map(|each| each.nodes.len()).sum()
    }

    /// Whether nothing is usage.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    /// Puts a pod on a node where it is not yet, and returns the node's name as it is kept.
    fn add_usage(&mut self, node: &str, pod: &Arc<Pod>) -> Arc<str> {
        if let Some(usage) = self.nodes.get_mut(node) {
            usage.sum.add_assign(&pod.class.requests);
            usage.pods += 1;
            return Arc::clone(&usage.name);
        }
        let name: Arc<str> = Arc::from(node);
        let usage = AssumedUsage {
            name: Arc::clone(&name),
            sum: pod.class.requests.clone(),
            pods: 1,
        };
        self.nodes.insert(Arc::clone(&name), usage);
        name
    }

    /// Takes a pod off all its nodes.
    fn release(&mut self, uid: &Uid) {
        let Some(assumed) = self.pods.remove(uid) else {
            return;
        };
        for name in &assumed.nodes {
            let Some(usage) = self.nodes.get_mut(name) else {
                continue;
            };
            usage.pods -= 1;
            usage.sum.sub_assign(&assumed.pod.class.requests);
            if usage.pods == 0 {
                self.nodes.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mortise_apis::k8s;
    use mortise_apis::labels::WellKnown;
    use mortise_state::index::Index;
    use mortise_state::snapshot::PodClasses;
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, cpu: &str) -> Arc<Pod> {
        let body: k8s::Pod = serde_json::from_value(json!({
            "metadata": { "name": uid, "namespace": "default", "uid": uid },
            "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": cpu } } }] },
        }))
        .unwrap();
        Arc::new(Pod::from_api(&body, &mut PodClasses::default()))
    }

    fn snapshot(bound: &[&Arc<Pod>]) -> Snapshot {
        let now = Timestamp::UNIX_EPOCH;
        let mut snapshot = Index::new(WellKnown::none(), false, now).freeze(now);
        for pod in bound {
            let pod = Pod {
                node: Some("somewhere".into()),
                ..Pod::clone(pod)
            };
            snapshot.pods.insert(pod.key.clone(), Arc::new(pod));
        }
        snapshot
    }

    #[test]
    fn others_are_charged_until_they_must_be_seen_bound() {
        let assumed = AssumedPods::default();
        let now = Timestamp::UNIX_EPOCH;
        assumed.assume(&["a", "b"], &pod("x", "1"), now);
        assumed.assume(&["a"], &pod("y", "500m"), after(now, 1_000));
        let cpu = |node, uid, ms| {
            assumed.prune(&snapshot(&[]), after(now, ms));
            assumed.usage_by_others(node, uid).cpu
        };
        assert_eq!(cpu("a", "z", 1_000), 1_500);
        assert_eq!(cpu("a", "x", 1_000), 500, "not its own");
        assumed.assume(&["a"], &pod("x", "2"), after(now, 1_100));
        assert_eq!(cpu("a", "z", 1_100), 2_500, "asking again replaces");
        assert_eq!(cpu("b", "z", 1_100), 0, "not asked about again");
        assert_eq!(cpu("a", "z", 2_999), 2_500);
        assert_eq!(cpu("a", "z", 3_025), 2_000, "over");
        assert_eq!(cpu("c", "z", 3_025), 0, "never usage");
    }

    #[test]
    fn a_pod_that_asks_again_is_charged_once_and_for_longer() {
        let assumed = AssumedPods::default();
        let now = Timestamp::UNIX_EPOCH;
        let x = pod("x", "1");
        let cpu = |node, ms| {
            assumed.prune(&snapshot(&[]), after(now, ms));
            assumed.usage_by_others(node, "z").cpu
        };
        assumed.assume(&["a", "b", "a"], &x, now);
        assert_eq!((cpu("a", 0), cpu("b", 0)), (1_000, 1_000), "named twice");
        assumed.assume(&["b", "a"], &x, after(now, 1_500));
        assert_eq!((cpu("a", 2_500), cpu("b", 2_500)), (1_000, 1_000));
        assert_eq!(assumed.usage_by_others("a", "x").cpu, 0, "its own");
        assumed.assume(&["b", "c"], &x, after(now, 2_600));
        assert_eq!((cpu("a", 2_600), cpu("c", 2_600)), (0, 1_000));
        assumed.assume(&["b", "c"], &pod("x", "3"), after(now, 2_700));
        assert_eq!(cpu("c", 2_700), 3_000, "it has grown");
        assert_eq!(cpu("c", 4_800), 0);
        assert!(assumed.lock().nodes.is_empty());
    }

    #[test]
    fn what_was_bound_charges_no_node() {
        let assumed = AssumedPods::default();
        let now = Timestamp::UNIX_EPOCH;
        let (x, y) = (pod("x", "1"), pod("y", "500m"));
        assumed.assume(&["a", "b"], &x, now);
        assumed.assume(&["a", "b"], &y, now);
        assumed.prune(&snapshot(&[&x]), after(now, 100));
        assert_eq!(assumed.usage_by_others("a", "z").cpu, 500);
        assert_eq!(assumed.usage_by_others("b", "y").cpu, 0);
        // Another pod of the same name is not the one that was usage.
        let again = Arc::new(Pod {
            uid: "y2".into(),
            ..Pod::clone(&y)
        });
        assumed.prune(&snapshot(&[&again]), after(now, 200));
        assert!(assumed.is_empty());
    }

    #[test]
    fn what_is_over_is_not_kept() {
        let assumed = AssumedPods::default();
        let now = Timestamp::UNIX_EPOCH;
        let names: Vec<String> = (0..100).map(|number| format!("node-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assumed.assume(&names, &pod("x", "1"), now);
        assumed.assume(&[], &pod("y", "1"), now);
        assert_eq!(assumed.len(), 100);
        assumed.prune(&snapshot(&[]), after(now, 2_000));
        assert!(assumed.is_empty());
        assert!(assumed.lock().nodes.is_empty());
    }
}
