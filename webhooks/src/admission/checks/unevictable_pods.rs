//! Nodes that could never be drained.

use std::collections::{BTreeMap, BTreeSet};

use mortise_apis::k8s::PodDisruptionBudget;
use mortise_apis::names::NamespacedName;
use mortise_state::pods::Selector;
use mortise_state::snapshot::{Snapshot, StateNode};

use super::super::text::{count, first_of};
use super::{AdmissionResult, Check};

/// Pods that hold their nodes indefinitely.
#[derive(Default)]
pub(super) struct UnevictablePods {
    /// Budgets that can never allow an eviction and select pods here, and why they cannot.
    pub(super) by_budget: BTreeMap<NamespacedName, String>,
    /// Their pods.
    pub(super) pods: usize,
    /// Pods that are protected without an end.
    pub(super) protected: usize,
    /// Nodes with any of them.
    pub(super) nodes: usize,
}

impl UnevictablePods {
    /// Checks all pods of these nodes. Cost: one pass over them; those in namespaces of such budgets are matched.
    pub(super) fn from_nodes<'a>(
        snapshot: &Snapshot,
        nodes: impl Iterator<Item = &'a std::sync::Arc<StateNode>>,
    ) -> Self {
        let mut budgets: BTreeMap<&str, Vec<(&NamespacedName, Selector, String)>> = BTreeMap::new();
        for (name, pdb) in &*snapshot.pdbs {
            if let (Some(selector), Some(why)) = (&pdb.spec.selector, why_never_allows(pdb)) {
                budgets.entry(&name.namespace).or_default().push((
                    name,
                    Selector::new(selector),
                    why,
                ));
            }
        }
        let mut found = Self::default();
        for node in nodes {
            let mut here = false;
            for pod in node.reschedulable() {
                let selecting = budgets
                    .get(&*pod.key.namespace)
                    .into_iter()
                    .flatten()
                    .find(|(_, selector, _)| selector.matches_labels(&pod.labels));
                if let Some((name, _, why)) = selecting {
                    found.by_budget.insert((*name).clone(), why.clone());
                    found.pods += 1;
                    here = true;
                }
                if pod.do_not_disrupt.as_deref() == Some("true") {
                    found.protected += 1;
                    here = true;
                }
            }
            found.nodes += usize::from(here);
        }
        found
    }

    /// The first budget and its reason.
    fn budgets_text(&self) -> String {
        let names: BTreeSet<String> = self
            .by_budget
            .iter()
            .map(|(name, why)| format!("{name} ({why})"))
            .collect();
        first_of(names, 1)
    }

    /// Warns of what keeps a drain from ending.
    pub(super) fn warn(&self, drain: &str, field: &str, answer: &mut AdmissionResult) {
        let problems = [
            (self.pods > 0).then(|| {
                format!(
                    "{drain} never completes: {} under PDB {}",
                    count(self.pods, "pod"),
                    self.budgets_text()
                )
            }),
            (self.protected > 0).then(|| {
                format!(
                    "{drain} waits for {} with do-not-disrupt, without an end",
                    count(self.protected, "pod")
                )
            }),
        ];
        for problem in problems.into_iter().flatten() {
            answer.warn(
                Check::BlockedDrain,
                field,
                problem,
                "set terminationGracePeriod",
            );
        }
    }
}

/// Why a budget can never allow an eviction, whatever its pods do; `None` when it can.
#[must_use]
pub fn why_never_allows(pdb: &PodDisruptionBudget) -> Option<String> {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::{Int, String as Text};
    let percent = |text: &str| text.strip_suffix('%')?.parse::<i64>().ok();
    let expected = i64::from(pdb.status.expected_pods);
    match (&pdb.spec.max_unavailable, &pdb.spec.min_available) {
        (Some(Int(0)), _) => Some("maxUnavailable 0".to_owned()),
        (Some(Text(text)), _) if percent(text) == Some(0) => Some("maxUnavailable 0%".to_owned()),
        (Some(_), _) => None,
        (None, Some(Text(text))) => {
            let percent = percent(text)?;
            // Rounded up, as the budget's controller does.
            let least = (percent * expected + 99) / 100;
            (percent >= 100 || (expected > 0 && least >= expected)).then(|| {
                format!(
                    "minAvailable {text} of {}",
                    count(to_usize(expected), "pod")
                )
            })
        }
        (None, Some(Int(least))) => (expected > 0 && i64::from(*least) >= expected).then(|| {
            format!(
                "minAvailable {least} of {}",
                count(to_usize(expected), "pod")
            )
        }),
        (None, None) => None,
    }
}

fn to_usize(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
