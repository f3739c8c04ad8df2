//! What pods' `karpenter.sh/do-not-disrupt` means, told on the pods: a duration that runs, one that has run out, and
//! words that protect no pod.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::tracking::event_throttle::EventThrottle;
use crate::tracking::timer_queue::TimerQueue;
use mortise_apis::names::{ObjectRef, PodKey, Uid};
use mortise_apis::values::after;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::record::Verdict;
use mortise_planning::reason::Reason;
use mortise_state::snapshot::{Pod, Snapshot};

/// Most pods that one step tells of. Events leave at 25 a second: a process that starts among thousands of protected
/// pods must not displace what happens meanwhile.
const MOST: usize = 50;
/// The others have their turn after this.
const TURN_MS: i64 = 5_000;

/// Pods whose protection runs.
#[derive(Debug)]
pub(super) struct DoNotDisruptTimers {
    agenda: TimerQueue<PodKey>,
    /// Whose protection was told to run, and until when.
    running: BTreeMap<PodKey, (Uid, Timestamp)>,
}

impl DoNotDisruptTimers {
    /// No timers.
    pub(super) const fn new() -> Self {
        Self {
            agenda: TimerQueue::new(),
            running: BTreeMap::new(),
        }
    }

    /// Looks at pods that changed or whose time has come. Returns when to look again although nothing changes.
    pub(super) fn look(
        &mut self,
        input: &StepInput<'_>,
        told: &mut EventThrottle,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let mut todo: BTreeSet<PodKey> = self.agenda.due(input.now).into_iter().collect();
        if input.changes.everything {
            let pods = input.snapshot.pods.iter();
            let marked = pods.filter(|(_, pod)| pod.do_not_disrupt.is_some());
            todo.extend(marked.map(|(key, _)| key.clone()));
        }
        todo.extend(input.changes.pods.iter().cloned());
        let mut left = MOST;
        for key in todo {
            if left == 0 {
                self.agenda.sooner(&key, after(input.now, TURN_MS));
                continue;
            }
            let before = step.records.len();
            let again = self.tell(input, &key, told, step);
            self.agenda.set(&key, again);
            left -= usize::from(step.records.len() > before);
        }
        self.agenda.next()
    }

    fn tell(
        &mut self,
        input: &StepInput<'_>,
        key: &PodKey,
        told: &mut EventThrottle,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let pods = &input.snapshot.pods;
        let pod = pods.get(key).filter(|pod| concerns(input.snapshot, pod));
        let Some(pod) = pod else {
            self.running.remove(key);
            return None;
        };
        let (target, now) = (ObjectRef::Pod(key.clone()), input.now);
        let value = pod.do_not_disrupt.as_deref().unwrap_or_default();
        if pod.has_invalid_protection() {
            self.running.remove(key);
            if told.is_news(&target, "protection", value, now, i64::MAX) {
                let value = value.to_owned();
                observe(input, target, Reason::InvalidProtection { value }, step);
            }
            return None;
        }
        let Some(until) = pod.protected_until() else {
            self.running.remove(key);
            return None;
        };
        let known = self.running.get(key).filter(|(uid, _)| *uid == pod.uid);
        if until > now {
            if known.is_none_or(|(_, at)| *at != until) {
                observe(input, target, Reason::ProtectedUntil { until }, step);
                self.running.insert(key.clone(), (pod.uid.clone(), until));
            }
            return Some(until);
        }
        // What ran out before this process saw it run is no news.
        if known.is_some() {
            let duration = value.to_owned();
            observe(input, target, Reason::ProtectionElapsed { duration }, step);
        }
        self.running.remove(key);
        None
    }
}

/// The pod's protection matters: it is active on a node that we may disrupt.
fn concerns(snapshot: &Snapshot, pod: &Pod) -> bool {
    let node = pod.node.as_ref().filter(|_| pod.do_not_disrupt.is_some());
    let state_node = node.and_then(|node| snapshot.node(node));
    pod.is_active() && state_node.is_some_and(|state_node| state_node.claim.is_some())
}

fn observe(input: &StepInput<'_>, pod: ObjectRef, fact: Reason, step: &mut Step) {
    let (by, verdict) = (DeciderId::Conditions, Verdict::Observed);
    step.announce(input, by, [pod], verdict, vec![fact]);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tests::cluster;
    use mortise_apis::labels;
    use mortise_sim::test_cluster::TestCluster;

    fn marked(value: &str) -> Value {
        json!({ "metadata": { "annotations": { labels::DO_NOT_DISRUPT: value } } })
    }

    fn told(world: &TestCluster) -> Vec<(&str, String)> {
        let events = world.events();
        let about_pods = events.filter(|event| event.target.kind() == "Pod");
        about_pods
            .map(|event| (&*event.reason, event.message.clone()))
            .collect()
    }

    #[test]
    fn a_protection_is_told_when_it_runs_and_when_it_is_over() {
        let mut world = cluster();
        let node = world.up("c", &json!({}));
        world.pod("web", &node, &marked("30m"));
        world.settle();
        let until = after(world.now(), 30 * 60_000).strftime("%Y-%m-%dT%H:%M:%SZ");
        let runs = (
            "DoNotDisruptUntil",
            format!("Pod is not disrupted before {until}"),
        );
        assert_eq!(told(&world), std::slice::from_ref(&runs));
        world.pass(29 * 60_000);
        assert_eq!(told(&world).len(), 1, "said once");
        world.pass(2 * 60_000);
        let over = (
            "DoNotDisruptGracePeriodElapsed",
            "Pod may be disrupted: 30m since its start are over".to_owned(),
        );
        assert_eq!(told(&world), [runs, over]);
        world.restart();
        world.pass(60_000);
        assert_eq!(told(&world).len(), 2, "over before this process began");
    }

    #[test]
    fn a_word_that_protects_no_pod_is_told() {
        let mut world = cluster();
        let node = world.up("c", &json!({}));
        world.pod("forever", &node, &marked("true"));
        world.pod("off", &node, &marked("false"));
        world.pod("typo", &node, &marked("30 minutes"));
        world.pod("elsewhere", "other", &marked("30 minutes"));
        world.pass(60_000);
        let all = told(&world);
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all[0].0, "InvalidDoNotDisruptAnnotation");
        assert!(all[0].1.contains("\"30 minutes\""), "{all:?}");
        assert!(world.events().any(|event| {
            event.reason == "InvalidDoNotDisruptAnnotation"
                && event.warning
                && event.target.to_string() == "pod/default/typo"
        }));
    }

    #[test]
    fn many_protected_pods_are_told_of_in_turns() {
        let mut world = cluster();
        let node = world.up("c", &json!({}));
        for number in 0..2 * MOST {
            world.pod(&format!("web-{number}"), &node, &marked("30m"));
        }
        world.settle();
        assert_eq!(told(&world).len(), MOST);
        world.pass(TURN_MS + 1_000);
        assert_eq!(told(&world).len(), 2 * MOST);
    }
}
