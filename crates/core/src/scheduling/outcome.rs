//! From a finished pass to its plan.

use std::sync::Arc;

use super::pass::{Pass, Target};
use super::plan::{LaunchPlan, Placement, PlannedClaim, PlannedOffering};
use crate::catalog::{Bits, Offer};
use crate::labels;
use crate::resources::Resources;
use crate::snapshot::Pod;

/// Text of an error that upstream gives when a claim cannot name enough different types.
const TOO_FEW_TYPES: &str =
    "pod didn\u{2019}t schedule because NodePool couldn\u{2019}t meet minValues requirements";

impl Pass<'_> {
    /// The plan. Claims that cannot name enough types for their minValues are dropped: their pods come back with the reason.
    pub(super) fn plan(&self) -> (LaunchPlan, Vec<(usize, String)>) {
        let mut plan = LaunchPlan::default();
        let mut dropped = Vec::new();
        for (at, target) in self.placed.iter().enumerate() {
            let Some(Target::Host(host)) = target else {
                continue;
            };
            let host = &self.hosts[*host];
            plan.placements.push(Placement {
                pod: Arc::clone(self.items[at].pod),
                node: host.node.key.clone(),
                place: host.place.clone(),
                uninitialized: !host.node.initialized,
            });
        }
        for claim in 0..self.claims.len() {
            match self.planned(claim) {
                Ok(planned) => plan.claims.push(planned),
                Err(why) => dropped.extend(
                    self.claims[claim]
                        .pods
                        .iter()
                        .map(|pod| (*pod, why.clone())),
                ),
            }
        }
        (plan, dropped)
    }

    fn planned(&self, claim: usize) -> Result<PlannedClaim, String> {
        let claim = &self.claims[claim];
        let shape = self.shapes.get(claim.shape);
        let template = &self.templates[shape.template];
        let catalog = &template.catalog;
        let types = shape.types_with_room(
            template,
            self.shapes.dimensions(),
            &claim.taken,
            &claim.ports,
        );
        let mut offers = catalog.offers_of(&types, &shape.kinds);
        let mut relaxed = claim.relaxed;
        let mut requirements = shape.requirements.clone();
        if offers.len() > self.options.max_instance_types && self.options.max_instance_types > 0 {
            offers.truncate(self.options.max_instance_types);
            if let Err(short) =
                catalog.check_min_values_of(&named(self, shape.template, &offers), &requirements)
            {
                if !self.options.min_values_best_effort {
                    let keys: Vec<&str> = short.keys().map(|key| &**key).collect();
                    return Err(format!(
                        "{TOO_FEW_TYPES}, minValues requirement is not met for label(s) (label(s)={keys:?})"
                    ));
                }
                relaxed = true;
                for (key, left) in &short {
                    if let Some(own) = requirements.get(key).cloned() {
                        requirements.replace(own.with_min_values(u32::try_from(*left).ok()));
                    }
                }
            }
        }
        let kept = named(self, shape.template, &offers);
        let mut capacity_types: Vec<_> = shape
            .kinds
            .iter()
            .filter_map(|kind| catalog.table().kinds().get(kind))
            .filter(|kind| kind.types.meets(&kept))
            .map(|kind| kind.capacity_type)
            .collect();
        capacity_types.sort_unstable_by_key(|each| each.as_str());
        capacity_types.dedup();
        for simulated in [labels::REGISTERED, labels::INITIALIZED, labels::HOSTNAME] {
            requirements.remove(simulated);
        }
        let pods: Vec<Arc<Pod>> = claim
            .pods
            .iter()
            .map(|pod| Arc::clone(self.items[*pod].pod))
            .collect();
        Ok(PlannedClaim {
            pool: template.name.clone(),
            node_class: template.pool.node_class_key(),
            requirements,
            requests: self.requests(&pods, shape.template, &types),
            instance_types: offers
                .iter()
                .map(|offer| Arc::clone(&offer.instance_type.name))
                .collect(),
            cheapest: offers.first().map(|offer| PlannedOffering {
                instance_type: Arc::clone(&offer.instance_type.name),
                zone: Arc::clone(&offer.zone),
                capacity_type: offer.capacity_type,
                price: offer.price,
            }),
            most: template.most(&kept),
            pods,
            min_values_relaxed: relaxed,
            capacity_types,
            well_known: self.snapshot.well_known.clone(),
        })
    }

    /// Requests of the pods and, of each resource, the least that DaemonSets take on the types that are left.
    fn requests(&self, pods: &[Arc<Pod>], template: usize, types: &Bits) -> Resources {
        let groups = self.templates[template]
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

fn named(pass: &Pass<'_>, template: usize, offers: &[Offer]) -> Bits {
    let catalog = &pass.templates[template].catalog;
    offers
        .iter()
        .filter_map(|offer| catalog.position(&offer.instance_type.name))
        .collect()
}
