//! Room that a passed pod may be about to take.
//!
//! Between kube-scheduler's choice and our watch's news of the bind, the same free room beside a promise could be given
//! away twice. So every pass on a node with promises charges that node with the pod for a short time. Over-charging is
//! the safe side, and only nodes with promises are charged. Asking again replaces the pod's own charge.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use mortise_core::deciders::after;
use mortise_core::resources::Resources;

/// How long a pass charges a node: longer than a bind takes to come back through the watch (5 to 100 ms).
const LIFE_MS: i64 = 2_000;

#[derive(Debug)]
struct Charge {
    requests: Resources,
    until: Timestamp,
}

/// Charges by node and pod UID. The lock is held for one map operation; it is shared by extender calls only.
#[derive(Debug, Default)]
pub struct Charges {
    by_node: Mutex<BTreeMap<String, BTreeMap<String, Charge>>>,
}

impl Charges {
    /// What other pods than `uid` may be about to take on a node.
    #[must_use]
    pub fn others(&self, node: &str, uid: &str, now: Timestamp) -> Resources {
        let map = self.by_node.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = Resources::zero();
        for (_, charge) in map
            .get(node)
            .into_iter()
            .flatten()
            .filter(|(pod, charge)| *pod != uid && charge.until > now)
        {
            sum.add_assign(&charge.requests);
        }
        sum
    }

    /// Charges a node for a pod; what is over is forgotten on the way.
    pub fn charge(&self, node: &str, uid: &str, requests: &Resources, now: Timestamp) {
        let mut map = self.by_node.lock().unwrap_or_else(PoisonError::into_inner);
        map.retain(|_, pods| {
            pods.retain(|_, charge| charge.until > now);
            !pods.is_empty()
        });
        let charge = Charge {
            requests: requests.clone(),
            until: after(now, LIFE_MS),
        };
        map.entry(node.to_owned())
            .or_default()
            .insert(uid.to_owned(), charge);
    }

    /// How many charges live.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_node
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .map(BTreeMap::len)
            .sum()
    }

    /// Whether nothing is charged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
