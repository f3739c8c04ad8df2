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

use super::devices::gives;
use super::fits::Room;
use super::pass::{Item, Pass};
use super::topology::{KeyAllow, Topology};
use crate::ledger::Place;
use crate::snapshot::StateNode;

impl Pass<'_> {
    /// Keeps the promises that hold.
    pub(super) fn keep_promises(&mut self) {
        let mut promised = self.promised();
        while !promised.is_empty() {
            let before = promised.len();
            promised.retain(|(at, host)| match self.step_on(*at, *host) {
                Some(step) => {
                    self.put_on_host(*at, step, *host);
                    self.kept.insert(*at);
                    false
                }
                None => true,
            });
            if promised.len() == before {
                break;
            }
        }
        let broken = promised
            .iter()
            .map(|(at, _)| self.items[*at].pod.uid.clone());
        self.broken.extend(broken);
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
                (None, _) => self.broken.push(pod.uid.clone()),
            }
        }
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
    fn step_on(&mut self, at: usize, host: usize) -> Option<usize> {
        let Item { pod, class } = &self.items[at];
        let on = &self.hosts[host];
        let refused = self.options.refused.get(&pod.uid);
        if refused.is_some_and(|refused| refused.contains(&on.node.key)) {
            return None;
        }
        let class = &self.classes[*class];
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
                continue;
            }
            if gives(&mut self.devices, ask.devices, on, host) {
                return Some(index);
            }
        }
        None
    }

    fn is_in_domains(&self, allow: &SmallVec<[KeyAllow; 2]>, host: usize) -> bool {
        allow.iter().all(|each| {
            let key = &self.topology.keys[each.key];
            each.suits_all(&self.hosts[host].domains(key))
        })
    }
}
