//! Buying anew what new machines with no ties between their pods were to be: of any pool, type and number.
//!
//! # Problem
//! First-fit fills a machine as long as *some* type has room, and puts pods on a machine that is being filled whatever its
//! pool costs. Pods that nothing ties to their machine can be divided among machines of other pools and types.
//!
//! # Heuristic
//! [`super::covering_solver`], over all machines whose pods are free at once. A machine is charged with a part of what machines cost
//! in the mean besides its price, so that one more is only made when it saves more than that.
//!
//! # Invariants
//! A pod goes to a machine of a pool that it could have been given first: none of higher weight takes it; or beside a pod of
//! which that is true. Where spread or affinity counts the pod, it stays in its domain. Limits hold. The plan is cheaper by
//! more than what machines more are charged with, or it stays as it was.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::covering_solver::{CoveringSolver, PackedBin};
use super::pareto_front::{ParetoFront, ParetoPoint};
use super::pattern::{BinType, ItemClass};
use crate::scheduling::in_flight_node_claim::InFlightNodeClaim;
use crate::scheduling::narrowed_template::{NarrowedTemplateId, RequirementSetId};
use crate::scheduling::pass::{Pass, PlacementTarget};
use crate::scheduling::pod_requirements::PodRequirementsId;
use crate::scheduling::pool_template::PoolTemplate;
use crate::scheduling::resource_vector::{ResourceVector, add, fit};
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_state::catalog::Bits;

/// A machine more must save at least this part of what machines cost in the mean.
const NODE_PENALTY_DIVISOR: i64 = 25;
/// Kinds and goods, multiplied, that are looked at at most.
const LARGEST: usize = 400_000;

/// What pods that are free have in common: what they ask, and the domains they stay in.
type ItemClassKey = (PodRequirementsId, SmallVec<[RequirementSetId; 1]>);

/// The machines that are bought anew, and what is on them.
struct CoveringProblem {
    claims: Vec<usize>,
    goods: Vec<ItemClass>,
    sorts: Vec<ItemClassKey>,
    /// By good: its pods.
    pods: Vec<Vec<usize>>,
    /// What the machines cost, charges left out.
    price: i64,
}

/// Kinds of machines, and the shape of each.
struct BinTypes {
    kinds: Vec<BinType>,
    shapes: Vec<NarrowedTemplateId>,
}

