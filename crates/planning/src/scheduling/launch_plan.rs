//! Builds the launch plan of a finished pass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::in_flight_node_claim::InFlightNodeClaim;
use super::narrowed_offerings::TemplateOfferings;
use super::narrowed_template::NarrowedTemplate;
use super::pass::Pass;
use super::placements::PlacementTarget;
use super::plan::{LaunchPlan, Placement, PlannedClaim, PlannedOffering};
use super::policy_demands::{AllowedOfferings, PolicyDemands};
use super::static_claim::capacity_types;
use crate::reason::Reason;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_cloudprovider::CapacityType;
use mortise_state::catalog::Bits;
use mortise_state::snapshot::Pod;

/// Builds the plan of a finished pass.
pub(super) struct PlanBuilder<'p, 'a> {
    pass: &'p Pass<'a>,
    well_known: Arc<WellKnown>,
}

impl<'p, 'a> PlanBuilder<'p, 'a> {
    /// A builder for this pass.
    pub(super) fn new(pass: &'p Pass<'a>) -> Self {
        Self {
            pass,
            well_known: Arc::new(pass.ground.snapshot.well_known.clone()),
        }
    }

    /// The plan. A claim with too few instance types for its minValues is dropped: its pods are returned with the reason.
    pub(super) fn build(&self) -> (LaunchPlan, Vec<(usize, Reason)>) {
        let mut plan = LaunchPlan::default();
        let mut dropped = Vec::new();
        for (at, target) in self.pass.placements.targets().iter().enumerate() {
            let Some(PlacementTarget::Host(host)) = target else {
                continue;
            };
            let host = &self.pass.hosts[*host];
            let Some(place) = host.place() else {
                continue;
            };
            plan.placements.push(Placement {
                pod: Arc::clone(self.pass.items[at].pod),
                node: host.node.key.clone(),
                place,
                uninitialized: !host.node.initialized,
                kept: self.pass.placements.kept.contains(&at),
            });
        }
        let snapshot = self.pass.ground.snapshot;
        let mut demands = PolicyDemands::new(snapshot, self.pass.options);
        let filled =
            (0..self.pass.claims.len()).filter(|at| !self.pass.claims[*at].pods.is_empty());
        for claim in filled {
            match self.planned_claim(claim, &mut demands) {
                Ok(planned) => plan.claims.push(planned),
                Err(why) => dropped.extend(
                    self.pass.claims[claim]
                        .pods
                        .iter()
                        .map(|pod| (*pod, why.clone())),
                ),
            }
        }
        (plan, dropped)
    }

    fn planned_claim(
        &self,
        claim: usize,
        demands: &mut PolicyDemands,
    ) -> Result<PlannedClaim, Reason> {
        let devices = self.pass.devices.as_ref();
        let device_drivers = devices.map_or_else(Vec::new, |devices| devices.drivers_of(claim));
        let claim = &self.pass.claims[claim];
        let shape = self.pass.shapes.get(claim.shape);
        let template = &self.pass.templates[shape.template];
        let (catalog, table) = (&template.catalog, template.catalog.table());
        let mut requirements = shape.requirements.clone();
        let AllowedOfferings {
            kinds: kinds_bits,
            types,
            by_price: offers,
            paid_by,
        } = self.allowed(claim, &mut requirements, demands);
        let mut relaxed = claim.relaxed;
        let mut kept = types.clone();
        if offers.len() == self.pass.options.most_types() {
            kept = Bits::none(table.type_count());
            offers.iter().for_each(|(at, _)| kept.insert(*at));
            if let Err(short) = catalog.check_min_values_of(&kept, &requirements) {
                if !self.pass.options.min_values_best_effort {
                    let labels = short.keys().map(ToString::to_string).collect();
                    return Err(Reason::MinValuesNotMet { labels });
                }
                relaxed = true;
                for (key, left) in &short {
                    if let Some(own) = requirements.get(key).cloned() {
                        requirements.replace(own.with_min_values(u32::try_from(*left).ok()));
                    }
                }
            }
        }
        let capacity_types = capacity_types(table, &kinds_bits, &kept);
        for simulated in [labels::REGISTERED, labels::INITIALIZED, labels::HOSTNAME] {
            requirements.remove(simulated);
        }
        let pods: Vec<Arc<Pod>> = claim
            .pods
            .iter()
            .map(|pod| Arc::clone(self.pass.items[*pod].pod))
            .collect();
        let name = |at: usize| Arc::clone(&catalog.types()[at].name);
        Ok(PlannedClaim {
            pool: template.name.clone(),
            node_class: template.pool.node_class_key(),
            requirements,
            requests: self.requests(&pods, shape.template, &types),
            instance_types: offers.iter().map(|(at, _)| name(*at)).collect(),
            cheapest: offers
                .first()
                .and_then(|offer| PlannedOffering::new(catalog, offer)),
            most: template.most(&kept),
            paid_by,
            pods,
            min_values_relaxed: relaxed,
            capacity_types,
            device_drivers,
            well_known: Arc::clone(&self.well_known),
        })
    }

