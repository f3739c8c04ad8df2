//! Keeps nominated pods on their nodes, as long as these can run them.
//!
//! # Rule
//! Every pass checks a nomination like a new placement: topology, counting bound and nominated pods, and once the node is
//! initialized everything else (capacity, taints, labels, volumes). Before that its labels and taints are not final, and
//! its capacity was checked when its NodeClaim was planned.
//!
//! # Order
//! Older nominations first. A nomination may be valid only once another pod is counted (spread constraint, affinity), so
//! those that fail are checked again as long as any other is kept. The remaining ones are no longer valid; the same pass
//! places their pods again.
//!
//! # Cost
//! Some microseconds per nomination, per round of dependent nominations.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use super::devices::find_on_node;
use super::existing_node::SolveContext;
use super::fits::{FreeCapacity, fits};
use super::pass::{Pass, QueuedPod};
use super::placements::PlacementTarget;
use super::topology::{AllowedDomains, Topology};
use crate::reason::{FitError, NominationFailure};
use mortise_state::ledger::NominationTarget;
use mortise_state::snapshot::{Pod, StateNode};

impl Pass<'_> {
    /// Reserves the devices of nominated pods that are not part of this pass.
    pub(super) fn keep_nominated_devices(&mut self) {
        let Some(devices) = &mut self.devices else {
            return;
        };
        let snapshot = self.ground.snapshot;
        for (at, host) in self.hosts.iter().enumerate() {
            let (node, claim) = host.node.names();
            for held in snapshot.ledger.nominations_of_node(node, claim) {
                if (self.ground.is_in_pass)(&held.uid) {
                    continue;
                }
                let pod = snapshot
                    .pods
                    .get(&held.pod)
                    .filter(|pod| pod.uid == held.uid);
                let Some(pod) = pod.filter(|pod| pod.claims.is_some()) else {
                    continue;
                };
                // A nomination that is no longer valid reserves nothing.
                if let Some(ask) = devices.intern_requirements(pod)
                    && devices.find_on_node(ask, host, at).is_ok()
                {
                    devices.commit(&pod.uid, PlacementTarget::Host(at));
                }
            }
        }
    }

    /// Keeps the nominations that are valid.
    pub(super) fn keep_nominations(&mut self) {
        let mut nominated = self.nominated();
        while !nominated.is_empty() {
            let mut failed = Vec::new();
            let before = nominated.len();
            nominated.retain(|(at, host)| match self.step_on(*at, *host) {
                Ok(step) => {
                    self.place_on_node(*at, step, *host);
                    self.placements.kept.insert(*at);
                    false
                }
                Err(why) => {
                    failed.push((self.items[*at].pod.uid.clone(), why));
                    true
                }
            });
            if nominated.len() == before {
                self.placements.broken.extend(failed);
                break;
            }
        }
    }

    /// Nominated pods and their nodes, oldest nomination first. Nominations to nodes outside the pass are either invalid
    /// or trusted.
    fn nominated(&mut self) -> Vec<(usize, usize)> {
        let ledger = &self.ground.snapshot.ledger;
        if ledger.nominations().next().is_none() {
            return Vec::new();
        }
        let mut hosts: HashMap<(bool, &str), usize, FixedState> = HashMap::default();
        for (at, host) in self.hosts.iter().enumerate() {
            let (node, claim) = host.node.names();
            hosts.extend(node.map(|name| ((true, name), at)));
            hosts.extend(claim.map(|name| ((false, name), at)));
        }
        let mut nominated = Vec::new();
        let mut entrusted = Vec::new();
        let mut broken = Vec::new();
        for (at, QueuedPod { pod, .. }) in self.items.iter().enumerate() {
            let Some(nomination) = ledger.nomination(&pod.uid) else {
                continue;
            };
            let name = match &nomination.place {
                NominationTarget::Node(name) => (true, &**name),
                NominationTarget::Claim(name) => (false, &**name),
            };
            let node = self.ground.snapshot.node_at(&nomination.place);
            match (hosts.get(&name), node) {
                (Some(host), _) => nominated.push((nomination.from, at, *host)),
                (None, Some(node)) if self.is_unknown(node) => {
                    entrusted.push((at, &**node));
                }
                (None, node) => {
                    let why = node.map_or(NominationFailure::NodeGone, |on| {
                        self.nomination_failure(pod, on)
                    });
                    broken.push((pod.uid.clone(), why));
                }
            }
        }
        self.placements.broken.extend(broken);
        nominated.sort_by_key(|(from, at, _)| (*from, *at));
        let nominated = nominated.into_iter().map(|(_, at, host)| (at, host));
        let nominated = nominated.collect();
        for (at, node) in entrusted {
            self.entrust(at, node);
        }
        nominated
    }

    /// Whether a node is not launched and the pass does not know its NodePool or instance types.
    fn is_unknown(&self, node: &StateNode) -> bool {
        node.node.is_none()
            && node.provider_id().is_none()
            && !self.options.without.contains(&node.key)
            && !self.options.closed.contains(&node.key)
            && FreeCapacity::closed(self.ground.snapshot, node).is_none()
    }

    /// Trusts the nomination of a pod to such a node, and counts the pod there.
    fn entrust(&mut self, at: usize, node: &StateNode) {
        let class = &self.classes[self.items[at].class];
        let asked = node.claim.as_ref().map(|claim| claim.requirements());
        let asked = asked.unwrap_or_default();
        let Topology { keys, groups, .. } = &mut self.topology;
        for of in class.counted_in.iter().chain(&class.anti_affinity_groups) {
            let group = &mut groups[*of];
            let filter = &group.statement.filter;
            if !filter.is_open() && !filter.admits(&node.taints, &asked) {
                continue;
            }
            let key = &keys[group.key];
            if key.is_host {
                group.occupied += 1;
            } else {
                group.record_possible(&key.possible(asked.get(&key.name)), 1);
            }
        }
        self.placements.entrusted.insert(at);
    }

    /// The first relaxation step at which a pod may run on the node that it is nominated to.
    ///
    /// # Errors
    /// It may not run there at any step; the failure of the last one.
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
                failure = self.nomination_failure(pod, on.node);
                continue;
            }
            match find_on_node(&mut self.devices, ask.devices, on, host) {
                Ok(()) => return Ok(index),
                Err(missing) => failure = NominationFailure::Devices(missing),
            }
        }
        Err(failure)
    }

    /// Why a node can no longer run a pod.
    fn nomination_failure(&self, pod: &Pod, node: &StateNode) -> NominationFailure {
        let SolveContext {
            snapshot,
            daemons,
            is_in_pass,
            ..
        } = self.ground;
        if self.options.without.contains(&node.key) || self.options.closed.contains(&node.key) {
            return NominationFailure::NodeGone;
        }
        let free_capacity =
            FreeCapacity::new(snapshot, daemons, node, pod.class.priority, is_in_pass);
        match fits(pod, node, &free_capacity) {
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
