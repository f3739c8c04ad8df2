//! What evaluations remember of nodes from one to the next, so that a node that did not change is not read again, and what
//! was refused stays refused.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::candidate::{Candidate, CandidateBlocker, DisruptionClass};
use super::disruption_view::DisruptionView;
use mortise_apis::k8s::PodDisruptionBudget;
use mortise_apis::names::NamespacedName;
use mortise_state::snapshot::{NodeKey, Rollouts, StateNode};

/// Nodes as the last evaluation found them.
///
/// # Cost
/// One comparison of pointers per node and evaluation; everything else only for nodes that changed.
#[derive(Debug, Default)]
pub struct CandidateCache {
    nodes: HashMap<NodeKey, KnownNode>,
    evaluation: u64,
    /// The PodDisruptionBudgets of the last evaluation.
    pdbs: Arc<BTreeMap<NamespacedName, Arc<PodDisruptionBudget>>>,
    /// Its Deployments, if pods are handed over.
    rollouts: Rollouts,
}

#[derive(Debug)]
struct KnownNode {
    node: Arc<StateNode>,
    /// It accepts relocated pods.
    open: bool,
    candidate: Option<Candidate>,
    /// Its pods do not block it, with these PodDisruptionBudgets and at any time.
    pods_allow: bool,
    seen: u64,
}

impl CandidateCache {
    /// Compares the nodes of the view with those of the last evaluation. Returns whether pods that fitted nowhere may fit
    /// now: a node is new or accepts pods again, its free capacity grew in any resource, or its labels or taints changed.
    pub fn refresh(&mut self, view: &DisruptionView<'_>) -> bool {
        self.evaluation += 1;
        let evaluation = self.evaluation;
        let mut grew = false;
        let (pdbs, rollouts) = (&view.snapshot().pdbs, &view.snapshot().rollouts);
        let are_pdbs_same = Arc::ptr_eq(&self.pdbs, pdbs)
            && match (&self.rollouts, rollouts) {
                (Some(before), Some(now)) => Arc::ptr_eq(before, now),
                (before, now) => before.is_none() && now.is_none(),
            };
        self.pdbs = Arc::clone(pdbs);
        self.rollouts.clone_from(rollouts);
        let all = view.snapshot().nodes.iter();
        for (_, node) in all.filter(|(key, _)| !view.is_taken(key)) {
            let open = view.accepts_relocated(node);
            let Some(known) = self.nodes.get_mut(&node.key) else {
                grew |= open;
                let known = KnownNode {
                    node: Arc::clone(node),
                    open,
                    candidate: None,
                    pods_allow: false,
                    seen: evaluation,
                };
                self.nodes.insert(node.key.clone(), known);
                continue;
            };
            grew |= open && !known.open;
            known.seen = evaluation;
            known.open = open;
            known.pods_allow &= are_pdbs_same;
            if !Arc::ptr_eq(&known.node, node) {
                grew |= open && has_more_room(node, &known.node);
                known.node = Arc::clone(node);
                known.candidate = None;
                known.pods_allow = false;
            }
        }
        self.nodes.retain(|_, known| known.seen == evaluation);
        grew
    }

    /// The candidate of a node of the view that was refreshed from, as [`Candidate::new`].
    ///
    /// # Errors
    /// Why it may not be disrupted.
    pub fn candidate(
        &mut self,
        node: &Arc<StateNode>,
        view: &DisruptionView<'_>,
        class: DisruptionClass,
    ) -> Result<Candidate, CandidateBlocker> {
        let known = self.nodes.get_mut(&node.key);
        let Some(known) = known else {
            return Candidate::new(node, view, class);
        };
        let candidate = match &known.candidate {
            Some(before) => before.renewed(view, class, known.pods_allow)?,
            None => {
                let new = Candidate::new(node, view, class)?;
                known.candidate = Some(new.clone());
                new
            }
        };
        known.pods_allow |= class == DisruptionClass::Graceful && !candidate.has_annotated_pods;
        Ok(candidate)
    }

    /// Whether the node is the one of the last evaluation.
    pub fn is_unchanged(&self, node: &Arc<StateNode>) -> bool {
        let known = self.nodes.get(&node.key);
        known.is_some_and(|known| Arc::ptr_eq(&known.node, node))
    }
}

fn has_more_room(now: &StateNode, before: &StateNode) -> bool {
    now.labels != before.labels
        || now.taints != before.taints
        || !now.free().fits_in(&before.free())
}
