//! Which watches are old: told in the log when that changes, and kept for metrics and the debug pages.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::freshness::{Freshness, HOLDING};
use mortise_state::watch_age::{Age, OldWatch};

/// The watches that were old at the last look, by kind.
#[derive(Debug, Default)]
pub(super) struct OldWatches {
    known: BTreeMap<String, Age>,
}

impl OldWatches {
    /// Looks again, and logs what became old and what did not stay so.
    pub(super) fn look(&mut self, freshness: &Freshness, now: Timestamp) {
        let old = freshness.old(now);
        for each in &old {
            if self.known.insert(each.kind.clone(), each.how) != Some(each.how) {
                let holding = holding(freshness, now);
                tracing::warn!(kind = each.kind, how = each.how.label(), since = %each.since, holding, "watch is stale, irreversible actions of dependent deciders are suspended");
            }
        }
        self.known.retain(|kind, _| {
            let stays = old.iter().any(|each: &OldWatch| each.kind == *kind);
            if !stays {
                tracing::info!(kind, "watch is current");
            }
            stays
        });
    }
}

/// The deciders that hold, as one text.
fn holding(freshness: &Freshness, now: Timestamp) -> String {
    let all = HOLDING.into_iter();
    let holding = all.filter(|decider: &DeciderId| freshness.holds(*decider, now).is_some());
    let labels: Vec<&str> = holding.map(DeciderId::label).collect();
    labels.join(", ")
}
