//! The requirements of a pod: its node selector and node affinity.

use k8s_openapi::api::core::v1::{Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

use super::{Operator, Requirement, Requirements, UnknownOperator};

/// Whether preferred node affinity counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preferences {
    /// The heaviest preferred term counts as if it were required.
    Respect,
    /// Only what is required counts.
    Ignore,
}

/// Why a pod's node selector or affinity cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodRequirementsError {
    /// An operator that the scheduler rejects.
    #[error("node affinity on {key:?}: {source}")]
    Operator {
        /// Label key of the expression.
        key: String,
        /// What is wrong with the operator.
        source: UnknownOperator,
    },
}

/// One expression of a node selector term.
///
/// # Errors
/// The operator is none that the API knows.
pub fn expression(from: &NodeSelectorRequirement) -> Result<Requirement, PodRequirementsError> {
    let operator: Operator =
        from.operator
            .parse()
            .map_err(|source| PodRequirementsError::Operator {
                key: from.key.clone(),
                source,
            })?;
    Ok(Requirement::new(
        from.key.as_str(),
        operator,
        from.values.iter().flatten().map(String::as_str),
    ))
}

fn add_term(to: &mut Requirements, term: &NodeSelectorTerm) -> Result<(), PodRequirementsError> {
    for from in term.match_expressions.iter().flatten() {
        to.add(expression(from)?);
    }
    Ok(())
}

/// Whether the pod prefers some nodes, so that its requirements differ between the two [`Preferences`].
#[must_use]
pub fn has_preferred_node_affinity(spec: &PodSpec) -> bool {
    let node_affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let preferred = node_affinity.and_then(|n| {
        n.preferred_during_scheduling_ignored_during_execution
            .as_ref()
    });
    preferred.is_some_and(|terms| !terms.is_empty())
}

impl Requirements {
    /// The requirements of a pod: node selector, first required node affinity term, and (on demand) the heaviest preferred one.
    ///
    /// Terms are alternatives; only the first counts here, relaxation drops it and tries the next. Match fields are ignored.
    ///
    /// # Errors
    /// An expression has an operator that the API does not know.
    pub fn from_pod(
        spec: &PodSpec,
        preferences: Preferences,
    ) -> Result<Self, PodRequirementsError> {
        let mut set = Self::from_labels(
            spec.node_selector
                .iter()
                .flatten()
                .map(|(key, value)| (key.as_str(), value.as_str())),
        );
        set.add_node_affinity(spec.affinity.as_ref(), preferences)?;
        Ok(set)
    }

    /// Adds what [`Self::from_pod`] takes from the node affinity.
    ///
    /// # Errors
    /// As for [`Self::from_pod`].
    pub fn add_node_affinity(
        &mut self,
        affinity: Option<&Affinity>,
        preferences: Preferences,
    ) -> Result<(), PodRequirementsError> {
        let Some(affinity) = affinity.and_then(|affinity| affinity.node_affinity.as_ref()) else {
            return Ok(());
        };
        let preferred = affinity
            .preferred_during_scheduling_ignored_during_execution
            .iter()
            .flatten();
        if preferences == Preferences::Respect {
            // The first of those with the highest weight: the API keeps the order of the user.
            let heaviest = preferred.fold(
                None,
                |best: Option<&k8s_openapi::api::core::v1::PreferredSchedulingTerm>, term| {
                    if best.is_some_and(|best| best.weight >= term.weight) {
                        best
                    } else {
                        Some(term)
                    }
                },
            );
            if let Some(term) = heaviest {
                add_term(self, &term.preference)?;
            }
        }
        let required = affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref();
        match required.and_then(|required| required.node_selector_terms.first()) {
            Some(term) => add_term(self, term),
            None => Ok(()),
        }
    }
}
