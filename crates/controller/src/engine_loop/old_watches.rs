//! Which watches are old: logged on change, and kept for metrics and the debug pages.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::freshness::{Freshness, HOLDING};
use mortise_state::watch_age::{Age, OldWatch};

/// The watches that were old at the last update, by kind.
#[derive(Debug, Default)]
pub(super) struct OldWatches {
    known: BTreeMap<String, Age>,
}

impl OldWatches {
    /// Updates the set, and logs which watches became old or current.
    pub(super) fn update(&mut self, freshness: &Freshness, now: Timestamp) {
        let old = freshness.old(now);
        for each in &old {
            if self.known.insert(each.kind.clone(), each.how) != Some(each.how) {
                let holding = suspended_deciders(freshness, now);
                tracing::warn!(kind = each.kind, how = each.how.label(), since = %each.since, holding, "watch is stale, irreversible actions of dependent deciders are suspended");
            }
        }
        self.known.retain(|kind, _| {
            let is_old = old.iter().any(|each: &OldWatch| each.kind == *kind);
            if !is_old {
                tracing::info!(kind, "watch is current");
            }
            is_old
        });
    }
}

/// The deciders with suspended irreversible actions, as one text.
fn suspended_deciders(freshness: &Freshness, now: Timestamp) -> String {
    let all = HOLDING.into_iter();
    let holding = all.filter(|decider: &DeciderId| freshness.holds(*decider, now).is_some());
    let labels: Vec<&str> = holding.map(DeciderId::label).collect();
    labels.join(", ")
}
