//! Zones that are shifted away, as NodePools see them: beginning and end of each shift are announced on each NodePool that could have
//! nodes there.
//!
//! Must never: announce again what only goes on; take it for an end that a class cannot be resolved, or no longer has the zone.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::TOPOLOGY_ZONE;
use mortise_apis::names::{NodeClassKey, ObjectRef, PoolName};
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_cloudprovider::ShiftedZone;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::record::Verdict;
use mortise_planning::reason::Reason;

/// What providers say, and what NodePools were told.
#[derive(Debug, Default)]
pub(super) struct ZonalShifts {
    /// All shifts, as the newest answer for each class has them.
    of_classes: BTreeMap<NodeClassKey, Vec<ShiftedZone>>,
    /// Name of the zone by NodePool and id of the zone: shifts that were announced.
    announced: BTreeMap<(PoolName, Arc<str>), Arc<str>>,
}

impl ZonalShifts {
    /// Takes over what a provider says.
    pub(super) fn told(&mut self, class: &NodeClassKey, zones: &[ShiftedZone]) {
        self.of_classes.insert(class.clone(), zones.to_vec());
    }

    /// The class is gone.
    pub(super) fn forget(&mut self, class: &NodeClassKey) {
        self.of_classes.remove(class);
    }

    /// Announces what has begun or ended for NodePools. Cost while nothing is shifted: none.
    pub(super) fn announce(&mut self, input: &StepInput<'_>, step: &mut Step) {
        self.announce_ends(input, step);
        if self.of_classes.values().all(Vec::is_empty) {
            return;
        }
        for pool in input.snapshot.pools.values() {
            let zones = self.of_classes.get(&pool.node_class_key());
            for zone in zones.into_iter().flatten() {
                let Some(name) = zone.name.as_ref().filter(|name| allows(pool, zone, name)) else {
                    continue;
                };
                let key = (pool.name(), Arc::clone(&zone.id));
                if self.announced.contains_key(&key) {
                    continue;
                }
                let reason = Reason::ZoneShifted {
                    zone: name.to_string(),
                    id: zone.id.to_string(),
                    until: zone.until,
                };
                tell(input, step, &key.0, reason);
                self.announced.insert(key, Arc::clone(name));
            }
        }
    }

    /// Ends are announced even where the NodePool does not allow the zone any more: whoever waits for the end has seen the beginning.
    fn announce_ends(&mut self, input: &StepInput<'_>, step: &mut Step) {
        let Self {
            of_classes,
            announced,
        } = self;
        announced.retain(|(pool, id), name| {
            let Some(object) = input.snapshot.pools.get(pool) else {
                return false;
            };
            let Some(zones) = of_classes.get(&object.node_class_key()) else {
                return true;
            };
            if zones.iter().any(|zone| zone.id == *id) {
                return true;
            }
            let reason = Reason::ZoneShiftEnded {
                zone: name.to_string(),
                id: id.to_string(),
            };
            tell(input, step, pool, reason);
            false
        });
    }
}

fn tell(input: &StepInput<'_>, step: &mut Step, pool: &PoolName, reason: Reason) {
    let (by, verdict) = (DeciderId::NodeClass, Verdict::Observed);
    let target = ObjectRef::Pool(pool.clone());
    step.announce(input, by, [target], verdict, vec![reason]);
}

/// Whether nodes of a pool may be in a zone, as far as the pool says.
fn allows(pool: &NodePool, zone: &ShiftedZone, name: &str) -> bool {
    let there = [
        Requirement::is(TOPOLOGY_ZONE, name),
        Requirement::is(zone.id_label, &*zone.id),
    ];
    let there: Requirements = there.into_iter().collect();
    pool.requirements().does_intersect(&there)
}
