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
use std::fmt;

use foldhash::fast::FixedState;
use serde::Serialize;
use smallvec::SmallVec;

use super::devices::give;
use super::fits::{Misfit, Room, fits};
use super::host::Ground;
use super::pass::{Item, Pass};
use super::topology::{KeyAllow, Topology};
use crate::ledger::Place;
use crate::snapshot::{Pod, StateNode};

/// Why a promise does not hold any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unkept {
    /// The machine is gone or going.
    NoMachine,
    /// kube-scheduler refused the pod there.
    Refused,
    /// Where other pods are: spread, affinity or anti-affinity.
    OtherPods,
    /// The machine as it turned out to be is no place for the pod.
    Misfit(Misfit),
    /// Pods with older promises take its room, its ports or its volumes.
    Taken,
    /// The devices that the pod claims cannot be had there; what is missing.
    Devices(String),
}

impl fmt::Display for Unkept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMachine => "it is gone or going",
            Self::Refused => "kube-scheduler refused the pod there",
            Self::OtherPods => "spread, affinity or anti-affinity to other pods",
            Self::Misfit(misfit) => return misfit.fmt(f),
            Self::Taken => "other pods take its room, ports or volumes",
            Self::Devices(missing) => return write!(f, "devices: {missing}"),
        })
    }
}

impl Pass<'_> {
    /// Keeps the promises that hold.
    pub(super) fn keep_promises(&mut self) {
        let mut promised = self.promised();
        while !promised.is_empty() {
            let mut unkept = Vec::new();
            let before = promised.len();
            promised.retain(|(at, host)| match self.step_on(*at, *host) {
                Ok(step) => {
                    self.put_on_host(*at, step, *host);
                    self.kept.insert(*at);
                    false
                }
                Err(why) => {
                    unkept.push((self.items[*at].pod.uid.clone(), why));
                    true
                }
            });
            if promised.len() == before {
                self.broken.extend(unkept);
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
        for (at, Item { pod, .. }) in self.items.iter().enumerate() {
            let Some(promise) = ledger.nomination(&pod.uid) else {
                continue;
            };
            let name = match &promise.place {
                Place::Node(name) => (true, &**name),
                Place::Claim(name) => (false, &**name),
            };
            let machine = self.snapshot.machine_at(&promise.place);
            match (hosts.get(&name), machine) {
                (Some(host), _) => promised.push((promise.from, at, *host)),
                (None, Some(machine)) if self.is_unknown(machine) => {
                    entrusted.push((at, &**machine));
                }
                (None, machine) => {
                    let why = machine.map_or(Unkept::NoMachine, |on| self.misfit(pod, on));
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
            && Room::closed(self.snapshot, machine).is_none()
    }

    /// Leaves a pod to such a machine, and counts it there.
    fn entrust(&mut self, at: usize, machine: &StateNode) {
        let class = &self.classes[self.items[at].class];
        let asked = machine.claim.as_ref().map(|claim| claim.requirements());
        let asked = asked.unwrap_or_default();
        let Topology { keys, groups, .. } = &mut self.topology;
        for of in class.counted_in.iter().chain(&class.repels) {
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
    fn step_on(&mut self, at: usize, host: usize) -> Result<usize, Unkept> {
        let Item { pod, class } = &self.items[at];
        let on = &self.hosts[host];
        let refused = self.options.refused.get(&pod.uid);
        if refused.is_some_and(|refused| refused.contains(&on.node.key)) {
            return Err(Unkept::Refused);
        }
        let class = &self.classes[*class];
        let mut unkept = Unkept::OtherPods;
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
                unkept = self.misfit(pod, on.node);
                continue;
            }
            match give(&mut self.devices, ask.devices, on, host) {
                Ok(()) => return Ok(index),
                Err(missing) => unkept = Unkept::Devices(missing),
            }
        }
        Err(unkept)
    }

    /// Why a machine as it is takes a pod no more.
    fn misfit(&self, pod: &Pod, machine: &StateNode) -> Unkept {
        let Ground {
            snapshot,
            daemons,
            ours,
            ..
        } = self.ground;
        if self.options.without.contains(&machine.key) || self.options.closed.contains(&machine.key)
        {
            return Unkept::NoMachine;
        }
        let room = Room::of(snapshot, daemons, machine, pod.class.priority, ours);
        match fits(pod, machine, &room) {
            Ok(()) => Unkept::Taken,
            Err(Misfit::Closed(_)) => Unkept::NoMachine,
            Err(misfit) => Unkept::Misfit(misfit),
        }
    }

    fn is_in_domains(&self, allow: &SmallVec<[KeyAllow; 2]>, host: usize) -> bool {
        allow.iter().all(|each| {
            let key = &self.topology.keys[each.key];
            each.suits_all(&self.hosts[host].domains(key))
        })
    }
}
