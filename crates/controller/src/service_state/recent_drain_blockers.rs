//! Drain blockers from recent decisions, for metrics and `explain`.
//!
//! Objects show most blockers, on every replica alike. Responses to evictions, to other writes and of the cloud are known only
//! to the draining process: it records them repeatedly while they last. Where no object shows a blocker, these records are the
//! only source.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::names::{ClaimName, NodeName, ObjectRef};
use mortise_apis::values::since;
use mortise_planning::drain_blocker::DrainBlocker;
use mortise_planning::reason::Reason;

use super::decision_log::DecisionLog;

/// A lasting blocker is recorded every two minutes, and checked every 15 s. Older records are outdated.
const LASTS_MS: i64 = 150_000;

/// Recently recorded blockers that no object shows, by Node or NodeClaim. Newest first, each once.
#[derive(Debug)]
pub(crate) struct RecentDrainBlockers(BTreeMap<ObjectRef, Vec<DrainBlocker>>);

impl RecentDrainBlockers {
    /// Blockers of the node with these names.
    pub(crate) fn for_node(
        &self,
        node: Option<NodeName>,
        claim: Option<ClaimName>,
    ) -> &[DrainBlocker] {
        let names = [node.map(ObjectRef::Node), claim.map(ObjectRef::Claim)];
        let mut recent = names.iter().flatten().filter_map(|name| self.0.get(name));
        recent.next().map_or(&[], Vec::as_slice)
    }
}

fn unobservable_blocker(reason: &Reason) -> Option<&DrainBlocker> {
    match reason {
        Reason::DrainBlocked(blocker) if !blocker.kind.shows_in_objects() => Some(blocker),
        _ => None,
    }
}

/// Collects them from the records.
///
/// # Cost
/// One pass over the records in memory.
pub(crate) fn recent_drain_blockers(records: &DecisionLog, now: Timestamp) -> RecentDrainBlockers {
    let of_drains = records.newest(usize::MAX, |record| {
        let has_unobservable = |reason| unobservable_blocker(reason).is_some();
        since(now, record.at) <= LASTS_MS && record.reasons.iter().any(has_unobservable)
    });
    let mut all: BTreeMap<ObjectRef, Vec<DrainBlocker>> = BTreeMap::new();
    for each in of_drains {
        let known = all.entry(each.record.subject.clone()).or_default();
        for blocker in each.record.reasons.iter().filter_map(unobservable_blocker) {
            let is_known =
                |other: &DrainBlocker| (other.kind, &other.what) == (blocker.kind, &blocker.what);
            if !known.iter().any(is_known) {
                known.push(blocker.clone());
            }
        }
    }
    RecentDrainBlockers(all)
}

#[cfg(test)]
mod tests {
    use mortise_apis::values::after;
    use mortise_engine::decider_id::DeciderId;
    use mortise_engine::record::{Record, Verdict, Visibility};
    use mortise_planning::drain_blocker::DrainBlockerKind;

    use super::*;

    fn record(at: Timestamp, reason: Reason) -> Record {
        Record {
            at,
            decider: DeciderId::Termination,
            subject: ObjectRef::Node("n".into()),
            verdict: Verdict::Blocked,
            reasons: vec![reason],
            visibility: Visibility::DecisionLog,
            related: Vec::new(),
            generation: 1,
        }
    }

    fn blocker(kind: DrainBlockerKind, pod: &str, since: Timestamp) -> Reason {
        Reason::DrainBlocked(DrainBlocker {
            kind,
            what: format!("pod default/{pod}"),
            owner: None,
            since,
            detail: "its eviction is refused".to_owned(),
            unblocks: "change the policy".to_owned(),
        })
    }

    #[test]
    fn recent_blockers_count_once_and_old_ones_do_not() {
        let start = Timestamp::UNIX_EPOCH;
        let (before, now) = (after(start, 1_000), after(start, LASTS_MS + 1_500));
        let other = Reason::LaunchesResumed;
        let denied = |pod, since| blocker(DrainBlockerKind::EvictionDenied, pod, since);
        let shown = blocker(DrainBlockerKind::InGracePeriod, "d", start);
        let records = DecisionLog::default();
        records.extend([
            record(before, denied("a", start)),
            record(after(before, 1_000), denied("b", start)),
            record(after(before, 2_000), denied("c", start)),
            record(now, denied("b", start)),
            record(now, other),
            record(now, shown),
        ]);
        let recent = recent_drain_blockers(&records, now);
        assert_eq!(recent.0.len(), 1);
        let of_node = recent.for_node(Some("n".into()), None);
        let what: Vec<&str> = of_node.iter().map(|each| each.what.as_str()).collect();
        assert_eq!(what, ["pod default/b", "pod default/c"]);
        assert_eq!(of_node[0].kind, DrainBlockerKind::EvictionDenied);
    }
}
