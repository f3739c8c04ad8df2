//! What is in the way of machines that go, for metrics and `explain`.
//!
//! Objects tell most of it, and every replica the same. Answers to evictions, to other writes and of the cloud are known only
//! to the process that drains: it tells of them in records, again and again while they last, and where objects tell nothing
//! these are what is in the way.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::names::{ClaimName, NodeName, ObjectRef};
use mortise_apis::values::since;
use mortise_planning::drain_blocker::DrainBlocker;
use mortise_planning::reason::Reason;

use super::decision_log::DecisionLog;

/// What lasts is told every two minutes, and looked at every 15 s. What was told longer ago is over.
const LASTS_MS: i64 = 150_000;

/// What was lately told to be in the way and no object shows, by Node or claim. The newest first, each thing once.
#[derive(Debug)]
pub(crate) struct RecentDrainBlockers(BTreeMap<ObjectRef, Vec<DrainBlocker>>);

impl RecentDrainBlockers {
    /// What is in the way of the machine with these names.
    pub(crate) fn of(&self, node: Option<NodeName>, claim: Option<ClaimName>) -> &[DrainBlocker] {
        let names = [node.map(ObjectRef::Node), claim.map(ObjectRef::Claim)];
        let mut told = names.iter().flatten().filter_map(|name| self.0.get(name));
        told.next().map_or(&[], Vec::as_slice)
    }
}

fn hidden(reason: &Reason) -> Option<&DrainBlocker> {
    match reason {
        Reason::DrainBlocked(obstacle) if !obstacle.kind.shows_in_objects() => Some(obstacle),
        _ => None,
    }
}

/// Reads it from the records.
///
/// # Cost
/// One pass over those in memory.
pub(crate) fn told_lately(records: &DecisionLog, now: Timestamp) -> RecentDrainBlockers {
    let of_drains = records.newest(usize::MAX, |record| {
        let is_told = |reason| hidden(reason).is_some();
        since(now, record.at) <= LASTS_MS && record.reasons.iter().any(is_told)
    });
    let mut all: BTreeMap<ObjectRef, Vec<DrainBlocker>> = BTreeMap::new();
    for each in of_drains {
        let known = all.entry(each.record.subject.clone()).or_default();
        for obstacle in each.record.reasons.iter().filter_map(hidden) {
            let is_known =
                |other: &DrainBlocker| (other.kind, &other.what) == (obstacle.kind, &obstacle.what);
            if !known.iter().any(is_known) {
                known.push(obstacle.clone());
            }
        }
    }
    RecentDrainBlockers(all)
}

#[cfg(test)]
mod tests {
    use mortise_apis::values::after;
    use mortise_engine::decider_id::DeciderId;
    use mortise_engine::record::{Record, Verdict};
    use mortise_planning::drain_blocker::DrainBlockerKind;

    use super::*;

    fn record(at: Timestamp, reason: Reason) -> Record {
        Record {
            at,
            decider: DeciderId::Termination,
            subject: ObjectRef::Node("n".into()),
            verdict: Verdict::Blocked,
            reasons: vec![reason],
            generation: 1,
        }
    }

    fn in_the_way(kind: DrainBlockerKind, pod: &str, since: Timestamp) -> Reason {
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
    fn what_was_told_lately_counts_once_and_what_was_told_before_does_not() {
        let start = Timestamp::UNIX_EPOCH;
        let (before, now) = (after(start, 1_000), after(start, LASTS_MS + 1_500));
        let note = Reason::Note {
            text: "something else".to_owned(),
        };
        let denied = |pod, since| in_the_way(DrainBlockerKind::EvictionDenied, pod, since);
        let shown = in_the_way(DrainBlockerKind::InGracePeriod, "d", start);
        let records = DecisionLog::default();
        records.extend([
            record(before, denied("a", start)),
            record(after(before, 1_000), denied("b", start)),
            record(after(before, 2_000), denied("c", start)),
            record(now, denied("b", start)),
            record(now, note),
            record(now, shown),
        ]);
        let told = told_lately(&records, now);
        assert_eq!(told.0.len(), 1);
        let of_node = told.of(Some("n".into()), None);
        let what: Vec<&str> = of_node.iter().map(|each| each.what.as_str()).collect();
        assert_eq!(what, ["pod default/b", "pod default/c"]);
        assert_eq!(of_node[0].kind, DrainBlockerKind::EvictionDenied);
    }
}
