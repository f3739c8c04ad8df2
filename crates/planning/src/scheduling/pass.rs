//! One pass: places every pod in order, first on existing nodes, then on in-flight NodeClaims, then on a new NodeClaim.
//!
//! # Problem
//! Place pods so that each node satisfies all its pods, with as few and as cheap new nodes as possible.
//!
//! # Heuristic
//! First fit in a fixed order: existing nodes by name, in-flight NodeClaims by number of pods, NodePools by weight. A pod
//! that does not fit relaxes its preferences one by one ([`super::relax`]). A pod that depends on the topology of other
//! pods is tried again as long as any placement was made in between.
//!
//! # Cost
//! Rejections are final and remembered per requirements, so each pair of requirements and node is checked once, and
//! identical pods cost one look-up each.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use super::can_add::{AddError, ClaimState, can_add, meets};
use super::devices::{Devices, find_on_node, narrow_to_devices};
use super::equivalence_class::EquivalenceClass;
use super::existing_node::{ExistingNode, SolveContext};
use super::in_flight_node_claim::{FillOrder, InFlightNodeClaim};
use super::narrowed_template::{NarrowedTemplate, NarrowedTemplateId, NarrowedTemplates};
use super::placements::{PlacementTarget, Placements};
use super::plan::SolveOptions;
use super::pod_requirements::PodRequirementsTable;
use super::policy_room::charge;
use super::pool_template::PoolTemplate;
use super::reservations::Reservations;
use super::resource_vector::add;
use super::topology::{
    AllowedDomains, PodTopology, Topology, TopologyGroup, TopologyKey, TopologyType,
};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::Pod;

/// The domain of an existing node, for one key.
#[derive(Clone, Copy, Debug)]
pub(super) enum HostnameDomain {
    /// Not computed yet.
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
    pub(super) options: &'a SolveOptions,
    pub(super) ground: &'a SolveContext<'a>,
    pub(super) templates: Vec<PoolTemplate>,
    /// Taint set of each template.
    pub(super) template_taints: Vec<usize>,
    pub(super) hosts: Vec<ExistingNode<'a>>,
    /// By key, then existing node: its domain, computed on first use.
    pub(super) host_domains: Vec<Vec<HostnameDomain>>,
    pub(super) shapes: NarrowedTemplates<'a>,
    pub(super) topology: Topology,
    pub(super) asks: PodRequirementsTable,
    pub(super) classes: Vec<EquivalenceClass<'a>>,
    pub(super) items: Vec<QueuedPod<'a>>,
    pub(super) reservations: Reservations,
    /// Devices, when pods claim any.
    pub(super) devices: Option<Box<Devices<'a>>>,
    /// Whether the pod that is being placed needs reserved capacity that other NodeClaims of the pass hold.
    pub(super) held_up: bool,
    pub(super) claims: Vec<InFlightNodeClaim>,
    pub(super) order: FillOrder,
    pub(super) placements: Placements,
    /// Time ran out.
    pub(super) stopped: bool,
}

/// How often the stop signal is checked, in pods: some microseconds each.
const STOP_EVERY: usize = 64;

