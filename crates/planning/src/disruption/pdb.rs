//! PodDisruptionBudgets: whether the pods of a node can be evicted now.

use std::collections::BTreeMap;

use jiff::Timestamp;

use mortise_apis::names::NamespacedName;
use mortise_state::pods::Selector;
use mortise_state::snapshot::{Pod, Snapshot};

/// Every budget, by namespace.
pub struct Pdbs<'a> {
    by_namespace: BTreeMap<&'a str, Vec<Pdb<'a>>>,
}

struct Pdb<'a> {
    name: &'a NamespacedName,
    selector: Selector,
    allowed: i32,
    frees_unready: bool,
}

/// Why a pod cannot be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionBlocked {
    /// This budget allows no eviction now.
    Exhausted(NamespacedName),
    /// Several budgets select the pod, which the Eviction API answers with an error.
    Several(Vec<NamespacedName>),
}

impl<'a> Pdbs<'a> {
    /// Compiles the budgets of a snapshot. Cost: one pass over them.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let mut by_namespace: BTreeMap<&str, Vec<Pdb<'a>>> = BTreeMap::new();
        for (name, pdb) in &*snapshot.pdbs {
            // An absent selector selects nothing, an empty one everything.
            let Some(selector) = &pdb.spec.selector else {
                continue;
            };
            let policy = pdb.spec.unhealthy_pod_eviction_policy.as_deref();
            by_namespace.entry(&name.namespace).or_default().push(Pdb {
                name,
                selector: Selector::new(selector),
                allowed: pdb.status.disruptions_allowed,
                frees_unready: policy == Some("AlwaysAllow"),
            });
        }
        Self { by_namespace }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_namespace.is_empty()
    }

    /// Whether the PodDisruptionBudgets allow the eviction of the pod now. Pods that a drain does not evict are never
    /// rejected.
    pub fn check(&self, pod: &Pod, now: Timestamp) -> Result<(), EvictionBlocked> {
        let Some(all) = self.by_namespace.get(&*pod.key.namespace) else {
            return Ok(());
        };
        if !pod.is_evictable(now) {
            return Ok(());
        }
        let matching: Vec<&Pdb<'_>> = all
            .iter()
            .filter(|pdb| pdb.selector.matches_labels(&pod.labels))
            .collect();
        match matching.as_slice() {
            [] => Ok(()),
            [one] if one.allowed > 0 || (one.frees_unready && !pod.ready) => Ok(()),
            [one] => Err(EvictionBlocked::Exhausted(one.name.clone())),
            several => Err(EvictionBlocked::Several(
                several.iter().map(|pdb| pdb.name.clone()).collect(),
            )),
        }
    }
}