    /// What a NodeClaim may be launched as, by its pods, the reservations that it holds, and what policies ask for. Pins its requirements
    /// to it.
    fn allowed(
        &self,
        claim: &InFlightNodeClaim,
        requirements: &mut Requirements,
        demands: &mut PolicyDemands,
    ) -> AllowedOfferings {
        let shape = self.pass.shapes.get(claim.shape);
        let template = &self.pass.templates[shape.template];
        let table = template.catalog.table();
        let mut types = shape.types_with_capacity(template, &claim.taken, &claim.ports);
        let options = self.pass.options;
        // A NodeClaim that holds reservations is launched from one of them and nothing else.
        if !claim.reservations.is_empty() {
            let kinds = self.held_kinds(claim, shape, &types, requirements);
            types.and(&table.offered(&kinds));
            return AllowedOfferings {
                by_price: options.cheapest(&table.by_price(&types, &kinds), &types),
                kinds,
                types,
                paid_by: None,
            };
        }
        let offered = TemplateOfferings {
            id: claim.shape,
            template,
            requirements: &shape.requirements,
            kinds: &shape.kinds,
            types: &shape.types,
            by_price: shape.by_price(template),
        };
        let (snapshot, is_enough) = (
            self.pass.ground.snapshot,
            |left: &Bits, pinned: (&Requirements, &str)| self.is_enough(claim, left, pinned),
        );
        demands.narrow((snapshot, options), offered, types, requirements, is_enough)
    }

    /// Whether these types, and one value of this key, are enough for the minValues of a NodeClaim.
    fn is_enough(
        &self,
        claim: &InFlightNodeClaim,
        types: &Bits,
        pinned: (&Requirements, &str),
    ) -> bool {
        let shape = self.pass.shapes.get(claim.shape);
        let catalog = &self.pass.templates[shape.template].catalog;
        !shape.has_min_values || self.pass.options.is_enough(catalog, types, pinned)
    }

    /// The kinds of offerings of the reservations that a NodeClaim holds; pins its requirements to them.
    fn held_kinds(
        &self,
        claim: &InFlightNodeClaim,
        shape: &NarrowedTemplate,
        types: &Bits,
        requirements: &mut Requirements,
    ) -> Bits {
        let table = self.pass.templates[shape.template].catalog.table();
        let mut kinds = Bits::none(table.kinds().len());
        let mut ids: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
        for at in shape.kinds.iter() {
            let Some(kind) = table.kinds().get(at) else {
                continue;
            };
            let Some(id) = kind.reservation.as_ref() else {
                continue;
            };
            let is_held = self
                .pass
                .reservations
                .get(id)
                .is_some_and(|id| claim.reservations.contains(&id));
            if !is_held || !kind.types.meets(types) {
                continue;
            }
            kinds.insert(at);
            // The provider defines the label that carries the reservation id: it is the one with this value.
            let labels = kind.requirements.iter();
            for own in labels.filter(|own| own.values().first() == Some(id)) {
                let of = ids.entry(Arc::clone(own.shared_key())).or_default();
                of.insert(Arc::clone(id));
            }
        }
        requirements.add(Requirement::is(
            labels::CAPACITY_TYPE,
            CapacityType::Reserved.as_str(),
        ));
        for (key, of) in ids {
            requirements.add(Requirement::new(key, Operator::In, of));
        }
        kinds
    }

    /// Requests of the pods plus, per resource, the smallest DaemonSet overhead of the remaining instance types.
    fn requests(&self, pods: &[Arc<Pod>], template: usize, types: &Bits) -> Resources {
        let groups = self.pass.templates[template]
            .groups
            .iter()
            .filter(|group| group.types.meets(types));
        let least = groups
            .map(|group| group.overhead.requests.clone())
            .reduce(|least, each| least.min(&each));
        let mut total = least.unwrap_or_default();
        pods.iter()
            .for_each(|pod| total.add_assign(&pod.class.requests));
        total
    }
}
