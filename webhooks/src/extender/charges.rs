//! Room that a passed pod may be about to take.
//!
//! Between kube-scheduler's choice and our watch's news of the bind, the same free room beside a promise could be given
//! away twice. So every pass on a node with promises charges that node with the pod for a short time. Over-charging is
//! the safe side, and only nodes with promises are charged. Asking again replaces the pod's own charge.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::FixedState;
use jiff::Timestamp;
use mortise_core::deciders::after;
use mortise_core::names::Uid;
use mortise_core::resources::Resources;
use mortise_core::snapshot::Pod;

/// How long a pass charges a node: longer than a bind takes to come back through the watch (5 to 100 ms).
const LIFE_MS: i64 = 2_000;
/// Charges that are over are looked for this often. They count no more anyway; this only bounds memory, and looking at
/// all of them in each call would make a call about many promised nodes slow.
const SWEEP_MS: i64 = 500;

#[derive(Debug)]
struct Charge {
    pod: Arc<Pod>,
    until: Timestamp,
}

/// Charges by node and pod UID. The lock is held for a few map operations; it is shared by extender calls only.
#[derive(Debug, Default)]
pub struct Charges {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_node: HashMap<Box<str>, BTreeMap<Uid, Charge>, FixedState>,
    sweep_at: Option<Timestamp>,
}

impl Charges {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What other pods than `uid` may be about to take on a node.
    #[must_use]
    pub fn others(&self, node: &str, uid: &str, now: Timestamp) -> Resources {
        let mut sum = Resources::zero();
        for (_, charge) in self
            .lock()
            .by_node
            .get(node)
            .into_iter()
            .flatten()
            .filter(|(pod, charge)| pod.as_str() != uid && charge.until > now)
        {
            sum.add_assign(&charge.pod.class.requests);
        }
        sum
    }

    /// Charges nodes for a pod.
    pub fn charge(&self, nodes: &[&str], pod: &Arc<Pod>, now: Timestamp) {
        if nodes.is_empty() {
            return;
        }
        let mut inner = self.lock();
        inner.sweep(now);
        for node in nodes {
            let charge = Charge {
                pod: Arc::clone(pod),
                until: after(now, LIFE_MS),
            };
            match inner.by_node.get_mut(*node) {
                Some(pods) => {
                    pods.insert(pod.uid.clone(), charge);
                }
                None => {
                    let pods = BTreeMap::from([(pod.uid.clone(), charge)]);
                    inner.by_node.insert((*node).into(), pods);
                }
            }
        }
    }

    /// How many charges are kept, those included that are over and not swept yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().by_node.values().map(BTreeMap::len).sum()
    }

    /// Whether nothing is charged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    fn sweep(&mut self, now: Timestamp) {
        if self.sweep_at.is_some_and(|at| at > now) {
            return;
        }
        self.sweep_at = Some(after(now, SWEEP_MS));
        self.by_node.retain(|_, pods| {
            pods.retain(|_, charge| charge.until > now);
            !pods.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::apis::k8s;
    use mortise_core::snapshot::PodClasses;
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, cpu: &str) -> Arc<Pod> {
        let body: k8s::Pod = serde_json::from_value(json!({
            "metadata": { "name": uid, "namespace": "default", "uid": uid },
            "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": cpu } } }] },
        }))
        .unwrap();
        Arc::new(Pod::ingest(&body, &mut PodClasses::default()))
    }

    #[test]
    fn others_are_charged_until_they_must_be_seen_bound() {
        let charges = Charges::default();
        let now = Timestamp::UNIX_EPOCH;
        charges.charge(&["a", "b"], &pod("x", "1"), now);
        charges.charge(&["a"], &pod("y", "500m"), after(now, 1_000));
        let cpu = |node, uid, ms| charges.others(node, uid, after(now, ms)).cpu;
        assert_eq!(cpu("a", "z", 1_000), 1_500);
        assert_eq!(cpu("a", "x", 1_000), 500, "not its own");
        assert_eq!(cpu("b", "z", 1_999), 1_000);
        assert_eq!(cpu("b", "z", 2_000), 0, "over");
        assert_eq!(cpu("c", "z", 1_000), 0, "never charged");
        charges.charge(&["a"], &pod("x", "2"), after(now, 1_100));
        assert_eq!(cpu("a", "z", 1_100), 2_500, "asking again replaces");
    }

    #[test]
    fn what_is_over_is_not_kept() {
        let charges = Charges::default();
        let now = Timestamp::UNIX_EPOCH;
        let names: Vec<String> = (0..100).map(|number| format!("node-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        charges.charge(&names, &pod("x", "1"), now);
        assert_eq!(charges.len(), 100);
        charges.charge(&[], &pod("y", "1"), after(now, 5_000));
        assert_eq!(charges.len(), 100, "nothing to charge, nothing to do");
        charges.charge(&["node-0"], &pod("y", "1"), after(now, 5_000));
        assert_eq!(charges.len(), 1);
    }
}
