//! The virtual kube-scheduler: queue, filters, scores, back-off, one pod at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_core::deciders::after;
use mortise_core::names::{NodeName, PodKey, Uid};
use mortise_core::resources::Resources;
use mortise_core::scheduling::{Room, fits};
use mortise_core::snapshot::{Pod, Snapshot, StateNode};
use mortise_core::taints;

use crate::extender::Extender;

/// First and longest back-off of a pod that fitted nowhere.
const BACKOFF_MS: (i64, i64) = (1_000, 10_000);
/// What the extender's score is worth beside the in-tree score of 0 to 100: weight 5, times 10.
const EXTENDER_WEIGHT: i64 = 50;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    failures: u32,
    until: Timestamp,
}

/// Queue and assumptions.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    waiting: BTreeMap<PodKey, Waiting>,
    /// Bound, but not in the snapshot yet.
    assumed: BTreeMap<Uid, (NodeName, Arc<Pod>)>,
}

/// What became of one pod.
pub(crate) enum Verdict {
    /// Goes to a node.
    Bind(Arc<Pod>, NodeName),
    /// Fits nowhere.
    Unschedulable(Arc<Pod>),
}

impl Scheduler {
    /// Forgets back-offs: something changed that may help.
    pub(crate) fn wake_all(&mut self, now: Timestamp) {
        for waiting in self.waiting.values_mut() {
            waiting.until = waiting.until.min(after(now, BACKOFF_MS.0));
        }
    }

    /// The next pod to look at: by priority, then age, then name.
    fn next(&mut self, snapshot: &Snapshot, now: Timestamp) -> Option<Arc<Pod>> {
        self.assumed.retain(|uid, (_, pod)| {
            snapshot
                .pods
                .get(&pod.key)
                .is_some_and(|known| known.uid == *uid && known.node.is_none())
        });
        self.waiting.retain(|key, _| snapshot.pending.contains(key));
        let ready = snapshot.pending.values().filter(|pod| {
            !self.assumed.contains_key(&pod.uid)
                && self
                    .waiting
                    .get(&pod.key)
                    .is_none_or(|waiting| waiting.until <= now)
        });
        ready
            .min_by_key(|pod| (-i64::from(pod.class.priority), pod.created, pod.key.clone()))
            .cloned()
    }

    /// One scheduling cycle.
    pub(crate) fn cycle(
        &mut self,
        snapshot: &Arc<Snapshot>,
        now: Timestamp,
        extender: Option<&dyn Extender>,
        object: impl Fn(&PodKey) -> Option<mortise_core::apis::k8s::Pod>,
    ) -> Option<Verdict> {
        let pod = self.next(snapshot, now)?;
        let mut feasible: Vec<(String, i64)> = Vec::new();
        let mut machines: Vec<&Arc<StateNode>> = snapshot
            .nodes
            .values()
            .filter(|node| node.node.is_some())
            .collect();
        machines.sort_by(|a, b| a.key.cmp(&b.key));
        for machine in machines {
            if let (Some(name), Some(score)) = (machine.node_name(), self.in_tree(&pod, machine)) {
                feasible.push((name.to_string(), score));
            }
        }
        if let (Some(extender), Some(body), false) =
            (extender, object(&pod.key), feasible.is_empty())
        {
            let names: Vec<String> = feasible.iter().map(|(name, _)| name.clone()).collect();
            let kept: BTreeSet<String> = extender
                .filter(snapshot, now, &body, &names)
                .into_iter()
                .collect();
            feasible.retain(|(name, _)| kept.contains(name));
            if feasible.len() > 1 {
                let names: Vec<String> = feasible.iter().map(|(name, _)| name.clone()).collect();
                let scores: BTreeMap<String, i64> = extender
                    .prioritize(snapshot, now, &body, &names)
                    .into_iter()
                    .collect();
                for (name, score) in &mut feasible {
                    *score += EXTENDER_WEIGHT * scores.get(name).copied().unwrap_or(0);
                }
            }
        }
        let best = feasible
            .into_iter()
            .max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        Some(match best {
            Some((name, _)) => {
                let node = NodeName::from(name);
                self.waiting.remove(&pod.key);
                self.assumed
                    .insert(pod.uid.clone(), (node.clone(), Arc::clone(&pod)));
                Verdict::Bind(pod, node)
            }
            None => {
                let failures = self
                    .waiting
                    .get(&pod.key)
                    .map_or(0, |waiting| waiting.failures);
                let wait = (BACKOFF_MS.0 << failures.min(8)).min(BACKOFF_MS.1);
                self.waiting.insert(
                    pod.key.clone(),
                    Waiting {
                        failures: failures + 1,
                        until: after(now, wait),
                    },
                );
                Verdict::Unschedulable(pod)
            }
        })
    }

    /// The in-tree filters and the LeastAllocated score, or `None` when a filter says no.
    fn in_tree(&self, pod: &Pod, machine: &StateNode) -> Option<i64> {
        let node = machine.node.as_ref()?;
        if node.spec.unschedulable
            || taints::untolerated(&node.spec.taints, &pod.class.tolerations)
                .next()
                .is_some()
            || !machine.is_ready()
        {
            return None;
        }
        let name = machine.node_name()?;
        let mut free = machine.free();
        for (_, assumed) in self.assumed.values().filter(|(on, _)| *on == name) {
            free.sub_assign(&assumed.class.requests);
        }
        let ports = machine
            .pods
            .iter()
            .flat_map(|pod| pod.class.host_ports.iter().cloned())
            .collect();
        let room = Room {
            free: free.clone(),
            ports,
            closed: None,
        };
        fits(pod, machine, &room).ok()?;
        Some(least_allocated(&free, &machine.allocatable))
    }

    /// When the next pod may be looked at.
    pub(crate) fn next_due(&self, snapshot: &Snapshot, now: Timestamp) -> Option<Timestamp> {
        snapshot
            .pending
            .values()
            .filter(|pod| !self.assumed.contains_key(&pod.uid))
            .map(|pod| {
                self.waiting
                    .get(&pod.key)
                    .map_or(now, |waiting| waiting.until)
            })
            .min()
    }
}

fn least_allocated(free: &Resources, of: &Resources) -> i64 {
    let percent = |free: i64, of: i64| {
        if of <= 0 {
            0
        } else {
            (i128::from(free.max(0)) * 100 / i128::from(of)).clamp(0, 100)
        }
    };
    i64::try_from((percent(free.cpu, of.cpu) + percent(free.memory, of.memory)) / 2).unwrap_or(0)
}