impl Pass<'_> {
    /// Places the pods that can be placed.
    pub(super) fn run(&mut self, stop: &dyn Fn() -> bool) {
        self.keep_nominated_devices();
        self.keep_nominations();
        let mut queue: VecDeque<usize> = (0..self.items.len())
            .filter(|at| self.placements.is_open(*at))
            .collect();
        // If a pod returns to the front of a queue of equal length, a whole round made no progress.
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

    /// Whether an unplaced pod may fit once other pods are placed.
    fn may_wait(&self, at: usize) -> bool {
        self.classes[self.items[at].class].depends_on_batch
    }

    fn place(&mut self, at: usize) -> bool {
        let class = self.items[at].class;
        if self.options.ignore_devices && self.classes[class].class.claims_devices {
            return false;
        }
        if let Some(failed_at) = self.classes[class].failed_at
            && (!self.classes[class].depends_on_batch || failed_at == self.placements.progress())
        {
            return false;
        }
        self.held_up = false;
        for step in 0..self.classes[class].steps.len() {
            if self.place_with_step(at, class, step) {
                return true;
            }
            // Reserved capacity may be released: no reason to relax preferences.
            if self.held_up {
                break;
            }
        }
        let is_refused = self.options.refused.contains_key(&self.items[at].pod.uid);
        let is_for_existing = self.is_for_existing(at);
        let class = &mut self.classes[class];
        // Nodes that rejected this pod, and those that none is launched for, may accept others of its class.
        if !(is_refused || is_for_existing) {
            class.failed_at = Some(self.placements.progress());
        }
        class.lacks_reservation = self.held_up;
        class.depends_on_batch |= self.held_up;
        false
    }

    /// Whether no node is launched for the pod.
    fn is_for_existing(&self, at: usize) -> bool {
        let requested = self.items[at].pod.requested;
        requested.is_some_and(|room| !room.may_launch())
    }

    fn place_with_step(&mut self, at: usize, class: usize, step: usize) -> bool {
        let this = &self.classes[class];
        let Ok(allow) = self.topology.allow(&this.asking(&this.steps[step])) else {
            return false;
        };
        if let Some(host) = self.find_host(at, step, &allow) {
            self.place_on_node(at, step, host);
            return true;
        }
        if self.options.existing_only || self.is_for_existing(at) {
            return false;
        }
        if let Some((position, shape)) = self.find_claim(class, step, &allow) {
            self.place_on_claim(at, step, position, shape);
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
        let mut emptiest: Option<(i64, usize)> = None;
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
            // The domain of a node that is not launched yet may be unknown.
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
                && find_on_node(devices, ask.devices, &hosts[at], at).is_ok()
            {
                if !options.scattered {
                    return Some(at);
                }
                let free = hosts[at].free_per_mille(ground, ask);
                if emptiest.is_none_or(|(most, _)| free > most) {
                    emptiest = Some((free, at));
                }
                continue;
            }
            ask.refuse_host(at);
        }
        emptiest.map(|(_, at)| at)
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
            let Some(shape) =
                narrow_to_devices(devices, shapes, templates, ask, Some(at), claim.shape)
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
            let Some(shape) = narrow_to_devices(devices, shapes, &self.templates, ask, None, shape)
            else {
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
                // A NodePool of lower weight must not replace one whose reservation will become free.
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
                    counted_price: MicroUsd(0),
                });
                self.add_to_claim(at, step, self.claims.len() - 1, shape);
                self.order
                    .open(u32::try_from(self.claims.len() - 1).unwrap_or(u32::MAX));
                let claim = &self.claims[self.claims.len() - 1];
                let of = &mut self.templates[template];
                let types =
                    self.shapes
                        .get(shape)
                        .types_with_capacity(of, &claim.taken, &claim.ports);
                let most = of.most(&types);
                let price = of.policy_price(&types);
                of.usage.count(&most);
                charge(&mut self.templates, template, price);
                let last = self.claims.len() - 1;
                self.claims[last].counted_capacity = most;
                self.claims[last].counted_price = price;
                return true;
            }
        }
        false
    }

    pub(super) fn place_on_node(&mut self, at: usize, step: usize, to: usize) {
        let class = &self.classes[self.items[at].class];
        let ask = &self.asks.all[class.steps[step].ask];
        let host = &mut self.hosts[to];
        host.add_pod(self.ground, ask);
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
        self.record_placement(at, step, PlacementTarget::Host(to));
    }

    fn place_on_claim(
        &mut self,
        at: usize,
        step: usize,
        position: usize,
        shape: NarrowedTemplateId,
    ) {
        let claim = self.order.claims()[position] as usize;
        self.order.bump(position, self.claims[claim].pods.len());
        self.add_to_claim(at, step, claim, shape);
    }

    fn add_to_claim(&mut self, at: usize, step: usize, to: usize, shape: NarrowedTemplateId) {
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
            let types = shape.types_with_capacity(template, &claim.taken, &claim.ports);
            let holds = self
                .reservations
                .claimable(shape, template, &types, &claim.reservations);
            let holds = holds.unwrap_or_default();
            self.reservations.exchange(&claim.reservations, &holds);
            claim.reservations = holds;
        }
        if before != shape {
            self.count_newly_known(to, before);
        }
        let class = &self.classes[class];
        let shape = self.shapes.get(shape);
        let Topology { keys, groups, .. } = &mut self.topology;
        for of in class.counted_in.iter().chain(&class.anti_affinity_groups) {
            let group = &mut groups[*of];
            let key = &keys[group.key];
            if key.is_host {
                // The pod's requirements have narrowed the NodeClaim to nodes that the constraint counts.
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
        self.record_placement(at, step, PlacementTarget::Claim(to));
    }

    /// Records the placement of a pod, and uses the devices that were found for it.
    fn record_placement(&mut self, at: usize, step: usize, target: PlacementTarget) {
        let item = &self.items[at];
        let ask = self.classes[item.class].steps[step].ask;
        if self.asks.all[ask].devices.is_some()
            && let Some(devices) = &mut self.devices
        {
            devices.commit(&item.pod.uid, target);
        }
        self.placements.place(at, step, target);
    }

    /// Counts the earlier pods of a NodeClaim in groups whose domain or node filter its last pod has decided.
    fn count_newly_known(&mut self, to: usize, before: NarrowedTemplateId) {
        let (before, after) = (
            self.shapes.get(before),
            self.shapes.get(self.claims[to].shape),
        );
        let template = &self.templates[after.template];
        let Topology { keys, groups, .. } = &mut self.topology;
        // Computed once, regardless of how many pods a group counts.
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

/// The domain in which a NodeClaim's pods count for a group, if they did not before its template was narrowed.
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
