//! Relaxes preferences one at a time.
//!
//! # Rule
//! All preferences are required at first. While the pod does not fit, one item is dropped, in this order, each kind until
//! nothing of it is left: an alternative of the required node affinity (only the first one left counts), the heaviest
//! preferred pod affinity, the heaviest preferred pod anti-affinity, the heaviest preferred node affinity, a spread
//! constraint with `ScheduleAnyway`, and finally the avoidance of nodes tainted `PreferNoSchedule`.
//!
//! # Source
//! Karpenter core 1.14; checked against recorded passes.

use mortise_apis::requirements::Requirements;
use mortise_state::pods::{CompiledAffinityTerm, SpreadConstraint, WeightedTerm};
use mortise_state::snapshot::PodClass;

/// The constraints of a class that count at one relaxation level.
#[derive(Clone, Debug)]
pub(super) struct RelaxationLevel<'a> {
    /// Alternatives of node selector and required node affinity that are left; the first one counts.
    pub(super) strict: &'a [Requirements],
    /// Node preferences that are left, heaviest first; the first one counts.
    pub(super) nodes: Vec<&'a Requirements>,
    /// Affinity terms that count.
    pub(super) near: Vec<&'a CompiledAffinityTerm>,
    /// Anti-affinity terms that count.
    pub(super) apart: Vec<&'a CompiledAffinityTerm>,
    /// Spread constraints that count.
    pub(super) spread: Vec<&'a SpreadConstraint>,
    /// Taints `PreferNoSchedule` are ignored.
    pub(super) tolerates_prefer: bool,
    near_required: usize,
    apart_required: usize,
}

/// Whether preferences and soft taints count.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreferencePolicy {
    /// Preferences count until they cannot be satisfied.
    pub(super) respect_preferences: bool,
    /// Whether some NodePool has a taint `PreferNoSchedule`.
    pub(super) soft_taints: bool,
}

impl<'a> RelaxationLevel<'a> {
    /// All relaxation levels of a class, from all preferences to none.
    pub(super) fn all(class: &'a PodClass, manner: PreferencePolicy) -> Vec<Self> {
        let mut stages = vec![Self::first(class, manner)];
        while let Some(next) = stages.last().and_then(|last| last.next(manner)) {
            stages.push(next);
        }
        stages
    }

    fn first(class: &'a PodClass, manner: PreferencePolicy) -> Self {
        let respect = manner.respect_preferences;
        let terms = |required: &'a [CompiledAffinityTerm], preferences: &'a [WeightedTerm]| {
            let mut preferences: Vec<&WeightedTerm> =
                preferences.iter().filter(|_| respect).collect();
            preferences.sort_by_key(|preference| -preference.weight);
            required
                .iter()
                .chain(preferences.into_iter().map(|preference| &preference.term))
                .collect::<Vec<_>>()
        };
        let mut nodes: Vec<_> = class.preferred_node.iter().filter(|_| respect).collect();
        nodes.sort_by_key(|(weight, _)| -weight);
        Self {
            strict: &class.strict,
            nodes: nodes.into_iter().map(|(_, asked)| asked).collect(),
            near: terms(&class.affinity.required, &class.affinity.preferred),
            apart: terms(
                &class.anti_affinity.required,
                &class.anti_affinity.preferred,
            ),
            spread: class
                .spread
                .iter()
                .filter(|each| each.hard || respect)
                .collect(),
            tolerates_prefer: false,
            near_required: class.affinity.required.len(),
            apart_required: class.anti_affinity.required.len(),
        }
    }

    fn next(&self, manner: PreferencePolicy) -> Option<Self> {
        let mut next = self.clone();
        if let [_, rest @ ..] = self.strict
            && !rest.is_empty()
        {
            next.strict = rest;
        } else if next.near.len() > next.near_required {
            next.near.remove(next.near_required);
        } else if next.apart.len() > next.apart_required {
            next.apart.remove(next.apart_required);
        } else if !next.nodes.is_empty() {
            next.nodes.remove(0);
        } else if let Some(preference) = next.spread.iter().position(|each| !each.hard) {
            next.spread.remove(preference);
        } else if manner.soft_taints && !self.tolerates_prefer {
            next.tolerates_prefer = true;
        } else {
            return None;
        }
        Some(next)
    }

    /// The requirements on node labels: one alternative, and the heaviest preference that is left.
    pub(super) fn requirements(&self) -> Requirements {
        let mut all = self.strict_requirements().clone();
        if let Some(preference) = self.nodes.first() {
            all.require_all(preference);
        }
        all
    }

    /// The same without preferences: the domains that the pod can use at all.
    pub(super) fn strict_requirements(&self) -> &'a Requirements {
        const NOTHING: &Requirements = &Requirements::new();
        self.strict.first().unwrap_or(NOTHING)
    }
}
