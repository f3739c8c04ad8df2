//! PodDisruptionBudgets: whether the pods of a node can be evicted now.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use mortise_apis::names::NamespacedName;
use mortise_state::pods::Selector;
use mortise_state::snapshot::{Pod, Snapshot};

/// Every budget, by namespace.
pub struct Pdbs<'a> {
    by_namespace: BTreeMap<&'a str, NamespacePdbs<'a>>,
}

/// The budgets of a namespace, by name, and where those are that may select a pod.
#[derive(Default)]
struct NamespacePdbs<'a> {
    all: Vec<Pdb<'a>>,
    /// Positions of those that select no pod without this label.
    by_label: BTreeMap<(Arc<str>, Arc<str>), Vec<usize>>,
    /// Positions of the others.
    others: Vec<usize>,
}

impl<'a> NamespacePdbs<'a> {
    fn push(&mut self, pdb: Pdb<'a>) {
        let at = self.all.len();
        let positions = match pdb.selector.required_label() {
            Some((key, value)) => {
                let label = (Arc::clone(key), Arc::clone(value));
                self.by_label.entry(label).or_default()
            }
            None => &mut self.others,
        };
        positions.push(at);
        self.all.push(pdb);
    }

    /// The budgets that select the pod, by name.
    fn matching(&self, pod: &Pod) -> Vec<&Pdb<'a>> {
        let of_labels = pod.labels.iter();
        let of_labels = of_labels.filter_map(|label| self.by_label.get(label));
        let mut positions: Vec<usize> = of_labels.flatten().copied().collect();
        positions.extend(&self.others);
        positions.sort_unstable();
        let all = positions.into_iter().filter_map(|at| self.all.get(at));
        all.filter(|pdb| pdb.selector.matches_labels(&pod.labels))
            .collect()
    }
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
        let mut by_namespace: BTreeMap<&str, NamespacePdbs<'a>> = BTreeMap::new();
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
    /// rejected. Cost: a look-up for each label of the pod, and a test for each budget of its namespace that requires no
    /// label with a single value.
    pub fn check(&self, pod: &Pod, now: Timestamp) -> Result<(), EvictionBlocked> {
        let Some(all) = self.by_namespace.get(&*pod.key.namespace) else {
            return Ok(());
        };
        if !pod.is_evictable(now) {
            return Ok(());
        }
        match all.matching(pod).as_slice() {
            [] => Ok(()),
            [one] if one.allowed > 0 || (one.frees_unready && !pod.ready) => Ok(()),
            [one] => Err(EvictionBlocked::Exhausted(one.name.clone())),
            several => Err(EvictionBlocked::Several(
                several.iter().map(|pdb| pdb.name.clone()).collect(),
            )),
        }
    }
}
