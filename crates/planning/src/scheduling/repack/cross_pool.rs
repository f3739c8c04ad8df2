//! Packs the pods of NodeClaims without constraints between pods again, into bins of any NodePool and instance type.
//!
//! # Problem
//! First fit fills a NodeClaim as long as *some* instance type has capacity, and puts pods on an open NodeClaim regardless
//! of its NodePool's prices. Pods without constraints between pods can be assigned to other NodePools and instance types.
//!
//! # Algorithm
//! [`super::covering_solver`], over all NodeClaims whose pods are unconstrained. Each bin costs a part of the average bin
//! price in addition to its own price, so that one more bin must save more than that.
//!
//! # Invariants
//! A pod goes to a NodePool that it could have been placed in first: none of higher weight accepts it; or into a bin with
//! a pod of which that is true. Where spread or affinity counts the pod, it stays in its domain. Limits are respected. The
//! plan becomes cheaper by more than the penalty of additional bins, or stays unchanged.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::covering_solver::{CoveringSolver, PackedBin};
use super::pareto_front::{ParetoFront, ParetoPoint};
use super::pattern::{BinType, ItemClass};
use super::view::RepackView;
use crate::scheduling::in_flight_node_claim::InFlightNodeClaim;
use crate::scheduling::narrowed_template::{NarrowedTemplateId, RequirementSetId};
use crate::scheduling::pod_requirements::PodRequirementsId;
use crate::scheduling::policy_room::PolicyChanges;
use crate::scheduling::pool_template::PoolTemplate;
use crate::scheduling::resource_vector::{ResourceVector, add, fit};
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_state::catalog::Bits;

/// An additional bin must save at least this part of the average bin price.
const NODE_PENALTY_DIVISOR: i64 = 25;
/// Largest product of bin types and item classes that is solved.
const MAX_PROBLEM_SIZE: usize = 400_000;

/// Key of an item class: the requirements, and the domains in which the pods stay.
type ItemClassKey = (PodRequirementsId, SmallVec<[RequirementSetId; 1]>);

/// The NodeClaims that are packed again, as a covering problem.
struct CoveringProblem {
    claims: Vec<usize>,
    classes: Vec<ItemClass>,
    keys: Vec<ItemClassKey>,
    /// By item class: its pods.
    pods: Vec<Vec<usize>>,
    /// Price of the NodeClaims, without penalties.
    price: i64,
}

/// Bin types, and the narrowed template of each.
struct BinTypes {
    kinds: Vec<BinType>,
    shapes: Vec<NarrowedTemplateId>,
}

/// The covering phase of repacking.
pub(super) struct CrossPoolRepack<'v, 'p, 'a> {
    /// The pass.
    pub(super) pass: &'v mut RepackView<'p, 'a>,
}

