//! The solve that removes nodes, as simulations of disruption begin it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::candidate::Candidate;
use super::disruption_view::DisruptionView;
use crate::scheduling::SolveOptions;
use mortise_state::snapshot::{NodeKey, Pod};

/// What every simulation of a removal has: the pods of the nodes are placed elsewhere, but not on closed nodes.
pub(super) fn removal(
    candidates: &[&Candidate],
    closed: &BTreeSet<NodeKey>,
    room: &[Arc<Pod>],
    view: &DisruptionView<'_>,
) -> SolveOptions {
    let settings = view.context.settings;
    SolveOptions {
        without: candidates.iter().map(|each| each.key().clone()).collect(),
        closed: closed.clone(),
        pending: true,
        buffers: false,
        extra: room.to_vec(),
        respect_preferences: settings.respect_preferences,
        ignore_devices: settings.ignore_devices,
        gangs: settings.gangs.clone(),
        spread_defaults: settings.spread_defaults.clone(),
        templates: Some(Arc::clone(view.templates())),
        seed: 0, // the same question must get the same answer when it is asked again
        ..SolveOptions::default()
    }
}
