//! What a pass has decided, pod by pod.

use std::collections::BTreeSet;

use crate::reason::NominationFailure;
use mortise_apis::names::Uid;

/// Where a pod is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacementTarget {
    /// An existing node, by index.
    Host(usize),
    /// An in-flight NodeClaim, by index.
    Claim(usize),
}

/// The decisions of a pass. Pods are given by their index in the pass.
#[derive(Debug)]
pub(super) struct Placements {
    /// By pod: its target.
    targets: Vec<Option<PlacementTarget>>,
    /// By pod: the relaxation step at which it was placed.
    steps: Vec<usize>,
    /// Nominated pods on nodes of which this pass knows neither pool nor instance types.
    pub(super) entrusted: BTreeSet<usize>,
    /// Nominated pods that stay where they are nominated.
    pub(super) kept: BTreeSet<usize>,
    /// Pods whose nomination is no longer valid.
    pub(super) broken: Vec<(Uid, NominationFailure)>,
    /// Number of placements so far.
    progress: usize,
}

impl Placements {
    /// No decisions yet, for this number of pods.
    pub(super) fn new(pods: usize) -> Self {
        Self {
            targets: vec![None; pods],
            steps: vec![0; pods],
            entrusted: BTreeSet::new(),
            kept: BTreeSet::new(),
            broken: Vec::new(),
            progress: 0,
        }
    }

    /// Places a pod at a relaxation step.
    pub(super) fn place(&mut self, pod: usize, step: usize, target: PlacementTarget) {
        self.targets[pod] = Some(target);
        self.steps[pod] = step;
        self.progress += 1;
    }

    /// Moves a placed pod to another in-flight NodeClaim; its relaxation step stays.
    pub(super) fn move_to_claim(&mut self, pod: usize, claim: usize) {
        self.targets[pod] = Some(PlacementTarget::Claim(claim));
    }

    /// The targets, in the order of the pods.
    pub(super) fn targets(&self) -> &[Option<PlacementTarget>] {
        &self.targets
    }

    /// The relaxation step at which a pod was placed.
    pub(super) fn step(&self, pod: usize) -> usize {
        self.steps[pod]
    }

    /// Number of placements so far.
    pub(super) const fn progress(&self) -> usize {
        self.progress
    }

    /// Whether a pod still needs a placement.
    pub(super) fn is_open(&self, pod: usize) -> bool {
        self.targets[pod].is_none() && !self.entrusted.contains(&pod)
    }
}
