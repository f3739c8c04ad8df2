//! Promised pods stay where they were promised a place, as long as it is a place for them.
//!
//! # Rule
//! Every pass asks of every promise what it would ask of a new placement: where other pods are, bound and promised ones, and
//! once the machine is initialized all the rest (room, taints, labels, volumes). Before that its labels and taints are not
//! yet what they will be, and what it will have was looked at when its claim was planned.
//!
//! # Order
//! Older promises first. A promise may hold only once another one has been counted (a spread constraint, a partner), so those
//! that do not are asked again as long as any was kept in between; what then remains is broken, and its pods are placed anew
//! in the same pass.
//!
//! # Cost
//! Some microseconds a promise; as often as promises depend on one another.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use super::devices::give;
use super::existing_node::SolveContext;
use super::fits::{FreeCapacity, fits};
use super::pass::{Pass, QueuedPod};
use super::topology::{AllowedDomains, Topology};
use crate::reason::{FitError, NominationFailure};
use mortise_state::ledger::NominationTarget;
use mortise_state::snapshot::{Pod, StateNode};

impl Pass<'_> {
    /// Keeps the promises that hold.
    pub(super) fn keep_promises(&mut self) {
        let mut promised = self.promised();
        while !promised.is_empty() {
            let mut failed = Vec::new();
            let before = promised.len();
            promised.retain(|(at, host)| match self.step_on(*at, *host) {
                Ok(step) => {
                    self.put_on_host(*at, step, *host);
                    self.kept.insert(*at);
                    false
                }
                Err(why) => {
                    failed.push((self.items[*at].pod.uid.clone(), why));
                    true
                }
            });
            if promised.len() == before {
                self.broken.extend(failed);
                break;
            }
        }
    }

    /// Pods with a promise on a machine of the pass, oldest promise first, and that machine. Promises on other machines are
    /// either over or taken on trust.
    fn promised(&mut self) -> Vec<(usize, usize)> {
        let ledger = &self.snapshot.ledger;
        if ledger.nominations().next().is_none() {
            return Vec::new();
        }
        let mut hosts: HashMap<(bool, &str), usize, FixedState> = HashMap::default();
        for (at, host) in self.hosts.iter().enumerate() {
            let (node, claim) = host.node.names();
            hosts.extend(node.map(|name| ((true, name), at)));
            hosts.extend(claim.map(|name| ((false, name), at)));
        }
        let mut promised = Vec::new();
        let mut entrusted = Vec::new();
        let mut broken = Vec::new();
        for (at, QueuedPod { pod, .. }) in self.items.iter().enumerate() {
            let Some(promise) = ledger.nomination(&pod.uid) else {
                continue;
            };
            let name = match &promise.place {
                NominationTarget::Node(name) => (true, &**name),
                NominationTarget::Claim(name) => (false, &**name),
            };
            let machine = self.snapshot.node_at(&promise.place);
            match (hosts.get(&name), machine) {
                (Some(host), _) => promised.push((promise.from, at, *host)),
                (None, Some(machine)) if self.is_unknown(machine) => {
                    entrusted.push((at, &**machine));
                }
                (None, machine) => {
                    let why =
                        machine.map_or(NominationFailure::NodeGone, |on| self.misfit(pod, on));
                    broken.push((pod.uid.clone(), why));
                }
            }
        }
        self.broken.extend(broken);
        promised.sort_by_key(|(from, at, _)| (*from, *at));
        let promised = promised.into_iter().map(|(_, at, host)| (at, host));
        let promised = promised.collect();
        for (at, machine) in entrusted {
            self.entrust(at, machine);
        }
        promised
    }

    /// The machine is on its way, but this pass knows nothing of what it may be: its pool or its types are not known now.
    fn is_unknown(&self, machine: &StateNode) -> bool {
        machine.node.is_none()
            && machine.provider_id().is_none()
            && !self.options.without.contains(&machine.key)
            && !self.options.closed.contains(&machine.key)
            && FreeCapacity::closed(self.snapshot, machine).is_none()
    }

    /// Leaves a pod to such a machine, and counts it there.
    fn entrust(&mut self, at: usize, machine: &StateNode) {
        let class = &self.classes[self.items[at].class];
        let asked = machine.claim.as_ref().map(|claim| claim.requirements());
        let asked = asked.unwrap_or_default();
        let Topology { keys, groups, .. } = &mut self.topology;
        for of in class.counted_in.iter().chain(&class.anti_affinity_groups) {
            let group = &mut groups[*of];
            let filter = &group.statement.filter;
            if !filter.is_open() && !filter.admits(&machine.taints, &asked) {
                continue;
            }
            let key = &keys[group.key];
            if key.is_host {
                group.occupied += 1;
            } else {
                group.record_possible(&key.possible(asked.get(&key.name)), 1);
            }
        }
        self.entrusted.insert(at);
    }

    /// The first stage of giving up wishes at which a pod may be on the machine that it was promised.
    ///
    /// # Errors
    /// It may not be there at any; what was in the way at the last.
    fn step_on(&mut self, at: usize, host: usize) -> Result<usize, NominationFailure> {
        let QueuedPod { pod, class } = &self.items[at];
        let on = &self.hosts[host];
        let refused = self.options.refused.get(&pod.uid);
        if refused.is_some_and(|refused| refused.contains(&on.node.key)) {
            return Err(NominationFailure::Rejected);
        }
        let class = &self.classes[*class];
        let mut failure = NominationFailure::Topology;
        for (index, step) in class.steps.iter().enumerate() {
            let asking = class.asking(step);
            let Ok(allow) = self.topology.allow(&asking) else {
                continue;
            };
            let rules = self.topology.host_rules(&asking);
            if rules.iter().any(|rule| rule.refuses(host)) || !self.is_in_domains(&allow, host) {
                continue;
            }
            let ask = &mut self.asks.all[step.ask];
            if on.node.initialized && !on.admits(self.ground, ask, host) {
                failure = self.misfit(pod, on.node);
                continue;
            }
            match give(&mut self.devices, ask.devices, on, host) {
                Ok(()) => return Ok(index),
                Err(missing) => failure = NominationFailure::Devices(missing),
            }
        }
        Err(failure)
    }

    /// Why a machine as it is takes a pod no more.
    fn misfit(&self, pod: &Pod, machine: &StateNode) -> NominationFailure {
        let SolveContext {
            snapshot,
            daemons,
            ours,
            ..
        } = self.ground;
        if self.options.without.contains(&machine.key) || self.options.closed.contains(&machine.key)
        {
            return NominationFailure::NodeGone;
        }
        let room = FreeCapacity::of(snapshot, daemons, machine, pod.class.priority, ours);
        match fits(pod, machine, &room) {
            Ok(()) => NominationFailure::CapacityTaken,
            Err(FitError::Closed(_)) => NominationFailure::NodeGone,
            Err(misfit) => NominationFailure::Misfit(misfit),
        }
    }

    fn is_in_domains(&self, allow: &SmallVec<[AllowedDomains; 2]>, host: usize) -> bool {
        allow.iter().all(|each| {
            let key = &self.topology.keys[each.key];
            each.suits_all(&self.hosts[host].domains(key))
        })
    }
}
