//! Where pods went.

use std::collections::BTreeSet;

use serde::Serialize;

use super::scenario::Feature;

/// A pod that the plan has a place for.
#[derive(Clone, Debug, Serialize)]
pub struct Landing {
    /// Namespace and name.
    pub pod: String,
    /// What it uses.
    pub features: BTreeSet<Feature>,
    /// Node that the plan has it on.
    pub planned: String,
    /// Node that it landed on.
    pub landed: Option<String>,
    /// What kube-scheduler said last, if it did not land.
    pub message: Option<String>,
}

/// A pod for which the plan has no place, and which the scheduler placed nevertheless when all others had landed.
#[derive(Clone, Debug, Serialize)]
pub struct Stray {
    /// Namespace and name.
    pub pod: String,
    /// Why the plan has no place for it.
    pub why: String,
    /// Node that it landed on.
    pub landed: String,
}

/// What became of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Number of the scenario.
    pub scenario: u64,
    /// Nodes that were there before.
    pub old_nodes: usize,
    /// Nodes that the plan made.
    pub new_nodes: usize,
    /// Pods with a place in the plan.
    pub landings: Vec<Landing>,
    /// Pods without one that got one all the same.
    pub strays: Vec<Stray>,
    /// Pods without a place in the plan.
    pub refused: usize,
    /// How long it took, in milliseconds.
    pub millis: u64,
}

impl Outcome {
    /// Planned pods that have no node.
    pub fn missing(&self) -> impl Iterator<Item = &Landing> {
        self.landings.iter().filter(|each| each.landed.is_none())
    }
}
