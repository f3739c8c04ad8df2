//! PodDisruptionBudgets: which of them select a pod, and whether they allow its eviction now.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;

use mortise_apis::k8s::PodDisruptionBudget;
use mortise_apis::names::NamespacedName;
use mortise_state::pods::Selector;
use mortise_state::snapshot::{Pod, PodLabels, Snapshot};

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
    /// What is known of labels that were asked for before, by the address of the labels.
    known: RefCell<HashMap<usize, LabelMatch>>,
}

/// Positions of the budgets that select pods with certain labels.
struct LabelMatch {
    positions: Rc<[usize]>,
    /// Keeps the address of the labels from being used again.
    _labels: PodLabels,
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

    /// Positions of the budgets that select the pod, by name. Pods of one workload share their labels, so that most are found
    /// by their address.
    fn matching(&self, pod: &Pod) -> Rc<[usize]> {
        let address = Arc::as_ptr(&pod.labels).addr();
        let mut known = self.known.borrow_mut();
        let known = known.entry(address).or_insert_with(|| LabelMatch {
            positions: self.selecting(&pod.labels),
            _labels: Arc::clone(&pod.labels),
        });
        Rc::clone(&known.positions)
    }

    fn selecting(&self, labels: &PodLabels) -> Rc<[usize]> {
        let of_labels = labels.iter();
        let of_labels = of_labels.filter_map(|label| self.by_label.get(label));
        let mut positions: Vec<usize> = of_labels.flatten().copied().collect();
        positions.extend(&self.others);
        positions.sort_unstable();
        let selects = |at: &usize| {
            let pdb = self.all.get(*at);
            pdb.is_some_and(|pdb| pdb.selector.matches_labels(labels))
        };
        positions.into_iter().filter(selects).collect()
    }
}

struct Pdb<'a> {
    name: &'a NamespacedName,
    object: &'a PodDisruptionBudget,
    selector: Selector,
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
                object: pdb,
                selector: Selector::new(selector),
                frees_unready: policy == Some("AlwaysAllow"),
            });
        }
        Self { by_namespace }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_namespace.is_empty()
    }

    /// The budgets that select the pod, by name. Cost: as that of [`Self::check`].
    pub fn of_pod(&self, pod: &Pod) -> Vec<(&'a NamespacedName, &'a PodDisruptionBudget)> {
        let Some(all) = self.by_namespace.get(&*pod.key.namespace) else {
            return Vec::new();
        };
        let positions = all.matching(pod);
        let budgets = positions.iter().filter_map(|at| all.all.get(*at));
        budgets.map(|pdb| (pdb.name, pdb.object)).collect()
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
        let positions = all.matching(pod);
        let budget = |at: &usize| all.all.get(*at);
        match &*positions {
            [] => Ok(()),
            [one] => match budget(one) {
                Some(one) if !one.allows(pod) => Err(EvictionBlocked::Exhausted(one.name.clone())),
                _ => Ok(()),
            },
            several => Err(EvictionBlocked::Several(
                several
                    .iter()
                    .filter_map(budget)
                    .map(|pdb| pdb.name.clone())
                    .collect(),
            )),
        }
    }
}

impl Pdb<'_> {
    fn allows(&self, pod: &Pod) -> bool {
        self.object.status.disruptions_allowed > 0 || (self.frees_unready && !pod.ready)
    }
}
