//! One pass: every pod in order, first on machines that are there or coming, then on machines of this pass, then on a new
//! one.
//!
//! # Problem
//! Place pods on machines so that each machine satisfies all its pods, with as few and as cheap new machines as possible.
//!
//! # Heuristic
//! First fit in a fixed order: existing machines by name, new ones by number of pods, pools by weight. A pod that finds no
//! place gives up wishes one by one ([`super::relax`]). A pod that waits for where others go is tried again as long as
//! anything was placed in between.
//!
//! # Cost
//! Refusals are final and remembered per ask, so each (ask, machine) pair is looked at once, and pods that are alike cost
//! one look-up each.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;

use super::can_add::{AddError, ClaimState, can_add, meets};
use super::devices::{Devices, give, narrowed};
use super::equivalence_class::EquivalenceClass;
use super::existing_node::{ExistingNode, SolveContext};
use super::in_flight_node_claim::{FillOrder, InFlightNodeClaim};
use super::narrowed_template::{NarrowedTemplate, NarrowedTemplateId, NarrowedTemplates};
use super::plan::SolveOptions;
use super::pod_requirements::PodRequirementsTable;
use super::pool_template::PoolTemplate;
use super::reservations::Reservations;
use super::resource_vector::add;
use super::topology::{
    AllowedDomains, PodTopology, Topology, TopologyGroup, TopologyKey, TopologyType,
};
use crate::reason::NominationFailure;
use mortise_apis::names::Uid;
use mortise_apis::resources::Resources;
use mortise_state::snapshot::{Pod, Snapshot};

/// Where a pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacementTarget {
    /// A machine that is there or coming, by index.
    Host(usize),
    /// A new machine, by index.
    Claim(usize),
}

/// The domain of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) enum HostnameDomain {
    /// Not looked at.
    Unknown,
    /// It has none, or none that is certain.
    None,
    /// Its index.
    At(u32),
}

fn domain_of(
    known: &mut HostnameDomain,
    key: &TopologyKey,
    host: &ExistingNode<'_>,
) -> Option<usize> {
    if matches!(known, HostnameDomain::Unknown) {
        let domain = host.value(&key.name).and_then(|value| key.domain(value));
        let domain = domain.and_then(|domain| u32::try_from(domain).ok());
        *known = domain.map_or(HostnameDomain::None, HostnameDomain::At);
    }
    match known {
        HostnameDomain::At(domain) => usize::try_from(*domain).ok(),
        HostnameDomain::None | HostnameDomain::Unknown => None,
    }
}

/// A pod of the pass.
#[derive(Debug)]
pub(super) struct QueuedPod<'a> {
    /// The pod.
    pub(super) pod: &'a Arc<Pod>,
    /// Index of its class.
    pub(super) class: usize,
}

/// The state of a pass.
pub(super) struct Pass<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) options: &'a SolveOptions,
    pub(super) ground: &'a SolveContext<'a>,
    pub(super) templates: Vec<PoolTemplate>,
    /// Taint profile of each template.
    pub(super) template_taints: Vec<usize>,
    pub(super) hosts: Vec<ExistingNode<'a>>,
    /// By key, then host: its domain, once somebody asked for it.
    pub(super) host_domains: Vec<Vec<HostnameDomain>>,
    pub(super) shapes: NarrowedTemplates<'a>,
    pub(super) topology: Topology,
    pub(super) asks: PodRequirementsTable,
    pub(super) classes: Vec<EquivalenceClass<'a>>,
    pub(super) items: Vec<QueuedPod<'a>>,
    pub(super) reservations: Reservations,
    /// Devices, when pods claim any.
    pub(super) devices: Option<Box<Devices<'a>>>,
    /// The pod that is being placed found only reserved capacity that others hold.
    pub(super) held_up: bool,
    pub(super) claims: Vec<InFlightNodeClaim>,
    pub(super) order: FillOrder,
    /// Where each pod goes, by its index.
    pub(super) placed: Vec<Option<PlacementTarget>>,
    /// Pods that stay where they were promised a place although nothing is known of that machine in this pass.
    pub(super) entrusted: BTreeSet<usize>,
    /// Pods that were promised a place and stay there.
    pub(super) kept: BTreeSet<usize>,
    /// Pods whose promise does not hold any more.
    pub(super) broken: Vec<(Uid, NominationFailure)>,
    /// At which step of giving up wishes it was placed, by its index.
    pub(super) placed_step: Vec<usize>,
    /// Number of placements so far.
    pub(super) progress: usize,
    /// The time ran out.
    pub(super) stopped: bool,
}

/// How often the stop signal is looked at, in pods: some microseconds each.
const STOP_EVERY: usize = 64;