impl Pass<'_> {
    /// Divides the pods of machines whose pods are all free anew, if that is cheaper. `steps` bound the work.
    pub(super) fn repack_across_pools(&mut self, steps: u64) {
        let Some(lot) = self.lot() else {
            return;
        };
        let many = i64::try_from(lot.claims.len()).unwrap_or(i64::MAX);
        let charge = (lot.price / many / NODE_PENALTY_DIVISOR).max(1);
        let Some(market) = self.market(&lot, charge) else {
            return;
        };
        let mut purchase = CoveringSolver::new(&lot.goods, &market.kinds, steps, self.options.seed);
        let Some((price, machines)) = purchase.run() else {
            return;
        };
        if price < lot.price + charge * many {
            self.adopt(&lot, &market, &machines);
        }
    }

    /// The machines whose pods are all free; `None` when there are not two.
    fn lot(&mut self) -> Option<CoveringProblem> {
        let usable: Vec<bool> = self
            .templates
            .iter()
            .map(PoolTemplate::admits_any_type)
            .collect();
        let mut ladders: BTreeMap<NarrowedTemplateId, ParetoFront> = BTreeMap::new();
        let mut known: BTreeMap<(usize, usize, NarrowedTemplateId), Option<ItemClassKey>> =
            BTreeMap::new();
        let mut at_sort: BTreeMap<ItemClassKey, usize> = BTreeMap::new();
        let mut lot = CoveringProblem {
            claims: Vec::new(),
            goods: Vec::new(),
            sorts: Vec::new(),
            pods: Vec::new(),
            price: 0,
        };
        for at in 0..self.claims.len() {
            let claim = &self.claims[at];
            let id = claim.shape;
            let template = self.shapes.get(id).template;
            if claim.pods.is_empty() || !usable[template] || !self.is_unconstrained(at) {
                continue;
            }
            let pods = claim.pods.clone();
            let mut sorts: Vec<ItemClassKey> = Vec::with_capacity(pods.len());
            for pod in &pods {
                let key = (self.items[*pod].class, self.placed_step[*pod], id);
                let sort = match known.get(&key) {
                    Some(sort) => sort.clone(),
                    None => {
                        let sort = self.sort(key);
                        known.insert(key, sort.clone());
                        sort
                    }
                };
                sorts.extend(sort);
            }
            if sorts.len() < pods.len() {
                continue;
            }
            let ladder = ladders
                .entry(id)
                .or_insert_with(|| ParetoFront::of(self.shapes.get(id), &self.templates[template]));
            let Some(price) = ladder.price(&self.claims[at].taken) else {
                continue;
            };
            lot.price = lot.price.saturating_add(price);
            lot.claims.push(at);
            for (pod, sort) in pods.into_iter().zip(sorts) {
                let good = *at_sort.entry(sort).or_insert_with_key(|sort| {
                    lot.sorts.push(sort.clone());
                    lot.pods.push(Vec::new());
                    lot.goods.push(ItemClass {
                        amounts: self.asks.all[sort.0].requests.clone(),
                        count: 0,
                    });
                    lot.goods.len() - 1
                });
                lot.goods[good].count += 1;
                lot.pods[good].push(pod);
            }
        }
        (lot.claims.len() > 1).then_some(lot)
    }

    /// What a pod on a machine of the shape has in common with others; `None` when it is not free.
    fn sort(
        &mut self,
        (class, step, shape): (usize, usize, NarrowedTemplateId),
    ) -> Option<ItemClassKey> {
        let class = &self.classes[class];
        let step = &class.steps[step];
        let ask = &self.asks.all[step.ask];
        if !ask.ports.is_empty()
            || !ask.volumes.is_empty()
            || !ask.attach.is_empty()
            || class.class.claims_devices
        {
            return None;
        }
        let mut stays: BTreeMap<String, String> = BTreeMap::new();
        let groups = step
            .owned
            .iter()
            .chain(&class.counted_in)
            .chain(&class.anti_affinity_groups)
            .chain(&class.inverse_groups);
        for group in groups {
            let of = &self.topology.groups[*group];
            let key = &self.topology.keys[of.key];
            let [domain] = self.shapes.get(shape).values(&key.name) else {
                return None;
            };
            // Which machines a filter counts depends on more than their domain.
            if key.is_host || !of.statement.filter.is_open() {
                return None;
            }
            stays.insert(key.name.to_string(), domain.to_string());
        }
        let ask = step.ask;
        let stays = stays.into_iter().map(|(key, domain)| {
            let here: Requirements = [Requirement::is(key, domain)].into_iter().collect();
            self.shapes.add_id(&here)
        });
        Some((ask, stays.collect()))
    }

    /// What can be bought for the goods, each machine charged with `charge`; `None` when a good finds nothing, or when it is
    /// too much to look at.
    fn market(&mut self, lot: &CoveringProblem, charge: i64) -> Option<BinTypes> {
        let usable: Vec<usize> = (0..self.templates.len())
            .filter(|at| self.templates[*at].admits_any_type())
            .collect();
        // The pools of the highest weight that take a good, and the shapes that it asks for.
        let mut weights: Vec<i32> = Vec::with_capacity(lot.goods.len());
        let mut shapes: Vec<NarrowedTemplateId> = Vec::new();
        for (good, sort) in lot.goods.iter().zip(&lot.sorts) {
            let mut weight: Option<i32> = None;
            for template in &usable {
                let own = self.templates[*template].weight();
                if weight.is_some_and(|weight| own < weight) {
                    break;
                }
                let start = self.shapes.start(&self.templates, *template, None);
                if let Some(shape) = self.takes(start, sort, &good.amounts) {
                    weight = Some(own);
                    shapes.push(shape);
                }
            }
            weights.push(weight?);
        }
        shapes.sort_unstable();
        shapes.dedup();
        if shapes.len().saturating_mul(lot.goods.len()) > LARGEST {
            return None;
        }
        let mut market = BinTypes {
            kinds: Vec::new(),
            shapes: Vec::new(),
        };
        // Pools that take the same goods are one market.
        let mut goods_of: BTreeMap<(Bits, Bits), Vec<NarrowedTemplateId>> = BTreeMap::new();
        for shape in shapes {
            let (mut own, mut fillers) = (Bits::none(lot.goods.len()), Bits::none(lot.goods.len()));
            let weight = self.templates[self.shapes.get(shape).template].weight();
            for (at, sort) in lot.sorts.iter().enumerate() {
                // A pod that narrows the machine further asks for another shape.
                if self.takes(shape, sort, &lot.goods[at].amounts) == Some(shape) {
                    let first = weight >= weights[at];
                    if first {
                        own.insert(at)
                    } else {
                        fillers.insert(at)
                    }
                }
            }
            goods_of.entry((own, fillers)).or_default().push(shape);
        }
        for ((own, fillers), shapes) in goods_of {
            for (shape, rung) in self.rungs(&shapes) {
                market.shapes.push(shape);
                market.kinds.push(BinType {
                    price: rung.price.saturating_add(charge),
                    net: rung.net,
                    own: own.clone(),
                    fillers: fillers.clone(),
                });
            }
        }
        let bought = |(at, good): (usize, &ItemClass)| {
            let mut kinds = market.kinds.iter();
            kinds.any(|kind| kind.accepts(at, good))
        };
        let complete = lot.goods.iter().enumerate().all(bought);
        (complete && market.kinds.len().saturating_mul(lot.goods.len()) <= LARGEST)
            .then_some(market)
    }

    /// The types of all these shapes that are worth buying, cheapest first: each has more of something than all before it.
    fn rungs(&self, shapes: &[NarrowedTemplateId]) -> Vec<(NarrowedTemplateId, ParetoPoint)> {
        let of = |shape: NarrowedTemplateId| {
            let own = self.shapes.get(shape);
            let rungs = ParetoFront::of(own, &self.templates[own.template]).into_rungs();
            rungs.into_iter().map(move |rung| (shape, rung))
        };
        let mut all: Vec<(NarrowedTemplateId, ParetoPoint)> = shapes
            .iter()
            .copied()
            .flat_map(of)
            .filter(|(_, rung)| rung.price > 0)
            .collect();
        all.sort_by_key(|(shape, rung)| (rung.price, *shape));
        let mut kept: Vec<(NarrowedTemplateId, ParetoPoint)> = Vec::new();
        for (shape, rung) in all {
            if !kept.iter().any(|(_, cheaper)| fit(&rung.net, &cheaper.net)) {
                kept.push((shape, rung));
            }
        }
        kept
    }

    /// The shape of a machine that takes a good besides, alone if need be.
    fn takes(
        &mut self,
        shape: NarrowedTemplateId,
        (ask, stays): &ItemClassKey,
        amounts: &[i64],
    ) -> Option<NarrowedTemplateId> {
        let template = self.shapes.get(shape).template;
        let ask = &self.asks.all[*ask];
        if !ask.tolerates[self.template_taints[template]] {
            return None;
        }
        let mut next = self.shapes.after(&self.templates, shape, ask.add?)?;
        for stays in stays {
            next = self.shapes.after(&self.templates, next, *stays)?;
        }
        let of = self.shapes.get(next);
        let nothing: ResourceVector = amounts.iter().map(|_| 0).collect();
        let plain = !of.has_min_values && (!of.is_reserved || self.reservations.is_empty());
        (plain && of.has_room(&self.templates[template], &nothing, amounts, &[])).then_some(next)
    }

    /// Makes the machines the new ones. Those of the lot stay where goods do not go together after all, or where a limit of a
    /// pool is in the way of a new machine.
    fn adopt(&mut self, lot: &CoveringProblem, market: &BinTypes, machines: &[PackedBin]) {
        let mut pods: Vec<std::slice::Iter<'_, usize>> =
            lot.pods.iter().map(|pods| pods.iter()).collect();
        let mut new: Vec<InFlightNodeClaim> = Vec::with_capacity(machines.len());
        for machine in machines {
            let template = self.shapes.get(market.shapes[machine.kind]).template;
            let mut shape = self.shapes.start(&self.templates, template, None);
            let mut claim = InFlightNodeClaim {
                shape,
                taken: market.kinds[machine.kind].net.iter().map(|_| 0).collect(),
                ports: Vec::new(),
                pods: Vec::new(),
                relaxed: false,
                reservations: Vec::new(),
                counted_capacity: Resources::zero(),
            };
            for (good, number) in &machine.content {
                let amounts = &lot.goods[*good].amounts;
                let Some(next) = self.takes(shape, &lot.sorts[*good], amounts) else {
                    return;
                };
                shape = next;
                for pod in pods[*good]
                    .by_ref()
                    .take(usize::try_from(*number).unwrap_or(0))
                {
                    add(&mut claim.taken, amounts);
                    claim.pods.push(*pod);
                }
            }
            claim.shape = shape;
            claim.pods.sort_unstable();
            let of = &self.templates[template];
            let types = self
                .shapes
                .get(shape)
                .types_with_room(of, &claim.taken, &[]);
            if types.is_empty() {
                return;
            }
            claim.counted_capacity = of.most(&types);
            new.push(claim);
        }
        if !self.within_limits(lot, &new) {
            return;
        }
        for at in &lot.claims {
            self.claims[*at].pods.clear();
        }
        let mut free = lot.claims.iter();
        for claim in new {
            let at = free.next().copied().unwrap_or(self.claims.len());
            for pod in &claim.pods {
                self.placed[*pod] = Some(PlacementTarget::Claim(at));
            }
            if at < self.claims.len() {
                self.claims[at] = claim;
            } else {
                self.claims.push(claim);
            }
        }
    }

    /// Whether the limits of the pools that get machines allow them in the place of those of the lot. A pool that gets none
    /// may be over its limits.
    fn within_limits(&self, lot: &CoveringProblem, new: &[InFlightNodeClaim]) -> bool {
        let mut usage: Vec<_> = self.templates.iter().map(|of| of.usage.clone()).collect();
        for at in &lot.claims {
            let claim = &self.claims[*at];
            usage[self.shapes.get(claim.shape).template].uncount(&claim.counted_capacity);
        }
        new.iter().all(|claim| {
            let template = self.shapes.get(claim.shape).template;
            let usage = &mut usage[template];
            let admitted = usage.admits(&self.templates[template].limits, &claim.counted_capacity);
            usage.count(&claim.counted_capacity);
            admitted.is_ok()
        })
    }
}
