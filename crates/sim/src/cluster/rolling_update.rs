//! The rolling update of a Deployment, with its defaults: a quarter more pods at most, a quarter fewer ready ones at most.

use std::borrow::Cow;

use mortise_apis::names::PodKey;
use serde_json::{Value, json};

use super::pod_index::PodFacts;

/// Label by which the pods of a template are told from those of earlier ones.
const TEMPLATE: &str = "pod-template-hash";

/// One round of the update.
pub(super) struct RollingUpdate {
    want: usize,
    /// Pods of the new template.
    new: usize,
    /// Pods that run, of any template.
    ready: usize,
    /// Pods of earlier templates; second: it runs.
    old: Vec<(PodKey, bool)>,
}

/// A template with the label of its revision; `None`: it was never replaced.
pub(super) fn of_revision(template: &Value, revision: Option<u64>) -> Cow<'_, Value> {
    let Some(revision) = revision else {
        return Cow::Borrowed(template);
    };
    let mut labelled = template.clone();
    labelled["metadata"]["labels"][TEMPLATE] = json!(revision.to_string());
    Cow::Owned(labelled)
}

/// The revision of the template that a pod was made from.
pub(super) fn revision_of(pod: &Value) -> Option<u64> {
    let label = pod["metadata"]["labels"][TEMPLATE].as_str();
    label.and_then(|text| text.parse().ok())
}

/// Whether a pod is of the template with this revision.
pub(super) fn is_of_revision(pod: &PodFacts, revision: Option<u64>) -> bool {
    revision.is_none_or(|revision| pod.revision == Some(revision))
}

impl RollingUpdate {
    /// The state of a workload's pods that are not being deleted.
    pub(super) fn new<'p>(
        want: usize,
        revision: u64,
        pods: impl Iterator<Item = (&'p PodKey, &'p PodFacts)>,
    ) -> Self {
        let mut round = Self {
            want,
            new: 0,
            ready: 0,
            old: Vec::new(),
        };
        for (key, pod) in pods {
            round.ready += usize::from(pod.is_healthy);
            if pod.revision == Some(revision) {
                round.new += 1;
            } else {
                round.old.push((key.clone(), pod.is_healthy));
            }
        }
        round
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.old.is_empty()
    }

    /// How many pods of the new template are created now, at most `limit`.
    pub(super) fn creates(&self, limit: usize) -> usize {
        let most = self.want + self.want.div_ceil(4);
        let room = most.saturating_sub(self.new + self.old.len());
        room.min(self.want.saturating_sub(self.new)).min(limit)
    }

    /// Pods of earlier templates that are deleted now, at most `limit`: first those that do not run, which costs no ready one.
    pub(super) fn deletes(&self, limit: usize) -> Vec<PodKey> {
        let least = self.want - self.want / 4;
        let spare = self.ready.saturating_sub(least);
        let waiting = self.old.iter().filter(|(_, runs)| !runs);
        let running = self.old.iter().filter(|(_, runs)| *runs).take(spare);
        let all = waiting.chain(running).take(limit);
        all.map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(want: usize, new: usize, ready: usize, old: &[bool]) -> RollingUpdate {
        let old = old.iter().enumerate();
        let named = old.map(|(at, runs)| (PodKey::new("default", format!("p-{at}")), *runs));
        RollingUpdate {
            want,
            new,
            ready,
            old: named.collect(),
        }
    }

    #[test]
    fn a_quarter_more_and_a_quarter_fewer() {
        let begin = round(8, 0, 8, &[true; 8]);
        assert_eq!((begin.creates(20), begin.deletes(20).len()), (2, 2));
        let waiting = round(8, 2, 6, &[true; 6]);
        assert_eq!((waiting.creates(20), waiting.deletes(20).len()), (2, 0));
        let going_on = round(8, 4, 8, &[true; 6]);
        assert_eq!((going_on.creates(20), going_on.deletes(20).len()), (0, 2));
        let end = round(8, 8, 9, &[true]);
        assert_eq!((end.creates(20), end.deletes(20).len()), (0, 1));
        assert!(round(8, 8, 8, &[]).is_complete());
    }

    #[test]
    fn one_replica_gets_its_successor_first() {
        let begin = round(1, 0, 1, &[true]);
        assert_eq!((begin.creates(20), begin.deletes(20).len()), (1, 0));
        let ready = round(1, 1, 2, &[true]);
        assert_eq!((ready.creates(20), ready.deletes(20).len()), (0, 1));
    }

    #[test]
    fn what_does_not_run_is_deleted_at_once() {
        let stuck = round(4, 0, 1, &[false, true, false, false]);
        let names = stuck.deletes(20);
        assert_eq!(names.len(), 3);
        assert!(names.iter().all(|key| &*key.name != "p-1"), "{names:?}");
    }
}