impl CrossPoolRepack<'_, '_, '_> {
    /// Packs the pods of NodeClaims without constraints between pods again, if that is cheaper. `steps` bound the work.
    pub(super) fn run(&mut self, steps: u64) {
        let Some(problem) = self.problem() else {
            return;
        };
        let many = i64::try_from(problem.claims.len()).unwrap_or(i64::MAX);
        let penalty = (problem.price / many / NODE_PENALTY_DIVISOR).max(1);
        let Some(bin_types) = self.bin_types(&problem, penalty) else {
            return;
        };
        let mut solver = CoveringSolver::new(
            &problem.classes,
            &bin_types.kinds,
            steps,
            self.pass.options.seed,
        );
        let Some((price, bins)) = solver.run() else {
            return;
        };
        if price < problem.price + penalty * many {
            self.adopt(&problem, &bin_types, &bins);
        }
    }

    /// The problem of all NodeClaims whose pods are unconstrained; `None` when there are too few to
    /// save anything.
    fn problem(&mut self) -> Option<CoveringProblem> {
        let usable: Vec<bool> = self
            .pass
            .templates
            .iter()
            .map(PoolTemplate::admits_any_type)
            .collect();
        let mut fronts: BTreeMap<NarrowedTemplateId, ParetoFront> = BTreeMap::new();
        let mut known: BTreeMap<(usize, usize, NarrowedTemplateId), Option<ItemClassKey>> =
            BTreeMap::new();
        let mut index_of_class: BTreeMap<ItemClassKey, usize> = BTreeMap::new();
        let mut problem = CoveringProblem {
            claims: Vec::new(),
            classes: Vec::new(),
            keys: Vec::new(),
            pods: Vec::new(),
            price: 0,
        };
        for at in 0..self.pass.claims.len() {
            let claim = &self.pass.claims[at];
            let id = claim.shape;
            let template = self.pass.shapes.get(id).template;
            if claim.pods.is_empty() || !usable[template] || !self.pass.is_unconstrained(at) {
                continue;
            }
            let pods = claim.pods.clone();
            let mut keys: Vec<ItemClassKey> = Vec::with_capacity(pods.len());
            for pod in &pods {
                let (class, step) = self.pass.class_and_step(*pod);
                let key = (class, step, id);
                let class_key = match known.get(&key) {
                    Some(class_key) => class_key.clone(),
                    None => {
                        let class_key = self.class_key(key);
                        known.insert(key, class_key.clone());
                        class_key
                    }
                };
                keys.extend(class_key);
            }
            if keys.len() < pods.len() {
                continue;
            }
            let front = fronts.entry(id).or_insert_with(|| {
                ParetoFront::new(self.pass.shapes.get(id), &self.pass.templates[template])
            });
            let Some(price) = front.price(&self.pass.claims[at].taken) else {
                continue;
            };
            problem.price = problem.price.saturating_add(price);
            problem.claims.push(at);
            for (pod, class_key) in pods.into_iter().zip(keys) {
                let class = *index_of_class
                    .entry(class_key)
                    .or_insert_with_key(|class_key| {
                        problem.keys.push(class_key.clone());
                        problem.pods.push(Vec::new());
                        problem.classes.push(ItemClass {
                            amounts: self.pass.asks.all[class_key.0].requests.clone(),
                            count: 0,
                        });
                        problem.classes.len() - 1
                    });
                problem.classes[class].count += 1;
                problem.pods[class].push(pod);
            }
        }
        let least = if self.pass.options.split { 1 } else { 2 };
        (problem.claims.len() >= least).then_some(problem)
    }

    /// The item class of a pod on a NodeClaim with this template; `None` when the pod is constrained.
    fn class_key(
        &mut self,
        (class, step, shape): (usize, usize, NarrowedTemplateId),
    ) -> Option<ItemClassKey> {
        let class = &self.pass.classes[class];
        let step = &class.steps[step];
        let ask = &self.pass.asks.all[step.ask];
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
            let of = &self.pass.topology.groups[*group];
            let key = &self.pass.topology.keys[of.key];
            let [domain] = self.pass.shapes.get(shape).values(&key.name) else {
                return None;
            };
            // A node filter depends on more than the domain.
            if key.is_host || !of.statement.filter.is_open() {
                return None;
            }
            stays.insert(key.name.to_string(), domain.to_string());
        }
        let ask = step.ask;
        let stays = stays.into_iter().map(|(key, domain)| {
            let here: Requirements = [Requirement::is(key, domain)].into_iter().collect();
            self.pass.shapes.add_id(&here)
        });
        Some((ask, stays.collect()))
    }

    /// The bin types for the problem, with a penalty per bin; `None` when an item class has no bin type, or the problem is
    /// too large.
    fn bin_types(&mut self, problem: &CoveringProblem, penalty: i64) -> Option<BinTypes> {
        let usable: Vec<usize> = (0..self.pass.templates.len())
            .filter(|at| self.pass.templates[*at].admits_any_type())
            .collect();
        // The NodePools of the highest weight that accept an item class, and the templates that it needs.
        let mut weights: Vec<i32> = Vec::with_capacity(problem.classes.len());
        let mut shapes: Vec<NarrowedTemplateId> = Vec::new();
        for (class, class_key) in problem.classes.iter().zip(&problem.keys) {
            let mut weight: Option<i32> = None;
            for template in &usable {
                let own = self.pass.templates[*template].weight();
                if weight.is_some_and(|weight| own < weight) {
                    break;
                }
                let start = self.pass.shapes.start(self.pass.templates, *template, None);
                if let Some(shape) = self.shape_with(start, class_key, &class.amounts) {
                    weight = Some(own);
                    shapes.push(shape);
                }
            }
            weights.push(weight?);
        }
        shapes.sort_unstable();
        shapes.dedup();
        if shapes.len().saturating_mul(problem.classes.len()) > MAX_PROBLEM_SIZE {
            return None;
        }
        let mut bin_types = BinTypes {
            kinds: Vec::new(),
            shapes: Vec::new(),
        };
        // Templates that accept the same item classes are compared with each other.
        let mut classes_of: BTreeMap<(Bits, Bits), Vec<NarrowedTemplateId>> = BTreeMap::new();
        for shape in shapes {
            let (mut own, mut fillers) = (
                Bits::none(problem.classes.len()),
                Bits::none(problem.classes.len()),
            );
            let weight = self.pass.templates[self.pass.shapes.get(shape).template].weight();
            for (at, class_key) in problem.keys.iter().enumerate() {
                // An item that narrows the template further needs another template.
                if self.shape_with(shape, class_key, &problem.classes[at].amounts) == Some(shape) {
                    let first = weight >= weights[at];
                    if first {
                        own.insert(at)
                    } else {
                        fillers.insert(at)
                    }
                }
            }
            classes_of.entry((own, fillers)).or_default().push(shape);
        }
        for ((own, fillers), shapes) in classes_of {
            for (shape, point) in self.pareto_points(&shapes) {
                bin_types.shapes.push(shape);
                bin_types.kinds.push(BinType {
                    price: point.price.saturating_add(penalty),
                    net: point.net,
                    own: own.clone(),
                    fillers: fillers.clone(),
                });
            }
        }
        let is_covered = |(at, class): (usize, &ItemClass)| {
            let mut kinds = bin_types.kinds.iter();
            kinds.any(|kind| kind.accepts(at, class))
        };
        let complete = problem.classes.iter().enumerate().all(is_covered);
        (complete
            && bin_types.kinds.len().saturating_mul(problem.classes.len()) <= MAX_PROBLEM_SIZE)
            .then_some(bin_types)
    }

    /// The Pareto front over all these templates, cheapest first: each instance type has more of some resource than all
    /// before it.
    fn pareto_points(
        &self,
        shapes: &[NarrowedTemplateId],
    ) -> Vec<(NarrowedTemplateId, ParetoPoint)> {
        let of = |shape: NarrowedTemplateId| {
            let own = self.pass.shapes.get(shape);
            let points = ParetoFront::new(own, &self.pass.templates[own.template]).into_points();
            points.into_iter().map(move |point| (shape, point))
        };
        let mut all: Vec<(NarrowedTemplateId, ParetoPoint)> = shapes
            .iter()
            .copied()
            .flat_map(of)
            .filter(|(_, point)| point.price > 0)
            .collect();
        all.sort_by_key(|(shape, point)| (point.price, *shape));
        let mut kept: Vec<(NarrowedTemplateId, ParetoPoint)> = Vec::new();
        for (shape, point) in all {
            if !kept
                .iter()
                .any(|(_, cheaper)| fit(&point.net, &cheaper.net))
            {
                kept.push((shape, point));
            }
        }
        kept
    }

    /// The narrowed template of a bin after an item is added; `None` when not even an empty one holds it.
    fn shape_with(
        &mut self,
        shape: NarrowedTemplateId,
        (ask, stays): &ItemClassKey,
        amounts: &[i64],
    ) -> Option<NarrowedTemplateId> {
        let template = self.pass.shapes.get(shape).template;
        let ask = &self.pass.asks.all[*ask];
        if !ask.tolerates[self.pass.template_taints[template]] {
            return None;
        }
        let mut next = self
            .pass
            .shapes
            .after(self.pass.templates, shape, ask.add?)?;
        for stays in stays {
            next = self.pass.shapes.after(self.pass.templates, next, *stays)?;
        }
        let of = self.pass.shapes.get(next);
        let nothing: ResourceVector = amounts.iter().map(|_| 0).collect();
        let plain = !of.has_min_values && (!of.is_reserved || self.pass.reservations.is_empty());
        (plain && of.has_capacity(&self.pass.templates[template], &nothing, amounts, &[]))
            .then_some(next)
    }

    /// Replaces the NodeClaims of the problem with the bins, unless items turn out to be incompatible, or a limit of a
    /// NodePool excludes a bin.
    fn adopt(&mut self, problem: &CoveringProblem, bin_types: &BinTypes, bins: &[PackedBin]) {
        let mut pods: Vec<std::slice::Iter<'_, usize>> =
            problem.pods.iter().map(|pods| pods.iter()).collect();
        let mut new: Vec<InFlightNodeClaim> = Vec::with_capacity(bins.len());
        for bin in bins {
            let template = self.pass.shapes.get(bin_types.shapes[bin.kind]).template;
            let mut shape = self.pass.shapes.start(self.pass.templates, template, None);
            let mut claim = InFlightNodeClaim {
                shape,
                taken: bin_types.kinds[bin.kind].net.iter().map(|_| 0).collect(),
                ports: Vec::new(),
                pods: Vec::new(),
                relaxed: false,
                reservations: Vec::new(),
                counted_capacity: Resources::zero(),
                counted_price: MicroUsd(0),
            };
            for (class, number) in &bin.content {
                let amounts = &problem.classes[*class].amounts;
                let Some(next) = self.shape_with(shape, &problem.keys[*class], amounts) else {
                    return;
                };
                shape = next;
                for pod in pods[*class]
                    .by_ref()
                    .take(usize::try_from(*number).unwrap_or(0))
                {
                    add(&mut claim.taken, amounts);
                    claim.pods.push(*pod);
                }
            }
            claim.shape = shape;
            claim.pods.sort_unstable();
            let of = &self.pass.templates[template];
            let types = self
                .pass
                .shapes
                .get(shape)
                .types_with_capacity(of, &claim.taken, &[]);
            if types.is_empty() {
                return;
            }
            claim.counted_capacity = of.most(&types);
            claim.counted_price = of.policy_price(&types);
            new.push(claim);
        }
        if !self.are_limits_kept(problem, &new) {
            return;
        }
        for at in &problem.claims {
            self.pass.claims[*at].pods.clear();
        }
        let mut free = problem.claims.iter();
        for claim in new {
            let at = free.next().copied().unwrap_or(self.pass.claims.len());
            for pod in &claim.pods {
                self.pass.placements.move_to_claim(*pod, at);
            }
            if at < self.pass.claims.len() {
                self.pass.claims[at] = claim;
            } else {
                self.pass.claims.push(claim);
            }
        }
    }

    /// Whether the limits of the NodePools that get NodeClaims allow them in place of those of the problem. A NodePool
    /// that gets none may exceed its limits.
    fn are_limits_kept(&self, problem: &CoveringProblem, new: &[InFlightNodeClaim]) -> bool {
        let mut usage: Vec<_> = self
            .pass
            .templates
            .iter()
            .map(|of| of.usage.clone())
            .collect();
        let mut changes = PolicyChanges::default();
        for at in &problem.claims {
            let claim = &self.pass.claims[*at];
            let template = self.pass.shapes.get(claim.shape).template;
            usage[template].uncount(&claim.counted_capacity);
            changes.add(&self.pass.templates[template], claim.counted_price, -1);
        }
        for claim in new {
            let template = self.pass.shapes.get(claim.shape).template;
            changes.add(&self.pass.templates[template], claim.counted_price, 1);
        }
        let is_allowed = changes.are_allowed(self.pass.templates);
        is_allowed
            && new.iter().all(|claim| {
                let template = self.pass.shapes.get(claim.shape).template;
                let usage = &mut usage[template];
                let admitted = usage.admits(
                    &self.pass.templates[template].limits,
                    &claim.counted_capacity,
                );
                usage.count(&claim.counted_capacity);
                admitted.is_ok()
            })
    }
}