impl Pass<'_> {
    /// Places what can be placed.
    pub(super) fn run(&mut self, stop: &dyn Fn() -> bool) {
        self.keep_promised_devices();
        self.keep_promises();
        let mut queue: VecDeque<usize> = (0..self.items.len())
            .filter(|at| self.placed[*at].is_none() && !self.entrusted.contains(at))
            .collect();
        // A pod that comes up again when the queue is as long as when it was put back has seen a round without progress.
        let mut length_when_put_back: Vec<Option<usize>> = vec![None; self.items.len()];
        let mut tried = 0;
        while let Some(at) = queue.front().copied() {
            if length_when_put_back[at] == Some(queue.len()) {
                break;
            }
            tried += 1;
            if tried % STOP_EVERY == 0 && stop() {
                self.stopped = true;
                break;
            }
            queue.pop_front();
            if !self.place(at) && self.may_wait(at) {
                queue.push_back(at);
                length_when_put_back[at] = Some(queue.len());
            }
        }
    }

    /// A pod that found no place may find one once others have theirs.
    fn may_wait(&self, at: usize) -> bool {
        self.classes[self.items[at].class].depends_on_batch
    }

    fn place(&mut self, at: usize) -> bool {
        let class = self.items[at].class;
        if self.options.ignore_devices && self.classes[class].class.claims_devices {
            return false;
        }
        if let Some(failed_at) = self.classes[class].failed_at
            && (!self.classes[class].depends_on_batch || failed_at == self.progress)
        {
            return false;
        }
        self.held_up = false;
        for step in 0..self.classes[class].steps.len() {
            if self.place_at(at, class, step) {
                return true;
            }
            // Reserved capacity may be given back: no reason to give up wishes.
            if self.held_up {
                break;
            }
        }
        let is_refused = self.options.refused.contains_key(&self.items[at].pod.uid);
        let class = &mut self.classes[class];
        // What one pod may not use, others of its class may.
        if !is_refused {
            class.failed_at = Some(self.progress);
        }
        class.lacks_reservation = self.held_up;
        class.depends_on_batch |= self.held_up;
        false
    }

    fn place_at(&mut self, at: usize, class: usize, step: usize) -> bool {
        let this = &self.classes[class];
        let Ok(allow) = self.topology.allow(&this.asking(&this.steps[step])) else {
            return false;
        };
        if let Some(host) = self.find_host(at, step, &allow) {
            self.put_on_host(at, step, host);
            return true;
        }
        if self.options.existing_only {
            return false;
        }
        if let Some((position, shape)) = self.find_claim(class, step, &allow) {
            self.put_on_claim(at, step, position, shape);
            return true;
        }
        self.open_claim(at, class, step, &allow)
    }

    fn find_host(&mut self, item: usize, step: usize, allow: &[AllowedDomains]) -> Option<usize> {
        let Self {
            items,
            options,
            classes,
            asks,
            hosts,
            topology,
            host_domains,
            ground,
            devices,
            ..
        } = self;
        let QueuedPod { pod, class } = &items[item];
        let refused_on = options.refused.get(&pod.uid);
        let class = &classes[*class];
        let step = &class.steps[step];
        let asking = class.asking(step);
        let rules = topology.host_rules(&asking);
        let ask = &mut asks.all[step.ask];
        for at in ask.first_host..hosts.len() {
            if ask.refused_hosts.has(at) {
                continue;
            }
            if refused_on.is_some_and(|on| on.contains(&hosts[at].node.key)) {
                continue;
            }
            if rules.iter().any(|rule| rule.refuses(at)) {
                continue;
            }
            // Of a machine that is not launched yet, no domain means that it is not known.
            let mut in_domain = |each: &AllowedDomains| match domain_of(
                &mut host_domains[each.key][at],
                &topology.keys[each.key],
                &hosts[at],
            ) {
                Some(domain) => each.domains.has(domain),
                None => each.absent && hosts[at].unlaunched.is_none(),
            };
            if !allow.iter().all(&mut in_domain) {
                continue;
            }
            if hosts[at].admits(ground, ask, at)
                && give(devices, ask.devices, &hosts[at], at).is_ok()
            {
                return Some(at);
            }
            ask.refuse_host(at);
        }
        None
    }

    fn find_claim(
        &mut self,
        class: usize,
        step: usize,
        allow: &[AllowedDomains],
    ) -> Option<(usize, NarrowedTemplateId)> {
        let Self {
            classes,
            asks,
            hosts,
            topology,
            shapes,
            templates,
            template_taints,
            claims,
            order,
            reservations,
            devices,
            ..
        } = self;
        let class = &classes[class];
        let step = &class.steps[step];
        let asking = class.asking(step);
        let rules = topology.host_rules(&asking);
        let ask = &mut asks.all[step.ask];
        for (position, at) in order.claims().iter().enumerate() {
            let at = *at as usize;
            if ask.refused_claims.has(at) {
                continue;
            }
            if rules.iter().any(|rule| rule.refuses(hosts.len() + at)) {
                continue;
            }
            let claim = &claims[at];
            if !allow.is_empty() && !meets(shapes, templates, topology, claim.shape, allow) {
                continue;
            }
            let template = shapes.get(claim.shape).template;
            let Some(shape) = narrowed(devices, shapes, templates, ask, Some(at), claim.shape)
            else {
                ask.refused_claims.insert_growing(at);
                continue;
            };
            let candidate = ClaimState {
                shape,
                taken: &claim.taken,
                ports: &claim.ports,
                relax: false,
                reservations,
                held: &claim.reservations,
            };
            let found = if ask.tolerates[template_taints[template]] {
                can_add(shapes, templates, topology, &candidate, ask, allow)
            } else {
                Err(AddError::Final)
            };
            match found {
                Ok((shape, _)) => return Some((position, shape)),
                Err(AddError::Final) => ask.refused_claims.insert_growing(at),
                Err(AddError::Now | AddError::Reserved) => {}
            }
        }
        None
    }

    fn open_claim(
        &mut self,
        at: usize,
        class: usize,
        step: usize,
        allow: &[AllowedDomains],
    ) -> bool {
        let new_host = self.hosts.len() + self.claims.len();
        let this = &self.classes[class];
        let asking: PodTopology<'_> = this.asking(&this.steps[step]);
        if self
            .topology
            .host_rules(&asking)
            .iter()
            .any(|rule| rule.refuses(new_host))
        {
            return false;
        }
        let ask = &self.asks.all[this.steps[step].ask];
        if ask.volumes_exclude_new() {
            return false;
        }
        let empty: SmallVec<[i64; 6]> = ask.requests.iter().map(|_| 0).collect();
        for template in 0..self.templates.len() {
            let of = &self.templates[template];
            if !ask.tolerates[self.template_taints[template]] || of.is_full() {
                continue;
            }
            let mask = of.within_limits();
            if mask
                .as_ref()
                .is_some_and(mortise_state::catalog::Bits::is_empty)
            {
                continue;
            }
            let shape = self.shapes.start(&self.templates, template, mask);
            let (devices, shapes) = (&mut self.devices, &mut self.shapes);
            let Some(shape) = narrowed(devices, shapes, &self.templates, ask, None, shape) else {
                continue;
            };
            let candidate = ClaimState {
                shape,
                taken: &empty,
                ports: &[],
                relax: self.options.min_values_best_effort,
                reservations: &self.reservations,
                held: &[],
            };
            let taken = can_add(
                &mut self.shapes,
                &self.templates,
                &self.topology,
                &candidate,
                ask,
                allow,
            );
            if taken == Err(AddError::Reserved) {
                // A lighter pool must not be used in the place of one that only has to be waited for.
                self.held_up = true;
                return false;
            }
            if let Ok((shape, relaxed)) = taken {
                self.claims.push(InFlightNodeClaim {
                    shape,
                    taken: empty,
                    ports: Vec::new(),
                    pods: Vec::new(),
                    relaxed,
                    reservations: Vec::new(),
                    counted_capacity: Resources::zero(),
                });
                self.fill(at, step, self.claims.len() - 1, shape);
                self.order
                    .open(u32::try_from(self.claims.len() - 1).unwrap_or(u32::MAX));
                let claim = &self.claims[self.claims.len() - 1];
                let of = &mut self.templates[template];
                let types = self
                    .shapes
                    .get(shape)
                    .types_with_room(of, &claim.taken, &claim.ports);
                let most = of.most(&types);
                of.usage.count(&most);
                let last = self.claims.len() - 1;
                self.claims[last].counted_capacity = most;
                return true;
            }
        }
        false
    }

    pub(super) fn put_on_host(&mut self, at: usize, step: usize, to: usize) {
        let class = &self.classes[self.items[at].class];
        let ask = &self.asks.all[class.steps[step].ask];
        let host = &mut self.hosts[to];
        host.take(self.ground, ask);
        let Topology { keys, groups, .. } = &mut self.topology;
        for of in class.counted_in.iter().chain(&class.anti_affinity_groups) {
            let group = &mut groups[*of];
            let filter = &group.statement.filter;
            if !filter.is_open() && !filter.admits(&host.node.taints, host.labels()) {
                continue;
            }
            let key = &keys[group.key];
            if key.is_host {
                group.record(to);
                continue;
            }
            match domain_of(&mut self.host_domains[group.key][to], key, host) {
                Some(domain) => group.record(domain),
                None => group.record_possible(&host.domains(key), 1),
            }
        }
        self.give_devices(at, step, PlacementTarget::Host(to));
        self.placed[at] = Some(PlacementTarget::Host(to));
        self.progress += 1;
    }

    fn put_on_claim(&mut self, at: usize, step: usize, position: usize, shape: NarrowedTemplateId) {
        let claim = self.order.claims()[position] as usize;
        self.order.bump(position, self.claims[claim].pods.len());
        self.fill(at, step, claim, shape);
    }

    fn fill(&mut self, at: usize, step: usize, to: usize, shape: NarrowedTemplateId) {
        let class = self.items[at].class;
        let ask = &self.asks.all[self.classes[class].steps[step].ask];
        let claim = &mut self.claims[to];
        let before = std::mem::replace(&mut claim.shape, shape);
        add(&mut claim.taken, &ask.requests);
        claim.ports.extend(ask.ports.iter().cloned());
        claim.pods.push(at);
        if !self.reservations.is_empty() {
            let shape = self.shapes.get(shape);
            let template = &self.templates[shape.template];
            let types = shape.types_with_room(template, &claim.taken, &claim.ports);
            let holds = self
                .reservations
                .holds(shape, template, &types, &claim.reservations);
            let holds = holds.unwrap_or_default();
            self.reservations.exchange(&claim.reservations, &holds);
            claim.reservations = holds;
        }
        if before != shape {
            self.count_settled(to, before);
        }
        let class = &self.classes[class];
        let shape = self.shapes.get(shape);
        let Topology { keys, groups, .. } = &mut self.topology;
        for of in class.counted_in.iter().chain(&class.anti_affinity_groups) {
            let group = &mut groups[*of];
            let key = &keys[group.key];
            if key.is_host {
                // Whoever asks has narrowed the machine to one that its constraint looks at, if it comes here.
                group.record(self.hosts.len() + to);
                continue;
            }
            let values = shape.values(&key.name).iter();
            let domains: SmallVec<[usize; 4]> =
                values.filter_map(|value| key.domain(value)).collect();
            if admits_claim(group, &self.templates[shape.template], shape) {
                group.record_possible(&domains, 1);
            }
        }
        self.give_devices(at, step, PlacementTarget::Claim(to));
        self.placed[at] = Some(PlacementTarget::Claim(to));
        self.placed_step[at] = step;
        self.progress += 1;
    }

    /// The last pod settled what a machine is: in which domain, or that it is one of those that a constraint looks at.
    /// Now the pods that were there before count too.
    fn count_settled(&mut self, to: usize, before: NarrowedTemplateId) {
        let (before, after) = (
            self.shapes.get(before),
            self.shapes.get(self.claims[to].shape),
        );
        let template = &self.templates[after.template];
        let Topology { keys, groups, .. } = &mut self.topology;
        // Looked at once, however many pods a group counts.
        let mut known: SmallVec<[(usize, Option<usize>); 4]> = SmallVec::new();
        let pods = &self.claims[to].pods;
        for pod in pods.iter().take(pods.len() - 1) {
            for of in &self.classes[self.items[*pod].class].counted_in {
                let group = &mut groups[*of];
                let at = known.iter().position(|(at, _)| at == of);
                let at = at.unwrap_or_else(|| {
                    let key = &keys[group.key];
                    let domain = newly_counted(group, key, template, before, after);
                    known.push((*of, domain));
                    known.len() - 1
                });
                if let Some(domain) = known[at].1 {
                    group.record(domain);
                }
            }
        }
    }
}

/// The domain in which a new machine's pods count for a group, if they did not before its shape changed.
fn newly_counted(
    group: &TopologyGroup,
    key: &TopologyKey,
    template: &PoolTemplate,
    before: &NarrowedTemplate,
    after: &NarrowedTemplate,
) -> Option<usize> {
    let waits = matches!(
        group.statement.kind,
        TopologyType::Spread { .. } | TopologyType::Near
    );
    if key.is_host || !waits {
        return None;
    }
    let counted = |shape: &NarrowedTemplate| -> Option<usize> {
        let [only] = shape.values(&key.name) else {
            return None;
        };
        let domain = key.domain(only)?;
        admits_claim(group, template, shape).then_some(domain)
    };
    if counted(before).is_some() {
        return None;
    }
    counted(after)
}

fn admits_claim(group: &TopologyGroup, template: &PoolTemplate, shape: &NarrowedTemplate) -> bool {
    let filter = &group.statement.filter;
    filter.is_open() || filter.admits(&template.taints, &shape.requirements)
}
